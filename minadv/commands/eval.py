r"""``minadv eval``: the error or perplexity of a run on its data."""

from __future__ import annotations

import argparse

from minadv.commands.running import add_device, add_run, add_workers, device_of
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
    add_device(parser)


def work(args: argparse.Namespace) -> None:
    """Print one line of results; with ``--device`` other than cpu, also the device and why, on standard error."""
    run = open_run(args.run, args.data_dir)
    metrics = run.evaluate(args.part, last=args.last, device=device_of(args), workers=args.workers)
    metric = run.family.metrics[0]
    value = f"{metrics[metric]:.2f}{' %' if metric == 'error' else ''}"
    print(f"{args.part} {metric} {value}, loss {metrics['loss']:.4f} ({run.family.size(run, args.part)})")
