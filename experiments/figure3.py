r"""Figure 3: what adversarial dropout training does to the sub-networks.

(a) Histograms of the test accuracy of sub-networks: random masks (p = 0.03, one mask for the whole test set a draw) and
adversarial ones (δ = 0.03, K = 2, a mask per example, a fresh random start a draw), for networks trained with VD, FD
and AdD. (b) The mean adversarial mask over test images, epoch by epoch.

``python -m experiments.figure3`` trains the networks as runs of minadv (resumable, like `table1`) and writes
figure3-PRESET.json, .md and .png under experiments/results. The paper draws 500 masks on all of MNIST; the defaults
here are smaller and stand in the results.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments import comparison, reporting
from experiments.comparison import Job
from experiments.table1 import PRESETS
from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.data.batches import take
from minadv.data.images import Split
from minadv.models.classifier import Batch, Classifier
from minadv.training.runs import Run, load
from minadv.training.streams import stream
from minadv.training.world import one_voice

METHODS = ("VD", "FD", "AdD K=1", "AdD K=2")
P = DELTA = 0.03


@dataclass(frozen=True)
class Figure3:
    """One trained network to look at."""

    job: Job
    draws: int
    images: int


def examine(task: Figure3) -> dict[str, Any]:
    """Train (or find) the network, then draw sub-networks of it."""
    comparison.work(task.job)
    run = load(task.job.folder)
    data = comparison.load(task.job.preset, task.job.task, task.job.data_dir)
    test = Split(data.test.x[: task.images], data.test.y[: task.images])
    batch = Batch(*take(test, slice(0, len(test))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "method": task.job.method,
            "accuracy": accuracy(run.model, run.last, batch, {}),
            "random": [random_draw(run, batch, n) for n in range(task.draws)],
            "adversarial": [adversarial_draw(run, batch, n) for n in range(task.draws)],
            "masks": [record["valid_mean_mask"]["layer0"] for record in run.records],
            "epochs": [record["epoch"] for record in run.records],
        }


def random_draw(run: Run, batch: Batch, n: int) -> float:
    """Accuracy under one random mask for all images."""
    eps = masks.bernoulli(stream(0, "figure 3 random", n), P, (1, run.model.n_hidden), like=batch.x)
    m = masks.scale(np.repeat(eps, len(batch), axis=0), "inverted", p=P)
    return accuracy(run.model, run.last, batch, {"layer0": m})


def adversarial_draw(run: Run, batch: Batch, n: int) -> float:
    """Accuracy under the greedy adversary's masks, K = 2, from a random start."""
    rng = stream(0, "figure 3 adversarial", n)
    budget = max(3, masks.budget(DELTA, run.model.n_hidden))
    trace = find_adversary(run.model, run.last, batch, rng=rng, budgets=budget, adv_steps=2, keep="last")
    return accuracy(run.model, run.last, batch, trace.eps)


def accuracy(model: Classifier, params: Any, batch: Batch, m: dict[str, Array]) -> float:
    """In per cent."""
    features, _, _ = model.body(params, batch, masks=m, noise=None)
    assert batch.targets is not None
    return float(100 * (model.logits(params, features)[-1].argmax(axis=-1) == batch.targets).mean())


def table(results: Sequence[dict[str, Any]]) -> str:
    """The histograms in numbers, and how evenly the adversary spreads over the units in the last epoch."""
    rows = []
    for r in results:
        drops = 1 - np.array(r["masks"][-1])
        share = drops / drops.sum()
        entropy = -np.sum(share[share > 0] * np.log(share[share > 0]))
        rows.append(
            [
                r["method"],
                f"{r['accuracy']:.2f}",
                reporting.spread(r["random"]),
                reporting.spread(r["adversarial"]),
                f"{np.exp(entropy):.1f} of {len(drops)}",
                f"{drops.max():.2f}",
            ]
        )
    head = ["trained with", "full network %", "random sub-networks %", "adversarial sub-networks %"]
    return reporting.markdown([*head, "units attacked (perplexity)", "most attacked unit: share"], rows)


def figure(results: Sequence[dict[str, Any]]) -> Any:
    """Histograms above, masks below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(2, len(results), figsize=(4 * len(results), 6.5), squeeze=False, layout="constrained")
    low = min(min(r["adversarial"]) for r in results)
    least = min(np.min(r["masks"]) for r in results)  # the colours begin at the most attacked unit
    bins = np.linspace(low - 0.5, 100, 60)
    for column, r in enumerate(results):
        axes[0, column].hist(r["random"], bins=bins, alpha=0.7, label="random masks")
        axes[0, column].hist(r["adversarial"], bins=bins, alpha=0.7, label="adversarial masks")
        axes[0, column].axvline(r["accuracy"], color="black", linewidth=1, label="full network")
        axes[0, column].set(title=f"trained with {r['method']}", xlabel="test accuracy %")
        rows = np.array(r["masks"])
        extent = (-0.5, rows.shape[1] - 0.5, r["epochs"][-1], r["epochs"][0])
        shown = axes[1, column].imshow(rows, aspect="auto", vmin=least, vmax=1, extent=extent, interpolation="nearest")
        axes[1, column].set(xlabel="unit", ylabel="epoch")
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].set_ylabel("draws")
    drawn.colorbar(shown, ax=axes[1, :], label="share of images that keep the unit")
    return drawn


@one_voice()
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figure3", description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="digits", help="size, as in table1 (default digits)")
    parser.add_argument("--order", choices=("s", "p"), default="s", help="scanline or permuted (default s)")
    parser.add_argument("--draws", type=int, default=100, help="masks of each kind (the paper: 500; default 100)")
    parser.add_argument("--images", type=int, default=1000, help="test images, at most (default 1000)")
    parser.add_argument("--data-dir", help="folder of MNIST's idx files")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument("--runs", type=Path, default=Path("runs/figure3"), help="folder of the runs (runs/figure3)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    preset = PRESETS[args.preset]
    started = time.time()
    tasks = []
    for method in METHODS:
        strength, weight = comparison.settings(method, preset.n_hidden)[0]
        job = Job(preset, method, args.order, 0, strength, weight, "figure3", args.runs, args.data_dir, track=True)
        tasks.append(Figure3(job, args.draws, args.images))
    results = reporting.run_all(examine, tasks, workers=args.workers, title="networks")
    about = reporting.facts(started, preset=asdict(preset), order=args.order, draws=args.draws, images=args.images)
    text = table(results) + "\n"
    name = f"figure3-{preset.name}"
    paths = [
        reporting.write_json(args.out / f"{name}.json", {"facts": about, "results": results}),
        reporting.write(args.out / f"{name}.md", heading(about, preset.about) + text),
        reporting.save_figure(figure(results), args.out / f"{name}.png"),
    ]
    print(text)
    print("written:", *paths, sep="\n  ")


def heading(about: dict[str, Any], task: str) -> str:
    """What the numbers are."""
    return f"""# Figure 3: random and adversarial sub-networks

{task} (order {about["order"]}), one network a method, at most {about["images"]} test images; {about["draws"]} random
masks (p = {P}, one for all images) and {about["draws"]} draws of the greedy adversary (K = 2, three units, a mask an
image). The paper draws 500 on all of MNIST. `{about["command"]}`, {about["seconds"]} s on {about["cores"]} cores
({about["cpu"]}), NumPy {about["numpy"]}.

"""


if __name__ == "__main__":
    main()
