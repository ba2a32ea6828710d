r"""How close each search comes to the exact adversary, for the passes it spends.

Trains small LSTMs on the digits (row by row, T = 8), finds the best mask within three flips of the full network by
enumeration, and reports the share of that maximum which each search reaches. ``python -m experiments.search_quality``
writes search_quality.json, .md and .png under experiments/results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import records, reporting, small_nets
from minadv import bounds, distances, masks
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.base.streams import stream
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.models.classifier import Batch, Classifier, Params
from minadv.searches import Greedy, Random, Reselect, Search
from minadv.training.parallel.ranks import only_first_prints

BUDGET = 3
DISTANCES = ("js", "kl")

SEARCHES: dict[str, Search] = {
    "random": Random(),
    "best of 8 random": Random(tries=8),
    "greedy K=1": Greedy(K=1),
    "greedy K=2": Greedy(K=2),
    "greedy K=2, start kept": Greedy(K=2, allow_unflip=False),
    "greedy K=3": Greedy(K=3),
    "greedy K=8": Greedy(K=8),
    "two-sided": Reselect(K=1),
    "reselect K=2": Reselect(K=2),
    "reselect K=3": Reselect(K=3),
    "reselect K=2, swap": Reselect(K=2, swaps=4),
}

GROUPS = (("H = 64", 64, 300), ("H = 24", 24, 300), ("H = 24, barely trained", 24, 40))
"""Name, units, training steps; the largest first, so that the processes finish together."""


@dataclass(frozen=True)
class Task:
    """One trained network, attacked under one scale."""

    group: str
    n_hidden: int
    steps: int  # training steps
    n_classes: int
    scale: masks.Scale
    seed: int
    examples: int
    repeats: int


def attack(task: Task) -> list[dict[str, Any]]:
    """Train, enumerate and search; for each distance, the mean share of the exact maximum and the passes spent."""
    train, test = small_nets.digit_rows(task.n_classes)
    model = Classifier(n_in=8, n_hidden=task.n_hidden, n_classes=task.n_classes)
    params = small_nets.train(model, train, seed=task.seed, steps=task.steps)
    batch = small_nets.test_batch(test, task.examples)
    results = []
    for distance, exact in exact_maxima(model, params, batch, task.scale).items():
        shares = {}
        for name, search in SEARCHES.items():
            found = []
            for repeat in range(task.repeats):
                rng = stream(task.seed, name, repeat)
                trace = find_adversary(
                    *(model, params, batch),
                    search=search,
                    rng=rng,
                    budgets=BUDGET,
                    scale=task.scale,
                    distance=distance,
                )
                found.append(np.mean(trace.d / exact))
            shares[name] = {"share": float(np.mean(found)), **asdict(trace.passes)}
        accuracy = small_nets.accuracy(model, params, test)
        results.append({**asdict(task), "distance": distance, "accuracy": accuracy, "searches": shares})
    return results


def exact_maxima(model: Classifier, params: Params, batch: Batch, scale: masks.Scale) -> dict[str, Array]:
    """The largest js and kl within the budget, (B,) each, as an `Exact` search finds them, from one enumeration."""
    base = bounds.base_output(model, params, batch)[-1]
    best = {name: np.zeros(len(batch)) for name in DISTANCES}
    for eps in bounds.ball(np.ones(model.n_hidden), BUDGET):
        logits = bounds.outputs(model, params, batch, eps[None], scale=scale)[0, -1]
        for name in DISTANCES:
            np.maximum(best[name], distances.by_name(name)(base, logits)[0], out=best[name])
    return best


def table(results: Sequence[dict[str, Any]]) -> str:
    """One row a search, one column a size; then one row a setting for the searches that matter."""
    rows = []
    for name in SEARCHES:
        spent = results[0]["searches"][name]
        cells = [_by_seed(results, name, group=group) for group in _groups(results)]
        rows.append([name, f"{spent['forward']} + {spent['backward']}", *(reporting.spread(c) for c in cells)])
    rows.append(["(test accuracy)", "", *(_accuracy(results, group) for group in _groups(results))])
    text = reporting.markdown(["search", "passes (forward + backward)", *_groups(results)], rows)

    shown = ["random", "greedy K=1", "greedy K=2", "greedy K=8", "two-sided", "reselect K=2", "reselect K=2, swap"]
    details: list[list[str]] = []
    keys = ("group", "n_classes", "scale", "distance")
    for setting in sorted({tuple(r[key] for key in keys) for r in results}):
        shares = [reporting.spread(_by_seed(results, n, **dict(zip(keys, setting, strict=True)))) for n in shown]
        details.append([*map(str, setting), *shares])
    return text + "\n\nBy setting:\n\n" + reporting.markdown(["networks", "classes", "scale", "D", *shown], details)


def _groups(results: Sequence[dict[str, Any]]) -> list[str]:
    return sorted({r["group"] for r in results})


def _accuracy(results: Sequence[dict[str, Any]], group: str) -> str:
    return f"{np.mean([r['accuracy'] for r in results if r['group'] == group]):.3f}"


def _by_seed(results: Sequence[dict[str, Any]], name: str, **where: Any) -> list[float]:
    """The share of one search, averaged over settings, one number a seed."""
    chosen = [r for r in results if all(r[key] == value for key, value in where.items())]
    seeds = sorted({r["seed"] for r in chosen})
    return [float(np.mean([r["searches"][name]["share"] for r in chosen if r["seed"] == s])) for s in seeds]


def figure(results: Sequence[dict[str, Any]]) -> Any:
    """Share of the exact maximum against forward and backward passes, one panel a group of networks."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = _groups(results)
    drawn, axes = plt.subplots(1, len(groups), figsize=(4.5 * len(groups), 4), sharey=True, squeeze=False)
    for axis, group in zip(axes[0], groups, strict=True):
        for name in SEARCHES:
            seeds = _by_seed(results, name, group=group)
            spent = results[0]["searches"][name]
            marker = "s" if "reselect" in name or "two" in name else "o" if "greedy" in name else "^"
            error = np.std(seeds, ddof=1) if len(seeds) > 1 else 0
            passes = spent["forward"] + spent["backward"]
            axis.errorbar(passes, np.mean(seeds), yerr=error, marker=marker, label=name, linestyle="none", capsize=2)
        axis.set(title=group, xlabel="passes beside the base pass", xscale="log", ylim=(0, 1.03))
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel(f"share of the exact maximum of D, {BUDGET} flips")
    axes[0, -1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return drawn


def verdict(results: Sequence[dict[str, Any]]) -> str:
    """Whether re-selection reaches twice greedy's share for the same price, in words."""
    lines = []
    for group in _groups(results):
        share = {name: float(np.mean(_by_seed(results, name, group=group))) for name in SEARCHES}
        best = share["reselect K=2"]
        lines.append(
            f"- {group}: reselect K=2 (7 passes) reaches {best:.2f} of the exact maximum, "
            f"{best / share['greedy K=3']:.2f} times greedy K=3 for the same price ({share['greedy K=3']:.2f}), "
            f"{best / share['greedy K=2, start kept']:.2f} times greedy K=2 that may not take its random start back "
            f"({share['greedy K=2, start kept']:.2f}), and {best / share['greedy K=8']:.2f} times greedy K=8 "
            f"(17 passes, {share['greedy K=8']:.2f})."
        )
    return "\n".join(lines)


@only_first_prints()
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.search_quality", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=3, help="networks of each kind (default 3)")
    parser.add_argument("--quick", action="store_true", help="the small networks only")
    parser.add_argument(
        "--classes", type=positive, nargs="+", default=[2, 4, 10], help="numbers of classes (default 2 4 10)"
    )
    parser.add_argument("--examples", type=positive, default=24, help="test examples attacked (default 24)")
    parser.add_argument("--repeats", type=positive, default=8, help="random starts of each search (default 8)")
    parser.add_argument("--workers", type=positive, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)

    started = time.time()
    groups = GROUPS[1:] if args.quick else GROUPS
    tasks = [
        Task(group, size, steps, classes, scale, seed, args.examples, args.repeats)
        for (group, size, steps), seed, classes, scale in product(
            groups, range(args.seeds), args.classes, ("none", "kept")
        )
    ]
    done = reporting.run_all(attack, tasks, workers=args.workers, title="networks attacked")
    results = [result for several in done for result in several]
    about = reporting.facts(started, seeds=args.seeds, examples=args.examples, repeats=args.repeats, budget=BUDGET)
    data = records.plain({"facts": about, "results": results})
    paths = [
        reporting.write_results(args.out / "search_quality.json", data),
        reporting.write(args.out / "search_quality.md", page(data)),
        reporting.save_figure(figure(data["results"]), args.out / "search_quality.png"),
    ]
    print(tables(data))
    print("written:", *paths, sep="\n  ")


def tables(data: dict[str, Any]) -> str:
    """The tables with their verdict."""
    return f"{table(data['results'])}\n\n{verdict(data['results'])}\n"


def page(data: dict[str, Any]) -> str:
    """The whole page of results, made from the numbers alone."""
    return HEADING.format(**data["facts"]) + tables(data)


HEADING = """# The search for the adversarial mask

Share of the exact maximum of D (by enumeration) that each search reaches: mean over settings (2, 4 and 10 classes,
scales none and kept, js and kl), over {examples} test examples and {repeats} random starts each; ± is the standard
deviation over {seeds} trained networks. LSTMs trained on scikit-learn's digits, row by row, budget of {budget} flips.
Passes are those beside the base pass. `{command}`, {seconds:.0f} s on {cores} cores ({cpu}), NumPy {numpy}.

"""

if __name__ == "__main__":
    main()
