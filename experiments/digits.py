r"""The paper's claim on a small scale, in a few minutes and without a download.

``python -m experiments.digits`` trains LSTMs on scikit-learn's digits, read row by row (T = 8), plain and with permuted
pixels, without a regularizer and with VD, FD and three kinds of adversarial dropout, and prints a table like the
paper's Table 1 with the paths of its figures. One seed shows how it works, not which method is better: that takes
``python -m experiments.compare digits``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.parts import comparison, comparison_report, reporting
from experiments.parts.comparison import METHODS, Preset
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.training.parallel.ranks import only_first_prints

PRESET = Preset("digits-rows", "digits", "row", 1, 100, 30, 1, search=False, about="8 x 8 digits row by row, T = 8")


@only_first_prints()
@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.digits", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=1, help="networks for each method (default 1)")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/digits"), help="folder of the runs (runs/digits)")
    parser.add_argument("--out", type=Path, default=Path("runs/digits"), help="folder for the table and the figures")
    args = parser.parse_args(argv)
    started = time.time()
    _, results = comparison.compare(
        PRESET, methods=METHODS, seeds=args.seeds, root=args.runs, data_dir=None, **reporting.place(args)
    )
    about = reporting.facts(started, seeds=args.seeds, preset=asdict(PRESET))
    about["command"] = reporting.command("digits", argv)
    table = comparison_report.table(PRESET, results, METHODS)
    text = f"{table}\n\n{comparison_report.verdict(PRESET, results, METHODS)}\n"
    paths = [
        reporting.write_results(args.out / "digits.json", {"facts": about, "results": results}),
        reporting.write(args.out / "digits.md", text),
        reporting.save_figure(comparison_report.figure(PRESET, results, METHODS), args.out / "digits.png"),
    ]
    size = f"LSTMs of {PRESET.n_hidden} units, {PRESET.epochs:g} epochs, {args.seeds} seed(s)"
    print(f"Test error on 360 images, {size}:")
    print(f"\n{text}")
    if args.seeds == 1:
        print(
            "One seed shows how it works, not which method is better: python -m experiments.compare digits tells that\n"
        )
    print(f"in {about['seconds']} s; written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
