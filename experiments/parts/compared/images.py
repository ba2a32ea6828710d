r"""Training and testing one network on sequential images."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.parts.compared.plan import SEARCHES, Job
from minadv.backend import Array
from minadv.base.streams import permutation, stream
from minadv.data import images
from minadv.data.images import Images, Split
from minadv.data.images.sequences import as_sequences
from minadv.models.classifier import Classifier
from minadv.regularizers import EL, FD, VD, AdD, Plain, RDrop, Regularizer
from minadv.tasks.fit import fit
from minadv.tasks.images.family import describe_data
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam
from minadv.training.schedules import RampDown, RampUp


def regularizer(method: str, strength: float) -> Regularizer:
    """The regularizer of a method at a strength: p of random masks, δ of an adversary."""
    if method in SEARCHES:
        return AdD(delta=strength, search=SEARCHES[method])
    kinds: dict[str, Any] = {"VD": VD, "EL": EL, "FD": FD, "RDrop": RDrop}
    made: Regularizer = Plain() if method == "none" else kinds[method](p=strength)
    return made


@lru_cache(maxsize=1)
def _loaded(name: str, by: Any, pool: int, permute: bool, data_dir: str | None) -> Images:
    return as_sequences(images.load(name, data_dir=data_dir), by=by, pool=pool, permute=permute)


@lru_cache(maxsize=1)
def _fingerprint(*which: Any) -> str:
    told = describe_data(_loaded(*which))
    return " ".join(f"{part['n']}-{part['crc32']:08x}" for part in told.values())


def _which(job: Job) -> tuple[Any, ...]:
    """What `_loaded` is asked for."""
    size = job.task.size
    return size["images"], size["by"], size.get("pool", 1), size.get("permute", False), job.data_dir


def loaded(job: Job) -> Images:
    """All images of a task as sequences."""
    return _loaded(*_which(job))


def fingerprint(job: Job) -> str:
    """What tells the task's images from others: checksums of their parts."""
    return _fingerprint(*_which(job))


def data_of(job: Job) -> Images:
    """The sequences of a job. Where the task has fewer than all, the seed draws those to train and to validate with.

    Digits are tested on all others, MNIST on its own test images; the others of MNIST may be unlabelled examples.
    """
    size, whole = job.task.size, loaded(job)
    if size["train"] is None:
        return whole
    digits = size["images"] == "digits"
    parts = (whole.train, whole.valid, whole.test) if digits else (whole.train, whole.valid)
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
    order = permutation(stream(job.seed, "examples"), len(y))
    train, valid, rest = (
        Split(x[rows], y[rows]) for rows in np.split(order, [size["train"], size["train"] + size["valid"]])
    )
    others = rest if size.get("unlabelled") else None
    return replace(whole, train=train, valid=valid, test=rest if digits else whole.test, unlabelled=others)


def recipe(job: Job, n_train: int) -> Recipe:
    """Adam, a learning rate that falls over the last quarter, and a regularizer that grows over the first fifth."""
    epochs = job.task.epochs * job.longer
    return Recipe(
        steps=round(epochs * (n_train // job.task.batch)),
        optimizer=Adam(job.lr),
        clip=Clip(1.0),
        lr_schedule=RampDown(epochs, epochs / 4),
        weight=job.weight,
        weight_schedule=RampUp(epochs / 5),
    )


def steps_of(job: Job) -> int:
    """The steps of a job's training."""
    return recipe(job, len(data_of(job).train)).steps


def train(
    job: Job, on_evaluation: Any, steps: int | None = None, eval_every: int | None = None, **where: Any
) -> tuple[Any, dict[str, Any], Array]:
    """The run of a job, its test result at the best validation error, and its probabilities of the test images."""
    data = data_of(job)
    model = Classifier(data.train.x.shape[2], job.task.size["n_hidden"], data.classes)
    made = recipe(job, len(data.train))
    if steps is not None:
        made = replace(made, steps=steps, eval_every=eval_every)
    run = fit(
        model,
        data,
        regularizer=regularizer(job.method, job.strength),
        recipe=made,
        batch_size=job.task.batch,
        seed=job.draws,
        device=job.device,
        workers=1,  # several networks are trained side by side
        progress=False,
        on_evaluation=on_evaluation,
        about={"task": job.task.name},
        **where,
    )
    tested = run.evaluate("test", data=data, workers=1)
    return run, tested, run.predict(data.test.x, workers=1)


def error_of(probabilities: Array, job: Job) -> float:
    """The test error in per cent of given probabilities (N, C)."""
    return 100 * float((probabilities.argmax(axis=1) != data_of(job).test.y).mean())
