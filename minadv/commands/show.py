r"""``minadv show``: the figures of a run, and for a classifier a table of the classes that it confuses."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import to_host
from minadv.base.pulse import doing
from minadv.base.streams import stream
from minadv.commands.numbers import positive
from minadv.commands.running import add_device, add_run, device_of
from minadv.searches import Reselect
from minadv.tasks import confusion as confusions
from minadv.tasks.attack import one_search_at_a_time, search
from minadv.tasks.reports import heading
from minadv.tasks.run import Run, open_run

RESELECT = {"search": Reselect()}
"""The search whose masks are shown."""


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv show``."""
    add_run(parser)
    add_device(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the figures (default: the run's)")
    parser.add_argument(
        "--examples", type=positive, default=100, metavar="N", help="number of test sequences in the influence map"
    )


def work(args: argparse.Namespace) -> None:
    """Write the figures of the run's family, and print their names; then, of a classifier, the confused classes."""
    from minadv import plots

    run = open_run(args.run, args.data_dir)
    run.expect_finite(run.params)
    run = run.on(device_of(args))
    out = Path(args.out or run.path or ".")
    out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    lines: list[str] = []
    with doing("drawing", len(run.family.figures), "kinds of figures") as work:
        for kind in run.family.figures:
            figures |= FIGURES[kind](run, args.examples)
            work.advance(note=f"{kind} done")
    if run.family.answers is not None:
        counts = confusions.confusion(*run.family.answers(run, "test"), len(run.classes))
        figures["confusion"] = plots.confusion(counts, confusions.errors(counts), run.classes)
        lines = ["", *confusions.table(counts, run.classes)]
    for name, figure in figures.items():
        print(plots.save(plots.entitle(figure, heading(run)), out / f"{name}.png"))
    for line in lines:
        print(line)


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
        found = search(target, batch, state, stream(0, "show"), **RESELECT)
    trace, targets = to_host((replace(found, base=None), batch.targets))
    names = plots.by_site("influence", trace.eps)
    return {name: plots.influence(trace, targets, site, run.classes) for site, name in names.items()}


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
    with one_search_at_a_time(target), ExitStack() as held:
        work = held.enter_context(doing("searching masks", len(target.examples)))
        for batch, state in target.examples:
            work.advance()
            trace = search(target, batch, state, rng, **RESELECT)
            for name, eps in trace.eps.items():
                dropped[name] = dropped[name] + to_host((1 - eps).sum(axis=0))
            n += len(batch)
    return {"units": plots.units({name: np.asarray(counts) / n for name, counts in dropped.items()}, target.budgets)}


FIGURES: dict[str, Callable[[Run, int], dict[str, Any]]] = {
    "curves": curves,
    "influence": influence,
    "masks": masks,
    "units": units,
}
"""The functions that make figures, by the names in `minadv.tasks.family.Family.figures`."""
