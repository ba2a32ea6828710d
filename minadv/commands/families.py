r"""Families of tasks with options of their own, beside the images that `minadv.commands.tasks` has: texts, languages.

A family is a module of `minadv.commands`. It has ``TASKS``, the names that ``minadv train`` takes with a line about
each; ``options(parser)`` for these tasks and ``defaults(task)``, what stands for options that are not given; and a
function for each command that works on its runs: ``train(args)``, ``resume(path, args)``, ``evaluation(args)``,
``predict(args)``, ``attack(args)``, ``show(args)``, of which it may leave out those that mean nothing for it.
``add_commands(commands, command)`` adds commands of its own. A run's configuration says by its kind which family it
belongs to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from minadv.backend import Device, DeviceName, choose_device
from minadv.base import launch
from minadv.training.loop import Interrupted
from minadv.training.parallel.processes import WorkerError
from minadv.training.runs.folder import CONFIG, RunError, how_to_resume, kind_of, read_config

MODULES: dict[str, str] = {
    "text": "minadv.commands.text",
    "pretrain": "minadv.commands.text",
    "lm": "minadv.commands.language",
}
"""The family's module by the kind of its runs."""


def all_families() -> list[Any]:
    """The families, each once."""
    return [import_module(name) for name in dict.fromkeys(MODULES.values())]


def of_task(task: str) -> Any:
    """The family that has a task; None for the images."""
    return next((family for family in all_families() if task in family.TASKS), None)


def of_run(path: str | Path) -> Any:
    """The family that a run belongs to; None for the images."""
    kind = kind_of(read_config(Path(path)))
    if kind == "classify":
        return None
    if kind not in MODULES:
        raise RunError(f"{path} is a run of the kind {kind!r}, which this version of minadv does not know")
    return import_module(MODULES[kind])


def told(name: DeviceName) -> Device:
    """The device of an evaluation; of any other than the CPU it is said why."""
    device = choose_device(name)
    if name != "cpu":
        print(f"device: {device.why}", file=sys.stderr, flush=True)
    return device


def dispatched(name: str, otherwise: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """A command that goes to the run's family, or, for images, to ``otherwise``."""

    def work(args: argparse.Namespace) -> None:
        family = of_run(args.run)
        if family is None:
            otherwise(args)
        elif hasattr(family, name):
            getattr(family, name)(args)
        else:
            kind = kind_of(read_config(Path(args.run)))
            raise ValueError(f"{args.run} is a run of the kind {kind!r}, which {args.command} is not for")

    return work


@contextmanager
def resumable(out: Path | str) -> Iterator[None]:
    """Within it, whoever interrupts training, or has a worker killed, is told how to go on."""
    try:
        yield
    except (Interrupted, WorkerError) as said:
        raise type(said)(f"{said}; {_how_to_go_on(out)}") from None
    except KeyboardInterrupt:
        if not (Path(out) / CONFIG).exists():
            raise
        raise Interrupted(f"stopped before the first step of this call; {_how_to_go_on(out)}") from None


def _how_to_go_on(out: Path | str) -> str:
    return f"go on with: {launch.place().command}{how_to_resume(out)}"
