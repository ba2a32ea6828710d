r"""``minadv attack``, ``predict`` and ``show``: what a trained network does, and what moves it."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.base.checks import expect_shape
from minadv.base.streams import stream
from minadv.commands import tasks
from minadv.data.images import Images, Split
from minadv.data.images.batches import in_order, take
from minadv.data.images.sequences import from_description, sequences
from minadv.models.classifier import Batch
from minadv.searches import ball_size
from minadv.tasks.images import runs

SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"search": "random"},
    "greedy K=1": {"search": "greedy", "adv_steps": 1},
    "greedy K=2": {"search": "greedy", "adv_steps": 2},
    "reselect K=2": {"search": "reselect", "adv_steps": 2},
    "exact": {"search": "exact"},
}


def attack(args: argparse.Namespace) -> None:
    """Accuracy of a run's network under masks found by each search; what a search raises is D, not the error."""
    run, data = open_run(args)
    delta, budget = asked(args)
    if budget is None:
        budget = own_budget(run) if delta is None else masks.budget(delta, run.model.n_hidden)
    if budget > run.model.n_hidden:
        raise ValueError(f"budget is {budget}, expected at most {run.model.n_hidden}, the units of a layer")
    split = Split(data.test.x[: args.examples], data.test.y[: args.examples])
    n_masks = ball_size(run.model.n_hidden, budget) ** run.model.n_layers
    units = f"{budget} of {run.model.n_hidden} units"
    print(f"{len(split)} test sequences, {units} flipped in each of {run.model.n_layers} layer(s)")
    say_if_almost_random([budget])
    print(f"{'mask':14} {'accuracy %':>10} {'mean D':>10}")
    print(f"{'none':14} {100 * accuracy(run, split):10.2f} {0:10.4f}")
    for name, options in SEARCHES.items():
        if name == "exact" and n_masks > args.max_masks:
            print(f"{'exact':14} left out: {n_masks:,} masks, more than --max-masks {args.max_masks:,}")
            continue
        right, distance = under_attack(run, split, budget, args, {**options, "max_masks": args.max_masks}, name)
        print(f"{name:14} {100 * right:10.2f} {distance:10.4f}", flush=True)


def say_if_almost_random(budgets: Iterable[int]) -> None:
    """What training warns of: with one flip, the paper's search ends where it starts."""
    if 1 in budgets:
        print("one flip is spent by greedy's random start itself, so that its masks are almost random", file=sys.stderr)


def own_budget(run: runs.Run) -> int:
    """The flips that a run was trained with; of other methods Figure 3's."""
    delta, H = run.config["regularizer"].get("delta"), run.model.n_hidden
    return masks.budget(delta, H) if isinstance(delta, float) else tasks.some_flips(H)


def asked(args: argparse.Namespace) -> tuple[float | None, int | None]:
    """``--delta`` and ``--budget`` of an attack on a network whose layers are all alike: one value for all of them."""
    for name in ("delta", "budget"):
        values = getattr(args, name) or [None]
        if len(values) > 1:
            raise ValueError(f"{name} has {len(values)} values, expected 1: this network's layers are all alike")
    delta, budget = (None if given is None else given[0] for given in (args.delta, args.budget))
    if delta is not None and budget is not None:
        raise ValueError(f"delta is {delta} and budget is {budget}: give one of the two")
    if budget == 0:
        raise ValueError("budget is 0, expected at least 1 unit")
    return delta, budget


def under_attack(
    run: runs.Run, split: Split, budget: int, args: argparse.Namespace, options: dict[str, Any], name: str
) -> tuple[float, float]:
    """The share still classified rightly, and the mean distance, under one search's masks."""
    right = distance = 0.0
    rng = stream(args.seed, f"attack {name}")
    common = {"rng": rng, "budgets": budget, "distance": args.distance, "scale": args.scale}
    for rows in in_order(len(split), 250):
        x, y = take(split, rows)
        batch = Batch(x, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = find_adversary(run.model, run.params, batch, **common, **options)
        assert trace.d is not None
        m = {site: masks.scale(eps, args.scale) for site, eps in trace.eps.items()}
        features, _, _ = run.model.body(run.params, batch, masks=m, noise=None)
        right += float((run.model.logits(run.params, features)[-1].argmax(axis=-1) == y).sum())
        distance += float(trace.d.sum())
    return right / len(split), distance / len(split)


def accuracy(run: runs.Run, split: Split) -> float:
    """The share classified rightly by the full network."""
    return float((run.predict(split.x).argmax(axis=-1) == split.y).mean())


def predict(args: argparse.Namespace) -> None:
    """Class and probability of each image, a line each: of a .npy file, or of the test images."""
    if args.explain or args.units is not None:
        raise ValueError(f"{args.run} is a run of images, and --explain is for texts: leave out --explain and --units")
    if args.images is None:
        run, data = open_run(args)
        x, labels = data.test.x[: args.examples], data.test.y[: args.examples]
    else:
        run = runs.load(args.run)
        x, labels = _images(Path(args.images), run), None
    p = run.predict(x)
    print("image\tclass\tprobability" + ("\tlabel" if labels is not None else ""))
    for n, row in enumerate(p):
        label = "" if labels is None else f"\t{labels[n]}"
        print(f"{n}\t{row.argmax()}\t{row.max():.4f}{label}")


def _images(path: Path, run: runs.Run) -> Array:
    """Images (N, rows, columns) of a .npy file, read as the run's sequences."""
    try:
        images = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {path} as an array: {error}") from error
    about = run.config["about"]
    if "images" not in about:
        raise ValueError(f"{run.path} was made in Python and does not say how it reads images: predict there")
    side = 8 if about["images"] == "digits" else 28
    if not isinstance(images, np.ndarray) or images.dtype.kind not in "uif":
        raise ValueError(f"{path} holds no array of numbers, expected images (N, {side}, {side})")
    expect_shape(str(path), images, ("N", side, side), f"as in {about['images']}")
    white = 16 if about["images"] == "digits" else 255
    span = f"from {images.min():g} to {images.max():g}"
    images = images / white if images.dtype == np.uint8 else images
    if not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(f"{path} holds values {span}, expected bytes from 0 to {white} (uint8) or numbers from 0 to 1")
    return sequences(images.astype(about["dtype"]), by=about["by"], pool=about["pool"], permute=about["permuted"])


def show(args: argparse.Namespace) -> None:
    """Write the figures of a run."""
    from minadv import plots

    run, data = open_run(args)
    out = Path(args.out or run.path or ".")
    out.mkdir(parents=True, exist_ok=True)
    figures = {"curves.png": plots.curves(run.records)} if run.records else {}
    x, y = take(data.test, slice(0, args.examples))
    budget = own_budget(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = find_adversary(
            run.model, run.params, Batch(x, y), rng=stream(0, "show"), budgets=budget, search="reselect", adv_steps=2
        )
    for site, name in plots.by_site("influence", trace.eps).items():
        figures[name] = plots.influence(trace, y, site)
    if run.records and "valid_mean_mask" in run.records[0]:
        for site, name in plots.by_site("masks", trace.eps).items():
            figures[name] = plots.masks_by_epoch(run.records, site)
    for name, figure in figures.items():
        print(plots.save(figure, out / name))


def open_run(args: argparse.Namespace) -> tuple[runs.Run, Images]:
    """A run and its data."""
    run = runs.load(args.run)
    return run, from_description(tasks.moved(run.config["about"], args.data_dir))
