r"""A trained run, of whatever family: its weights, where they came from, and what one may ask of it.

::

    run = load("runs/add")
    run.test()                                          # {'loss': ..., 'error': ...}, or a perplexity
    run.predict(x)                                      # (N, C) probabilities of sequences, or of texts
    " ".join(run.generate(20, prompt="the statement"))  # of a language model

A run's folder is that of `minadv.training.runs.folder`; its configuration says which family it belongs to and tells its
data from others, so that resuming or evaluating it on other data is an error.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Array, Device, DeviceName, choose_device, to_device, to_host
from minadv.base.checks import expect_choice
from minadv.base.pulse import doing
from minadv.base.trees import any_array, leaves
from minadv.data.vocabulary import Vocabulary
from minadv.tasks.arguments import accepted, expect_kind, expect_run
from minadv.tasks.config import build_recipe, given_or_built
from minadv.tasks.family import Family, of_kind
from minadv.tasks.needs import expect_loadable
from minadv.tasks.schema import read_config, vocabulary_of
from minadv.training.loop import Recipe, State, TrainingError, weights
from minadv.training.memory import Table
from minadv.training.parallel.inference import ask_for
from minadv.training.runs import folder
from minadv.training.runs.folder import Blank, RunError, configured_error, kind_of


@dataclass(frozen=True)
class Run:
    """A trained model, with where it came from."""

    model: Any
    params: Any = field(repr=False)  # the weights of the best validation score, on the host
    last: Any = field(repr=False)  # those of the last step; averaged, as in the evaluations, if the recipe does that
    config: dict[str, Any] = field(repr=False)  # as it stands in the run's file; without one, the settings alone
    records: list[dict[str, Any]] = field(repr=False)  # one an evaluation
    step: int
    path: Path | None = None
    data: Any = field(default=None, repr=False)

    @property
    def family(self) -> Family:
        """What the model is trained for."""
        return of_kind(kind_of(self.config))

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of a model of texts."""
        found: Vocabulary = vocabulary_of(self.config) if self.data is None else self.data.vocabulary
        return found

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers; the numbers themselves where they have no names."""
        if "classes" in self.config:
            return tuple(self.config["classes"])
        held = getattr(self.data, "classes", None)
        return held if isinstance(held, tuple) else tuple(map(str, range(self.model.n_classes)))

    def evaluate(
        self,
        part: str = "test",
        *,
        data: Any = None,
        last: bool = False,
        device: DeviceName | Device = "cpu",
        workers: int | None = None,
        **how: Any,
    ) -> dict[str, Any]:
        """Mean NLL, and error in per cent or perplexity, on a part of some data (default: those of the run).

        A classifier of sequences also takes arrays (x, y), or (x, y, lengths), and is evaluated on all of them.
        ``workers`` share the batches (default: all cores, where that pays); the numbers do not depend on them.
        """
        expect_choice("part", part, ("train", "valid", "test"))
        if data is None:
            data = self.data or open_data(self.config, self.path)
        elif self.family.whole is not None:
            data = self.family.whole(data, any_array(self.params).dtype)
        expect_kind(data, self.family)
        chosen = device if isinstance(device, Device) else choose_device(device)
        params = self.last if last else self.params
        self.expect_finite(params)
        with ask_for(workers):
            metrics = self.family.evaluate(self, data, part, params, chosen, **how)
        for name, value in metrics.items():
            if isinstance(value, float) and math.isnan(value):
                raise TrainingError(
                    f"{self.path or 'the run'}: the {part} {name} is NaN, although all weights are finite"
                )
        return metrics

    def test(self, data: Any = None, *, workers: int | None = None) -> dict[str, Any]:
        """Mean NLL, and error in per cent or perplexity, on the test part."""
        return self.evaluate("test", data=data, workers=workers)

    def on(self, device: DeviceName | Device) -> Run:
        """The same run with its weights and data on a device, where `predict`, `generate` and attacks then compute."""
        chosen = device if isinstance(device, Device) else choose_device(device)
        params, last = to_device((self.params, self.last), chosen)
        model, data = self.family.place(self.model, self.data, chosen)
        return replace(self, model=model, params=params, last=last, data=data)

    def predict(self, given: Any, *, workers: int | None = None) -> Array:
        """Class probabilities (N, C) of sequences ``(N, T, I)``, or of a list of texts."""
        self.expect_finite(self.params)
        with ask_for(workers):
            probabilities: Array = self.family.can("predict", self.path)(self, given)
        return probabilities

    def generate(self, words: int, **how: Any) -> Any:
        """Words that a language model puts after a prompt; see `minadv.tasks.language.generation.generate`."""
        self.expect_finite(self.params)
        return self.family.can("generate", self.path)(self, words, **how)

    def expect_finite(self, params: Any) -> None:
        """Raise TrainingError, which names them, if any weights are not finite: nothing can be asked of such a run."""
        bad = [name for name, a in leaves(params) if a.dtype.kind == "f" and not bool(np.isfinite(a).all())]
        if bad:
            raise TrainingError(f"{self.path or 'the run'} has weights that are not finite ({', '.join(bad)})")


def load(run: str | Path, data: Any = None, *, model: Any = None, **parts: Any) -> Run:
    """A run from its folder, at its newest sound checkpoint; raises RunError for data that are not the run's own.

    ``data``, with ``valid`` and ``test`` if they were given apart, are what `fit` was given.
    ``model`` is for a run with a model of one's own that is not registered (`minadv.register`): no run holds it.
    """
    expect_run(run)
    path = Path(run)
    config = read_config(path)
    family, recipe = of_kind(kind_of(config), path), build_recipe(config["recipe"])
    model = given_or_built(config["model"], model, "model", path)
    state = folder.restore(path, blank(path, config, recipe, model), recipe)
    if data is not None:
        data = accepted(data, family, **parts)
        family.expect_data(config, data, str(path))
    records = folder.records(path, state.step, family.metrics)
    return opened(model, state, recipe, config, records, path, data)


def open_run(run: str | Path, data_dir: str | None = None) -> Run:
    """A run with its data, found where the run found them, or in ``data_dir``."""
    config = read_config(Path(run))
    of_kind(kind_of(config), run)
    with doing("loading the data"):
        data = open_data(moved(config, data_dir), run)
    return load(run, data)


def opened(
    model: Any,
    state: State,
    recipe: Recipe,
    config: dict[str, Any],
    records: list[dict[str, Any]],
    path: Path | None,
    data: Any,
) -> Run:
    """A run as its last state and its configuration have it."""
    best = to_host(folder.best_weights(path, recipe, state))
    run = Run(model, best, to_host(weights(recipe, state)), config, records, state.step, path, data)
    has_words = "vocabulary" in config or hasattr(data, "vocabulary")
    return replace(run, model=run.family.complete(model, run.vocabulary)) if has_words else run


def blank(path: Path, config: dict[str, Any], recipe: Recipe, model: Any = None) -> Blank:
    """What a run's state looks like, for reading its checkpoints; raises ValueError if they cannot hold as much."""
    model = given_or_built(config["model"], None, "model", "the run") if model is None else model
    try:
        expect_loadable(path, model, recipe, config["dtype"])
    except ValueError as error:
        raise configured_error(path, error) from error
    params = model.init(np.random.default_rng(0), dtype=config["dtype"])
    carry = of_kind(kind_of(config)).carry(model, config)
    if "memory" in config:
        carry = Table.empty(config["memory"]["examples"], config["memory"]["units"])
    return Blank(params, carry)


def moved(config: dict[str, Any], data_dir: str | None) -> dict[str, Any]:
    """The configuration with ``data_dir`` as the folder of its data, if that is not None."""
    return config if data_dir is None else {**config, "about": {**config["about"], "data_dir": data_dir}}


def open_data(config: dict[str, Any], path: str | Path | None = None) -> Any:
    """The data that a configuration describes."""
    about = config.get("about", {})
    if not {"images", "corpus"} & about.keys():
        raise RunError(
            f"{path or 'the run'} was made in Python and does not say where its data is: open it there, with its data"
        )
    try:
        return of_kind(kind_of(config)).open_data(about)
    except ValueError as error:
        raise configured_error(Path(path or "the run"), error) from error


def digest(params: Any) -> str:
    """The SHA-256 of weights, to tell whether a run would begin with the same ones again."""
    found = hashlib.sha256()
    for name, leaf in leaves(to_host(params)):
        found.update(f"{name} {leaf.dtype} {leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()
