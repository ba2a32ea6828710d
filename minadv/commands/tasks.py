r"""The named tasks of the command line: which images, read how, and the settings that go with them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from minadv import masks
from minadv.data import images
from minadv.models.classifier import Classifier
from minadv.regularizers import EL, FD, VD, AdD, Pi, Plain, Regularizer
from minadv.searches import by_name
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import SGD, Adam, RMSProp
from minadv.training.schedules import RampDown, RampUp


@dataclass(frozen=True)
class Preset:
    """What a task's name stands for, until an option says otherwise."""

    images: str
    permuted: bool
    epochs: float
    optimizer: str
    lr: float
    ramp_up: float
    ramp_down: float
    about: str


PRESETS = {
    "digits": Preset("digits", False, 40, "adam", 5e-3, 10, 10, "scikit-learn's 8 x 8 digits, T = 64, no download"),
    "smnist": Preset("mnist", False, 250, "rmsprop", 1e-3, 50, 50, "MNIST in scanline order, T = 784 (the paper's)"),
    "pmnist": Preset("mnist", True, 250, "rmsprop", 1e-3, 50, 50, "MNIST in one fixed random order (the paper's)"),
    "fashion": Preset("fashion", False, 250, "rmsprop", 1e-3, 50, 50, "Fashion-MNIST in scanline order"),
}

DEFAULT = "digits"

METHODS = ("none", "vd", "el", "fd", "pi", "add")
RANDOM, TWO_PASSES = ("vd", "el", "fd", "pi"), ("el", "fd", "pi", "add")
USES = {
    "p": RANDOM,
    **dict.fromkeys(("delta", "adv_steps", "search", "max_masks", "rule", "scale"), ("add",)),
    **dict.fromkeys(("distance", "weight", "ramp_up"), TWO_PASSES),
}
"""Which methods use an option."""


def uses(args: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Which methods use an option; the scale "inverted" divides by 1 - p, in AdD too."""
    return {**USES, "p": (*RANDOM, "add")} if args.scale == "inverted" else USES


def about_data(args: argparse.Namespace) -> dict[str, Any]:
    """What a run's configuration says of its data."""
    preset = PRESETS[args.task]
    about = {
        "task": args.task,
        "images": preset.images,
        "data_dir": None,
        "by": "row" if args.rows else "pixel",
        "pool": args.pool,
        "permuted": preset.permuted or args.permuted,
        "dtype": args.dtype,
    }
    return moved(about, args.data_dir)


def moved(about: dict[str, Any], data_dir: str | None) -> dict[str, Any]:
    """What a configuration says of its data, with the folder that ``--data-dir`` names, if it names one."""
    if data_dir is None:
        return about
    if about.get("images") == "digits":
        raise ValueError(f"--data-dir is {data_dir}, but digits come with scikit-learn: leave it out")
    return {**about, "data_dir": data_dir}


def model(args: argparse.Namespace, data: images.Images) -> Classifier:
    """The classifier that the options describe."""
    n_in = data.train.x.shape[2]
    return Classifier(
        n_in, args.hidden, data.classes, cell=args.cell, n_layers=args.layers, readout=args.readout, remat=args.remat
    )


def regularizer(args: argparse.Namespace) -> Regularizer:
    """The regularizer that the options describe; errors come here rather than at the first step."""
    masks.expect_probability(args.p)
    if args.method == "none":
        return Plain()
    if args.method == "vd":
        return VD(p=args.p)
    if args.method == "el":
        return EL(p=args.p, distance=args.distance)
    if args.method in ("fd", "pi"):
        return (FD if args.method == "fd" else Pi)(p=args.p, distance=args.distance)
    masks.budget(args.delta, args.hidden)
    for name, searches in (("adv_steps", PROBING), ("max_masks", ("exact",))):
        if args.search not in searches and getattr(args, name) != args.defaults[name]:
            said = f"--{name.replace('_', '-')} {getattr(args, name)}: --search {args.search} has no use for it"
            raise ValueError(f"{said}, expected one of {', '.join(searches)}")
    return AdD(
        delta=args.delta,
        distance=args.distance,
        scale=args.scale,
        p=args.p if args.scale == "inverted" else None,
        search=by_name(args.search, K=args.adv_steps, max_masks=args.max_masks, rule=args.rule, keep="last"),
    )


PROBING = ("greedy", "reselect")


def some_flips(hidden: int) -> int:
    """The budget of Figure 3, for networks that were trained with none of their own: δ = 0.03, at least three units."""
    return min(hidden, max(3, int(0.03 * hidden)))


def recipe(args: argparse.Namespace, per_epoch: int) -> Recipe:
    """The recipe that the options describe."""
    preset = PRESETS[args.task]
    epochs = preset.epochs if args.epochs is None else args.epochs
    steps = args.train_steps or max(1, round(epochs * per_epoch))
    kind = {"adam": Adam, "rmsprop": RMSProp, "sgd": SGD}[args.optimizer or preset.optimizer]
    length = steps / per_epoch
    return Recipe(
        steps=steps,
        optimizer=kind(lr=preset.lr if args.lr is None else args.lr),
        clip=None if args.clip == 0 else Clip(args.clip, args.clip_how),
        lr_schedule=RampDown(length, min(length, length * preset.ramp_down / preset.epochs)),
        weight=args.weight,
        weight_schedule=RampUp(length * preset.ramp_up / preset.epochs if args.ramp_up is None else args.ramp_up),
        eval_every=args.eval_every,
        checkpoint_every=args.checkpoint_every,
        patience=args.patience,
    )
