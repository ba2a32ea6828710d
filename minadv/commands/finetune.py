r"""``minadv finetune``: averaged SGD from the best weights of a language model's run, without its regularizer."""

from __future__ import annotations

import argparse
from pathlib import Path

from minadv.backend import choose_device
from minadv.commands.numbers import epochs, few, folder, many, rate, seed
from minadv.commands.options import DEVICES, OPTIONS
from minadv.commands.training import train
from minadv.tasks.family import of_run
from minadv.tasks.run import open_run
from minadv.training.runs.folder import expect_free


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv finetune``."""
    parser.add_argument("run", metavar="RUN", help="folder of the run whose best weights to begin with")
    parser.add_argument(
        "--data-dir", type=folder, metavar="DIR", help="folder of the text, if it is no longer where it was"
    )
    parser.add_argument("--out", metavar="RUN2", help="folder to write (default: RUN-finetuned)")
    parser.add_argument("--epochs", type=epochs, help="number of epochs (default: as many as the run had)")
    parser.add_argument(
        "--lr", type=rate, help="learning rate (default: the run's, or 30 if it used neither SGD nor ASGD)"
    )
    parser.add_argument("--patience", type=many, metavar="N", help="stop after N evaluations without a better one")
    parser.add_argument("--seed", type=seed, metavar="N", help="seed of windows and masks (default: the run's + 1)")
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="where to compute; auto: on the GPU if it works"
    )
    parser.add_argument("--tf32", **OPTIONS["tf32"])
    parser.add_argument("--sample", **OPTIONS["sample"])
    parser.add_argument(
        "--workers", type=few, metavar="N", help="workers that share each batch (default: all cores, if it pays)"
    )


def work(args: argparse.Namespace) -> None:
    """Go on from the best weights of a run, in a new run."""
    run_folder = Path(args.run).resolve() if Path(args.run).name in ("", "..") else Path(args.run)
    out = Path(args.out) if args.out else run_folder.with_name(f"{run_folder.name}-finetuned")
    expect_free(out)
    plan_finetuning = of_run(args.run).can("finetune", args.run)
    before = open_run(args.run, args.data_dir)
    about = {**before.config["about"], "sample": args.sample}
    about["data_dir"] = args.data_dir or about.get("data_dir")
    settings = {name: getattr(args, name) for name in ("epochs", "lr", "seed", "patience")}
    device = choose_device(args.device, tf32=args.tf32)
    train(plan_finetuning(before, before.data, device=device, out=out, about=about, **settings), args)
