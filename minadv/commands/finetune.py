r"""``minadv finetune``: averaged SGD from the best weights of a language model's run, without its regularizer."""

from __future__ import annotations

import argparse
from pathlib import Path

from minadv.backend import choose_device
from minadv.commands.numbers import amount, count, folder, positive
from minadv.commands.options import DEVICES
from minadv.commands.training import train
from minadv.tasks.family import of_run
from minadv.tasks.run import open_run
from minadv.training.runs.folder import expect_free


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv finetune``."""
    parser.add_argument("run", metavar="RUN", help="folder of the run to begin with")
    parser.add_argument(
        "--data-dir", type=folder, metavar="DIR", help="folder of the text, if it is no longer where it was"
    )
    parser.add_argument("--out", metavar="RUN2", help="folder to write (default: RUN-finetuned)")
    parser.add_argument("--epochs", type=amount, help="passes over the text (default: as many as the run made)")
    parser.add_argument("--lr", type=amount, help="learning rate (default: the run's, 30 where that was not SGD's)")
    parser.add_argument("--patience", type=positive, metavar="N", help="stop after N evaluations without a better one")
    parser.add_argument("--seed", type=count, metavar="N", help="of windows and masks (default: the run's + 1)")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="auto: the GPU if it works")
    parser.add_argument("--workers", type=positive, metavar="N", help="workers that share a batch")


def work(args: argparse.Namespace) -> None:
    """Train the best weights of a run on, into a run of its own."""
    whole = Path(args.run).resolve() if Path(args.run).name in ("", "..") else Path(args.run)
    out = Path(args.out) if args.out else whole.with_name(f"{whole.name}-finetuned")
    expect_free(out)
    plan_finetuning = of_run(args.run).can("finetune", args.run)
    before = open_run(args.run, args.data_dir)
    about = {**before.config["about"], "data_dir": args.data_dir or before.config["about"].get("data_dir")}
    given = {name: getattr(args, name) for name in ("epochs", "lr", "seed", "patience")}
    device = choose_device(args.device)
    train(plan_finetuning(before, before.data, device=device, out=out, about=about, **given), args)
