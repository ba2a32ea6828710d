r"""What the commands that ask something of a run have in common."""

from __future__ import annotations

import argparse
from typing import Any

from minadv.backend import Device, choose_device
from minadv.commands.numbers import few
from minadv.commands.options import DEVICES
from minadv.commands.training import say
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


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the option of where to compute."""
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute; auto: the GPU if it works")


def device_of(args: argparse.Namespace) -> Device:
    """The device that a command was asked for; any but the CPU is told on standard error, and why."""
    device = choose_device(args.device)
    if args.device != "cpu":
        say(f"device: {device.why}")
    return device


def open_for(verb: str, args: argparse.Namespace) -> tuple[Run, Any]:
    """A run with its data on the device, and its family's function for a command; RunError at once if it has none."""
    function = of_run(args.run).can(verb, args.run)
    run = open_run(args.run, args.data_dir)
    run.expect_finite(run.params)
    return run.on(device_of(args)), function
