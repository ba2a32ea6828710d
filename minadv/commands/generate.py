r"""``minadv generate``: text from a language model, word by word."""

from __future__ import annotations

import argparse
import shutil
import textwrap

from minadv.commands.numbers import many, seed, zero_or_more
from minadv.commands.running import add_device, device_of
from minadv.data.language import topics
from minadv.data.vocabulary import EOS
from minadv.tasks.family import of_run
from minadv.tasks.run import load


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv generate``."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--words", type=many, default=100, metavar="N", help="number of words")
    parser.add_argument(
        "--temperature",
        type=zero_or_more,
        default=1.0,
        metavar="T",
        help="the higher, the more random; 0: always the likeliest word",
    )
    parser.add_argument("--prompt", default="", metavar="TEXT", help="words that the text goes on from (default: none)")
    parser.add_argument("--unknown", action="store_true", help="let <unk>, which stands for rare words, be drawn too")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed that decides the words")
    add_device(parser)


def work(args: argparse.Namespace) -> None:
    """Print the prompt and the words after it, in lines as wide as the terminal."""
    of_run(args.run).can("generate", args.run)
    run = load(args.run).on(device_of(args))
    prompt = topics.tokens(args.prompt) if run.config["corpus"]["name"] == "pydoc" else args.prompt.split()
    how = {"temperature": args.temperature, "seed": args.seed, "unknown": args.unknown}
    generated = list(run.generate(args.words, prompt=prompt, **how))
    text = " ".join([*prompt, *generated])
    width = min(100, shutil.get_terminal_size().columns)
    for line in text.split(EOS):
        print("\n".join(textwrap.wrap(line.strip(), width, break_long_words=False)))
