r"""The family of images that are read as sequences and classified: its presets, and what is particular to it."""

from __future__ import annotations

import zlib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypedDict

import numpy as np

from minadv.backend import Array, Device, same_place, to_device, to_host
from minadv.base.checks import expect_shape
from minadv.base.errors import DataError
from minadv.base.numbers import Decay, Share, Size
from minadv.base.trees import any_array, tree_map
from minadv.data.arrays import accept, whole
from minadv.data.feed import Feed
from minadv.data.images import Images, Split
from minadv.data.images.batches import in_order, take
from minadv.data.images.sequences import By, from_description
from minadv.data.split import as_numbers, padded
from minadv.layers import log_softmax
from minadv.masks import few_flips
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import Regularizer
from minadv.searches import Greedy
from minadv.tasks import methods
from minadv.tasks import options as common
from minadv.tasks.attack import Target, choose_budgets, right_answers, units_flipped
from minadv.tasks.config import with_search
from minadv.tasks.family import Family
from minadv.tasks.images.feeding import ClassifyFed
from minadv.tasks.images.presets import CHANGES, OPTIONS, PRESETS, SMALL, fitted
from minadv.tasks.images.saying import baseline, summary
from minadv.tasks.images.task import Classify, Inference, answers, evaluate, load_of
from minadv.tasks.options import chosen
from minadv.tasks.reports import error_report
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import SGD, Adam, RMSProp
from minadv.training.parallel.inference import share
from minadv.training.runs.folder import expect_same_data
from minadv.training.schedules import RampDown, RampUp


class Scaled(TypedDict):
    """The scaling of a user's own arrays."""

    mean: list[float]
    deviation: list[float]


class Config(TypedDict, total=False):
    """What a configuration says of its data: the number of examples of each part, and their checksum."""

    data: dict[str, dict[str, int]]
    classes: list[str]
    scaling: Scaled


class Perhaps(TypedDict, total=False):
    """What only configurations with a user's own data say."""

    valid_share: Decay
    test_share: Share


class About(Perhaps):
    """What a configuration says of where its data are, and how they are read."""

    images: Literal["digits", "mnist", "fashion", "folder"]
    data_dir: str | None
    by: By
    pool: Size
    permuted: bool
    dtype: Literal["float32", "float64"]


def about(options: Namespace) -> dict[str, Any]:
    shares = {name: chosen(options, name) for name in ("valid_share", "test_share")}
    if options.preset.data != "folder" and any(share is not None for share in shares.values()):
        raise ValueError(f"--valid-share and --test-share are for data of your own: {options.task} has its parts")
    return {
        "task": options.task,
        "images": options.preset.data,
        "data_dir": options.data_dir,
        "by": "row" if chosen(options, "rows") else "pixel",
        "pool": options.pool,
        "permuted": options.preset.values["permuted"] or options.permuted,
        "dtype": options.dtype,
        **{name: share for name, share in shares.items() if share is not None},
    }


def open_data(about: dict[str, Any]) -> Images:
    if about["images"] == "digits" and about["data_dir"] is not None:
        raise DataError(f"--data-dir is {about['data_dir']}, but digits come with scikit-learn: leave it out")
    return from_description(about)


def model_of(options: Namespace, n_in: int, n_classes: int) -> Classifier:
    more = {"cell": options.cell, "n_layers": options.layers, "readout": options.readout, "remat": options.remat}
    return Classifier(n_in, options.hidden, n_classes, **more)


def check(options: Namespace) -> None:
    model = model_of(options, 1, 2)
    methods.expect_room(model, methods.regularizer(options, model))


def arguments(options: Namespace, data: Images) -> dict[str, Any]:
    few = min(chosen(options, "batch"), len(data.train)) if options.batch is None else options.batch
    model = model_of(options, data.train.x.shape[2], data.classes)
    return {
        "model": model,
        "regularizer": methods.regularizer(options, model),
        "recipe": partial(recipe, options),
        "batch_size": few,
        "track": {"budgets": few_flips(options.hidden), "search": Greedy(K=2, keep="last")} if options.track else None,
    }


def in_force(options: Namespace, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"batch": arguments["batch_size"]}


def recipe(options: Namespace, per_epoch: int) -> Recipe:
    """The recipe that the options describe."""
    preset = options.preset.values
    kind = {"adam": Adam, "rmsprop": RMSProp, "sgd": SGD}[chosen(options, "optimizer")]
    ramps = schedules(common.steps(options, per_epoch) / per_epoch, preset)
    if options.ramp_up is not None:
        ramps["weight_schedule"] = RampUp(options.ramp_up)
    return common.recipe(
        options,
        per_epoch,
        clip=Clip(options.clip, options.clip_how) if options.clip else None,
        optimizer=kind(lr=chosen(options, "lr")),
        weight=options.weight,
        **ramps,
    )


def schedules(epochs: float, preset: Mapping[str, Any] = SMALL) -> dict[str, Any]:
    """The ramps of a run of that many epochs: they keep the share of the run that they have in the preset."""
    rising, falling = (epochs * preset[name] / preset["epochs"] for name in ("ramp_up", "ramp_down"))
    return {"lr_schedule": RampDown(epochs, min(epochs, falling)), "weight_schedule": RampUp(rising)}


def some_steps(data: Images) -> int:
    """The examples of a batch: 100, or fewer if an epoch would have less than a dozen steps; a feed has its own."""
    if isinstance(data.train, Feed):
        return len(data.train)
    return max(1, min(100, len(data.train) // 12))


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
    methods.expect_room(model, regularizer)
    kind = ClassifyFed if isinstance(data.train, Feed) else Classify
    if device.name == "gpu":
        if kind is ClassifyFed:
            raise ValueError("device is a GPU, and batches that are given one by one are read on the CPU: give arrays")
        model, data = place(model, data, device)
    track = None if track is None else with_search(dict(track))
    return kind(model, data, regularizer, batch_size, seed, track), {"dtype": str(data.train.x.dtype)}


def place(model: Any, data: Any, device: Device) -> tuple[Any, Any]:
    """The model as it is, and all parts of the data, if there are any, on a device."""
    if data is None:
        return model, None
    return model, replace(data, **{name: to_device(part, device) for name, part in data.parts.items()})


def describe_data(data: Images) -> dict[str, Any]:
    """The number of examples and a checksum of each part, so that a run is not resumed on other data."""
    parts = {name: to_host(part) for name, part in data.parts.items()}
    return {name: {"n": len(part), "crc32": _checksum(part)} for name, part in parts.items()}


def identify(data: Images) -> dict[str, Any]:
    """What a configuration says of its data; of a user's own also the names of classes, and the scaling of arrays."""
    named = {"classes": list(data.names)} if data.names else {}
    scaled = {} if data.scaling is None else {"scaling": {n: list(v) for n, v in vars(data.scaling).items()}}
    return {"data": describe_data(data), **named, **scaled}


def expect_data(config: dict[str, Any], data: Images, path: str) -> None:
    """Raise RunError, which names the parts that differ, unless a run was trained on these data."""
    if "data" in config:  # runs of the first versions do not say
        expect_same_data(path, config["data"], describe_data(data))


def _checksum(part: Split) -> int:
    total = 0
    for array in (part.x, part.y, part.lengths):
        total = total if array is None else zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def evaluate_run(run: Any, data: Images, part: str, params: Any, device: Device) -> dict[str, Any]:
    split: Split = getattr(data, part)
    n_in = getattr(run.model, "n_in", "I")  # a user's own model need not have it
    expect_shape("x", split.x, ("N", "T", n_in), f"the model takes n_in = {n_in} inputs a step")
    params, split = to_device((params, split), device)
    return evaluate(run.model, params, split, batch_size=run.config["batch_size"])


def predict(run: Any, x: Any) -> Array:
    """Class probabilities (N, C) of sequences ``x (N, T, I)``, as many at a time as in training.

    A list of sequences (T, I) may have different lengths.
    """
    x, lengths = padded(x) if isinstance(x, tuple | list) else (x, None)
    x = as_numbers(x, "x").astype(any_array(run.params).dtype, copy=False)
    n_in = getattr(run.model, "n_in", "I")  # a user's own model need not have it
    expect_shape("x", x, ("N", "T", n_in), f"the model takes n_in = {n_in} inputs a step")
    split = tree_map(lambda a: same_place(a, any_array(run.params)), Split(x, np.zeros(len(x), np.int64), lengths))
    return np.concatenate(share(Inference(run.model, run.params, split, run.config["batch_size"], _probabilities)))


def _probabilities(model: Any, params: Any, features: Any, batch: Batch) -> Array:
    p: Array = np.exp(to_host(log_softmax(model.logits(params, features)[-1])))
    return p


def answers_of(run: Any, part: str) -> tuple[Array, Array]:
    split: Split = getattr(run.data, part)
    return to_host(split.y), answers(run.model, run.params, split, batch_size=run.config["batch_size"])


def attack(
    run: Any, n: int, *, delta: list[float] | None = None, budget: list[int] | None = None, at_once: int = 250, **_: Any
) -> Target:
    """The target of an attack on the first n test sequences, or all if these are fewer, ``at_once`` in a batch."""
    split = run.data.test[:n]
    budgets = choose_budgets(run, delta, budget, share=few_flips)
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
    summary=summary,
    report=error_report,
    fitted=fitted,
    in_force=in_force,
    baseline=baseline,
    open_data=open_data,
    expect_data=expect_data,
    identify=identify,
    size=lambda run, part: f"{len(getattr(run.data, part)):,} sequences",
    settings={"batch_size": some_steps, "track": None},
    accept=accept,
    whole=whole,
    recipe={"optimizer": Adam(SMALL["lr"])},
    schedules=schedules,
    epochs=SMALL["epochs"],
    make_task=make_task,
    evaluate=evaluate_run,
    place=place,
    predict=predict,
    answers=answers_of,
    attack=attack,
    figures=("curves", "influence", "masks"),
)
