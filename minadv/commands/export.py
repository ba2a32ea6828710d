r"""``minadv export``: the best weights of a run as one safetensors file, with a JSON card that says what they are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from minadv.base.files import plain, write_whole
from minadv.tasks import export
from minadv.tasks.run import load
from minadv.training.runs.packing import arrays_to_bytes


def add_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """The options of ``minadv export``."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--out", metavar="FILE", help="file to write, and FILE.json beside it (default: RUN/LAYOUT.safetensors)"
    )
    parser.add_argument(
        "--layout",
        choices=export.LAYOUTS,
        default="minadv",
        help="names and shapes of the arrays: minadv's, or those of a PyTorch state dict",
    )


def work(args: argparse.Namespace) -> None:
    """Write the two files, and print their names."""
    path = Path(args.out or Path(args.run) / f"{args.layout}.safetensors")
    beside = path.parent / f"{path.name}.json"
    export.expect_target(path, beside)
    run = load(args.run)
    held = export.arrays(run, args.layout)
    path.parent.mkdir(parents=True, exist_ok=True)
    card = json.dumps(export.card(run, args.layout, held), indent=1, default=plain).encode() + b"\n"
    write_whole(beside, card)  # first: it marks the other as an export, which may be written over
    write_whole(path, arrays_to_bytes(held))
    print(path)
    print(beside)
