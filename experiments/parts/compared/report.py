r"""The page of a comparison and its figure, made from its numbers alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.compared import makers
from experiments.parts.compared.plan import TUNING
from experiments.parts.compared.questions import differences
from experiments.parts.compared.rows import Data, expect_alike, passes, reported, tests
from experiments.parts.compared.verdict import verdict
from experiments.parts.statistics import coverage, detectable


def table(data: Data) -> str:
    """A row a method: setting, validation and test results, the difference to none, and the cost."""
    rows, found = reported(data), differences(data)
    unit = data["facts"]["task"]["metric"]
    lines = []
    for row, by_seed in rows.items():
        one = next(iter(by_seed.values()))
        difference, p = found.get((row, "none"), (None, None))
        lines.append(
            [
                row,
                "" if one["method"] == "none" else f"{one['strength']:g}, {one['weight']:g}".removesuffix(", 0"),
                reporting.spread([r["valid"] for r in by_seed.values()]) if "valid" in one else "",
                reporting.spread(tests(row, by_seed).values()),
                "" if difference is None else str(difference),
                "" if p is None else f"{p:.2g}",
                str(len(by_seed)),
                passes(data, one),
                f"{np.mean([r['seconds'] for r in by_seed.values()]):.0f}",
            ]
        )
    head = ["method", "strength, weight", f"validation {unit}", f"test {unit}", "less none [95 %]", "p (Holm)", "seeds"]
    return reporting.markdown([*head, "passes a step of none", "core seconds"], lines)


def further(data: Data) -> str:
    """The differences between methods other than none."""
    lines = [
        [f"{one} - {other}", str(difference), f"{p:.2g}", "yes" if p < 0.05 else "no"]
        for (one, other), (difference, p) in differences(data).items()
        if other != "none"
    ]
    return reporting.markdown(["difference of test results", "mean [95 %]", "p (Holm)", "below 0.05"], lines)


def page(data: Data) -> str:
    """The whole page of a task: the verdict first, how it was made last."""
    expect_alike(data)
    about = data["facts"]["task"]
    parts = [f"# {about['about']}", verdict(data), table(data), further(data), _how(data)]
    return "\n\n".join(parts) + "\n"


def _how(data: Data) -> str:
    """How the numbers of a task were made."""
    facts, task = data["facts"], data["facts"]["task"]
    runs = [r for r in data["results"] if "networks" not in r]  # an ensemble's networks are runs already
    lr = next(r["lr"] for r in runs if r["part"] == "final")
    sizes = ", ".join(f"{name} {value}" for name, value in task["sizes"] if value is not None)
    metric, rates = task["metric"], ", ".join(f"{rate:g}" for rate in task["lrs"])
    compared = len(differences(data))
    return f"""By the protocol of docs/protocol.md: each method's setting is one of four, the learning rate
({lr:g}) one of {rates} for none, both chosen by the mean validation {metric} of seeds {TUNING[0]} and
{TUNING[1]}. The test {metric} is that of the best validation evaluation, mean ± standard deviation over seeds.
Differences are paired over seeds, with bootstrap intervals and p of a paired t-test with Holm's correction over all
{compared} comparisons of this page.{power(data)}
The strength is p of random masks, δ of an adversary, or the norm of AT and VAT.
{sizes}; {task["epochs"]:g} epochs, batches of {task["batch"]}. Passes are forward + backward
in the time of one step of none, the search's included; core seconds are those of one run, or of all networks of an
ensemble. `{facts["command"]}`, {reporting.core_time(runs)} in {len(runs)} runs.
Made on: {makers.said(data)}."""


def power(data: Data) -> str:
    """What the tests of a page could tell, and what its intervals are worth, with as many seeds as they have."""
    made = [difference for difference, _ in differences(data).values()]
    if not made:
        return ""
    n = min(difference.n for difference in made)
    first, last = detectable(n, len(made))
    covered = f"{100 * coverage(n):.0f}"
    return f""" With {n} seeds and {len(made)} comparisons
the test tells a mean difference from {first:.1f} of its standard deviations over seeds on, and from {last:.1f} on if it
tells all others. An interval by bootstrap over {n} seeds has the true mean of normal differences in it {covered} times
of 100, not 95: p is the one to go by."""


def figure(data: Data) -> Any:
    """Test results against cost, and differences to none with their intervals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    rows, found = reported(data), differences(data)
    drawn, (left, right) = plt.subplots(1, 2, figsize=(13, 5))
    for n, (row, by_seed) in enumerate(rows.items()):
        values = np.array(list(tests(row, by_seed).values()))
        cost = np.mean([r["seconds"] for r in by_seed.values()])
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0
        left.errorbar(cost, values.mean(), yerr=error, marker="o", capsize=2, color=f"C{n % 10}")
        left.annotate(row, (cost, values.mean()), fontsize=7, xytext=(4, 3), textcoords="offset points")
    left.set(xlabel="core seconds of a run", ylabel=f"test {data['facts']['task']['metric']} (bars: standard error)")
    left.set_xscale("log")
    left.margins(x=0.25)  # room for the names on the right
    left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.xaxis.set_major_formatter(ScalarFormatter())
    left.xaxis.set_minor_formatter(NullFormatter())
    named = [(row, found[row, "none"][0]) for row in rows if (row, "none") in found]
    for n, (_, d) in enumerate(reversed(named)):
        right.plot([d.low, d.high], [n, n], color="black", linewidth=1)
        right.plot(d.mean, n, "o", color="black")
    right.set_yticks(range(len(named)), [row for row, _ in reversed(named)])
    right.axvline(0, color="grey", linestyle=":")
    right.set(xlabel="less none, 95 % interval", title=data["facts"]["task"]["about"])
    drawn.tight_layout()
    return drawn
