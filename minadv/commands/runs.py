r"""``minadv runs``: list runs, compare them, draw their curves, and hand their logs to other programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minadv.commands.training import say
from minadv.tasks import listing
from minadv.tasks.listing import Listed
from minadv.training.runs.folder import expect_foreign

HEAD = ("run", "task", "method", "seed", "steps", "best on validation data")


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv runs``."""
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="runs, or folders with runs in them (default: the folder runs)"
    )
    parser.add_argument("--compare", action="store_true", help="also print the settings in which the runs differ")
    parser.add_argument("--draw", metavar="FILE", help="write the learning curves of all runs as one PNG image")
    parser.add_argument("--csv", action="store_true", help="print every evaluation as CSV instead")
    parser.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="write the evaluations for TensorBoard, a folder a run; needs minadv[tensorboard]",
    )


def work(args: argparse.Namespace) -> None:
    """Print a row for each run, or what else is asked for."""
    if not args.runs and not Path("runs").is_dir():
        print("there are no runs here yet: minadv train makes the first, in the folder runs")
        return
    runs, unreadable = listing.expect_runs([Path(run) for run in args.runs or ["runs"]])
    if args.csv:
        print(listing.as_csv(runs), end="")
        for run in unreadable:
            say(f"{run.path} cannot be read: {run.reason}")
    else:
        rows = [*(run.row() for run in runs), *(run.row() for run in unreadable)]
        print("\n".join(listing.table([HEAD, *rows])))
    if args.compare:
        _compare(runs)
    if args.draw is not None:
        _draw(runs, Path(args.draw))
    if args.tensorboard is not None:
        _for_tensorboard(runs, Path(args.tensorboard))


def _compare(runs: Sequence[Listed]) -> None:
    if len(runs) < 2:
        raise ValueError(f"--compare needs two runs or more that can be read, and there is {len(runs)}")
    found = listing.differences(runs)
    head = ["setting", *listing.distinct([run.path for run in runs])]
    print("\n".join(["", *(listing.table([head, *found]) if found else ["the runs have the same settings"])]))


def _draw(runs: Sequence[Listed], path: Path) -> None:
    from minadv import plots

    metrics = {run.metric for run in runs}
    if len(metrics) > 1:
        raise ValueError(f"--draw: the runs have {' and '.join(sorted(metrics))}, expected runs of one kind")
    records = {str(run.path): run.records for run in runs if run.records}
    if not records:
        raise ValueError("--draw: no run has an evaluation yet")
    expect_foreign(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    print(plots.save(plots.several(records, metrics.pop()), path))


def _for_tensorboard(runs: Sequence[Listed], root: Path) -> None:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError('TensorBoard\'s files need tensorboardX: pip install "minadv[tensorboard]"') from error
    for run, folder in zip(runs, listing.distinct([run.path for run in runs]), strict=True):
        writer: Any = SummaryWriter(str(root / folder))
        for record in run.records:
            for name, value in listing.scalars(record).items():
                writer.add_scalar(name, value, record["step"])
        writer.close()
        print(root / folder)
