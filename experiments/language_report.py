r"""The table, the figure and the verdict of `table3`, from the results of its runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import reporting
from experiments.language_comparison import Preset

Results = Sequence[dict[str, Any]]


def perplexities(results: Results, method: str, part: str) -> list[float]:
    """By seed."""
    chosen = sorted((r["seed"], r[part]) for r in results if r["method"] == method)
    return [value for _, value in chosen]


def mean(results: Results, method: str, part: str) -> float:
    return float(np.mean(perplexities(results, method, part)))


def table(preset: Preset, results: Results, methods: Sequence[str]) -> str:
    """Perplexity on validation and test by method, over its seeds, and the published figures where there are any."""
    paper = dict(preset.paper)
    head = ["method", "seeds", "p or δ, weight", "validation", "test", "training", "words a second"]
    rows = []
    for method in methods:
        mine = [r for r in results if r["method"] == method]
        setting = "" if method == "none" else f"{mine[0]['strength']:g}, {mine[0]['weight']:g}"
        speeds = [r["words_per_second"] for r in mine if r["words_per_second"]]
        row = [method, str(len(mine)), setting]
        row += [reporting.spread(perplexities(results, method, part)) for part in ("valid", "test", "train")]
        row.append(f"{np.median(speeds):,.0f}" if speeds else "")
        rows.append([*row, paper.get(method, "")] if paper else row)
    return reporting.markdown([*head, "published: validation / test"] if paper else head, rows)


PAIRS = (
    *(("VD", "none"), ("EL", "none"), ("FD", "none"), ("AdD K=1", "none"), ("AdD reselect", "none")),
    *(("AdD K=1", "FD"), ("AdD K=2", "AdD K=1"), ("AdD reselect", "AdD K=2")),
)


def verdict(preset: Preset, results: Results, methods: Sequence[str]) -> str:
    """Which order came out, how far apart, whether the bar was reached, and what the training text says about why."""
    order = sorted(methods, key=lambda m: mean(results, m, "valid"))
    ranked = ", ".join(f"{m} {mean(results, m, 'valid'):.1f}" for m in order)
    lines = [f"- Validation perplexity from low to high: {ranked}."]
    lines += [_against(results, one, other) for one, other in PAIRS if one in methods and other in methods]
    if "none" in methods:
        plain = mean(results, "none", "valid")
        if preset.reach is not None:
            said = "reaches" if plain <= preset.reach else "does not reach"
            lines.append(f"- `none` {said} a validation perplexity of {preset.reach:g}: {plain:.1f}.")
        above = [m for m in methods if m != "none" and mean(results, m, "valid") >= plain]
        if above:
            lines.append(f"- Not below `none` on validation: {', '.join(above)}. {_why(results)}")
    return "\n".join(lines)


def _against(results: Results, one: str, other: str) -> str:
    said = []
    for part, name in (("valid", "validation"), ("test", "test")):
        gap = mean(results, one, part) - mean(results, other, part)
        found = "no difference" if abs(gap) < 0.005 else f"{abs(gap):.2f} {'lower' if gap < 0 else 'higher'}"
        said.append(f"{name} {found}")
    n = min(len(perplexities(results, m, "valid")) for m in (one, other))
    return f"  - {one} against {other}: {', '.join(said)} ({n} seed{'s' if n > 1 else ''})"


def _why(results: Results) -> str:
    """Whether there was anything to regularize: training perplexity is that under the noise of training."""
    train, valid = mean(results, "none", "train"), mean(results, "none", "valid")
    said = f"Without a regularizer the training text has perplexity {train:.1f} (with dropout) at the end, validation"
    if train >= valid:
        return f"{said} {valid:.1f}: the model does not overfit at this length, so that more noise mostly costs."
    return f"{said} {valid:.1f}: the model does overfit, so that this is not for want of something to regularize."


def figure(preset: Preset, results: Results, methods: Sequence[str]) -> Any:
    """Validation perplexity by epoch, the mean over seeds, and the test perplexity of every seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4))
    for n, method in enumerate(methods):
        curves = [r["curve"] for r in results if r["method"] == method]
        length = min(map(len, curves))
        epochs = [epoch for epoch, _ in curves[0][:length]]
        left.plot(epochs, np.mean([[v for _, v in c[:length]] for c in curves], axis=0), label=method, color=f"C{n}")
        seen = perplexities(results, method, "test")
        right.plot([n] * len(seen), seen, "o", alpha=0.5, color=f"C{n}")
        right.plot(n, np.mean(seen), "_", markersize=24, color=f"C{n}")
    left.set(xlabel="epoch", ylabel="validation perplexity", yscale="log", title=preset.name)
    left.legend(fontsize=8)
    right.set_xticks(range(len(methods)), methods, rotation=20)
    right.set(ylabel="test perplexity")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    drawn.tight_layout()
    return drawn
