r"""Words per second and peak memory of a language model's training step: minadv's methods, and PyTorch beside them.

``python -m experiments.bench.language`` measures at the paper's size for the Penn Treebank (1150-1150-400, 20 columns
of about 70 words, V = 10,000, averaged SGD) and at that of table3's ptb-small (200, 20 columns of about 35 words,
SGD), in float32, and writes bench_language.json and .md under experiments/results. Windows have random lengths, as in
training; the peak of memory is that of the longest. Every measurement has a process of its own; minadv runs as ``minadv
train`` does, with as many workers or BLAS threads as that would choose. PyTorch takes part where it is installed, with
all cores, its own LSTM where a pass has no mask ("PyTorch LSTM") or a cell written out throughout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.language_steps import METHODS, RIVALS, SIZES, measure
from experiments.parts import records, reporting
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser

LIMIT = 3.0  # GiB, for a step at the paper's size


def apart(size: str, method: str, contender: str, rounds: int, workers: int | None) -> dict[str, Any]:
    """A measurement in a process of its own; if that fails, the reason under "failed"."""
    asked = json.dumps([size, method, contender, rounds, workers])
    said = subprocess.run(
        [sys.executable, "-m", "experiments.bench.language", "--measure", asked], capture_output=True, text=True
    )
    if said.returncode != 0:
        return {"failed": (said.stderr.strip().splitlines() or ["no reason given"])[-1]}
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def words_a_second(found: dict[str, Any]) -> float:
    """Words a second, by the median step."""
    return float(np.median(np.array(found["words"]) / np.array(found["seconds"])))


def report(results: dict[str, Any]) -> str:
    """The tables and what they say."""
    about = results["facts"]
    lines = ["# The speed of a language model's training step"]
    lines.append(
        f"Gradient, clipping and update in float32; the median of {about['rounds']} steps. The update is that of "
        "training: averaged SGD at the paper's size, SGD at the small one, with weight decay. Peak memory is that of a "
        "whole process or team of processes, libraries included, in the step with the longest window."
    )
    for name, by_method in results["sizes"].items():
        size = SIZES[name]
        rows = []
        for method, by_contender in by_method.items():
            ours = by_contender.get("minadv", {"failed": "not measured"})
            for contender, found in by_contender.items():
                if "failed" in found:
                    rows.append([method, contender, "did not run", found["failed"], ""])
                    continue
                speed = words_a_second(found)
                alone = contender == "minadv" or "failed" in ours
                ratio = "" if alone else f"{words_a_second(ours) / speed:.2f}"
                rows.append([method, contender, f"{speed:,.0f}", f"{found['peak'] / 1.073741824e3:.2f}", ratio])
        head = ["method", "contender", "words a second", "peak, GiB", "minadv is faster by"]
        lines += [f"## {size}", f"{size.model().n_params:,} weights.", reporting.markdown(head, rows)]
    lines.append(verdict(results))
    versions = f"NumPy {about['numpy']}, PyTorch {about['torch'] or 'not installed'}, {', '.join(about['blas'])}"
    machine = f"{about['seconds']} s on {about['cores']} cores ({about['cpu']}), load {about['load']:.1f} at the start"
    lines.append(f"`{about['command']}`, {machine}; {versions}.")
    return "\n\n".join(lines) + "\n"


def verdict(results: dict[str, Any]) -> str:
    """Whether a step at the paper's size stays within the memory it may have, of each method that was measured."""
    found = results["sizes"].get("ptb", {})
    peaks = {m: c["minadv"]["peak"] / 1.073741824e3 for m, c in found.items() if "peak" in c.get("minadv", {})}
    if not peaks:
        return "The paper's size was not measured."
    worst = max(peaks, key=lambda m: peaks[m])
    said = "stays under" if peaks[worst] < LIMIT else "does not stay under"
    others = "" if peaks.keys() == set(METHODS) else f" (measured: {', '.join(peaks)})"
    failed = [m for m, c in found.items() if "failed" in c.get("minadv", {})]
    end = f" Did not run: {', '.join(failed)}." if failed else ""
    most = f"the most is {worst}'s {peaks[worst]:.2f}"
    return f"At the paper's size a step of every method{others} {said} {LIMIT:g} GiB: {most}.{end}"


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.bench.language", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), help="(default all)")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="(default all)")
    parser.add_argument("--rounds", type=positive, default=5, help="steps that are timed (default 5)")
    parser.add_argument(
        "--workers", type=positive, help="processes or threads (default: as minadv train; all for PyTorch)"
    )
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    parser.add_argument("--measure", metavar="JSON", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure is not None:
        name, method, contender, rounds, workers = json.loads(args.measure)
        print(json.dumps(measure(SIZES[name], method, contender, rounds, workers)))
        return
    started, load = time.time(), os.getloadavg()[0]
    try:
        version: str | None = metadata.version("torch")
    except metadata.PackageNotFoundError:
        version = None
    sizes: dict[str, Any] = {}
    for name in args.sizes:
        for method in args.methods:
            rivals = RIVALS.get(method, ()) if version is not None and SIZES[name].every == 1 else ()
            for contender in ("minadv", *rivals):
                found = apart(name, method, contender, args.rounds, args.workers)
                sizes.setdefault(name, {}).setdefault(method, {})[contender] = found
                said = found.get("failed") or f"{words_a_second(found):,.0f} words a second"
                print(f"{name}, {method}, {contender}: {said}", file=sys.stderr, flush=True)
    about = {
        **reporting.facts(started),
        "command": reporting.command("bench.language", argv),
        "torch": version,
        "load": load,
        "rounds": args.rounds,
    }
    measured = {name: asdict(SIZES[name]) for name in args.sizes}
    results = records.plain({"facts": about, "sizes": sizes, "measured": measured})
    data = reporting.write_results(args.out / "bench_language.json", results)
    text_of = report(results)
    paths = [data, reporting.write(args.out / "bench_language.md", text_of)]
    print(text_of)
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
