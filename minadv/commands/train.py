r"""``minadv train``: train a new run of a task, or resume one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from minadv.base.errors import DataError
from minadv.commands import configuration, options
from minadv.commands.numbers import folder
from minadv.commands.parsing import CommandParser, Listed
from minadv.commands.training import new_runs, old_run
from minadv.tasks.family import TASKS, of_task

DEFAULT = "digits"


def expand(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    """The arguments, after those of the file that --config names."""
    return configuration.expand(parser, arguments, "task")


def add_options(parser: CommandParser, arguments: list[str]) -> None:
    """The options of ``minadv train``; the task among the arguments decides which these are."""
    task = options.first_argument(arguments)
    own = None if task in (None, *TASKS) else task
    if own is not None:
        task = _task_of(parser, own)
    family = of_task(task or DEFAULT)
    about = f"one of {', '.join(TASKS)} (default: {DEFAULT}), or a folder of your own"
    listed: dict[str, str] = {}
    if task is not None:
        parser.usage = f"minadv train {task} [--out RUN] [options]"
        parser.description = f"train on a task: {family.presets[task].about}"
    else:
        parser.usage = "minadv train [TASK] [--out RUN] [options]\n       minadv train --resume RUN"
        if set(options.HELP) & set(arguments):  # the only time that a line about every task is needed
            listed = {name: of_task(name).presets[name].about for name in TASKS}
            about = f"a folder of your own, or one of these (default: {DEFAULT}); minadv train TASK --help tells the "
            about += "options of a task"
    choices = TASKS if own is None else None
    parser.add_argument("task", action=Listed, values=listed, nargs="?", choices=choices, metavar="TASK", help=about)
    options.add_options(parser, family, family.presets[task or DEFAULT])
    if task is not None:
        parser.prog = f"minadv train {task}"


def _task_of(parser: argparse.ArgumentParser, given: str) -> str:
    """The task that a folder or file of the user's own is for."""
    from minadv.tasks.own import recognise

    try:
        if not given:
            raise DataError("'' is no name")
        return recognise(Path(given).expanduser())
    except (DataError, RuntimeError) as error:  # the latter: a home folder that nobody has
        parser.prog = parser.prog.split()[0]
        known = f"expected a folder of your own or one of {', '.join(TASKS)}"
        there = os.path.exists(given) or "/" in given
        parser.error(f"train: {error}" if there else f"train: {given[:100]!r} is no task and no folder, {known}")


def work(args: argparse.Namespace) -> None:
    """Train a new run, or resume one."""
    if args.resume is not None:
        options.expect_only_resuming(args, "task")
        old_run(args)
        return
    args.task = name = args.task or DEFAULT
    if args.task not in TASKS:
        if args.data_dir is not None:
            both = f"--data-dir is {args.data_dir} and the data are {args.task}"
            raise ValueError(f"{both}: give one of the two")
        args.data_dir = folder(args.task)
        name, args.task = Path(args.data_dir).stem, next(n for n, p in args.family.presets.items() if p is args.preset)
    new_runs(args, f"{name}-{args.method}")
