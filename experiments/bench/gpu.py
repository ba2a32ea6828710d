r"""A GPU in one command and one file: which it is, whether it computes rightly, and how long a step takes.

``python -m experiments.bench --device gpu`` trains for a few steps of AdD at the paper's sizes. For each it compares
the weights after two steps with those of the readable cells in float64 on the CPU, then times steps in float32, each
until the device has finished it, and writes bench_gpu.json, the file to send back, and
bench_gpu.md here, or where ``--out`` says.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.parts import records, reporting
from experiments.parts.gpu_steps import Setting, planned, steps_of
from minadv.backend import Device, choose_device, to_host
from minadv.base import gpu
from minadv.base.trees import leaves
from minadv.fast import describe

SETTINGS = (
    *(Setting(f"S, {cell}", 784, 100, 1, (100,), cell) for cell in ("rnn", "lstm", "gru")),
    Setting("text, LSTM", 400, 64, 256, (1024,), padded=True, delta=0.04),
    Setting("PTB", 70, 20, 400, (1150, 1150, 400), words=10_000, delta=0.06),
)
SHORT = {"T": 12, "B": 4}
"""The length and the batch at which results are compared with the CPU's: the kernels are those of the full size."""

LIMITS = {"float64": 1e-9, "float32": 1e-3}
"""How far the weights may be from the CPU's in float64, relative to the largest of each array.

In float32 a unit may be flipped or not for a difference in the last bit, so that its limit is no more than a warning.
"""

EMULATED = "cpuemu"


def gap(found: Any, expected: Any) -> float:
    """The largest difference of two trees, relative to the largest number of each array."""
    pairs = zip(leaves(to_host(found)), leaves(to_host(expected)), strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for (_, a), (_, b) in pairs)


def correctness(setting: Setting, device: Device) -> dict[str, float]:
    """How far two steps on the device, in each precision, end from two of the readable cells in float64 on the CPU."""
    small = setting.at(**SHORT, words=min(setting.words, 200))
    found = {}
    cpu = choose_device("cpu")
    expected = _after(small.at(dtype="float64", engine="plain"), cpu)
    for dtype in LIMITS:
        found[dtype] = gap(_after(small.at(dtype=dtype), device), expected)
    return found


def _after(setting: Setting, device: Device, steps: int = 2) -> Any:
    step = steps_of(planned(setting, device))
    for _ in range(steps - 1):
        step()
    return step()


def speed(setting: Setting, device: Device, rounds: int) -> dict[str, Any]:
    """Seconds of steps, each until the device has finished; the first compiles, and is told apart."""
    step, stream = steps_of(planned(setting, device)), device.xp.cuda.get_current_stream()
    pool, seconds = device.xp.get_default_memory_pool(), []
    for _ in range(2 + rounds):
        began = time.perf_counter()
        step()
        stream.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"first": seconds[0], "seconds": seconds[2:], "pool": int(pool.total_bytes())}


def measure(device: Device, rounds: int, settings: tuple[Setting, ...]) -> dict[str, Any]:
    """Every setting; one that fails is told in one line, and the others go on."""
    rows: dict[str, Any] = {}
    for setting in settings:
        print(f"{setting.name} ...", file=sys.stderr, flush=True)
        row: dict[str, Any] = {"setting": asdict(setting)}
        try:
            row["gap"] = correctness(setting, device)
            row |= speed(setting, device, rounds)
        except Exception as error:  # whatever it is, whoever reads the file wants to know
            row["failed"] = gpu.fault(error) or f"{type(error).__name__}: {error}"
        device.xp.get_default_memory_pool().free_all_blocks()
        rows[setting.name] = row
    return rows


def text(results: dict[str, Any]) -> str:
    """The tables."""
    about, rows = results["facts"], []
    for name, row in results["rows"].items():
        size = row["setting"]
        shape = f"T = {size['T']}, B = {size['B']}, H = {', '.join(map(str, size['hidden']))}"
        if "failed" in row:
            rows.append([name, shape, f"failed: {row['failed']}", "", "", "", ""])
            continue
        wrong = [dtype for dtype, limit in LIMITS.items() if not row["gap"][dtype] <= limit]
        gaps = [f"{row['gap'][dtype]:.0e}{' **too far**' if dtype in wrong else ''}" for dtype in LIMITS]
        times = [f"{np.median(row['seconds']) * 1e3:.1f}", f"{row['first']:.1f}", f"{row['pool'] / 2**20:,.0f}"]
        rows.append([name, shape, *gaps, *times])
    emulated = results["gpu"].get("device") == EMULATED
    warning = "\n**The device is emulated on a processor: the times mean nothing.**\n" if emulated else ""
    head = ["step", "size", *(f"off in {dtype}" for dtype in LIMITS), "ms a step", "first step, s", "MiB held"]
    told = "\n".join(f"- {name}: {value}" for name, value in results["gpu"].items())
    return f"""# A training step of AdD on a GPU
{warning}
{told}
- steps: {results["engine"]}

{reporting.markdown(head, rows)}

"Off" is how far the weights are after two steps at T = {SHORT["T"]}, B = {SHORT["B"]} from those of the readable
cells in float64 on the CPU, relative to the largest number of each array. Milliseconds are the median of
{about["rounds"]} steps in float32, after two that compile and warm up.

`{about["command"]}`, {reporting.at_commit(about)}, NumPy {about["numpy"]}, {about["cpu"]}.
"""


def run(args: argparse.Namespace, argv: Any, settings: tuple[Setting, ...] = SETTINGS) -> int:
    """Measure, write the two files and say which to send back; returns how many settings failed or were too far off."""
    started, device = time.time(), choose_device("gpu")
    print(device.why, file=sys.stderr, flush=True)
    results: dict[str, Any] = {"gpu": gpu.facts(device.xp), "engine": describe(True).why}
    results["rows"] = measure(device, args.rounds, settings)
    told = reporting.command("bench", argv)
    results["facts"] = reporting.facts(started, command=told, rounds=args.rounds)
    said = text(records.plain(results))
    path = reporting.write_results(args.out.resolve() / "bench_gpu.json", results)
    reporting.write(args.out / "bench_gpu.md", said)
    print(said)
    print(f"the file to send back: {path}")
    return sum("failed" in row or not row["gap"]["float64"] <= LIMITS["float64"] for row in results["rows"].values())
