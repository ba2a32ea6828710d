r"""Methods against each other on sequential images: the machinery of `table1` and `digits`.

Every method but `none`, which has nothing to choose, is tried in four settings on validation data (one seed), which are
recorded: p for VD, which has no weight, p or delta and weight for the others. The best setting is run for all seeds.
Runs are ordinary runs of minadv in folders of their own, so that a comparison that is killed goes on where it stopped
when the same command is given again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.parts import reporting
from minadv.backend import DeviceName
from minadv.data import images
from minadv.data.images import Images
from minadv.data.images.sequences import By, as_sequences
from minadv.models.classifier import Classifier
from minadv.regularizers import FD, VD, AdD, Plain, RDrop, Regularizer
from minadv.searches import Greedy, Reselect
from minadv.tasks.fit import fit
from minadv.tasks.images.family import describe_data
from minadv.tasks.images.task import evaluate
from minadv.tasks.run import Run
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam, RMSProp
from minadv.training.schedules import RampDown, RampUp

METHODS = ("none", "VD", "FD", "AdD K=1", "AdD K=2", "AdD reselect")
AVAILABLE = (*METHODS, "RDrop")
"""The rows that ``--methods`` may name: the table's own, and R-Drop, which is run only where it is named."""

RESULT = "result.json"


@dataclass(frozen=True)
class Preset:
    """One size of the comparison."""

    name: str
    images: str
    by: By
    pool: int
    n_hidden: int
    epochs: float
    seeds: int
    optimizer: str = "adam"
    lr: float = 1e-2
    batch: int = 100
    tasks: tuple[str, ...] = ("s", "p")
    search: bool = True
    search_epochs: float | None = None  # shorter runs for the search of settings
    about: str = ""


@dataclass(frozen=True)
class Job:
    """One run: a method in one setting, a task, a seed. Strength is p or delta."""

    preset: Preset
    method: str
    task: str
    seed: int
    strength: float
    weight: float
    part: str  # "search" for the shorter runs that choose settings; the others are whole
    root: Path
    data_dir: str | None
    device: DeviceName = "cpu"
    data: str = ""  # the fingerprint of the images

    @property
    def folder(self) -> Path:
        name = f"{self.task}-{self.method}-{self.strength:g}-{self.weight:g}-seed{self.seed}".replace(" ", "_")
        return self.root / self.preset.name / self.part / name


def settings(method: str, n_hidden: int) -> list[tuple[float, float]]:
    """The settings (strength, weight) that a method is tried in: four, the first the paper's; one for `none`."""
    if method == "none":
        return [(0.0, 0.0)]
    if method == "VD":
        return [(0.1, 0.0), (0.05, 0.0), (0.2, 0.0), (0.3, 0.0)]
    if method in ("FD", "RDrop"):
        return [(0.1, 1.0), (0.2, 1.0), (0.1, 0.3), (0.1, 3.0)]
    small = max(0.03, 3 / n_hidden)  # at least three units
    return [(small, 1.0), (2 * small, 1.0), (small, 0.3), (small, 3.0)]


def regularizer(job: Job) -> Regularizer:
    """The regularizer of a job."""
    if job.method == "none":
        return Plain()
    if job.method == "VD":
        return VD(p=job.strength)
    if job.method == "FD":
        return FD(p=job.strength)
    if job.method == "RDrop":
        return RDrop(p=job.strength)
    if job.method == "AdD reselect":
        return AdD(delta=job.strength, search=Reselect())
    return AdD(delta=job.strength, search=Greedy(K=int(job.method[-1]), keep="last"))


def recipe(job: Job, n_train: int) -> Recipe:
    """How a job is trained on ``n_train`` images."""
    per_epoch = n_train // job.preset.batch
    shorter = job.preset.search_epochs if job.part == "search" else None
    epochs = shorter or job.preset.epochs
    kind = {"adam": Adam, "rmsprop": RMSProp}[job.preset.optimizer]
    return Recipe(
        steps=round(epochs * per_epoch),
        optimizer=kind(job.preset.lr),
        clip=Clip(1.0),
        lr_schedule=RampDown(epochs, epochs / 5),
        weight=job.weight,
        weight_schedule=RampUp(epochs / 5),
    )


def work(job: Job) -> dict[str, Any]:
    """Train one network, unless it is trained already; its errors with the weights of the last step."""
    if (found := _found(job)) is not None:
        return found
    data = load(job.preset, job.task, job.data_dir)
    run = train(job, data, progress=False, workers=1)  # several runs are trained side by side
    model = run.model
    result = {
        "preset": asdict(job.preset),
        "data": job.data,
        "made": reporting.made(job.folder),
        "method": job.method,
        "task": job.task,
        "seed": job.seed,
        "strength": job.strength,
        "weight": job.weight,
        "valid": evaluate(model, run.last, data.valid, batch_size=job.preset.batch),
        "test": evaluate(model, run.last, data.test, batch_size=job.preset.batch),
        "curve": [(r["epoch"], r["valid_error"]) for r in run.records],
        "seconds": reporting.trained(job.folder),
    }
    reporting.write_json(job.folder / RESULT, result, own=True)
    return result


def train(job: Job, data: Images, **how: Any) -> Run:
    """The network of a job, trained in its folder, or from where that stopped; ``how`` are further options of `fit`."""
    reporting.begins(job.folder)
    return fit(
        Classifier(data.train.x.shape[2], job.preset.n_hidden, data.classes),
        data,
        regularizer=regularizer(job),
        recipe=recipe(job, len(data.train)),
        batch_size=job.preset.batch,
        seed=job.seed,
        device=job.device,
        out=job.folder,
        resume=True,
        about=about_data(job),
        **how,
    )


def _found(job: Job) -> dict[str, Any] | None:
    """The result of the job's run, if it is finished and was made with this very preset and these images."""
    path = job.folder / RESULT
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    same = result.get("preset") == json.loads(json.dumps(asdict(job.preset))) and result.get("data") == job.data
    return result if same else None


def about_data(job: Job) -> dict[str, Any]:
    """What the command line needs to know of a run's data, so that ``minadv show`` and the rest work on these runs."""
    preset = job.preset
    read = {"by": preset.by, "pool": preset.pool, "permuted": job.task == "p", "dtype": "float32"}
    return {"task": preset.name, "images": preset.images, "data_dir": job.data_dir, **read}


def load(preset: Preset, task: str, data_dir: str | None) -> images.Images:
    """The preset's images as sequences, in scanline ("s") or permuted ("p") order."""
    loaded = images.load(preset.images, data_dir=data_dir)
    return as_sequences(loaded, by=preset.by, pool=preset.pool, permute=task == "p")


def fingerprint(preset: Preset, data_dir: str | None) -> str:
    """What tells the preset's images from others: checksums of their parts."""
    told = describe_data(images.load(preset.images, data_dir=data_dir))
    return " ".join(f"{part['n']}-{part['crc32']:08x}" for part in told.values())


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
    """Search settings on validation data, then run all seeds; returns the results of both."""
    first = first_job(preset, root=root, data_dir=data_dir, device=device)
    tried = trials(first, methods)
    _say_what_is_there(tried)
    searched = reporting.run_all(work, tried, workers=workers, title=f"{preset.name}: settings") if tried else []
    jobs = finals(first, methods, seeds, searched)
    _say_what_is_there(jobs)
    return searched, reporting.run_all(work, jobs, workers=workers, title=f"{preset.name}: seeds")


def first_job(preset: Preset, *, root: Path, data_dir: str | None, device: DeviceName = "cpu") -> Job:
    """A job with what all jobs of a comparison share; raises for missing or wrong images, before any work."""
    data = fingerprint(preset, data_dir)
    return Job(preset, "", "", SEARCH_SEED, 0.0, 0.0, "search", root, data_dir, device, data=data)


def trials(first: Job, methods: Sequence[str]) -> list[Job]:
    """The jobs like the first one that search the settings."""
    return [
        replace(first, method=method, task=task, strength=strength, weight=weight)
        for method in methods
        for task in first.preset.tasks
        for strength, weight in settings(method, first.preset.n_hidden)
        if first.preset.search and len(settings(method, first.preset.n_hidden)) > 1
    ]


def finals(first: Job, methods: Sequence[str], seeds: int, searched: Sequence[dict[str, Any]]) -> list[Job]:
    """The jobs like the first one that run every seed, in the best setting of a search or in the first there is."""
    jobs = []
    for seed in range(seeds):
        for method in methods:
            for task in first.preset.tasks:
                strength, weight = best_setting(searched, method, task) or settings(method, first.preset.n_hidden)[0]
                one = replace(first, method=method, task=task, strength=strength, weight=weight)
                jobs.append(replace(one, seed=seed, part="final"))
    return jobs


SEARCH_SEED = 1000


def _say_what_is_there(jobs: Sequence[Job]) -> None:
    """A finished run is not trained again; say so, because the code may have changed since."""
    there = [job for job in jobs if _found(job) is not None]
    if there:
        folder = there[0].root / there[0].preset.name
        said = f"{len(there)} of {len(jobs)} runs are in {folder} already and are used as they are"
        print(f"{said}; delete the folder to train anew", file=sys.stderr)


def best_setting(searched: Sequence[dict[str, Any]], method: str, task: str) -> tuple[float, float] | None:
    """The setting of least validation error, then of least validation loss."""
    found = [r for r in searched if r["method"] == method and r["task"] == task]
    if not found:
        return None
    best = min(found, key=lambda r: (r["valid"]["error"], r["valid"]["loss"]))
    return best["strength"], best["weight"]
