r"""One run of a comparison on texts: its sizes, its folder, and how it is trained or found trained."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.text_methods import Setting, regularizer, weight
from minadv.backend import Array, DeviceName
from minadv.data.texts.documents import Corpus
from minadv.influence import ZeroInfluenceWarning
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.tasks.fit import fit
from minadv.tasks.run import Run
from minadv.tasks.text.corpus import open_data
from minadv.tasks.text.pretrained import Take
from minadv.tasks.text.reading import read
from minadv.training.loop import LOG, Interrupted
from minadv.training.optimizers import Adam
from minadv.training.runs import log
from minadv.training.runs.folder import read_config
from minadv.training.schedules import ExponentialDecay

RESULT, COMPARED = "result.json", "compared.json"
ZERO_MAPS = "zero-maps.txt"
CURVE = ("step", "train_loss", "regularizer", "valid_error", "valid_loss")
"""The fields of an evaluation that a point of a result's curve has."""


@dataclass(frozen=True)
class Preset:
    """One size of the comparison; what begins with ``lm_`` is for the language model.

    Learning rates are multiplied by ``lr_decay`` and ``lm_lr_decay`` a step. ``variant`` is the form of AdD
    (`minadv.tasks.methods.VARIANTS`).
    """

    name: str
    corpus: str
    vocab_size: int | None
    embed: int
    hidden: int
    dropout: float
    max_tokens: int | None
    truncate: int | None
    forget_bias: float
    lm_steps: int
    lm_batch: int
    lm_window: int
    lm_lr: float
    lm_lr_decay: float
    candidates: int
    steps: int
    batch: int
    lrs: tuple[float, ...]
    lr_decay: float
    takes: tuple[Take, ...]
    compared: int  # the evaluation at which the settings of a method are compared, from 1; 0: no search
    seeds: int
    evaluations: int
    min_documents: int = 1
    variant: str = "minadv"
    about: str = ""

    @property
    def eval_every(self) -> int:
        """Steps between evaluations, rounded so that there are no more evaluations than the preset asks for."""
        return math.ceil(self.steps / self.evaluations)


@dataclass(frozen=True)
class Base:
    """What all rows have in common: the learning rate, and what is taken over from the language model."""

    lr: float
    take: Take


@dataclass(frozen=True)
class Job:
    """One run: a method in one setting and a seed."""

    preset: Preset
    method: str
    seed: int
    setting: Setting
    base: Base
    part: str  # "base" or "final"
    root: Path
    data_dir: str | None
    device: DeviceName = "cpu"

    @property
    def described(self) -> dict[str, Any]:
        """The description of its run that a result has."""
        which = {"method": self.method, "seed": self.seed}
        chosen = {"setting": asdict(self.setting), "base": asdict(self.base)}
        return {"preset": asdict(self.preset), **which, **chosen, "made": reporting.made(self.folder)}

    @property
    def folder(self) -> Path:
        s, base = self.setting, f"{self.base.take}-{self.base.lr:g}"
        name = f"{self.method}-{s.p:g}-{s.delta:g}-{s.norm:g}-{s.weight:g}-{base}-seed{self.seed}".replace(" ", "_")
        return self.root / self.preset.name / self.part / name


def about_data(preset: Preset, data_dir: str | None) -> dict[str, Any]:
    """What the command line needs to know of a run's texts, so that ``minadv eval`` and the rest work on these runs."""
    cut = {"vocab_size": preset.vocab_size, "min_count": 2, "min_documents": preset.min_documents}
    return {"task": preset.name, "corpus": preset.corpus, "data_dir": data_dir, "valid_share": 0.15, **cut}


def encoder(preset: Preset, corpus: Corpus) -> dict[str, Any]:
    sizes = {"n_words": len(corpus.vocabulary), "n_embedding": preset.embed, "n_hidden": preset.hidden}
    return {**sizes, "embedding_dropout": preset.dropout, "forget_bias": preset.forget_bias}


def pretrain(
    preset: Preset, *, root: Path, data_dir: str | None, device: DeviceName, workers: int | None
) -> dict[str, Any]:
    """Train the language model that all runs begin with, unless it is trained already; its results."""
    folder = root / preset.name / "lm"
    if (found := found_result(folder / RESULT, preset, OF_LM)) is not None:
        return found
    about = about_data(preset, data_dir)
    corpus = open_data(about)
    reporting.begins(folder, own=False)
    run = fit(
        TextLM(**encoder(preset, corpus), n_candidates=preset.candidates),
        corpus,
        steps=preset.lm_steps,
        batch_size=preset.lm_batch,
        T=preset.lm_window,
        optimizer=Adam(preset.lm_lr),
        step_schedule=ExponentialDecay(preset.lm_lr_decay),
        eval_every=max(1, preset.lm_steps // 10),
        checkpoint_every=max(1, preset.lm_steps // 40),
        device=device,
        about=about,
        out=folder,
        resume=True,
        workers=workers,
        progress=sys.stderr.isatty(),
    )
    curve = [(r["step"], r["train_loss"], r["valid_perplexity"]) for r in run.records]
    result = {
        "preset": asdict(preset),
        "valid": run.evaluate("valid", device=device),
        "curve": curve,
        "facts": run.config["corpus"],
    }
    result["made"] = reporting.made(folder)
    reporting.write_json(folder / RESULT, result)
    return result


def work(job: Job) -> dict[str, Any]:
    """Train one classifier, unless it is trained already; its errors with the weights of the best validation error.

    A run that chooses the base keeps the weights of the best validation loss, by which bases are compared.
    """
    if (found := found_result(job.folder / RESULT, job.preset)) is not None:
        return found
    reporting.begins(job.folder)
    with noting_zero_maps(job.folder):
        run = train(job)
    result = {
        **job.described,
        "valid": run.evaluate("valid", device=job.device),
        "curve": [tuple(r[name] for name in CURVE) for r in run.records],
        "epochs": run.records[-1]["epoch"],
        "classes": len(run.classes),
        "zero_maps": zero_maps(job.folder),
    }
    if job.part == "final":
        missed = wrong(run)
        result |= {"test": {"error": 100 * float(missed.mean())}, "wrong": np.flatnonzero(missed).tolist()}
    reporting.write_json(job.folder / RESULT, result, own=True)
    return result


def look(job: Job) -> dict[str, Any]:
    """Train a classifier up to the step at which settings are compared; its validation results there."""
    if (found := found_result(job.folder / COMPARED, job.preset)) is not None:
        return found
    stop = job.preset.compared * job.preset.eval_every

    def interrupt(record: dict[str, Any]) -> None:
        if record["step"] >= stop:
            raise KeyboardInterrupt

    record = _evaluation(job.folder, stop) if _is_of(job.folder, job.preset) else None
    if record is None:
        reporting.begins(job.folder)
        try:
            with noting_zero_maps(job.folder):
                train(job, interrupt)
        except Interrupted:
            if _evaluation(job.folder, stop) is None:  # the user pressed Ctrl-C
                raise
        record = _evaluation(job.folder, stop)
    assert record is not None
    valid = {name: record[f"valid_{name}"] for name in ("loss", "error")}
    result = {**job.described, "step": stop, "valid": valid}
    reporting.write_json(job.folder / COMPARED, result, own=True)
    return result


def _is_of(folder: Path, preset: Preset) -> bool:
    """Whether a run was begun with this very preset."""
    return (folder / LOG).exists() and read_config(folder)["about"].get("preset") == _plain(preset)


def _evaluation(folder: Path, step: int) -> dict[str, Any] | None:
    """What a run's log says of its evaluation at a step."""
    if not (folder / LOG).exists():
        return None
    return next((r for r in log.read(folder / LOG) if r["kind"] == "evaluation" and r["step"] == step), None)


def train(job: Job, on_evaluation: Callable[[dict[str, Any]], None] | None = None) -> Run:
    """Train the run of a job, from where it was left."""
    preset, about = job.preset, about_data(job.preset, job.data_dir)
    corpus = open_data(about)
    about["preset"] = _plain(preset)
    return fit(
        TextClassifier(**encoder(preset, corpus), n_classes=len(corpus.classes), truncate=preset.truncate),
        corpus,
        regularizer=regularizer(job.method, job.setting, preset.variant),
        pretrained=job.root / preset.name / "lm",
        take=job.base.take,
        batch_size=preset.batch,
        unlabelled_size=preset.batch,
        max_tokens=preset.max_tokens,
        steps=preset.steps,
        optimizer=Adam(job.base.lr),
        step_schedule=ExponentialDecay(preset.lr_decay),
        weight=weight(job.method, job.setting),
        eval_every=preset.eval_every,
        monitor="error" if job.part == "final" else "loss",
        keep=1,
        seed=job.seed,
        device=job.device,
        about=about,
        out=job.folder,
        resume=True,
        workers=1,  # several runs are trained side by side
        progress=False,
        on_evaluation=on_evaluation,
    )


@contextmanager
def noting_zero_maps(folder: Path) -> Iterator[None]:
    """Within it, every influence map that is zero leaves a line in the run's folder, where it survives a kill."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ZeroInfluenceWarning)
        others = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any, **how: Any) -> None:
            if issubclass(category, ZeroInfluenceWarning):
                with (folder / ZERO_MAPS).open("a") as file:
                    file.write(f"{message}\n")
            else:
                others(message, category, *where, **how)

        warnings.showwarning = note
        yield


def zero_maps(folder: Path) -> int:
    """How many influence maps of a run were zero; a step that was repeated after a kill counts twice."""
    path = folder / ZERO_MAPS
    return len(path.read_text().splitlines()) if path.exists() else 0


def wrong(run: Run) -> Array:
    """Which test texts are classified wrongly, bool (N,)."""
    test = run.data.test
    found = np.zeros(len(test), dtype=bool)
    for rows, targets, logits in read(run.model, run.params, test, max_tokens=run.config["max_tokens"]):
        found[rows] = logits.argmax(axis=-1) != targets
    return found


def _plain(preset: Preset) -> dict[str, Any]:
    """A preset as it comes back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(preset)))
    return plain


OF_LM = (
    *("corpus", "vocab_size", "min_documents", "embed", "hidden", "dropout", "forget_bias", "candidates"),
    *("lm_steps", "lm_batch", "lm_window", "lm_lr", "lm_lr_decay"),
)
"""The fields that the language model depends on: presets that agree in them can share one language model."""


def found_result(path: Path, preset: Preset, fields: Sequence[str] | None = None) -> dict[str, Any] | None:
    """The result of a finished run of this very preset, or of one that is the same in these fields."""
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    ours, theirs = _plain(preset), result.get("preset", {})
    return result if all(theirs.get(name) == ours[name] for name in fields or ours) else None
