r"""What a comparison says: the table, the tests, the verdict in words, the figure. Made from its numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.compared.plan import MATCHED, TUNING
from experiments.parts.statistics import Difference, holm, paired

Data = Mapping[str, Any]
Result = Mapping[str, Any]


def row_of(result: Result) -> str:
    """The row of the table that a reported result belongs to."""
    if result.get("networks", 1) > 1:
        return f"{result['method']}, {result['networks']} networks"
    return f"{result['method']}, {result['longer']} x longer" if result["longer"] > 1 else str(result["method"])


def reported(data: Data) -> dict[str, dict[int, Result]]:
    """The reported results by row and seed, in the order of the table; members of ensembles are not rows."""
    order = [row for method in data["facts"]["task"]["methods"] for row in rows_of(method)]
    found: dict[str, dict[int, Result]] = {}
    for result in data["results"]:
        if result["part"] == "final" and not result["member"]:
            found.setdefault(row_of(result), {})[result["seed"]] = result
    return {row: found[row] for row in order if row in found}


def rows_of(method: str) -> tuple[str, ...]:
    """The rows of a method: its own, and those at the cost of AdD K=2."""
    n = MATCHED.get(method)
    return (method,) if n is None else (method, f"{method}, {n} x longer", f"{method}, {n} networks")


def expect_alike(data: Data) -> None:
    """Raise ValueError for results of different sizes, data or learning rates: they do not make one table."""
    results = [r for r in data["results"] if r["part"] == "final"]
    for name, told in (("digest", "settings of the task"), ("data", "data"), ("lr", "learning rates")):
        if len(found := sorted({str(r[name]) for r in results})) > 1:
            raise ValueError(f"the runs have {len(found)} different {told} ({', '.join(found)}), expected one")
    for row, by_seed in reported(data).items():
        if len(set_to := sorted({(r["strength"], r["weight"]) for r in by_seed.values()})) > 1:
            raise ValueError(f"the runs of {row} have {len(set_to)} different settings {set_to}, expected one")


def tests(row: str, by_seed: Mapping[int, Result]) -> dict[int, float]:
    return {seed: float(result["test"]) for seed, result in by_seed.items()}


PAIRS = (
    ("FD", "VD"),
    ("AdD K=1", "VD"),
    ("AdD K=1", "FD"),
    ("AdD K=2", "FD"),
    ("AdD K=2", "RDrop"),
    ("AdD K=2", "AdD K=1"),
    ("reselect", "AdD K=2"),
    ("Relax", "AdD K=2"),
    ("Memory", "AdD K=2"),
    ("Memory", "FD"),
    ("AdD K=1", "AdD last"),
    ("AdD K=1", "VAT"),
    ("AdD K=1 + VAT", "VAT"),
    ("AdD K=2 + VAT", "VAT"),
    ("AdD K=2", "none, 4 x longer"),
    ("AdD K=2", "none, 4 networks"),
    ("AdD K=2", "FD, 2 x longer"),
    ("AdD K=2", "FD, 2 networks"),
    ("Memory", "FD, 2 networks"),
)
"""The comparisons that are tested beside those of every row with none: the second is subtracted from the first."""


def differences(data: Data) -> dict[tuple[str, str], tuple[Difference, float]]:
    """Each difference of test results over the seeds that both rows have, and its p-value by Holm's method."""
    rows = reported(data)
    pairs = [(row, "none") for row in rows if row != "none"] + [pair for pair in PAIRS if set(pair) <= rows.keys()]
    found = []
    for one, other in pairs:
        a, b = tests(one, rows[one]), tests(other, rows[other])
        seeds = a.keys() & b.keys()
        found.append(paired({s: a[s] for s in seeds}, {s: b[s] for s in seeds}) if len(seeds) > 1 else None)
    corrected = holm([difference.p for difference in found if difference is not None])
    kept = [(pair, difference) for pair, difference in zip(pairs, found, strict=True) if difference is not None]
    return {pair: (difference, p) for (pair, difference), p in zip(kept, corrected, strict=True)}


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


def passes(data: Data, result: Result) -> str:
    """The forward and backward passes of a row in the time of one step of none."""
    forward, backward = data["facts"]["passes"][result["method"]]
    times = result.get("networks", result["longer"])
    return f"{forward * times:g} + {backward * times:g}"


def further(data: Data) -> str:
    """The differences between methods other than none."""
    lines = [
        [f"{one} - {other}", str(difference), f"{p:.2g}", "yes" if p < 0.05 else "no"]
        for (one, other), (difference, p) in differences(data).items()
        if other != "none"
    ]
    return reporting.markdown(["difference of test results", "mean [95 %]", "p (Holm)", "below 0.05"], lines)


def said(data: Data, one: str, other: str) -> str | None:
    """One comparison in words that are no stronger than its test; None if it was not made."""
    made = differences(data).get((one, other))
    if made is None:
        return None
    difference, p = made
    if p >= 0.05:
        return f"{one} cannot be told from {other} ({difference}, p = {p:.2g})"
    return f"{one} is {'better' if difference.mean < 0 else 'worse'} than {other} ({difference}, p = {p:.2g})"


QUESTIONS = (
    ("Do random masks help?", (("VD", "none"), ("FD", "none"), ("RDrop", "none"))),
    ("Does the adversary help?", (("AdD K=1", "none"), ("AdD K=2", "none"), ("Memory", "none"))),
    ("Is it better than random masks?", (("AdD K=1", "FD"), ("AdD K=2", "FD"), ("AdD K=2", "RDrop"))),
    ("Does a second influence map help?", (("AdD K=2", "AdD K=1"),)),
    ("On texts?", (("AdD K=1", "AdD last"), ("VAT", "none"), ("AdD K=1", "VAT"), ("AdD K=1 + VAT", "VAT"))),
    ("Does the stronger search pay?", (("Memory", "AdD K=2"), ("Relax", "AdD K=2"), ("reselect", "AdD K=2"))),
    (
        "At equal cost?",
        (
            ("AdD K=2", "none, 4 x longer"),
            ("AdD K=2", "none, 4 networks"),
            ("AdD K=2", "FD, 2 x longer"),
            ("AdD K=2", "FD, 2 networks"),
            ("Memory", "FD, 2 networks"),
        ),
    ),
)


def verdict(data: Data) -> str:
    """What the numbers say, in words that follow from them."""
    rows = reported(data)
    means = {row: float(np.mean(list(tests(row, by_seed).values()))) for row, by_seed in rows.items()}
    ranked = sorted(means, key=lambda row: means[row])
    lines = [f"From low to high: {', '.join(f'{row} {means[row]:.2f}' for row in ranked)}."]
    for question, pairs in QUESTIONS:
        answers = [answer for one, other in pairs if (answer := said(data, one, other)) is not None]
        lines += [f"{question} {'; '.join(answers)}."] if answers else []
    for name, errors in data["facts"].get("baselines", {}).items():
        lines.append(f"Without a network, on the same texts: {name} {reporting.spread(errors)}.")
    lines += [converged(data), edges(data)]
    return "\n".join(f"- {line}" for line in lines)


def converged(data: Data) -> str:
    """Whether the mean validation loss of none had stopped improving before the last fifth; if not, what more does."""
    curves = [r["valid_losses"] for r in reported(data)["none"].values()]
    mean = np.mean(curves, axis=0)
    cut = len(mean) - max(1, len(mean) // 5)
    stopped = float(mean[cut:].min()) >= float(mean[:cut].min())
    verb = "had stopped" if stopped else "had not stopped"
    least = data["facts"]["task"]["epochs"] * (int(mean.argmin()) + 1) / len(mean)
    word = "Converged" if stopped else "Not converged"
    curve = f"the mean validation loss of none {verb} improving before the last fifth of training"
    longer = None if stopped else said(data, f"none, {MATCHED['none']} x longer", "none")
    return f"{word}: {curve} (its least: epoch {least:g})." + (f" What more training does: {longer}." if longer else "")


def edges(data: Data) -> str:
    """Which methods were given the largest weight or strength that was tried, and might have wanted more."""
    tried: dict[str, set[tuple[float, float]]] = {}
    for r in data["results"]:
        if r["part"] == "settings":
            tried.setdefault(r["method"], set()).add((r["strength"], r["weight"]))
    ends = []
    for method, settings in tried.items():
        one = next(iter(reported(data)[method].values()))
        most = [max(values) for values in zip(*settings, strict=True)]
        if one["weight"] == most[1] > 0 or one["strength"] == most[0]:
            ends.append(method)
    named = ", ".join(ends) or "no method"
    return f"The setting chosen is the strongest that was tried, in weight or in strength, for {named}."


def best_setting(results: Sequence[Result], method: str) -> tuple[float, float]:
    """The setting of the least mean validation result over the tuning seeds; the least loss decides between equals."""
    some = [r for r in results if r["method"] == method]
    return min(_settings(some), key=lambda setting: _score(some, setting))


def best_rate(results: Sequence[Result]) -> float:
    """The learning rate of the least mean validation result, then loss."""
    return float(min(sorted({r["lr"] for r in results}), key=lambda lr: _mean([r for r in results if r["lr"] == lr])))


def _settings(results: Sequence[Result]) -> list[tuple[float, float]]:
    return list(dict.fromkeys((r["strength"], r["weight"]) for r in results))


def _score(results: Sequence[Result], setting: tuple[float, float]) -> tuple[float, float]:
    return _mean([r for r in results if (r["strength"], r["weight"]) == setting])


def _mean(results: Sequence[Result]) -> tuple[float, float]:
    return float(np.mean([r["valid"] for r in results])), float(np.mean([r["valid_loss"] for r in results]))


def page(data: Data) -> str:
    """The whole page of a task: the verdict first, how it was made last."""
    expect_alike(data)
    about = data["facts"]["task"]
    parts = [f"# {about['about']}", verdict(data), table(data), further(data), _how(data)]
    return "\n\n".join(parts) + "\n"


def _how(data: Data) -> str:
    """How the numbers of a task were made."""
    facts, task = data["facts"], data["facts"]["task"]
    final = [r for r in data["results"] if r["part"] == "final"]
    sizes = ", ".join(f"{name} {value}" for name, value in task["sizes"] if value is not None)
    metric, rates = task["metric"], ", ".join(f"{rate:g}" for rate in task["lrs"])
    engines = ", ".join(sorted({str(r["made"].get("engine")) for r in final}))
    compared, runs = len(differences(data)), len(data["results"])
    return f"""By the protocol of docs/protocol.md: each method's setting is one of four, the learning rate
({final[0]["lr"]:g}) one of {rates} for none, both chosen by the mean validation {metric} of seeds {TUNING[0]} and
{TUNING[1]}. The test {metric} is that of the best validation evaluation, mean ± standard deviation over seeds.
Differences are paired over seeds, with bootstrap intervals and p of a paired t-test with Holm's correction over all
{compared} comparisons of this page. The strength is p of random masks, δ of an adversary, or the norm of AT and VAT.
{sizes}; {task["epochs"]:g} epochs, batches of {task["batch"]}. Passes are forward + backward
in the time of one step of none, the search's included; core seconds are those of one run, or of all networks of an
ensemble. `{facts["command"]}`, {reporting.core_time(data["results"])} in {runs} runs.
Made on: {reporting.made_by(final)}; engine {engines}, NumPy {facts["numpy"]}."""


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
