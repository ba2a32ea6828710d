r"""Methods against each other on language models: the machinery of `table3`.

Every run is an ordinary run of minadv in a folder of its own, so that a comparison that is killed goes on where it
stopped when the same command is given again. Where a preset searches, every method is tried in the same number of
settings on validation data (one seed), and the best goes on to all seeds; where it does not, the first setting does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from experiments.parts import reporting
from minadv.backend import DeviceName, to_device
from minadv.base import launch
from minadv.base.errors import DataError
from minadv.data.language import corpus, published
from minadv.data.language.corpus import Corpus
from minadv.data.language.windows import Windows
from minadv.models.language.model import LanguageModel
from minadv.regularizers import EL, FD, VD, AdD, Plain, RDrop, Regularizer
from minadv.searches import Greedy, Reselect, Search
from minadv.tasks.fit import fit
from minadv.tasks.language.finetune import finetune
from minadv.tasks.language.task import evaluate
from minadv.tasks.run import Run
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import ASGD, SGD
from minadv.training.schedules import RampDown

METHODS = ("none", "VD", "EL", "FD", "AdD K=1", "AdD K=2", "AdD reselect")
AVAILABLE = (*METHODS, "RDrop")
"""The rows that ``--methods`` may name: the table's own, and R-Drop, which is run only where it is named."""
REPEATED = ("none", "FD", "AdD K=1", "AdD reselect")
"""The methods that are run with more than one seed; for the others the time is not worth it."""

COST = {"none": 1, "VD": 1, "EL": 3, "FD": 3, "AdD K=1": 4, "AdD K=2": 6, "AdD reselect": 9, "RDrop": 3}
"""About how long a step takes: the longest runs begin first, so that no core is idle at the end."""

Results: TypeAlias = list[dict[str, Any]]

RESULT = "result.json"
SEARCH_SEED = 1000


@dataclass(frozen=True)
class Preset:
    """One size of the comparison. ``every`` is that of `minadv.tasks.language.task.LanguageTask`.

    ``fresh`` are the parts of the noise that the second pass of FD and RDrop draws anew. With all of them, and no
    recurrent mask, they are what was published; with none their passes differ in their recurrent masks alone.
    """

    name: str
    about: str
    corpus: str
    hidden: tuple[int, ...]  # units of each layer; the embedding has as many numbers as the last
    epochs: float
    dropouts: tuple[float, float, float, float, float]  # words, inputs, between layers, outputs, recurrent weights
    optimizer: str = "sgd"
    lr: float = 20.0
    weight_decay: float = 1.2e-6
    ramp_down: float = 0.5  # the share of the epochs over which the learning rate falls, to 1/130 of itself
    batch: int = 20
    bptt: int = 35
    every: int = 1
    columns: int = 1
    delta: float = 0.06
    kappa: float = 0.1  # FD's weight
    nonmono: int = 60
    fresh: tuple[str, ...] = ()
    finetune: float = 0.0  # epochs of averaged SGD after training
    seeds: int = 1
    search: bool = False
    methods: tuple[str, ...] = METHODS
    paper: tuple[tuple[str, str], ...] = ()  # the published validation and test perplexity, by method
    reach: float | None = None  # the validation perplexity that "none" has to reach

    def model(self, n_words: int) -> LanguageModel:
        words, inputs, hidden, outputs, U = self.dropouts
        return LanguageModel(
            n_words,
            self.hidden[-1],
            self.hidden,
            word_dropout=words,
            input_dropout=inputs,
            hidden_dropout=hidden,
            output_dropout=outputs,
            dropconnect=U,
        )


@dataclass(frozen=True)
class Job:
    """One run: a method in one setting, a seed. Strength is p or delta."""

    preset: Preset
    method: str
    seed: int
    strength: float
    weight: float
    part: str  # "search" or "final"
    root: Path
    data_dir: str | None
    device: DeviceName = "cpu"
    text: str = ""  # the fingerprint of the corpus
    workers: int = 1  # how many share its batches

    @property
    def folder(self) -> Path:
        name = f"{self.method}-{self.strength:g}-{self.weight:g}-seed{self.seed}".replace(" ", "_")
        return self.root / self.preset.name / self.part / name


def settings(method: str, delta: float = 0.06, fresh: bool = False, kappa: float = 0.1) -> list[tuple[float, float]]:
    """The three settings (strength, weight) that each method is tried in; the first is the one without a search.

    With ``fresh`` noise, FD and RDrop need no recurrent mask.
    """
    if method == "none":
        return [(0.0, 0.0)]
    if method == "VD":
        return [(0.1, 0.0), (0.05, 0.0), (0.2, 0.0)]
    if method == "EL":
        return [(0.1, 1.0), (0.1, 5.0), (0.2, 1.0)]
    if method == "FD":
        p, more = (0.0, 0.1) if fresh else (0.1, 0.2)
        return [(p, kappa), (p, 5 * kappa), (more, kappa)]
    if method == "RDrop":
        p, more = (0.0, 0.1) if fresh else (0.1, 0.2)
        return [(p, 1.0), (p, 5.0), (more, 1.0)]
    return [(delta, 1.0), (delta, 5.0), (2 * delta, 1.0)]


def regularizer(job: Job) -> Regularizer:
    """The regularizer of a job: those of the paper's Table 3, with the language-model form of FD, and R-Drop."""
    if job.method == "none":
        return Plain()
    if job.method == "VD":
        return VD(p=job.strength)
    if job.method == "EL":
        return EL(p=job.strength)
    if job.method == "FD":
        return FD(p=job.strength, distance="logit2", share_noise=not job.preset.fresh)
    if job.method == "RDrop":
        return RDrop(p=job.strength, share_noise=not job.preset.fresh)
    search: Search = Reselect(start="base")
    if job.method != "AdD reselect":
        search = Greedy(K=int(job.method[-1]), start="base", keep="last")
    return AdD(delta=job.strength, search=search, share_noise=False)  # words are dropped anew in the second pass


def work(job: Job) -> dict[str, Any]:
    """Train one model, unless it is trained already; its perplexities with the best weights."""
    if (found := _found(job)) is not None:
        return found
    preset, text = job.preset, corpus.load(job.preset.corpus, job.data_dir)
    model = preset.model(len(text.vocabulary))
    per_epoch = Windows(text.train, preset.batch, preset.bptt, job.seed).per_epoch
    reporting.begins(job.folder)
    how: dict[str, Any] = {
        "out": job.folder,
        "resume": True,
        "progress": False,
        "workers": job.workers,
        "device": job.device,
        "about": {"task": "lm", "corpus": preset.corpus, "data_dir": job.data_dir, "min_count": None},
    }
    run = fit(
        model,
        text,
        regularizer=regularizer(job),
        recipe=recipe(job, per_epoch),
        batch_size=preset.batch,
        bptt=preset.bptt,
        seed=job.seed,
        fresh=preset.fresh if job.method in ("FD", "RDrop") else ("words",),
        every=preset.every,
        columns=preset.columns,
        **how,
    )
    runs = {"trained": run}
    if preset.finetune:
        fine = {**how, "out": job.folder.with_name(f"{job.folder.name}-finetuned")}
        runs["finetuned"] = finetune(run, text, epochs=preset.finetune, **fine)
    last = list(runs.values())[-1]
    evaluated = {
        name: {part: one.evaluate(part, device=job.device)["perplexity"] for part in ("valid", "test")}
        for name, one in runs.items()
    }
    result = {
        "preset": asdict(preset),
        "text": text.fingerprint,
        "method": job.method,
        "seed": job.seed,
        "strength": job.strength,
        "weight": job.weight,
        "weights": model.n_params,
        "before": evaluated["trained"],
        **list(evaluated.values())[-1],
        "clean": clean(model, last, text, job),
        "train": float(np.exp(last.records[-1]["train_loss"])),  # under the noise of training
        "words_per_second": words_per_second(run, len(text.train)),
        "curve": curve(*runs.values()),
        "made": reporting.made(job.folder),
    }
    reporting.write_json(job.folder / RESULT, result, own=True)
    return result


def curve(*runs: Run) -> list[tuple[float, float]]:
    """Validation perplexity by epoch, of runs that each go on from the one before."""
    points: list[tuple[float, float]] = []
    for run in runs:
        before = points[-1][0] if points else 0.0
        points += [(before + r["epoch"], r["valid_perplexity"]) for r in run.records]
    return points


def clean(model: LanguageModel, run: Run, text: Corpus, job: Job) -> float:
    """The perplexity of the start of the training text, as much of it as there is to validate, without noise."""
    params, tokens = to_device((run.params, text.train[: len(text.valid)]), job.device)
    return float(evaluate(model, params, tokens, window=job.preset.bptt)["perplexity"])


def recipe(job: Job, per_epoch: int) -> Recipe:
    """How a job is trained: SGD with a learning rate that falls, or averaged SGD, as the paper."""
    preset, decay = job.preset, job.preset.weight_decay
    plain = preset.optimizer == "sgd"
    made = SGD(preset.lr, weight_decay=decay) if plain else ASGD(preset.lr, decay, interval=preset.nonmono)
    return Recipe(
        steps=round(preset.epochs * per_epoch),
        optimizer=made,
        clip=Clip(0.25),
        lr_schedule=falling(preset.epochs, preset.ramp_down),
        weight=job.weight,
        checkpoint_every=max(1, per_epoch // 4),
        monitor="loss",
    )


def falling(epochs: float, share: float) -> RampDown:
    """A learning rate that falls over the last share of the epochs; cut off before it is too small to matter."""
    return RampDown(epochs * (1 + 0.6 * share), 1.6 * epochs * share)


def words_per_second(run: Run, words: int) -> float | None:
    """Words a second of training, evaluations included, by the times in the log: the median over epochs."""
    times = [datetime.fromisoformat(r["time"]).timestamp() for r in run.records]
    passed = np.diff(times) / np.diff([r["epoch"] for r in run.records]) if len(times) > 1 else np.zeros(0)
    passed = passed[passed > 0]
    return float(words / np.median(passed)) if len(passed) else None


def _found(job: Job) -> dict[str, Any] | None:
    """The result of the job's run, if it is finished and was made with this very preset."""
    path = job.folder / RESULT
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result if same(result, job.preset, job.text) else None


TOLD = ("about", "paper", "reach", "methods", "seeds")
"""The fields of a preset that do not change its runs."""


def same(result: dict[str, Any], preset: Preset, text: str) -> bool:
    """Whether a result is of this very preset, and of the text with this fingerprint."""
    theirs, ours = dict(result.get("preset") or {}), json.loads(json.dumps(asdict(preset)))
    for name in TOLD:
        theirs.pop(name, None)
        ours.pop(name)
    return bool(theirs == ours and result.get("text") == text)


def compare(
    preset: Preset,
    *,
    methods: Sequence[str],
    seeds: int,
    workers: int,
    root: Path,
    data_dir: str | None,
    device: DeviceName = "cpu",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Search settings on validation data where the preset does, then run all seeds; returns the results of both.

    The first seed of every method comes first; only the `REPEATED` ones have more.
    """
    text = text_of(preset, data_dir)
    first = Job(preset, "", SEARCH_SEED, 0.0, 0.0, "search", root, data_dir, device, text.fingerprint)
    tried = {m: settings(m, preset.delta, bool(preset.fresh), preset.kappa) for m in methods}
    trials = [
        replace(first, method=method, strength=strength, weight=weight)
        for method in sorted(methods, key=lambda m: -COST[m])
        for strength, weight in tried[method]
        if preset.search and len(tried[method]) > 1
    ]
    _say_what_is_there(trials)
    searched = reporting.run_all(work, trials, workers=workers, title=f"{preset.name}: settings") if trials else []
    jobs = []
    for seed in range(seeds):
        for method in sorted(methods, key=lambda m: -COST[m]):
            if seed == 0 or method in REPEATED:
                strength, weight = best_setting(searched, method) or tried[method][0]
                jobs.append(replace(first, method=method, strength=strength, weight=weight, seed=seed, part="final"))
    _say_what_is_there(jobs)
    if launch.this_process().size == 1:  # ranks of mpiexec have a run each, or none
        jobs = share_cores(jobs, workers)
    return searched, reporting.run_all(work, jobs, workers=workers, title=f"{preset.name}: seeds")


def share_cores(jobs: Sequence[Job], workers: int) -> list[Job]:
    """Give each run one worker, because runs go side by side; the only run left to train gets all ``workers``."""
    left = [job for job in jobs if _found(job) is None]
    return [replace(job, workers=workers) if [job] == left else job for job in jobs]


def text_of(preset: Preset, data_dir: str | None) -> Corpus:
    """The preset's text; raises DataError if files that go by a corpus' name are not the published ones."""
    if preset.corpus in published.PUBLISHED:
        corpus.load(preset.corpus, data_dir)  # downloads missing files, or raises
        wrong = [found for found in published.check(preset.corpus, data_dir) if not found.sound]
        if wrong:
            said = "; ".join(f"{found.file}: {found.says}" for found in wrong)
            raise DataError(f"these are not the files of {preset.corpus} that results are published for: {said}")
    return corpus.load(preset.corpus, data_dir)


def _say_what_is_there(jobs: Sequence[Job]) -> None:
    """A finished run is not trained again; say so, because the code may have changed since."""
    there = [job for job in jobs if _found(job) is not None]
    if there:
        folder = there[0].root / there[0].preset.name
        said = f"{len(there)} of {len(jobs)} runs are in {folder} already and are used as they are"
        print(f"{said}; delete the folder to train anew", file=sys.stderr)


def with_earlier(path: Path, preset: Preset, text: str, searched: Results, results: Results) -> tuple[Results, Results]:
    """The results of this call and those of earlier ones, on whichever machine, that it does not have itself.

    A row of the table in ``path`` stays if it was made with this very preset, on the text with this fingerprint, and in
    the setting that is chosen now; a message says how many rows do not stay.
    """
    earlier = reporting.read_results(path) if path.exists() else {"search": [], "results": []}
    chosen = {r["method"]: (r["strength"], r["weight"]) for r in results}
    done, tried = {(r["method"], r["seed"]) for r in results}, {r["method"] for r in searched}

    def stays(r: dict[str, Any]) -> bool:
        fits = r["method"] not in chosen or chosen[r["method"]] == (r["strength"], r["weight"])
        return same(r, preset, text) and fits

    kept = [r for r in earlier["search"] if same(r, preset, text) and r["method"] not in tried]
    others = [r for r in earlier["results"] if (r["method"], r["seed"]) not in done]
    staying = [r for r in others if stays(r)]
    if len(staying) < len(others):
        gone = ", ".join(sorted({r["method"] for r in others if not stays(r)}))
        said = f"{path} had {len(others) - len(staying)} rows of another preset, text or setting"
        print(f"{said}, which are left out now: {gone}", file=sys.stderr)
    return [*kept, *searched], [*staying, *results]


def best_setting(searched: Sequence[dict[str, Any]], method: str) -> tuple[float, float] | None:
    """The setting of least validation perplexity."""
    found = [r for r in searched if r["method"] == method]
    if not found:
        return None
    best = min(found, key=lambda r: r["valid"])
    return best["strength"], best["weight"]
