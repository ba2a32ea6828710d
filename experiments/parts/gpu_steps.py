r"""Training steps of AdD, of which `experiments.launches` counts the launches and `experiments.bench.gpu` the time.

A step is that of `minadv.fit`: base and adversarial passes, gradients, checks, clipping and the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minadv.backend import Device
from minadv.base.streams import stream
from minadv.data.images import Images, Split
from minadv.data.language.corpus import Corpus
from minadv.data.vocabulary import EOS, Vocabulary
from minadv.models.classifier import Classifier
from minadv.models.language.model import LanguageModel
from minadv.regularizers import AdD
from minadv.tasks.fit import Plan, plan
from minadv.training import loop
from minadv.training.clip import Clip
from minadv.training.optimizers import SGD, RMSProp
from minadv.training.parallel.workers import OneWorker


@dataclass(frozen=True)
class Setting:
    """A network and a batch; ``words`` 0: a classifier of sequences, else a language model with all its dropouts."""

    name: str
    T: int
    B: int
    I: int
    hidden: tuple[int, ...]
    cell: str = "lstm"
    dtype: str = "float32"
    padded: bool = False
    words: int = 0
    delta: float = 0.03
    engine: Any = None

    def at(self, **changed: Any) -> Setting:
        """The same setting but for some of its fields."""
        return replace(self, **changed)


def planned(setting: Setting, device: Device) -> Plan:
    """The run whose steps are looked at; its data are random."""
    rng = stream(0, "data")
    common: dict[str, Any] = {"device": device, "steps": 10_000, "clip": Clip(1.0)}
    if setting.words:
        text = rng.integers(setting.words, size=setting.B * (3 * setting.T + 1) + 1).astype(np.int32)
        vocabulary = Vocabulary(
            (EOS, *(f"w{n}" for n in range(1, setting.words))), np.ones(setting.words, np.int64), "lines"
        )
        dropouts: dict[str, Any] = {
            "word_dropout": 0.1,
            "input_dropout": 0.4,
            "hidden_dropout": 0.3,
            "output_dropout": 0.4,
        }
        model: Any = LanguageModel(
            setting.words, setting.I, setting.hidden, **dropouts, dropconnect=0.5, engine=setting.engine
        )
        method = AdD(delta=setting.delta, share_noise=False)
        options: dict[str, Any] = {
            "batch_size": setting.B,
            "bptt": setting.T,
            "random_lengths": False,
            "dtype": setting.dtype,
        }
        data: Any = Corpus("random", text, text[:100], text[:100], vocabulary)
        return plan(model, data, regularizer=method, optimizer=SGD(1.0), **options, **common)
    n = 2 * setting.B
    x = rng.random((n, setting.T, setting.I)).astype(setting.dtype)
    lengths = np.maximum(1, setting.T - np.arange(n) % 4) if setting.padded else None
    y = np.arange(n) % 10
    part = Split(x, y, lengths)
    [H] = setting.hidden
    model = Classifier(setting.I, H, 10, cell=setting.cell, engine=setting.engine)
    method = AdD(delta=setting.delta)
    data = Images("random", 10, part, part, part)
    return plan(model, data, regularizer=method, optimizer=RMSProp(1e-3), batch_size=setting.B, **common)


def steps_of(found: Plan) -> Callable[[], Any]:
    """A function that makes one more step each time it is called, and returns the weights after it."""
    state, workers = loop.start(found.task, found.recipe), OneWorker(found.task)

    def step() -> Any:
        nonlocal state
        state, _ = loop.advance(found.task, found.recipe, state, workers)
        return state.params

    return step
