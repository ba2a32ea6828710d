r"""Speed, memory and accuracy of one AdD training step: minadv, PyTorch, JAX, textbook NumPy, and the machine's limit.

``python -m experiments.bench`` measures everything (up to two hours on two quiet cores) and writes bench.json, .md
and .png under experiments/results. Parts and sizes may be run apart: what is measured replaces its like in bench.json,
the rest stays, and the tables are made anew from all of it. PyTorch and JAX take part where they are installed.

* speed: every contender in every setting, then the best in interleaved rounds (`experiments.bench_speed`);
* memory: peak memory of each in its own process;
* accuracy: float32 against float64, minadv and PyTorch on the same weights;
* scaling, searches, subnormals, remat: minadv by itself (`experiments.bench_measures`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from experiments import bench_figure, bench_measures, bench_report, reporting
from experiments.bench_contenders.problem import Size
from experiments.bench_contenders.processes import call
from experiments.bench_contenders.registry import FAMILIES, OURS, Family
from experiments.bench_speed import measure_memory, race, say
from minadv.commands.parsing import Parser

SIZES = {
    "S": Size("S", T=784, B=100, I=1, H=100, delta=0.03),
    "text": Size("text", T=40, B=64, I=256, H=1024, delta=0.04),
    "lm": Size("lm", T=70, B=20, I=400, H=1150, delta=0.06),
    "text400": Size("text400", T=400, B=64, I=256, H=1024, delta=0.04),
}
"""The paper's three tasks; text at its full length for minadv alone."""

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
    return {c["family"]: c["setting"] for c in ranked}  # the fastest is set last


def measure(part: str, size: Size, args: argparse.Namespace, results: dict[str, Any]) -> Any:
    """One part at one size."""
    families = chosen_families(size.name, args.contenders)
    measures, alone = bench_measures.__name__, size.name in ALONE
    rounds = min(2, args.rounds) if alone else args.rounds
    if part == "speed":
        return race(families, size, rounds, (1,) if alone else (1, 2), checked=not alone)
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


def facts(started: float, load: float, arguments: Sequence[str], **settings: Any) -> dict[str, Any]:
    """The facts of a measurement, with the versions of the libraries that competed."""
    found: dict[str, str | None] = {}
    for name in ("torch", "jax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    told = {**reporting.facts(started), **found, "load": load, **settings}
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
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    for name in ("rounds", "seeds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}, expected at least 1")

    path = args.out / "bench.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for part in (part for part in PARTS if part in args.parts):
        for name in [""] if part == "scaling" else sizes_of(part, args.sizes):
            started, load = time.time(), os.getloadavg()[0]
            what = f"{part} {name}".strip()
            say(f"{what}: begins, load {load:.2f}")
            if part == "scaling":
                scales = bench_measures.SCALES
                function = f"{bench_measures.__name__}:scaling"
                results[part] = call(function, threads=1, rounds=args.rounds, scales=scales)
            else:
                results.setdefault(part, {})[name] = measure(part, SIZES[name], args, results)
            about = facts(started, load, sys.argv[1:] if argv is None else argv, rounds=args.rounds)
            results.setdefault("facts", {})[what] = about
            reporting.write_json(path, results)  # after each, so that it is not lost to whatever becomes of the next
    text = bench_report.text(results)
    paths = [
        reporting.write_json(path, results),
        reporting.write(args.out / "bench.md", text),
        reporting.save_figure(bench_figure.figure(results), args.out / "bench.png"),
    ]
    print(text)
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
