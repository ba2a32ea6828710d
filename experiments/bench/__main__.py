r"""Speed, memory and accuracy of one AdD training step: minadv, PyTorch, JAX, textbook NumPy, and the machine's limit.

``python -m experiments.bench`` measures everything (up to two hours on two quiet cores) and writes bench.json, .md
and .png under experiments/results. Parts and sizes may be run apart: what is measured replaces its like in bench.json,
the rest stays, and the tables are made anew from all of it. PyTorch and JAX take part where they are installed.

* speed: every contender in every setting, then the best in interleaved rounds (`experiments.bench.speed`);
* memory: peak memory of each in its own process;
* accuracy: float32 against float64, minadv and PyTorch on the same weights;
* scaling, searches, subnormals, remat: minadv by itself (`experiments.bench.measures`).

``python -m experiments.bench --device gpu`` is another thing: it checks and times a GPU (`experiments.bench.gpu`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench import figure as bench_figure
from experiments.bench import measures as bench_measures
from experiments.bench import report as bench_report
from experiments.bench.contenders.problem import Size
from experiments.bench.contenders.processes import ContenderError, call
from experiments.bench.contenders.registry import FAMILIES, OURS, Family
from experiments.bench.speed import measure_memory, race, say
from experiments.parts import records, reporting
from minadv.commands.parsing import Parser

SIZES = {
    "S": Size("S", T=784, B=100, I=1, H=100, delta=0.03),
    "text": Size("text", T=40, B=64, I=256, H=1024, delta=0.04),
    "lm": Size("lm", T=70, B=20, I=400, H=1150, delta=0.06),
    "text400": Size("text400", T=400, B=64, I=256, H=1024, delta=0.04),
}
"""The sizes of the paper's three tasks; text400, texts at their full length, is for minadv alone."""

QUIET = 0.1
"""If other processes use more than this share of the cores' time, measurements cannot be trusted."""

ALONE = ("text400",)
SUBNORMAL = ("S",)
REMAT = ("S", "text400")
PARTS = ("speed", "memory", "accuracy", "scaling", "searches", "subnormals", "remat")


def chosen_families(size: str, names: Sequence[str] | None) -> list[Family]:
    """The contenders of a size: those of these names, all if None; minadv always."""
    if size in ALONE:
        return [FAMILIES[OURS]]
    return [family for name, family in FAMILIES.items() if names is None or name in names or name == OURS]


def best_settings(results: dict[str, Any], size: str) -> dict[str, str]:
    """The setting of each family that won its race at a size, where there was one."""
    contenders = results.get("speed", {}).get(size, {}).get("contenders", {}).values()
    ranked = sorted(contenders, key=lambda c: -float(np.median(c["seconds"]["1"])))
    return {c["family"]: c["setting"] for c in ranked}  # the fastest comes last, and so stays


def measure(part: str, size: Size, args: argparse.Namespace, results: dict[str, Any], save: Any) -> Any:
    """One part at one size; ``save`` is that of a race."""
    families = chosen_families(size.name, args.contenders)
    measures, alone = bench_measures.__name__, size.name in ALONE
    rounds = min(2, args.rounds) if alone else args.rounds
    if part == "speed":
        return race(families, size, rounds, (1,) if alone else (1, 2), checked=not alone, save=save)
    if part == "memory":
        compared = [family for family in families if family.compares]
        return measure_memory(compared, size, best_settings(results, size.name))
    if part == "accuracy":
        return call(f"{measures}:accuracy", threads=1, size=size, seeds=list(range(args.seeds)))
    return call(f"{measures}:{part}", size=size, rounds=rounds)


def sizes_of(part: str, names: Sequence[str]) -> list[str]:
    """Which of these sizes a part is about."""
    raced = [name for name in SIZES if name not in ALONE]
    about = {"accuracy": raced, "searches": raced, "subnormals": SUBNORMAL, "remat": REMAT}
    return [name for name in names if name in about.get(part, SIZES)]


def busy(seconds: float = 1.0) -> float:
    """The share of the cores' time that others use now, when nothing is measured; 0 where the system does not tell."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None or after[1] == before[1]:
        return 0.0
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def _ticks() -> tuple[int, int] | None:
    """Idle and total time of all cores."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    counts = [int(count) for count in stat.read_text().split("\n", 1)[0].split()[1:9]]
    return counts[3] + counts[4], sum(counts)


def facts(started: float, others: float, arguments: Sequence[str], **settings: Any) -> dict[str, Any]:
    """The facts of a measurement, with the versions of the libraries that competed."""
    found: dict[str, str | None] = {}
    for name in ("torch", "jax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    told = {**reporting.facts(started), **found, "busy": others, **settings}
    return {**told, "command": reporting.command("bench", arguments)}


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(
        prog="python -m experiments.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="sizes: " + "; ".join(map(str, SIZES.values())),
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default all)")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), help="at which sizes")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seeds", type=int, default=5, help="networks for the accuracy (default 5)")
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=list(FAMILIES),
        metavar="NAME",
        help="who competes beside minadv (default all)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="gpu: instead of all this, check and time a GPU, and write one file to send back",
    )
    parser.add_argument("--report-only", action="store_true", help="make text and figure anew from bench.json")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    for name in ("rounds", "seeds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}, expected at least 1")

    if args.device == "gpu":
        from experiments.bench import gpu

        args.out = Path() if args.out == reporting.RESULTS else args.out  # whose numbers are kept is not decided here
        failed_settings = gpu.run(args, sys.argv[1:] if argv is None else argv)
        if failed_settings:
            sys.exit(f"python -m experiments.bench: {failed_settings} of the steps failed or were wrong: see the file")
        return
    path = args.out / "bench.json"
    results: dict[str, Any] = reporting.read_results(path) if path.exists() else {}
    if args.report_only:
        if not results:
            parser.error(f"--report-only: {path} is not there")
        write(args.out, results)
        return
    if "speed" in args.parts:
        for name in sizes_of("speed", args.sizes):
            raced = {c["family"] for c in results.get("speed", {}).get(name, {}).get("contenders", {}).values()}
            lost = raced - {family.name for family in chosen_families(name, args.contenders)}
            if lost:
                parser.error(f"{path} has a race at {name} with {', '.join(sorted(lost))} too: give another --out")
    failed: list[str] = []
    for part in (part for part in PARTS if part in args.parts):
        for name in [""] if part == "scaling" else sizes_of(part, args.sizes):
            try:
                run_part(part, name, args, results, sys.argv[1:] if argv is None else argv)
            except ContenderError as error:
                failed.append(f"{part} {name}".strip() + f": {error}")
                say(f"{failed[-1]}; going on without it")
    write(args.out, results)
    if failed:
        sys.exit("\n".join(["python -m experiments.bench: not measured:", *failed]))


def run_part(part: str, name: str, args: argparse.Namespace, results: dict[str, Any], argv: Sequence[str]) -> None:
    """One part at one size ("": the part has none), into the results and into bench.json, a race after every round."""
    what, others = f"{part} {name}".strip(), busy()
    quiet = "" if others < QUIET else ": that is no machine to measure on"
    say(f"{what}: begins; others keep the cores {100 * others:.0f} % busy{quiet}")
    started = time.time()

    def keep(found: Any) -> None:
        if name:
            results.setdefault(part, {})[name] = found
        else:
            results[part] = found
        results.setdefault("facts", {})[what] = facts(started, others, argv, rounds=args.rounds)
        reporting.write_results(args.out / "bench.json", results)

    if part == "scaling":
        function = f"{bench_measures.__name__}:scaling"
        keep(call(function, threads=1, rounds=args.rounds, scales=bench_measures.SCALES))
    else:
        keep(measure(part, SIZES[name], args, results, keep))


def write(out: Path, results: dict[str, Any]) -> None:
    """The tables and the figure, from all that there is."""
    written = records.plain(results)
    text = bench_report.text(written)
    paths = [
        out / "bench.json",
        reporting.write(out / "bench.md", text),
        reporting.save_figure(bench_figure.figure(written), out / "bench.png"),
    ]
    print(text)
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
