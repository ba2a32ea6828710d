r"""The tables, the figure and the verdict of `experiments.stronger`, made from its numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.statistics import Difference, holm, paired
from minadv.adversary import find_adversary
from minadv.models.classifier import Batch, Classifier
from minadv.searches import Search

Result = Mapping[str, Any]
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
"""The palette of Okabe and Ito, which people with any kind of colour vision can tell apart."""
MARKS = ("o", "s", "^", "v", "D", "P", "X", "*", "<", ">", "p")
RANDOM = ("none", "VD", "EL", "FD", "RDrop")
ORDER = (*RANDOM, "random", "greedy K=1", "greedy K=2", "reselect", "Relax", "Memory")
"""Methods have the colour and the mark of their place here."""


def best_weight(results: Sequence[Result], method: str, strength: float) -> float:
    """The weight of the least mean validation error over the tuning seeds; the least loss decides between equals."""
    some = [r for r in results if (r["method"], r["strength"]) == (method, strength)]

    def score(weight: float) -> tuple[float, float]:
        here = [r for r in some if r["weight"] == weight]
        return float(np.mean([r["valid_error"] for r in here])), float(np.mean([r["valid_loss"] for r in here]))

    return float(min(sorted({r["weight"] for r in some}), key=score))


def passes(searches: Mapping[str, Search]) -> dict[str, list[float]]:
    """Forward and backward passes of a training step of each method, counted on a tiny network; None has one each.

    Those of a search that remembers are the mean over four visits, an even number of which look afresh.
    """
    rng = np.random.default_rng(0)
    model = Classifier(2, 8, 3)
    params, batch = model.init(rng), Batch(rng.standard_normal((4, 5, 2)).astype(np.float32), np.zeros(5, int))
    found: dict[str, list[float]] = {"none": [1, 1], "VD": [1, 1], "EL": [2, 2], "FD": [2, 2], "RDrop": [2, 2]}
    for name, search in searches.items():
        spent, memory = [], None
        for _ in range(4):
            given: dict[str, Any] = {"memory": memory} if search.remembers else {}
            trace = find_adversary(model, params, batch, search=search, budgets=2, rng=rng, **given)
            memory = trace.memory
            spent.append((2 + trace.passes.forward, 2 + trace.passes.backward))  # and base and adversarial pass
        found[name] = [float(n) for n in np.mean(spent, axis=0)]
    return found


def final(task: Mapping[str, Any], method: str, strength: float, what: str = "test_error") -> dict[int, float]:
    """A number of each reported run of a method at a strength, by seed."""
    return {
        r["seed"]: float(r[what])
        for r in task["results"]
        if r["part"] == "final" and (r["method"], r["strength"]) == (method, strength)
    }


def strengths(task: Mapping[str, Any], method: str) -> list[float]:
    """The strengths at which a method was run."""
    return sorted({r["strength"] for r in task["results"] if r["part"] == "final" and r["method"] == method})


def chosen(task: Mapping[str, Any], method: str) -> float:
    """The strength whose reported runs have the least mean validation error: test data have no say in it."""
    return min(
        strengths(task, method), key=lambda s: float(np.mean(list(final(task, method, s, "valid_error").values())))
    )


def methods(task: Mapping[str, Any]) -> list[str]:
    """The methods of a task in the order of its setting."""
    return list(task["facts"]["setting"]["methods"])


def table(task: Mapping[str, Any]) -> str:
    """Test error at each strength, then at the chosen one the attacked error and the cost."""
    rows = []
    for method in methods(task):
        cells = [reporting.spread(final(task, method, s).values()) for s in strengths(task, method)]
        best = chosen(task, method)
        forward, backward = task["facts"]["passes"][method]
        weight = next(
            r["weight"]
            for r in task["results"]
            if r["part"] == "final" and r["method"] == method and r["strength"] == best
        )
        rows.append(
            [
                method,
                *(cells if len(cells) == 3 else [cells[0], "", ""]),
                "" if method == "none" else f"{best:g}" + ("" if method == "VD" else f", {weight:g}"),
                reporting.spread(final(task, method, best, "attacked_error").values(), 1),
                f"{forward:g} + {backward:g}",
                f"{np.mean(list(final(task, method, best, 'seconds').values())):.1f}",
            ]
        )
    setting = task["facts"]["setting"]
    told = [f"p {p:g} or {b} flips" for p, b in zip(setting["probabilities"], setting["budgets"], strict=True)]
    head = ["method", *told, "chosen strength, weight", "error under attack", "passes a step", "core seconds"]
    return reporting.markdown(head, rows)


PAIRS = (
    *((method, "none") for method in ("VD", "FD", "RDrop", "greedy K=2", "Memory")),
    *(("Memory", other) for other in ("greedy K=2", "greedy K=1", "reselect", "random", "VD", "FD", "RDrop")),
    ("greedy K=2", "VD"),
)
"""The comparisons that are tested: the second is subtracted from the first."""


def differences(task: Mapping[str, Any]) -> dict[tuple[str, str], tuple[Difference, float]]:
    """Each difference of test errors at the chosen strengths, and its p-value corrected by Holm's method."""
    known = set(methods(task))
    pairs = [pair for pair in PAIRS if set(pair) <= known]
    found = [paired(*(final(task, method, chosen(task, method)) for method in pair)) for pair in pairs]
    corrected = holm([difference.p for difference in found])
    return {pair: (difference, p) for pair, difference, p in zip(pairs, found, corrected, strict=True)}


def tests(task: Mapping[str, Any]) -> str:
    """The differences as a table."""
    rows = [
        [f"{one} - {other}", str(difference), f"{p:.2g}", "yes" if p < 0.05 else "no"]
        for (one, other), (difference, p) in differences(task).items()
    ]
    return reporting.markdown(["difference of test errors, points", "mean [95 %]", "p (Holm)", "below 0.05"], rows)


def same_strength(task: Mapping[str, Any]) -> str:
    """At each budget: Memory less greedy K=2, the better search at the same number of flips."""
    lines = []
    for budget in strengths(task, "Memory"):
        d = paired(final(task, "Memory", budget), final(task, "greedy K=2", budget))
        lines.append(f"{budget:g} flips {d}")
    return "; ".join(lines)


def verdict(task: Mapping[str, Any]) -> str:
    """What the numbers say, in words that follow from them."""
    found = differences(task)

    def said(one: str, other: str) -> str:
        difference, p = found[one, other]
        if p >= 0.05:
            return f"{one} cannot be told from {other} ({difference}, p = {p:.2g})"
        return f"{one} has {'less' if difference.mean < 0 else 'more'} error than {other} ({difference}, p = {p:.2g})"

    def attack(method: str) -> float:
        return float(np.mean(list(final(task, method, chosen(task, method), "attacked_error").values())))

    costs = {m: sum(task["facts"]["passes"][m]) for m in methods(task)}
    ranked = sorted(methods(task), key=lambda m: float(np.mean(list(final(task, m, chosen(task, m)).values()))))
    named = ", ".join(f"{attack(m):.1f} % for {m}" for m in ("none", "VD", "RDrop", "greedy K=2", "Memory"))
    flips = task["facts"]["setting"]["budgets"][0]
    lines = (
        f"Least mean error: {ranked[0]}, then {ranked[1]} and {ranked[2]}.",
        f"Does the stronger search pay? At each method's own chosen strength, {said('Memory', 'greedy K=2')}.",
        f"At equal budgets, Memory less greedy K=2: {same_strength(task)}.",
        f"Does the adversary pay? {said('Memory', 'none')}; {said('greedy K=2', 'none')}.",
        f"Against random masks: {said('VD', 'none')}; {said('Memory', 'VD')}; {said('greedy K=2', 'VD')}.",
        "Passes a step: " + ", ".join(f"{costs[m]:g} for {m}" for m in ("VD", "RDrop", "greedy K=2", "Memory")) + ".",
        f"Against what people use today: {said('Memory', 'RDrop')}; {said('Memory', 'FD')}.",
        f"Under an attack of {flips} flips by the longest Relax the error is {named}, each at its chosen strength.",
        _edge(task),
        _converged(task),
    )
    return "\n".join(f"- {line}" for line in lines)


def _edge(task: Mapping[str, Any]) -> str:
    """Which methods took the largest weight that was tried, and might have taken a larger one."""
    most = max(r["weight"] for r in task["results"])
    ends = [
        method
        for method in methods(task)
        for r in task["results"]
        if r["part"] == "final" and (r["method"], r["strength"], r["seed"]) == (method, chosen(task, method), 0)
        if r["weight"] == most
    ]
    return f"The weight chosen is the largest that was tried, {most:g}, for {', '.join(ends) or 'no method'}."


def _converged(task: Mapping[str, Any]) -> str:
    """Whether the mean validation loss of `none` had stopped improving over the last fifth of training."""
    curves = [r["valid_losses"] for r in task["results"] if r["part"] == "final" and r["method"] == "none"]
    mean = np.mean(curves, axis=0)
    cut = len(mean) - len(mean) // 5
    stopped = float(mean[cut:].min()) >= float(mean[:cut].min())
    least = int(mean.argmin()) + 1
    word = "had stopped" if stopped else "had not stopped"
    return f"The validation loss of none {word} improving before the last fifth of training (its least: epoch {least})."


def page(data: Mapping[str, Any]) -> str:
    """The whole page of results."""
    parts = [HEADING]
    for task in data["tasks"].values():
        about = task["facts"]
        setting = about["setting"]
        final_runs = [r for r in task["results"] if r["part"] == "final"]
        seeds = len({r["seed"] for r in final_runs})
        parts += [
            f"## {setting['about']}\n",
            verdict(task) + "\n",
            _how(task, seeds) + "\n",
            table(task) + "\n",
            tests(task) + "\n",
        ]
    return "\n".join(parts)


def _how(task: Mapping[str, Any], seeds: int) -> str:
    """What the numbers of a task are, and how they were made."""
    about, setting = task["facts"], task["facts"]["setting"]
    return (
        f"Test error in per cent, mean ± standard deviation over {seeds} seeds; LSTMs of {setting['n_hidden']} units, "
        f"{setting['epochs']} epochs, batches of {setting['batch']}, Adam 1e-2. The strength is "
        f"chosen by the validation error of the reported runs, the weight of each strength (0.3, 1 or 3) by that of "
        f"{setting['tuning']} other seed(s). `{about['command']}`, {reporting.core_time(task['results'])}, "
        f"{about['cpu']}, runs of commit {', '.join(c[:7] for c in task['commits'])}, NumPy {about['numpy']}."
    )


HEADING = """# Does a stronger adversary pay?

Every method is given three strengths (a probability p, or a number of flips) and three weights; each seed draws its own
training, validation and test examples, weights and order, the same for all methods, so that differences are paired.
Passes a step are forward and backward passes of training, the search's included; core seconds are those of one run.
All seeds draw from the same images (MNIST's test images are the same for all), and their examples overlap: intervals
and p-values speak of other draws from these images, not of other data. A bootstrap interval over five seeds is too
narrow; the p-value is the one to go by. The weights were chosen on validation examples that are test examples of other
seeds of the digits.
"""


def figure(data: Mapping[str, Any]) -> Any:
    """Error against strength, and error at the chosen strength against cost, a row a task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks = list(data["tasks"].values())
    drawn, axes = plt.subplots(len(tasks), 3, figsize=(14, 4.2 * len(tasks)), sharey="row", squeeze=False)
    for row, task in zip(axes, tasks, strict=True):
        none = float(np.mean(list(final(task, "none", 0.0).values())))
        for method in methods(task):
            k = ORDER.index(method)
            line = "-" if k < len(COLOURS) else "--"
            style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKS[k], "capsize": 2}
            if method != "none":
                at = row[0 if method in RANDOM else 1]
                runs = [np.array(list(final(task, method, s).values())) for s in strengths(task, method)]
                at.errorbar(
                    strengths(task, method), [r.mean() for r in runs], yerr=[_error(r) for r in runs], ls=line, **style
                )
            best = np.array(list(final(task, method, chosen(task, method)).values()))
            cost = sum(task["facts"]["passes"][method])
            row[2].errorbar(cost, best.mean(), yerr=_error(best), linestyle="none", label=method, **style)
        titles = ("random masks", "adversarial masks", "each at its chosen strength")
        labels = ("probability p", "units that may flip", "passes a training step")
        for at, title, label in zip(row, titles, labels, strict=True):
            at.axhline(none, color="grey", linestyle=":", linewidth=1)
            at.set(xlabel=label, title=title)
            at.grid(alpha=0.3)
        row[0].set_ylabel(f"{task['facts']['setting']['about']}\ntest error, % (bars: standard error)")
        row[2].legend(fontsize=9, title="dotted: none", loc="center left", bbox_to_anchor=(1.02, 0.5))
    drawn.tight_layout()
    return drawn


def _error(values: Any) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / len(values) ** 0.5)
