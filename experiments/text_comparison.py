r"""Methods against each other on texts: the machinery of `table2`.

One language model is pre-trained, and every run begins with it. Each method gets the same number of settings in a
search on validation data (one seed, short runs), recorded; the best goes on to the full length and to all seeds. A sum
of two regularizers takes the settings that its parts were given. Runs are ordinary runs of minadv in folders of their
own, so that a comparison that is killed goes on where it stopped when the same command is given again, and ``minadv
eval``, ``predict`` and ``show`` work on every one of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import reporting
from experiments.text_methods import METHODS, SUMS, Setting, regularizer, settings, weight
from minadv.backend import Array
from minadv.commands.text_settings import corpus_of
from minadv.data.documents import Corpus
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.training.optimizers import Adam
from minadv.training.schedules import ExponentialDecay
from minadv.training.text import TextRun, fit_text, pretrain_text
from minadv.training.text_task import read

RESULT = "result.json"
SEARCH_SEED = 1000


@dataclass(frozen=True)
class Preset:
    """One size of the comparison; what begins with ``lm_`` is for the language model.

    Learning rates fall to a twentieth (the classifier's) and a tenth (the language model's) by the last step, as the
    paper's nearly do over its own number of steps.
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
    candidates: int
    steps: int
    batch: int
    lr: float
    search_steps: int  # 0: no search
    seeds: int
    evaluations: int
    min_documents: int = 1
    about: str = ""


@dataclass(frozen=True)
class Job:
    """One run: a method in one setting and a seed."""

    preset: Preset
    method: str
    seed: int
    setting: Setting
    part: str  # "search" or "final"
    root: Path
    data_dir: str | None
    device: str = "cpu"

    @property
    def steps(self) -> int:
        return self.preset.search_steps if self.part == "search" else self.preset.steps

    @property
    def folder(self) -> Path:
        s = self.setting
        name = f"{self.method}-{s.p:g}-{s.delta:g}-{s.norm:g}-{s.weight:g}-seed{self.seed}".replace(" ", "_")
        return self.root / self.preset.name / self.part / name


def about_data(preset: Preset, data_dir: str | None) -> dict[str, Any]:
    """What the command line needs to know of a run's texts, so that ``minadv eval`` and the rest work on these runs."""
    cut = {"vocab_size": preset.vocab_size, "min_count": 2, "min_documents": preset.min_documents}
    return {"task": preset.name, "corpus": preset.corpus, "data_dir": data_dir, "valid_share": 0.15, **cut}


def encoder(preset: Preset, corpus: Corpus) -> dict[str, Any]:
    sizes = {"n_words": len(corpus.vocabulary), "n_embedding": preset.embed, "n_hidden": preset.hidden}
    return {**sizes, "embedding_dropout": preset.dropout, "forget_bias": preset.forget_bias}


def decay(end: float, steps: int) -> ExponentialDecay:
    """The factor a step that comes to ``end`` after so many."""
    return ExponentialDecay(end ** (1 / steps))


def pretrain(preset: Preset, *, root: Path, data_dir: str | None, device: str, workers: int | None) -> dict[str, Any]:
    """The language model that all runs begin with: trained, or found trained."""
    folder = root / preset.name / "lm"
    if (found := _found(folder, preset)) is not None:
        return found
    about = about_data(preset, data_dir)
    corpus = corpus_of(about)
    run = pretrain_text(
        TextLM(**encoder(preset, corpus), n_candidates=preset.candidates),
        corpus,
        steps=preset.lm_steps,
        batch_size=preset.lm_batch,
        T=preset.lm_window,
        optimizer=Adam(preset.lm_lr),
        step_schedule=decay(0.1, preset.lm_steps),
        eval_every=max(1, preset.lm_steps // 10),
        checkpoint_every=max(1, preset.lm_steps // 40),
        device=device,  # type: ignore[arg-type]
        about=about,
        out=folder,
        resume=True,
        workers=workers,
        progress=sys.stderr.isatty(),
    )
    curve = [(r["step"], r["train_loss"], r["valid_perplexity"]) for r in run.records]
    result = {"preset": asdict(preset), "valid": run.evaluate("valid"), "curve": curve, "facts": run.config["corpus"]}
    reporting.write_json(folder / RESULT, result)
    return result


def work(job: Job) -> dict[str, Any]:
    """Train (or find trained) one classifier; its errors with the weights of the best validation error."""
    if (found := _found(job.folder, job.preset)) is not None:
        return found
    preset, about = job.preset, about_data(job.preset, job.data_dir)
    corpus = corpus_of(about)
    run = fit_text(
        TextClassifier(**encoder(preset, corpus), n_classes=len(corpus.classes), truncate=preset.truncate),
        corpus,
        regularizer=regularizer(job.method, job.setting),
        pretrained=job.root / preset.name / "lm",
        batch_size=preset.batch,
        unlabelled_size=preset.batch,
        max_tokens=preset.max_tokens,
        steps=job.steps,
        optimizer=Adam(preset.lr),
        step_schedule=decay(0.05, job.steps),
        weight=weight(job.method, job.setting),
        eval_every=max(1, job.steps // preset.evaluations),
        keep=1,
        seed=job.seed,
        device=job.device,  # type: ignore[arg-type]
        about=about,
        out=job.folder,
        resume=True,
        workers=1,  # the runs themselves go side by side
        progress=False,
    )
    result = {
        "preset": asdict(preset),
        "method": job.method,
        "seed": job.seed,
        "setting": asdict(job.setting),
        "valid": run.evaluate("valid"),
        "curve": [(r["step"], r["train_loss"], r["regularizer"], r["valid_error"]) for r in run.records],
    }
    if job.part == "final":
        missed = wrong(run)
        result |= {"test": {"error": 100 * float(missed.mean())}, "wrong": np.flatnonzero(missed).tolist()}
    reporting.write_json(job.folder / RESULT, result)
    return result


def wrong(run: TextRun) -> Array:
    """Which test texts are classified wrongly, bool (N,)."""
    assert run.corpus is not None
    test = run.corpus.test
    found = np.zeros(len(test), dtype=bool)
    for rows, batch, logits in read(run.classifier, run.params, test, max_tokens=run.config["max_tokens"]):
        found[rows] = logits.argmax(axis=-1) != batch.targets
    return found


def _found(folder: Path, preset: Preset) -> dict[str, Any] | None:
    """The result of a finished run of this very preset."""
    path = folder / RESULT
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result if result.get("preset") == json.loads(json.dumps(asdict(preset))) else None


def search(
    preset: Preset, *, methods: Sequence[str], workers: int, root: Path, data_dir: str | None, device: str
) -> list[dict[str, Any]]:
    """Short runs of each method in each of its settings, on one seed; none if the preset has no search."""
    wanted = [m for m in METHODS if m in methods or any(m in SUMS[s] for s in methods if s in SUMS)]
    jobs = [
        Job(preset, method, SEARCH_SEED, setting, "search", root, data_dir, device)
        for method in wanted
        for setting in settings(method)
        if preset.search_steps and method not in SUMS and len(settings(method)) > 1
    ]
    return _all(jobs, workers, f"{preset.name}: settings") if jobs else []


def final(
    preset: Preset,
    searched: Sequence[dict[str, Any]],
    *,
    methods: Sequence[str],
    seeds: int,
    workers: int,
    root: Path,
    data_dir: str | None,
    device: str,
) -> list[dict[str, Any]]:
    """Every method in its best setting, for all seeds, at full length."""
    jobs = [
        Job(preset, method, seed, best_setting(searched, method), "final", root, data_dir, device)
        for seed in range(seeds)
        for method in methods
    ]
    return _all(jobs, workers, f"{preset.name}: rows")


def _all(jobs: Sequence[Job], workers: int, title: str) -> list[dict[str, Any]]:
    """Do the jobs, the long ones first, so that no worker is left with one at the end; results in the jobs' order."""
    there = [job for job in jobs if _found(job.folder, job.preset) is not None]
    if there:
        folder = there[0].root / there[0].preset.name
        said = f"{len(there)} of {len(jobs)} runs are in {folder} already and are used as they are"
        print(f"{said}; delete the folder to train anew", file=sys.stderr)
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].seed, -METHODS[jobs[n].method]))
    done = reporting.run_all(work, [jobs[n] for n in order], workers=workers, title=title)
    return [done[order.index(n)] for n in range(len(jobs))]


def best_setting(searched: Sequence[dict[str, Any]], method: str) -> Setting:
    """The setting of least validation error, then of least validation loss; of a sum, those of its parts."""
    if method in SUMS:
        add, vat = (best_setting(searched, part) for part in SUMS[method])
        return replace(add, norm=vat.norm)
    found = [r for r in searched if r["method"] == method]
    if not found:
        return settings(method)[0]
    best = min(found, key=lambda r: (r["valid"]["error"], r["valid"]["loss"]))
    return Setting(**best["setting"])


def every_row(preset: Preset, root: Path) -> list[dict[str, Any]]:
    """The results of all finished runs of full length, whichever command made them, in the order of the table.

    Runs in another setting than the one that the search chose are left out.
    """
    searched, found = (_results(preset, root / preset.name / part) for part in ("search", "final"))
    chosen = [r for r in found if Setting(**r["setting"]) == best_setting(searched, r["method"])]
    return sorted(chosen, key=lambda r: (list(METHODS).index(r["method"]), r["seed"]))


def _results(preset: Preset, folder: Path) -> list[dict[str, Any]]:
    return [r for path in sorted(folder.glob(f"*/{RESULT}")) if (r := _found(path.parent, preset)) is not None]
