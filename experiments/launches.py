r"""What one training step asks of a GPU: launches, matrix products, waits, copies and allocations, counted by line.

``python -m experiments.launches`` needs no GPU but CuPy on emulated kernels, with a module ``counters`` that counts
what is asked of the device; it writes launches.json and launches.md under experiments/results. Counts do not depend on
the emulation, nor on the batch; times, of which there are none here, would.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import minadv
from experiments.parts import records, reporting
from experiments.parts.gpu_steps import Setting, planned, steps_of
from minadv.backend import BackendError, Device, choose_device
from minadv.commands.parsing import Parser

SMALL, LARGE = (16, 32), (8, 16)
SETTINGS = (
    *(Setting(f"{cell.upper()}, 100 units", 0, 1, 1, (100,), cell) for cell in ("rnn", "lstm", "gru")),
    Setting("LSTM, 100 units, padded", 0, 2, 1, (100,), "lstm", padded=True),
    *(Setting(f"{cell.upper()}, 132 units", 0, 1, 1, (132,), cell) for cell in ("rnn", "lstm", "gru")),
    Setting("LSTM, 132 units, padded", 0, 2, 1, (132,), "lstm", padded=True),
    Setting("LSTM, 100 units, float64", 0, 1, 1, (100,), "lstm", dtype="float64"),
    Setting("language model, 132 and 132 units", 0, 1, 132, (132, 132), words=50, delta=0.06),
)
"""Networks whose passes are one launch (up to 128 units in float32), and such whose time steps are launches.

A padded batch has two sequences of different lengths: one alone has no padding.
"""

ASSUMED = {
    "multiprocessors": 108,
    "cycles a second": 1.41e9,
    "products a cycle and multiprocessor": 128,
    "cycles of a time step beside its products": 300,
    "operations a second of a large product": 1e13,
    "seconds of the host for a launch": 10e-6,
    "seconds of the host for a wait": 20e-6,
}
"""What the estimate takes for granted: the published sizes of an A100, and round numbers for what was not measured."""

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
SIZE = {"T": 784, "B": 100, "H": 100}

KINDS = ("kernel", "blas", "sync", "D2H", "H2D", "alloc")


def count(setting: Setting, device: Device, warm: int = 2) -> dict[str, Any]:
    """What one step asks of the device, after ``warm`` steps that compile kernels and fill the pool of memory."""
    counters: Any = import_module("counters")
    step = steps_of(planned(setting, device))
    for _ in range(warm):
        step()
    with counters.counting(under=str(Path(minadv.__file__).parent)) as seen:
        step()
    found = {kind: int(seen.totals[kind]) for kind in KINDS}
    waits = {line: int(n) for line, n in sorted(seen.where["sync"].items())}
    return {**found, "H2D bytes": int(seen.bytes["H2D"]), "waits at": waits}


def measure(settings: Sequence[Setting], device: Device) -> dict[str, Any]:
    """The counts of every setting at two lengths."""
    rows = {}
    for setting in settings:
        small = max(setting.hidden) <= 128 and setting.dtype == "float32"
        rows[setting.name] = {
            "setting": asdict(setting),
            "counts": {str(T): count(setting.at(T=T), device) for T in (SMALL if small else LARGE)},
        }
        print(f"{setting.name}: {rows[setting.name]['counts']}", file=sys.stderr, flush=True)
    return rows


def estimate(cell: str, launches: int, waits: int) -> dict[str, float]:
    """Milliseconds of a step at size S: of the device's passes and products, and of the host.

    A block takes one example and a multiprocessor one block at a time, so that a pass of B examples is as many rounds
    as B needs of the multiprocessors. Base and probe run together, then the adversarial pass; back go the probe, then
    both others together. The products are those of the weights' gradients, of two passes.
    """
    T, B, H = SIZE.values()
    processors, clock, width, beside, flops, launch, wait = ASSUMED.values()
    rounds = 2 * (math.ceil(2 * B / processors) + math.ceil(B / processors))
    passes = rounds * T * (GATES[cell] * H * H / width + beside) / clock
    products = 2 * 2 * T * B * (H + 2) * GATES[cell] * H / flops
    host = launches * launch + waits * wait
    return {"passes": 1e3 * passes, "products": 1e3 * products, "host": 1e3 * host}


def estimates(rows: dict[str, Any]) -> list[list[str]]:
    """The estimates of the networks whose passes are one launch."""
    found = []
    for name, row in rows.items():
        setting, counts = row["setting"], list(row["counts"].values())[-1]
        if setting["words"] or setting["padded"] or setting["dtype"] != "float32" or tuple(setting["hidden"]) != (100,):
            continue
        parts = estimate(setting["cell"], counts["kernel"] + counts["blas"], counts["sync"])
        least, most = between(parts)
        found.append([name, *(f"{part:.1f}" for part in parts.values()), f"{least:.1f} to {most:.1f}"])
    return found


def between(parts: dict[str, float]) -> tuple[float, float]:
    """The least a step takes, if host and device work side by side, and the most, if they take turns."""
    device = parts["passes"] + parts["products"]
    return max(device, parts["host"]), device + parts["host"]


def text(results: dict[str, Any]) -> str:
    """The tables."""
    about, rows = results["facts"], []
    lines: dict[str, int] = {}
    for name, row in results["rows"].items():
        (short, a), (long, b) = row["counts"].items()
        apart = int(long) - int(short)
        launches = [counts["kernel"] + counts["blas"] for counts in (a, b)]
        rows.append(
            [
                name,
                f"{launches[0]:,} at T = {short}, {launches[1]:,} at {long}",
                f"{(launches[1] - launches[0]) / apart:.2f}",
                f"{(b['alloc'] - a['alloc']) / apart:.2f}",
                str(b["sync"]),
                f"{b['H2D bytes'] / 1e3:.1f}",
            ]
        )
        for line, n in b["waits at"].items():
            lines[line] = max(n, lines.get(line, 0))
    head = [
        "network",
        "launches a step",
        "more a time step",
        "allocations a time step",
        "waits a step",
        "kB to the device",
    ]
    guess = ["network", "passes, ms", "products, ms", "host, ms", "step, ms"]
    taken = "; ".join(f"{name} {value:g}" for name, value in ASSUMED.items())
    waits = [[f"`{line}`", str(n)] for line, n in sorted(lines.items())]
    return f"""# What a training step asks of a GPU

One step of AdD (greedy search, K = 1) as `minadv.fit` makes it, with gradients, checks, clipping and the optimizer,
after two that are not counted. A launch is a kernel or a matrix product; a wait is a point at which the host stops
until the device has caught up. Counted on CuPy with emulated kernels: **no GPU was at hand, and nothing here is a
time**.

{reporting.markdown(head, rows)}

Where the host waits, and how often in a step at most:

{reporting.markdown(["line", "waits"], waits)}

## An estimate, and what it assumes

Milliseconds of a step at T = {SIZE["T"]}, B = {SIZE["B"]}, H = {SIZE["H"]}: the least if host and device work side by
side, the most if they take turns. **Nobody has timed it on a GPU yet.** Assumed: {taken}.
What the other kernels of a step compute is little beside the passes, and left out.

{reporting.markdown(guess, estimates(results["rows"]))}

`{about["command"]}`, {reporting.at_commit(about)}, {about["device"]}.
"""


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(
        prog="python -m experiments.launches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only networks whose names have one of these words")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    try:
        import_module("counters")
    except ImportError as error:
        raise BackendError("no module counters: launches are counted on CuPy with emulated kernels") from error
    started, device = time.time(), choose_device("gpu")
    chosen = [s for s in SETTINGS if args.only is None or any(word in s.name for word in args.only)]
    results: dict[str, Any] = {"rows": measure(chosen, device)}
    told = reporting.command("launches", argv)
    results["facts"] = reporting.facts(started, command=told, device=device.why)
    said = text(records.plain(results))
    paths = [reporting.write_results(args.out / "launches.json", results)]
    paths.append(reporting.write(args.out / "launches.md", said))
    print(said)
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
