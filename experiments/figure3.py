r"""Figure 3: what adversarial dropout training does to the sub-networks.

(a) Histograms of the test accuracy of sub-networks, for networks trained with VD, FD and AdD: under random masks
(p = 0.03; a draw is one mask for the whole test set) and under adversarial ones (δ = 0.03, K = 2; a draw is a mask for
each example from a fresh random start). (b) The mean adversarial mask over test images, epoch by epoch.

``python -m experiments.figure3`` trains the networks as runs of minadv (resumable, like `table1`) and writes
figure3-PRESET.json, .md and .png under experiments/results. The paper draws 500 masks on all of MNIST; the defaults
here are smaller, and the results say what was drawn.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import comparison, records, reporting
from experiments.parts.comparison import Job, Preset
from experiments.table1 import PRESETS
from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import Array, to_device
from minadv.base.streams import stream
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.data.images import Split
from minadv.data.images.batches import take
from minadv.models.classifier import Batch, Classifier
from minadv.tasks.run import load
from minadv.training.parallel.ranks import only_first_prints
from minadv.training.parallel.workers import Part

METHODS = ("VD", "FD", "AdD K=1", "AdD K=2")
P = 0.03
BATCH = 100  # images in one pass


@dataclass(frozen=True)
class Figure3:
    """A run to train and to look at: how many masks of each kind to draw, and on how many test images."""

    job: Job
    draws: int
    images: int


@dataclass(frozen=True)
class Network:
    """A trained network on its device, and the test images to try it on."""

    model: Classifier
    params: Any
    test: Split

    @property
    def parts(self) -> list[Part]:
        """The images in batches of at most `BATCH`; random numbers are those of one batch of all images."""
        count = -(-len(self.test) // BATCH)
        return [Part(n, count) for n in range(count)]

    def batch(self, part: Part) -> Batch:
        return Batch(*take(self.test, part.rows(len(self.test))))


def examine(task: Figure3) -> dict[str, Any]:
    """Train the network, unless it is trained already, then draw sub-networks of it."""
    comparison.work(task.job)
    run = load(task.job.folder)
    data = comparison.load(task.job.preset, task.job.task, task.job.data_dir)
    test = Split(data.test.x[: task.images], data.test.y[: task.images])
    network = Network(run.model, *to_device((run.last, test), task.job.device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "method": task.job.method,
            "accuracy": accuracy(network, lambda part, batch: {}),
            "random": [random_draw(network, n) for n in range(task.draws)],
            "adversarial": [adversarial_draw(network, n) for n in range(task.draws)],
            "masks": [record["valid_mean_mask"]["layer0"] for record in run.records],
            "epochs": [record["epoch"] for record in run.records],
            "images": len(test),
            "mask_images": min(run.config["track"].get("n", 500), len(data.test)),
        }


def random_draw(network: Network, n: int) -> float:
    """Accuracy in per cent under one random mask for all images."""
    eps = masks.bernoulli(stream(0, "figure 3 random", n), P, (1, network.model.n_hidden), like=network.test.x)
    m = masks.scale(eps, "inverted", p=P)
    return accuracy(network, lambda part, batch: {"layer0": m.repeat(len(batch), axis=0)})


def adversarial_draw(network: Network, n: int) -> float:
    """Accuracy in per cent under the masks of a greedy search with K = 2, from a random start."""

    def found(part: Part, batch: Batch) -> dict[str, Array]:
        rng = part.rng(stream(0, "figure 3 adversarial", n), len(network.test))
        attack = comparison.attack(network.model.n_hidden)
        return dict(find_adversary(network.model, network.params, batch, rng=rng, **attack).eps)

    return accuracy(network, found)


def accuracy(network: Network, m: Callable[[Part, Batch], dict[str, Array]]) -> float:
    """Accuracy in per cent under the masks that ``m`` makes for each batch."""
    right = 0
    for part in network.parts:
        batch = network.batch(part)
        features, _, _ = network.model.body(network.params, batch, masks=m(part, batch), noise=None)
        right += int((network.model.logits(network.params, features)[-1].argmax(axis=-1) == batch.targets).sum())
    return 100 * right / len(network.test)


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
        half = r["epochs"][0] / 2  # each row in the middle of its epoch
        extent = (-0.5, rows.shape[1] - 0.5, r["epochs"][-1] + half, half)
        shown = axes[1, column].imshow(rows, aspect="auto", vmin=least, vmax=1, extent=extent, interpolation="nearest")
        axes[1, column].set(xlabel="unit", ylabel="epoch")
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].set_ylabel("draws")
    drawn.colorbar(shown, ax=axes[1, :], label="share of images that keep the unit")
    return drawn


@only_first_prints()
@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.figure3", description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="digits", help="size, as in table1 (default digits)")
    parser.add_argument("--order", choices=("s", "p"), default="s", help="scanline or permuted (default s)")
    parser.add_argument("--draws", type=positive, default=100, help="masks of each kind (the paper: 500; default 100)")
    parser.add_argument("--images", type=positive, default=1000, help="test images, at most (default 1000)")
    parser.add_argument("--data-dir", help="folder of MNIST's idx files")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/figure3"), help="folder of the runs (runs/figure3)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    preset = PRESETS[args.preset]
    started, where = time.time(), reporting.place(args)
    images = comparison.fingerprint(preset, args.data_dir)  # raises for bad data before any process starts
    tasks = []
    for method in METHODS:
        strength, weight = comparison.settings(method, preset.n_hidden)[0]
        which = (preset, method, args.order, 0, strength, weight, "figure3")
        job = Job(*which, args.runs, args.data_dir, where["device"], track=args.images, data=images)
        tasks.append(Figure3(job, args.draws, args.images))
    results = reporting.run_all(examine, tasks, workers=where["workers"], title="networks")
    about = reporting.facts(started, preset=asdict(preset), order=args.order, draws=args.draws)
    about["command"] = reporting.command("figure3", argv)
    data = records.plain({"facts": about, "results": results})
    name = f"figure3-{preset.name}" + "-permuted" * (args.order == "p")
    paths = [
        reporting.write_results(args.out / f"{name}.json", data),
        reporting.write(args.out / f"{name}.md", page(data)),
        reporting.save_figure(figure(data["results"]), args.out / f"{name}.png"),
    ]
    print(f"{table(data['results'])}\n")
    print("written:", *paths, sep="\n  ")


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    about, results = data["facts"], data["results"]
    return f"{heading(about, Preset(**records.tuples(about['preset'])), results)}{table(results)}\n"


def heading(about: dict[str, Any], preset: Preset, results: Sequence[dict[str, Any]]) -> str:
    """The paragraph that says what the numbers are and how they were made."""
    flips = comparison.attack(preset.n_hidden)["budgets"]
    chosen = {method: comparison.settings(method, preset.n_hidden)[0] for method in METHODS}
    settings = ", ".join(f"{method} {strength:g}, {weight:g}" for method, (strength, weight) in chosen.items())
    images, of_masks = (" and ".join(sorted({f"{r[key]:,}" for r in results})) for key in ("images", "mask_images"))
    return f"""# Figure 3: random and adversarial sub-networks

{preset.about} (order {about["order"]}), one network a method, seed 0: LSTM of {preset.n_hidden} units,
{preset.epochs:g} epochs, batches of {preset.batch}, {preset.optimizer} at {preset.lr:g}; p or δ and weight: {settings}.
(a) {images} test images, {about["draws"]} random masks (p = {P}, one for all images) and {about["draws"]} draws of the
greedy adversary (K = 2, {flips} units, a mask an image);
the paper draws 500 on all of MNIST. (b) The mean adversarial mask is over {of_masks} test images.
`{about["command"]}` at {reporting.at_commit(about)}, {about["seconds"]} s on {about["cores"]} cores ({about["cpu"]}),
NumPy {about["numpy"]}.

"""


if __name__ == "__main__":
    main()
