r"""Table 1: sequential images, every method, several seeds.

``python -m experiments.table1``: the paper's sizes, for a GPU and days; `experiments.compare` makes tables of smaller
networks. Killed, it goes on where it stopped when the same command is given again. Writes table1-PRESET.json, .md and
.png under experiments/results; with other methods or seeds than the preset's, beside the runs instead. ``--estimate``
tells in a minute how long the whole command would take here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.parts import comparison, comparison_report, cost, records, reporting
from experiments.parts.comparison import AVAILABLE, METHODS, Preset
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.training.parallel.ranks import only_first_prints

PRESETS = {
    preset.name: preset
    for preset in (
        Preset("paper", "mnist", "pixel", 1, 100, 250, 10, "rmsprop", 1e-3, about="MNIST pixel by pixel, T = 784"),
    )
}


@only_first_prints()
@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.table1", description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="paper", help="size (paper)")
    parser.add_argument("--seeds", type=positive, help="networks for each method (default: the preset's)")
    parser.add_argument(
        "--methods", nargs="+", choices=AVAILABLE, default=list(METHODS), help="(default: all but RDrop)"
    )
    parser.add_argument("--data-dir", help="folder of MNIST's idx files")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/table1"), help="folder of the runs (runs/table1)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: see above)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--estimate", action="store_true", help="time a few steps, and tell how long the whole command would take"
    )
    instead.add_argument("--report-only", action="store_true", help="make text and figure anew from the JSON file")
    args = parser.parse_args(argv)
    preset = PRESETS[args.preset]
    seeds = args.seeds or preset.seeds
    whole = seeds == preset.seeds and list(args.methods) == list(METHODS)
    out = args.out or (reporting.RESULTS if whole else args.runs)
    path = out / f"table1-{preset.name}.json"
    if args.estimate:
        write_estimate(preset, args, seeds, path.with_name(f"table1-{preset.name}-cost.json"), argv)
        return
    if args.report_only:
        write(path, reporting.read_results(path))
    else:
        started = time.time()
        searched, results = comparison.compare(
            preset, methods=args.methods, seeds=seeds, root=args.runs, data_dir=args.data_dir, **reporting.place(args)
        )
        about = reporting.facts(started, seeds=seeds, preset=asdict(preset))
        about["command"] = reporting.command("table1", argv)
        data = records.plain({"facts": about, "search": searched, "results": results})
        reporting.write_results(path, data)
        write(path, data)


def write_estimate(preset: Preset, args: Any, seeds: int, path: Path, argv: Sequence[str] | None) -> None:
    """Estimate and write what the command without ``--estimate`` would cost here."""
    started, placed = time.time(), reporting.place(args)
    first = comparison.first_job(preset, root=args.runs, data_dir=args.data_dir, device=placed["device"])
    rows = cost.estimate(first, args.methods, seeds, placed["workers"])
    about = reporting.facts(started, seeds=seeds, workers=placed["workers"], preset=asdict(preset))
    about["command"] = reporting.command("table1", argv)
    data = records.plain({"facts": about, "rows": rows})
    text = cost.page(data)
    paths = [reporting.write_results(path, data), reporting.write(path.with_suffix(".md"), text)]
    print(text)
    print("written:", *paths, sep="\n  ")


def write(path: Path, data: dict[str, Any]) -> None:
    """Write the text and the figure beside the JSON file ``path``, whose numbers they are made from."""
    paths = [
        path,
        reporting.write(path.with_suffix(".md"), page(data)),
        reporting.save_figure(figure(data), path.with_suffix(".png")),
    ]
    print(tables(data))
    print("written:", *paths, sep="\n  ")


def shown(data: dict[str, Any]) -> tuple[Preset, list[dict[str, Any]], list[str]]:
    """The preset of the results, the results of its runs, and their methods in the order of the table."""
    results = data["results"]
    methods = [method for method in AVAILABLE if any(r["method"] == method for r in results)]
    return Preset(**records.tuples(data["facts"]["preset"])), results, methods


def tables(data: dict[str, Any]) -> str:
    """The table with its verdict."""
    return f"{comparison_report.table(*shown(data))}\n\n{comparison_report.verdict(*shown(data))}\n"


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    preset, results, _ = shown(data)
    about = data["facts"]
    return heading(preset, about["seeds"], about, [*data["search"], *results]) + tables(data)


def figure(data: dict[str, Any]) -> Any:
    """Test errors of every seed, and mean validation curves."""
    return comparison_report.figure(*shown(data))


def heading(preset: Preset, seeds: int, about: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    """The paragraph that says what the numbers are and how they were made."""
    several = f"""mean ± standard deviation over {seeds} seeds; P values of a
paired Wilcoxon test, not corrected for the number of tests"""
    known = any("made" in run for run in runs)
    made = reporting.made_by(runs) if known else f"{about['cpu']}, {reporting.at_commit(about)}"
    return f"""# Table 1, {preset.name}

{preset.about}; s: scanline order, p: one fixed permutation of the pixels. LSTM of {preset.n_hidden} units,
{preset.epochs:g} epochs, batches of {preset.batch}, {preset.optimizer} at {preset.lr:g}; strength (p of VD and FD, δ of
AdD) and weight (VD has none) chosen on validation data from four settings a method (one seed; `none` has nothing
to choose). Test error of the weights of the last step, {several if seeds > 1 else "one seed"}.
`{about["command"]}`, {reporting.core_time(runs)} in {len(runs)} runs, the last part of the command
{about["seconds"]} s on {about["cores"]} cores, NumPy {about["numpy"]}. Made on: {made}.

"""


if __name__ == "__main__":
    main()
