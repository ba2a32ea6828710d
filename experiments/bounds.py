r"""Proposition 1 and Remark 1 on trained networks, by exact enumeration.

For small LSTMs trained on the digits with each method, ``python -m experiments.bounds`` prints and plots

* the chain ½ FD ≤ EL ≤ AdD(exact) over all masks of a ball, and where the greedy and the re-selected mask land;
* the growth of the KL counterexample, in which ¼ FD ≤ EL fails;
* the three terms of Remark 1 over random base masks and their exact adversaries (the paper's Figure 2 in numbers);
* the inference gap: the distance between the deterministic network and the average over all masks, exactly.

It writes bounds.json, .md and .png under experiments/results.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import records, reporting, small_nets
from minadv import bounds, distances, layers, masks
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.base.streams import stream
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.counterexamples import kl_counterexample
from minadv.models.classifier import Batch, Classifier, Params
from minadv.regularizers import EL, FD, VD, AdD, Plain, Regularizer
from minadv.searches import Exact, Greedy, Reselect, Search
from minadv.training.parallel.ranks import only_first_prints

H, BUDGET, P = 12, 2, 0.1
STEPS = 600

METHODS: dict[str, Regularizer] = {
    "none": Plain(),
    "VD": VD(p=P),
    "EL": EL(p=P),
    "FD": FD(p=P),
    "AdD K=1": AdD(budgets=BUDGET),
    "AdD reselect": AdD(budgets=BUDGET, search=Reselect()),
}


@dataclass(frozen=True)
class Task:
    method: str
    seed: int
    examples: int
    bases: int


def examine(task: Task) -> dict[str, Any]:
    """Train one network and measure everything; every number is a mean over test examples."""
    train, test = small_nets.digit_rows(10, np.float64)
    model = Classifier(n_in=8, n_hidden=H, n_classes=10)
    params = small_nets.train(model, train, seed=task.seed, steps=STEPS, regularizer=METHODS[task.method])
    batch = small_nets.test_batch(test, task.examples)
    return {
        "method": task.method,
        "seed": task.seed,
        "error": 100 * (1 - small_nets.accuracy(model, params, test)),
        "chain": {name: chain(model, params, batch, name, task.seed) for name in ("l2", "js", "kl")},
        "remark1": remark1(model, params, batch, task),
        "gap": inference_gap(model, params, batch),
    }


def chain(model: Classifier, params: Params, batch: Batch, distance: str, seed: int) -> dict[str, float]:
    """The chain over the ball around the full network; EL and FD average over Bernoulli masks within it; scale none."""
    eps = bounds.ball(np.ones(H), BUDGET)
    logits = bounds.outputs(model, params, batch, eps)
    exact = bounds.chain(
        bounds.base_output(model, params, batch), logits, bounds.bernoulli_weights(eps, P), distance=distance
    )
    row: dict[str, Any] = {"half_fd": exact.fd / 2, "el": exact.el, "add": exact.add}
    searches: tuple[Search, ...] = (Greedy(), Reselect())
    for search in searches:
        name, rng = search.name, stream(seed, search.name)
        found = find_adversary(model, params, batch, search=search, rng=rng, budgets=BUDGET, distance=distance)
        row[name] = found.d
    held: dict[str, Any] = {
        "half_fd_le_el": np.mean(exact.fd / 2 <= exact.el * (1 + 1e-9)),
        "el_le_add": np.mean(exact.el <= exact.add * (1 + 1e-9)),
        "el_le_greedy": np.mean(exact.el <= row["greedy"]),
        "el_le_reselect": np.mean(exact.el <= row["reselect"]),
    }
    return {name: float(np.mean(value)) for name, value in {**row, **held}.items()}


def remark1(model: Classifier, params: Params, batch: Batch, task: Task) -> dict[str, float]:
    """Eq. 5 over random base masks, each with the exact adversary of its own ball."""
    base, adversarial = [], []
    for n in range(task.bases):
        rng = stream(task.seed, "base masks", n)
        eps = masks.bernoulli(rng, P, (1, H), like=batch.x)
        eps0 = np.repeat(eps, len(batch), axis=0)  # one mask for all examples
        trace = find_adversary(model, params, batch, rng=rng, budgets=BUDGET, eps0=eps0, distance="l2", search=Exact())
        base.append(probabilities(model, params, batch, eps0))
        adversarial.append(probabilities(model, params, batch, trace.eps["layer0"]))
    terms = bounds.remark1(np.stack(base), np.stack(adversarial), np.full(task.bases, 1 / task.bases))
    names = ("variance", "covariance", "mean_gap", "expected", "total")
    return {name: float(np.mean(getattr(terms, name))) for name in names}


def inference_gap(model: Classifier, params: Params, batch: Batch) -> dict[str, float]:
    """The distance between the full network's prediction and the average over all 2^H masks, scale inverted."""
    eps = bounds.all_masks(H)
    logits = bounds.outputs(model, params, batch, eps, scale="inverted", p=P)[:, -1]  # (2^H, B, C)
    average = np.einsum("n,nbc->bc", bounds.bernoulli_weights(eps, P), np.exp(layers.log_softmax(logits)))
    full = bounds.base_output(model, params, batch)[-1]
    return {name: float(np.mean(distances.by_name(name)(full, np.log(average))[0])) for name in ("js", "l2")}


def probabilities(model: Classifier, params: Params, batch: Batch, eps: Array) -> Array:
    """Class probabilities (B, C), each example under a mask of its own."""
    features, _, _ = model.body(params, batch, masks={"layer0": eps}, noise=None)
    return np.exp(layers.log_softmax(model.logits(params, features)[-1]))


def tables(results: Sequence[dict[str, Any]]) -> str:
    """Every number as mean ± standard deviation over seeds."""

    def cell(method: str, *path: str, digits: int = 4) -> str:
        values = []
        for result in (r for r in results if r["method"] == method):
            value: Any = result
            for key in path:
                value = value[key]
            values.append(value)
        return reporting.spread(values, digits)

    methods = list(dict.fromkeys(r["method"] for r in results))
    parts = []
    for distance in ("js", "l2", "kl"):
        columns = ("half_fd", "el", "greedy", "reselect", "add")
        rows = [
            [m, *(cell(m, "chain", distance, c) for c in columns), cell(m, "chain", distance, "el_le_greedy", digits=2)]
            for m in methods
        ]
        head = ["trained with", "½ FD", "EL", "D(greedy)", "D(reselect)", "AdD(exact)", "share with EL ≤ D(greedy)"]
        parts.append(f"Chain for {distance}:\n\n{reporting.markdown(head, rows)}")
    names = ("variance", "covariance", "mean_gap", "expected")
    rows = [[m, *(cell(m, "remark1", n) for n in names)] for m in methods]
    head = ["trained with", "(1) variances", "(2) covariance", "(3) gap of means", "(1) - 2 (2) + (3) = E AdD"]
    parts.append(f"Remark 1, squared L2:\n\n{reporting.markdown(head, rows)}")
    rows = [
        [m, cell(m, "gap", "js", digits=5), cell(m, "gap", "l2", digits=5), cell(m, "error", digits=1)] for m in methods
    ]
    head = ["trained with", "inference gap, js", "inference gap, l2", "test error %"]
    parts.append(f"Inference gap, over all {2**H:,} masks:\n\n{reporting.markdown(head, rows)}")
    rows = [[f"{a:g}", f"{b.lower:.3f}", f"{b.upper:.3f}", f"{b.lower / b.upper:.2f}"] for a, b in kl_growth()]
    parts.append(f"KL counterexample:\n\n{reporting.markdown(['a', '¼ FD', 'EL', 'ratio'], rows)}")
    return "\n\n".join(parts)


def kl_growth() -> list[tuple[float, Any]]:
    """The terms of the KL counterexample for growing readout weights."""
    return [(a, kl_counterexample(a)) for a in (50.0, 100.0, 200.0, 400.0, 800.0, 1600.0)]


def figure(results: Sequence[dict[str, Any]]) -> Any:
    """Four panels: the chain, the KL counterexample, Remark 1, the inference gap."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    methods = list(dict.fromkeys(r["method"] for r in results))
    drawn, axes = plt.subplots(2, 2, figsize=(11, 8))
    place = np.arange(len(methods))

    def mean(*path: str) -> list[float]:
        values = []
        for method in methods:
            found = [r for r in results if r["method"] == method]
            values.append(float(np.mean([_at(r, path) for r in found])))
        return values

    labels = {"half_fd": "½ FD", "el": "EL", "greedy": "D(greedy)", "reselect": "D(reselect)", "add": "AdD(exact)"}
    for name, marker in zip(labels, "v^os_", strict=True):
        style = {"markersize": 18, "markeredgewidth": 2} if name == "add" else {}
        axes[0, 0].plot(place, mean("chain", "js", name), marker, label=labels[name], **style)
    axes[0, 0].set(
        title=f"Prop. 1, js, ball of {BUDGET} flips, H = {H}", yscale="log", ylabel="mean over test examples"
    )
    axes[0, 0].set_ylim(top=5 * max(mean("chain", "js", "add")))
    axes[0, 0].legend(fontsize=8, ncols=3, loc="upper right")
    growth = kl_growth()
    axes[0, 1].plot([a for a, _ in growth], [b.lower for _, b in growth], "o-", label="¼ FD")
    axes[0, 1].plot([a for a, _ in growth], [b.upper for _, b in growth], "s-", label="EL")
    axes[0, 1].set(title="KL: ¼ FD ≤ EL fails", xscale="log", xlabel="readout weight a")
    axes[0, 1].legend(fontsize=8)
    for n, (name, label) in enumerate(
        (("variance", "(1) variances"), ("covariance", "(2) covariance"), ("mean_gap", "(3) gap of means"))
    ):
        axes[1, 0].bar(place + 0.25 * (n - 1), mean("remark1", name), 0.25, label=label)
    axes[1, 0].set(title=f"Remark 1, squared L2, random base masks p = {P}")
    axes[1, 0].legend(fontsize=8)
    axes[1, 1].bar(place, mean("gap", "js"))
    axes[1, 1].set(title=f"inference gap (js), all {2**H:,} masks, p = {P}")
    for axis in (axes[0, 0], axes[1, 0], axes[1, 1]):
        axis.set_xticks(place, methods, rotation=20)
    drawn.tight_layout()
    return drawn


def _at(result: Any, path: Sequence[str]) -> float:
    for key in path:
        result = result[key]
    return float(result)


@only_first_prints()
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.bounds", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=5, help="networks for each method (default 5)")
    parser.add_argument("--examples", type=positive, default=100, help="test examples (default 100)")
    parser.add_argument("--bases", type=positive, default=50, help="random base masks for Remark 1 (default 50)")
    parser.add_argument("--workers", type=positive, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)

    started = time.time()
    warnings.simplefilter("ignore")
    tasks = [Task(m, seed, args.examples, args.bases) for seed in range(args.seeds) for m in METHODS]
    results = reporting.run_all(examine, tasks, workers=args.workers, title="networks examined")
    about = reporting.facts(
        started, seeds=args.seeds, examples=args.examples, bases=args.bases, hidden=H, budget=BUDGET, p=P
    )
    growth = [{"a": a, "quarter_fd": b.lower, "el": b.upper} for a, b in kl_growth()]
    data = records.plain({"facts": about, "results": results, "kl": growth})
    paths = [
        reporting.write_results(args.out / "bounds.json", data),
        reporting.write(args.out / "bounds.md", page(data)),
        reporting.save_figure(figure(data["results"]), args.out / "bounds.png"),
    ]
    print(f"{tables(data['results'])}\n")
    print("written:", *paths, sep="\n  ")


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    return f"{HEADING.format(**data['facts'])}{tables(data['results'])}\n"


HEADING = """# The bounds on trained networks

LSTMs of {hidden} units trained on scikit-learn's digits row by row with each method; mean ± standard deviation over
{seeds} seeds of means over {examples} test examples. The chain is taken over the ball of {budget} flips around the full
network (dropout p = {p} given the ball, scale none); Remark 1 over {bases} random base masks with their exact
adversaries; the inference gap over all masks (scale inverted). `{command}`, {seconds:.0f} s on {cores} cores ({cpu}),
NumPy {numpy}.

"""

if __name__ == "__main__":
    main()
