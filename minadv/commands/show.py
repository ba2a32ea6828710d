r"""``minadv show``: the figures of a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minadv.base.streams import stream
from minadv.commands.numbers import positive
from minadv.commands.running import add_run
from minadv.searches import Reselect
from minadv.tasks.attack import one_search_at_a_time, search
from minadv.tasks.run import Run, open_run

RESELECT = {"search": Reselect()}
"""The search whose masks are shown."""


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv show``."""
    add_run(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the figures (default: the run's)")
    parser.add_argument(
        "--examples", type=positive, default=100, metavar="N", help="number of test sequences in the influence map"
    )


def work(args: argparse.Namespace) -> None:
    """Write the figures of the run's family, and print their names."""
    from minadv import plots

    run = open_run(args.run, args.data_dir)
    run.expect_finite(run.params)
    out = Path(args.out or run.path or ".")
    out.mkdir(parents=True, exist_ok=True)
    figures = {
        name: figure for kind in run.family.figures for name, figure in FIGURES[kind](run, args.examples).items()
    }
    for name, figure in figures.items():
        print(plots.save(figure, out / f"{name}.png"))


def curves(run: Run, examples: int) -> dict[str, Any]:
    """The learning curves; nothing for a run without an evaluation."""
    from minadv import plots

    return {"curves": plots.curves(run.records, run.family.metrics[0])} if run.records else {}


def influence(run: Run, examples: int) -> dict[str, Any]:
    """The influence map over test examples and the units that a search flips: a figure for each layer."""
    from minadv import plots

    target = run.family.can("attack", run.path)(run, examples, at_once=examples)
    [(batch, state)] = target.examples
    with one_search_at_a_time(target):
        trace = search(target, batch, state, stream(0, "show"), **RESELECT)
    names = plots.by_site("influence", trace.eps)
    return {name: plots.influence(trace, batch.targets, site) for site, name in names.items()}


def masks(run: Run, examples: int) -> dict[str, Any]:
    """The mean adversarial mask by epoch, if the run has logged it: a figure for each layer."""
    from minadv import plots

    if not run.records or "valid_mean_mask" not in run.records[0]:
        return {}
    names = plots.by_site("masks", run.records[0]["valid_mean_mask"])
    return {name: plots.masks_by_epoch(run.records, site) for site, name in names.items()}


def units(run: Run, examples: int) -> dict[str, Any]:
    """How often re-selection drops each unit, over windows of the test text."""
    from minadv import plots

    target = run.family.can("attack", run.path)(run, examples)
    dropped: dict[str, Any] = dict.fromkeys(target.budgets, 0.0)
    n, rng = 0, stream(0, "show")
    with one_search_at_a_time(target):
        for batch, state in target.examples:
            trace = search(target, batch, state, rng, **RESELECT)
            for name, eps in trace.eps.items():
                dropped[name] = dropped[name] + (1 - eps).sum(axis=0)
            n += len(batch)
    return {"units": plots.units({name: np.asarray(counts) / n for name, counts in dropped.items()}, target.budgets)}


FIGURES: dict[str, Callable[[Run, int], dict[str, Any]]] = {
    "curves": curves,
    "influence": influence,
    "masks": masks,
    "units": units,
}
"""The functions that make figures, by the names in `minadv.tasks.family.Family.figures`."""
