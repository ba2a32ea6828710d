r"""Figure 3: what adversarial dropout training does to the sub-networks of a converged network.

(a) Histograms of the test accuracy of sub-networks, for networks trained with VD, FD and AdD: under random masks
(p = 0.03; a draw is one mask for the whole test set) and under adversarial ones (greedy, δ = 0.03, K = 2; a draw is a
mask for each example from a fresh random start). A line marks the accuracy under the longest search of `Relax`, which
is about as strong as `Memory` is in training, and draws nothing. (b) The mean adversarial mask over test images, epoch
by epoch.

``python -m experiments.figure3`` trains the networks of `compare` once more, seed 0 with the settings chosen there, as
runs that are resumed like those, and writes figure3-TASK.json, .md and .png under experiments/results.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import records, reporting
from experiments.parts.compared import images
from experiments.parts.compared.choice import best_rate, best_setting
from experiments.parts.compared.plan import TASKS, Job, files_of, settings
from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import Array, to_device
from minadv.base.errors import DataError
from minadv.base.streams import stream
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.data.images import Split
from minadv.data.images.batches import take
from minadv.models.classifier import Batch, Classifier
from minadv.searches import Greedy, Search
from minadv.training.parallel.ranks import only_first_prints
from minadv.training.watch import STRONG

METHODS = ("VD", "FD", "AdD K=1", "AdD K=2")
P = 0.03
GREEDY = Greedy(K=2, keep="last")
BATCH = 96  # images in one pass, whole groups of those that may borrow masks from each other


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
    def parts(self) -> list[slice]:
        """The images in batches of at most `BATCH`."""
        return [slice(first, first + BATCH) for first in range(0, len(self.test), BATCH)]


def examine(task: Figure3) -> dict[str, Any]:
    """Train the network, or find it trained, then draw sub-networks of it."""
    reporting.begins(task.job.folder)
    budget = masks.few_flips(task.job.task.size["n_hidden"])
    track = {"n": task.images, "budgets": budget, "search": GREEDY}
    run, tested, _ = images.train(task.job, None, out=task.job.folder, resume=True, track=track)
    whole = images.data_of(task.job).test
    test = Split(whole.x[: task.images], whole.y[: task.images])
    network = Network(run.model, *to_device((run.params, test), task.job.device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "method": task.job.method,
            "strength": task.job.strength,
            "weight": task.job.weight,
            "lr": task.job.lr,
            "made": reporting.made(task.job.folder),
            "budget": budget,
            "error": tested["error"],
            "accuracy": accuracy(network, lambda rows, batch: {}),
            "random": [random_draw(network, n) for n in range(task.draws)],
            "adversarial": [attacked(network, budget, GREEDY, n) for n in range(task.draws)],
            "strong": attacked(network, budget, STRONG, 0),
            "kept": [kept(record["valid_mean_mask"]["layer0"], len(test)) for record in run.records],
            "epochs": [record["epoch"] for record in run.records],
            "images": len(test),
        }


def kept(shares: Sequence[float], images: int) -> list[int]:
    """How many of the images keep each unit, in the place of shares: a third of the digits."""
    return [round(share * images) for share in shares]


def masks_of(result: dict[str, Any]) -> Array:
    """The mean adversarial mask of each epoch, ``(epochs, H)``."""
    found: Array = np.array(result["kept"]) / result["images"]
    return found


def random_draw(network: Network, n: int) -> float:
    """Accuracy in per cent under one random mask for all images."""
    eps = masks.bernoulli(stream(0, "figure 3 random", n), P, (1, network.model.n_hidden), like=network.test.x)
    m = masks.scale(eps, "inverted", p=P)
    return accuracy(network, lambda rows, batch: {"layer0": m.repeat(len(batch), axis=0)})


def attacked(network: Network, budget: int, search: Search, n: int) -> float:
    """Accuracy in per cent under the masks of a search, whose random start is the ``n``-th draw."""

    def found(rows: slice, batch: Batch) -> dict[str, Array]:
        rng = stream(n, "figure 3 adversarial", rows.start)
        trace = find_adversary(network.model, network.params, batch, budgets=budget, search=search, rng=rng)
        return dict(trace.eps)

    return accuracy(network, found)


def accuracy(network: Network, m: Callable[[slice, Batch], dict[str, Array]]) -> float:
    """Accuracy in per cent under the masks that ``m`` makes for each batch."""
    right = 0
    for rows in network.parts:
        batch = Batch(*take(network.test, rows))
        features, _, _ = network.model.body(network.params, batch, masks=m(rows, batch), noise=None)
        right += int((network.model.logits(network.params, features)[-1].argmax(axis=-1) == batch.targets).sum())
    return 100 * right / len(network.test)


def chosen(task: str, out: Path, given: dict[str, Any]) -> list[Job]:
    """A job for each method, with the settings and the learning rate that `compare` chose; raises DataError without.

    They are known as soon as all that chooses is done, which `compare --so-far` writes down.
    """
    path = next((file for file in files_of(task, out) if file.exists()), None)
    asked = f"run python -m experiments.compare {task} first, or with --so-far once its settings are chosen"
    if path is None:
        raise DataError(f"{out} has no results of {task}, which tell the settings: {asked}")
    results = reporting.read_results(path)["results"]
    rated, tried = ([r for r in results if r["part"] == part] for part in ("rates", "settings"))
    jobs = []
    for method in METHODS:
        if {(r["strength"], r["weight"]) for r in tried if r["method"] == method} < set(settings(method)):
            raise DataError(f"{path} does not have all settings of {method} yet: {asked}")
        setting = best_setting(tried, method)
        jobs.append(Job(TASKS[task], method, *setting, best_rate(rated), 0, "figure3", **given))
    return jobs


def table(results: Sequence[dict[str, Any]]) -> str:
    """The histograms in numbers, and how evenly the adversary spreads over the units in the last epoch."""
    rows = []
    for r in results:
        drops = 1 - masks_of(r)[-1]
        share = drops / drops.sum()
        entropy = -np.sum(share[share > 0] * np.log(share[share > 0]))
        rows.append(
            [
                r["method"],
                f"{r['strength']:g}, {r['weight']:g}".removesuffix(", 0"),
                f"{r['accuracy']:.2f}",
                reporting.spread(r["random"]),
                reporting.spread(r["adversarial"]),
                f"{r['strong']:.2f}",
                f"{np.exp(entropy):.1f} of {len(drops)}",
                f"{drops.max():.2f}",
            ]
        )
    head = ["trained with", "strength, weight", "full network %", "random %", "greedy K = 2 %", "longest search %"]
    return reporting.markdown([*head, "units attacked (perplexity)", "most attacked unit: share"], rows)


def figure(results: Sequence[dict[str, Any]]) -> Any:
    """Histograms above, on one axis of accuracy; masks below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    drawn, axes = plt.subplots(
        2,
        len(results),
        figsize=(4 * len(results), 6.5),
        squeeze=False,
        sharex="row",
        sharey="row",
        layout="constrained",
    )
    low = min(min(*r["adversarial"], r["strong"]) for r in results)
    least = min(masks_of(r).min() for r in results)  # the colours begin at the most attacked unit
    bins = np.linspace(low - 0.5, 100, 60)
    for column, r in enumerate(results):
        axes[0, column].hist(r["random"], bins=bins, alpha=0.7, label="random masks")
        axes[0, column].hist(r["adversarial"], bins=bins, alpha=0.7, label="greedy K = 2")
        axes[0, column].axvline(r["strong"], color="C3", linestyle="--", linewidth=1.5, label="longest search")
        axes[0, column].axvline(r["accuracy"], color="black", linewidth=1, label="full network")
        axes[0, column].set(title=f"trained with {r['method']}", xlabel="test accuracy %")
        rows = masks_of(r)
        half = r["epochs"][0] / 2  # each row in the middle of its epoch
        extent = (-0.5, rows.shape[1] - 0.5, r["epochs"][-1] + half, half)
        shown = axes[1, column].imshow(rows, aspect="auto", vmin=least, vmax=1, extent=extent, interpolation="nearest")
        axes[1, column].set(xlabel="unit")
        axes[1, column].yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].set_ylabel("draws")
    axes[1, 0].set_ylabel("epoch")
    drawn.colorbar(shown, ax=axes[1, :], label="share of images that keep the unit")
    return drawn


@only_first_prints()
@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.figure3", description=__doc__)
    tasks = [name for name, task in TASKS.items() if task.kind == "images" and set(METHODS) <= set(task.methods)]
    parser.add_argument("--task", choices=tasks, default="digits", help="as in compare (default digits)")
    parser.add_argument("--draws", type=positive, default=500, help="masks of each kind (default: the paper's 500)")
    parser.add_argument("--images", type=positive, default=1000, help="test images, at most (default 1000)")
    parser.add_argument("--data-dir", help="folder of MNIST's idx files")
    reporting.add_device(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/compare"), help="folder of the runs (runs/compare)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    started, where = time.time(), reporting.place(args)
    jobs = chosen(args.task, args.out, {"root": args.runs, "data_dir": args.data_dir, "device": where["device"]})
    images.fingerprint(jobs[0])  # raises for bad data before any process starts
    examined = [Figure3(job, args.draws, args.images) for job in jobs]
    results = reporting.run_all(examine, examined, workers=where["workers"], title="networks")
    about = reporting.facts(started, task=asdict(TASKS[args.task]), draws=args.draws)
    about["command"] = reporting.command("figure3", argv)
    data = records.plain({"facts": about, "results": results})
    name = f"figure3-{args.task}"
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
    task, one = about["task"], results[0]
    H, made = dict(task["sizes"])["n_hidden"], reporting.made_by(results)
    return f"""# Figure 3: random and adversarial sub-networks

{task["about"]}, one network a method, seed 0 with the settings of `compare-{task["name"]}`: LSTM of {H} units,
{task["epochs"]:g} epochs, batches of {task["batch"]}, Adam at {one["lr"]:g}; the weights of the best validation error.
(a) {one["images"]:,} test images, {about["draws"]} random masks (p = {P}, one for all images) and as many draws of the
greedy adversary (K = 2, {one["budget"]} units, a mask an image); the longest search finds one mask an image, of as many
units. (b) The mean greedy mask over the same images.
`{about["command"]}`, {about["seconds"]} s on {about["cores"]} cores; made on: {made}, NumPy {about["numpy"]}.

{table(results)}
"""


if __name__ == "__main__":
    main()
