r"""``minadv train``: train a new run of a task, or resume one."""

from __future__ import annotations

import argparse
from pathlib import Path

from minadv.commands import options
from minadv.commands.training import new_run, old_run
from minadv.tasks.family import TASKS, of_task

DEFAULT = "digits"


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv train``; the task among the arguments decides which these are."""
    task = options.first_argument(arguments)
    if task not in (None, *TASKS):
        parser.prog = parser.prog.split()[0]
        parser.error(f"train: {task!r} is not a task, expected one of {', '.join(TASKS)}")
    family = of_task(task or DEFAULT)
    about = f"one of {', '.join(TASKS)} (default: {DEFAULT})"
    if task is not None:
        parser.usage = f"minadv train {task} [--out RUN] [options]"
        parser.description = f"train on a task: {family.presets[task].about}"
    else:
        parser.usage = "minadv train [TASK] [--out RUN] [options]\n       minadv train --resume RUN"
        if {"-h", "--help"} & set(arguments):  # the only time that a line about every task is needed
            tasks = "; ".join(f"{name}: {of_task(name).presets[name].about}" for name in TASKS)
            about = f"{tasks} (default: {DEFAULT}); minadv train TASK --help tells the options of a task"
    parser.add_argument("task", nargs="?", choices=TASKS, metavar="TASK", help=about)
    options.add_options(parser, family, family.presets[task or DEFAULT])
    if task is not None:
        parser.prog = f"minadv train {task}"


def work(args: argparse.Namespace) -> None:
    """Train a new run, or resume one."""
    if args.resume is not None:
        options.expect_only_resuming(args, "task")
        old_run(args)
        return
    args.task = args.task or DEFAULT
    new_run(args, Path(args.out or f"runs/{args.task}-{args.method}-seed{args.seed}"))
