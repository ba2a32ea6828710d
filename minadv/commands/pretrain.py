r"""``minadv pretrain``: the language model that a classifier of texts begins with."""

from __future__ import annotations

import argparse
from pathlib import Path

from minadv.commands import configuration, options
from minadv.commands.numbers import folder
from minadv.commands.parsing import CommandParser
from minadv.commands.training import new_runs, old_run
from minadv.tasks.family import of_kind


def expand(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    """The arguments, after those of the file that --config names."""
    return configuration.expand(parser, arguments, "task")


def add_options(parser: CommandParser, arguments: list[str]) -> None:
    """The options of ``minadv pretrain``; the text among the arguments decides their defaults."""
    parser.usage = "minadv pretrain TEXT [--out RUN] [options]\n       minadv pretrain --resume RUN"
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="imdb, elec, docstrings (no download), a folder of texts, or text: the folder that --data-dir names",
    )
    family, text = of_kind("pretrain"), options.first_argument(arguments)
    options.add_options(parser, family, family.presets.get(text or "") or (family.presets["text"] if text else None))


def work(args: argparse.Namespace) -> None:
    """Train a new run of a language model, or resume one."""
    if args.resume is not None:
        options.expect_only_resuming(args, "text")
        old_run(args)
        return
    if not args.text:
        raise ValueError(
            "give a text, one of imdb, elec, docstrings, text with --data-dir or a folder, or --resume RUN"
        )
    args.task, args.method = args.text, "none"
    if args.text not in args.family.presets:
        if args.data_dir is not None:
            both = f"--data-dir is {args.data_dir} and the text the folder {args.text}"
            raise ValueError(f"{both}: give one of the two")
        args.task, args.data_dir = "text", folder(args.text)
    name = Path(args.data_dir).resolve().name if args.task == "text" and args.data_dir else args.task
    new_runs(args, f"{name}-lm")
