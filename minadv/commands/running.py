r"""What the commands that ask something of a run have in common."""

from __future__ import annotations

import argparse
from typing import Any

from minadv.commands.numbers import few
from minadv.tasks.family import of_run
from minadv.tasks.run import Run, open_run


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a run and the folder of its data."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--data-dir", metavar="DIR", help="folder of the data, if it is no longer where it was")


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the option of how many workers share the work."""
    parser.add_argument(
        "--workers", type=few, metavar="N", help="workers that share the work (default: all cores, if it pays)"
    )


def open_for(verb: str, args: argparse.Namespace) -> tuple[Run, Any]:
    """A run with its data, and its family's function for a command; RunError, before data are read, if it has none."""
    function = of_run(args.run).can(verb, args.run)
    run = open_run(args.run, args.data_dir)
    run.expect_finite(run.params)
    return run, function
