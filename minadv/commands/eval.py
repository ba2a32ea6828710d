r"""``minadv eval``: the error or perplexity of a run on its data."""

from __future__ import annotations

import argparse

from minadv.backend import choose_device
from minadv.commands.options import DEVICES
from minadv.commands.running import add_run, add_workers
from minadv.commands.training import say
from minadv.tasks.run import open_run


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv eval``."""
    add_run(parser)
    add_workers(parser)
    parser.add_argument(
        "--part", choices=("train", "valid", "test"), default="test", help="part of the data to evaluate on"
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="use the weights of the last step, not those that are best on validation data",
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute; auto: the GPU if it works")


def work(args: argparse.Namespace) -> None:
    """Print one line of results; with ``--device`` other than cpu, also the device and why, on standard error."""
    run = open_run(args.run, args.data_dir)
    device = choose_device(args.device)
    if args.device != "cpu":
        say(f"device: {device.why}")
    metrics = run.evaluate(args.part, last=args.last, device=device, workers=args.workers)
    metric = run.family.metrics[0]
    value = f"{metrics[metric]:.2f}{' %' if metric == 'error' else ''}"
    print(f"{args.part} {metric} {value}, loss {metrics['loss']:.4f} ({run.family.size(run, args.part)})")
