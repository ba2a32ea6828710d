r"""Sequential MNIST at the paper's size: images a second of each method, on the real images.

``python -m experiments.bench.images --data-dir DIR`` trains for a few steps with each method of `table1`'s preset
``paper`` (T = 784, 100 units, batches of 100), as ``minadv train smnist`` does, each in a process of its own. DIR holds
MNIST's idx files. Writes bench_images.json and .md under experiments/results.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from experiments import table1
from experiments.bench.contenders import memory
from experiments.bench.contenders.processes import call
from experiments.parts import comparison, records, reporting
from experiments.parts.comparison import METHODS, Preset
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.models.classifier import Classifier
from minadv.tasks.images.task import Classify
from minadv.training.clip import Clip
from minadv.training.loop import Recipe, advance, start
from minadv.training.optimizers import RMSProp
from minadv.training.parallel import choose

PRESET = table1.PRESETS["paper"]


def measure(preset: Preset, method: str, data_dir: str | None, rounds: int) -> dict[str, Any]:
    """Whole training steps after one that is not counted, their losses, and the peak of memory over all processes."""
    data = comparison.load(preset, "s", data_dir)
    strength, weight = comparison.settings(method, preset.n_hidden)[0]
    job = comparison.Job(preset, method, "s", 0, strength, weight, "final", Path(), data_dir)
    model = Classifier(data.train.x.shape[2], preset.n_hidden, data.classes)
    task = Classify(model, data, comparison.regularizer(job), batch_size=preset.batch, seed=0)
    recipe = Recipe(steps=rounds + 1, optimizer=RMSProp(preset.lr), clip=Clip(1.0), weight=weight)
    workers = choose.choose_workers(task, None)
    seconds, losses = [], []
    with ExitStack() as stack:
        sharing = stack.enter_context(choose.start_workers(task, workers))
        state, _ = advance(task, recipe, start(task, recipe), sharing)
        processes = memory.tree(os.getpid())
        memory.reset(processes)
        for _ in range(rounds):
            begun = time.perf_counter()
            state, told = advance(task, recipe, state, sharing)
            seconds.append(time.perf_counter() - begun)
            losses.append(told["loss"])
        peak = memory.peak(processes)
    shape = {"T": data.train.x.shape[1], "images": len(data.train), "workers": workers}
    return {"seconds": seconds, "losses": losses, "peak": peak, **shape}


def text(results: dict[str, Any]) -> str:
    """The table."""
    about, rows = results["facts"], []
    first = next(iter(results["rows"].values()))
    for method, found in results["rows"].items():
        step = float(np.median(found["seconds"]))
        times = [
            f"{step:.3f}",
            f"{min(found['seconds']):.3f}–{max(found['seconds']):.3f}",
            f"{about['batch'] / step:.0f}",
        ]
        rows.append([method, *times, f"{found['images'] / about['batch'] * step / 60:.0f}", f"{found['peak']:.0f}"])
    head = ["method", "seconds a step", "range", "images a second", "minutes an epoch (extrapolated)", "peak MB"]
    return f"""# Sequential MNIST at the paper's size

Training on the real images, pixel by pixel: T = {first["T"]}, {about["units"]} units, batches of {about["batch"]},
float32, {first["workers"]} workers as `minadv train smnist` chooses; {about["rounds"]} steps a method after
one that is not counted. An epoch has {first["images"]:,} images. Memory is summed over the processes.

{reporting.markdown(head, rows)}

`{about["command"]}`, {about["seconds"]} s on {about["cores"]} cores ({about["cpu"]}), load {about["load"]:.1f} at the
start, NumPy {about["numpy"]}, {", ".join(about["blas"])}.
"""


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.bench.images", description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="(default: all)")
    parser.add_argument("--rounds", type=positive, default=5, help="steps that are timed (default 5)")
    parser.add_argument("--data-dir", help="folder of MNIST's idx files (default: MINADV_DATA, then the cache)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    comparison.load(PRESET, "s", args.data_dir)  # raises for bad data before any process starts
    started, load, rows = time.time(), os.getloadavg()[0], {}
    for method in args.methods:
        print(f"{method} ...", file=sys.stderr, flush=True)
        given = {"preset": PRESET, "method": method, "data_dir": args.data_dir, "rounds": args.rounds}
        rows[method] = call("experiments.bench.images:measure", threads=None, **given)
    facts = reporting.facts(started, rounds=args.rounds, batch=PRESET.batch, units=PRESET.n_hidden, load=load)
    facts["command"] = reporting.command("bench.images", argv)
    results = records.plain({"facts": facts, "rows": rows})
    paths = [
        reporting.write_results(args.out / "bench_images.json", results),
        reporting.write(args.out / "bench_images.md", text(results)),
    ]
    print(text(results))
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
