r"""The family of images that are read as sequences and classified: its presets, and what is particular to it."""

from __future__ import annotations

import zlib
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypedDict

import numpy as np

from minadv.backend import Array, Device, to_device, to_host
from minadv.base.checks import expect_shape
from minadv.base.numbers import Size
from minadv.base.trees import any_array
from minadv.data.images import Images, Split
from minadv.data.images.batches import in_order, take
from minadv.data.images.sequences import By, from_description
from minadv.layers import log_softmax
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import Regularizer
from minadv.searches import Greedy
from minadv.tasks import methods
from minadv.tasks import options as common
from minadv.tasks.attack import Target, choose_budgets, right_answers, units_flipped
from minadv.tasks.config import with_search
from minadv.tasks.family import Family, Preset
from minadv.tasks.images.task import Classify, Reading, evaluate, load_of
from minadv.tasks.options import chosen
from minadv.tasks.reports import error_report
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import SGD, Adam, RMSProp
from minadv.training.parallel.inference import share
from minadv.training.schedules import RampDown, RampUp

SMALL = {"permuted": False, "epochs": 40, "optimizer": "adam", "lr": 5e-3, "ramp_up": 10, "ramp_down": 10}
PAPER = {"permuted": False, "epochs": 250, "optimizer": "rmsprop", "lr": 1e-3, "ramp_up": 50, "ramp_down": 50}
"""``ramp_up`` and ``ramp_down`` are epochs of these ``epochs``; in longer or shorter runs they keep their share."""

QUARTER, FIFTH = {"ramp_up": "a quarter of them"}, {"ramp_up": "a fifth of them"}
PRESETS = {
    "digits": Preset("scikit-learn's 8 x 8 digits, T = 64, no download", "digits", SMALL, QUARTER),
    "smnist": Preset("MNIST in scanline order, T = 784 (the paper's)", "mnist", PAPER, FIFTH),
    "pmnist": Preset("MNIST in one fixed random order (the paper's)", "mnist", PAPER | {"permuted": True}, FIFTH),
    "fashion": Preset("Fashion-MNIST in scanline order", "fashion", PAPER, FIFTH),
}

OPTIONS = {
    "the run": "out resume seed dtype device engine workers cuda-aware-mpi eval-every checkpoint-every patience "
    "watch-adversary track",
    "data": "data-dir rows pool permuted",
    "model": "cell hidden layers readout remat",
    "method": "method p delta adv-steps distance search stages reselect runner-up borrow swaps tries max-masks "
    "rule scale weight ramp-up",
    "optimisation": "epochs train-steps batch optimizer lr clip clip-how",
}
CHANGES: dict[str, dict[str, Any]] = {
    "cell": {"default": "lstm"},
    "hidden": {"default": 100},
    "layers": {"default": 1},
    "delta": {"default": 0.03},
    "distance": {"help": "distance between the two predictions (default: js, skl for rdrop)"},
    "rule": {"default": "strict"},
    "scale": {"default": "none", "choices": ("none", "inverted", "kept")},
    "search": {"choices": ("greedy", "reselect", "relax", "memory", "random", "exact")},
    "weight": {"default": 1.0},
    "batch": {"default": 100, "help": "sequences a step"},
    "optimizer": {"choices": ("adam", "rmsprop", "sgd")},
}


class Config(TypedDict, total=False):
    """What a configuration says of its data: the number of examples of each part, and their checksum."""

    data: dict[str, dict[str, int]]


class About(TypedDict):
    """What a configuration says of where its data are, and how they are read."""

    images: Literal["digits", "mnist", "fashion"]
    data_dir: str | None
    by: By
    pool: Size
    permuted: bool
    dtype: Literal["float32", "float64"]


def about(options: Namespace) -> dict[str, Any]:
    return {
        "task": options.task,
        "images": options.preset.data,
        "data_dir": options.data_dir,
        "by": "row" if options.rows else "pixel",
        "pool": options.pool,
        "permuted": options.preset.values["permuted"] or options.permuted,
        "dtype": options.dtype,
    }


def open_data(about: dict[str, Any]) -> Images:
    if about["images"] == "digits" and about["data_dir"] is not None:
        raise ValueError(f"--data-dir is {about['data_dir']}, but digits come with scikit-learn: leave it out")
    return from_description(about)


def model_of(options: Namespace, n_in: int, n_classes: int) -> Classifier:
    more = {"cell": options.cell, "n_layers": options.layers, "readout": options.readout, "remat": options.remat}
    return Classifier(n_in, options.hidden, n_classes, **more)


def check(options: Namespace) -> None:
    regularizer = methods.regularizer(options)
    methods.expect_room(model_of(options, 1, 2), regularizer)


def arguments(options: Namespace, data: Images) -> dict[str, Any]:
    few = min(options.batch, len(data.train)) if options.batch == options.defaults["batch"] else options.batch
    return {
        "model": model_of(options, data.train.x.shape[2], data.classes),
        "regularizer": methods.regularizer(options),
        "recipe": partial(recipe, options),
        "batch_size": few,
        "track": {"budgets": some_flips(options.hidden), "search": Greedy(K=2, keep="last")} if options.track else None,
    }


def some_flips(hidden: int) -> int:
    """The budget of Figure 3, for networks that were trained without a budget: δ = 0.03, at least three units."""
    return min(hidden, max(3, int(0.03 * hidden)))


def recipe(options: Namespace, per_epoch: int) -> Recipe:
    """The recipe that the options describe."""
    preset = options.preset.values
    kind = {"adam": Adam, "rmsprop": RMSProp, "sgd": SGD}[chosen(options, "optimizer")]
    length = common.steps(options, per_epoch) / per_epoch
    rising = length * preset["ramp_up"] / preset["epochs"] if options.ramp_up is None else options.ramp_up
    return common.recipe(
        options,
        per_epoch,
        clip=Clip(options.clip, options.clip_how) if options.clip else None,
        optimizer=kind(lr=chosen(options, "lr")),
        lr_schedule=RampDown(length, min(length, length * preset["ramp_down"] / preset["epochs"])),
        weight=options.weight,
        weight_schedule=RampUp(rising),
    )


def make_task(
    model: Any,
    data: Images,
    *,
    regularizer: Regularizer,
    seed: int,
    device: Device,
    batch_size: int,
    track: dict[str, Any] | None,
) -> tuple[Classify, dict[str, Any]]:
    if device.name == "gpu":
        data = replace(data, **{part: to_device(getattr(data, part), device) for part in ("train", "valid", "test")})
    track = None if track is None else with_search(dict(track))
    return Classify(model, data, regularizer, batch_size, seed, track), {"dtype": str(data.train.x.dtype)}


def describe_data(data: Images) -> dict[str, Any]:
    """The number of examples and a checksum of each part, so that a run is not resumed on other data."""
    parts = {name: to_host(getattr(data, name)) for name in ("train", "valid", "test")}
    return {name: {"n": len(part), "crc32": _checksum(part.x, part.y)} for name, part in parts.items()}


def _checksum(*arrays: Array) -> int:
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def evaluate_run(run: Any, data: Images, part: str, params: Any, device: Device) -> dict[str, Any]:
    params, split = to_device((params, getattr(data, part)), device)
    return evaluate(run.model, params, split, batch_size=run.config["batch_size"])


def predict(run: Any, x: Array) -> Array:
    """Class probabilities (N, C) of sequences ``x (N, T, I)``, as many at a time as in training."""
    x = np.asarray(x, dtype=any_array(run.params).dtype)
    expect_shape("x", x, ("N", "T", run.model.n_in), f"the model takes n_in = {run.model.n_in} inputs a step")
    split = Split(x, np.zeros(len(x), np.int64))
    return np.concatenate(share(Reading(run.model, run.params, split, run.config["batch_size"], _probabilities)))


def _probabilities(model: Any, params: Any, features: Any, batch: Batch) -> Array:
    p: Array = np.exp(log_softmax(model.logits(params, features)[-1]))
    return p


def attack(
    run: Any, n: int, *, delta: list[float] | None = None, budget: list[int] | None = None, at_once: int = 250, **_: Any
) -> Target:
    """The target of an attack on the first n test sequences, or all if these are fewer, ``at_once`` in a batch."""
    split = Split(run.data.test.x[:n], run.data.test.y[:n])
    budgets = choose_budgets(run, delta, budget, share=some_flips)
    return Target(
        run,
        budgets,
        list(_batches(split, at_once)),
        f"{len(split)} test sequences, {units_flipped(run, budgets)}",
        "accuracy %",
        count=len,
        score=right_answers(run),
        result=lambda mean: 100 * mean,
        number="10.4f",
        load=load_of(run.model, split.x, len(split), 3 * at_once),  # three passes of a search are kept at a time
    )


def _batches(split: Split, size: int) -> Iterator[tuple[Batch, None]]:
    for rows in in_order(len(split), size):
        yield Batch(*take(split, rows)), None


FAMILY = Family(
    kind="classify",
    model=Classifier,
    data=Images,
    task=Classify,
    config=Config,
    described=About,
    presets=PRESETS,
    metrics=("error", "loss"),
    options=OPTIONS,
    changes=CHANGES,
    methods=("none", "vd", "el", "fd", "pi", "rdrop", "add"),
    check=check,
    about=about,
    arguments=arguments,
    summary=lambda plan: (
        f"{plan.config['about']['task']}: {len(plan.data.train):,} training sequences of "
        f"{plan.data.train.x.shape[1]} steps"
    ),
    report=error_report,
    open_data=open_data,
    identify=lambda data: {"data": describe_data(data)},
    size=lambda run, part: f"{len(getattr(run.data, part)):,} sequences",
    settings={"batch_size": 100, "track": None},
    recipe={},
    make_task=make_task,
    evaluate=evaluate_run,
    predict=predict,
    attack=attack,
    figures=("curves", "influence", "masks"),
)
