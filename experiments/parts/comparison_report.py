r"""What a comparison on sequential images says: the table with its tests, the verdict in words, the figure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.parts import reporting
from experiments.parts.comparison import Preset

NAMES = {"s": "scanline", "p": "permuted"}

PAPER = {  # Table 1, test error %, ten runs
    "none": ("1.018 ± .165", "9.924 ± .307"),
    "VD": (".721 ± .111", "5.218 ± .132"),
    "FD": (".720 ± .061", "5.121 ± .121"),
    "AdD K=1": (".705 ± .047", "5.046 ± .067"),
    "AdD K=2": (".644 ± .046", "5.030 ± .065"),
    "AdD reselect": ("", ""),
    "RDrop": ("", ""),
}


def errors(results: Sequence[dict[str, Any]], method: str, task: str) -> list[float]:
    """Test errors by seed."""
    chosen = sorted((r["seed"], r["test"]["error"]) for r in results if (r["method"], r["task"]) == (method, task))
    return [error for _, error in chosen]


def table(preset: Preset, results: Sequence[dict[str, Any]], methods: Sequence[str]) -> str:
    """Mean ± standard deviation by method and task; with five seeds or more, paired tests against none and FD."""
    tested = min(len(errors(results, method, task)) for method in methods for task in preset.tasks) >= 5
    head = ["method"]
    for task in preset.tasks:
        head += [f"{NAMES[task]}: test error %", "p or δ, weight"] + ["P vs none", "P vs FD"] * tested
    rows = []
    for method in methods:
        cells = [method]
        for task in preset.tasks:
            mine = errors(results, method, task)
            setting = next((r for r in results if (r["method"], r["task"]) == (method, task)), None)
            chosen = "" if setting is None or method == "none" else f"{setting['strength']:g}, {setting['weight']:g}"
            tests = [p_value(mine, errors(results, other, task)) for other in ("none", "FD")]
            cells += [reporting.spread(mine), chosen] + tests * tested
        rows.append([*cells, *PAPER[method]] if preset.images == "mnist" else cells)
    paper = ["paper sMNIST", "paper pMNIST"] if preset.images == "mnist" else []
    return reporting.markdown([*head, *paper], rows)


def p_value(mine: Sequence[float], other: Sequence[float]) -> str:
    """Two-sided Wilcoxon signed-rank test over seeds, where there are enough of them to mean anything."""
    if len(mine) < 5 or len(mine) != len(other):
        return ""
    gaps = np.round(np.subtract(mine, other), 6)  # so that equal gaps are equal in spite of rounding
    gaps = gaps[gaps != 0]
    if not len(gaps):
        return ""
    return f"{wilcoxon(gaps) if len(gaps) <= 12 else stats.wilcoxon(gaps).pvalue:.3f}"


def wilcoxon(gaps: Any) -> float:
    """The exact P value, also with ties: the share of all choices of signs with as extreme a sum of ranks."""
    ranks = stats.rankdata(np.abs(gaps))
    sums = np.array([np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=len(gaps))])
    found, close = ranks[gaps > 0].sum(), 1e-9
    tail = min((sums <= found + close).mean(), (sums >= found - close).mean())
    return float(min(1.0, 2 * tail))


PAIRS = (
    ("AdD K=1", "none"),
    ("AdD K=1", "FD"),
    ("AdD K=2", "none"),
    ("AdD K=2", "FD"),
    ("AdD K=2", "AdD K=1"),
    ("AdD reselect", "AdD K=2"),
)
"""The pairs of methods that the verdict compares."""


def verdict(preset: Preset, results: Sequence[dict[str, Any]], methods: Sequence[str]) -> str:
    """Which order came out, with what significance, and whether the stronger search helped."""
    lines = []
    for task in preset.tasks:
        means = {m: float(np.mean(errors(results, m, task))) for m in methods}
        order = sorted(methods, key=lambda m: means[m])
        lines.append(
            f"- {NAMES[task]}, from low error to high: " + ", ".join(f"{m} {means[m]:.2f}" for m in order) + "."
        )
        for one, other in PAIRS:
            if one in means and other in means:
                gap = means[one] - means[other]
                p = p_value(errors(results, one, task), errors(results, other, task))
                size = f"{abs(gap):.2f}"
                found = "no difference" if size == "0.00" else f"{size} points {'lower' if gap < 0 else 'higher'}"
                lines.append(f"  - {one} against {other}: {found}" + (f" (Wilcoxon P = {p})" if p else ""))
    return "\n".join(lines)


def figure(preset: Preset, results: Sequence[dict[str, Any]], methods: Sequence[str]) -> Any:
    """Test errors of every seed, and mean validation curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    drawn, axes = plt.subplots(2, len(preset.tasks), figsize=(5.5 * len(preset.tasks), 7), squeeze=False)
    for column, task in enumerate(preset.tasks):
        for n, method in enumerate(methods):
            seen = errors(results, method, task)
            axes[0, column].plot([n] * len(seen), seen, "o", alpha=0.5, color=f"C{n}")
            axes[0, column].plot(n, np.mean(seen), "_", markersize=24, color=f"C{n}")
            curves = [r["curve"] for r in results if (r["method"], r["task"]) == (method, task)]
            epochs = [epoch for epoch, _ in curves[0]]
            axes[1, column].plot(
                epochs, np.mean([[e for _, e in c] for c in curves], axis=0), label=method, color=f"C{n}"
            )
        axes[0, column].set_xticks(range(len(methods)), methods, rotation=20)
        axes[0, column].set(title=f"{preset.name}, {NAMES[task]}", ylabel="test error %")
        axes[1, column].set(xlabel="epoch", ylabel="validation error %", yscale="log")
        axes[1, column].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes[1, column].yaxis.set_major_formatter("{x:g}")
        axes[1, column].yaxis.set_minor_formatter(NullFormatter())
        axes[1, column].legend(fontsize=8)
    drawn.tight_layout()
    return drawn
