r"""The table, the figure and the verdict of `table3`, from the results of its runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.language_comparison import Preset

Results = Sequence[dict[str, Any]]


def perplexities(results: Results, method: str, part: str) -> list[float]:
    """By seed."""
    chosen = sorted((r["seed"], r[part]) for r in results if r["method"] == method)
    return [value for _, value in chosen]


def mean(results: Results, method: str, part: str) -> float:
    return float(np.mean(perplexities(results, method, part)))


def common(results: Results, methods: Sequence[str]) -> list[dict[str, Any]]:
    """The results of those seeds that all of these methods have, by which they can be compared."""
    by_method = [{r["seed"] for r in results if r["method"] == method} for method in methods]
    seeds = set.intersection(*by_method)
    return [r for r in results if r["method"] in methods and r["seed"] in seeds]


def made_by(results: Results) -> str:
    """On which processors and at which commits the rows were made."""
    return f"Rows were made on: {reporting.made_by(results)}."


PARTS = ("valid", "test", "clean", "train")
"""What a result has the perplexity of: "clean" is the start of the training text, read as the other parts are."""


def table(preset: Preset, results: Results, methods: Sequence[str]) -> str:
    """Perplexity on validation and test by method, over its seeds, and the published figures where there are any."""
    paper = dict(preset.paper)
    head = ["method", "seeds", "p or δ, weight", "validation", "test", "training", "training, noisy", "words a second"]
    rows = []
    for method in methods:
        mine = [r for r in results if r["method"] == method]
        setting = "" if method == "none" else f"{mine[0]['strength']:g}, {mine[0]['weight']:g}"
        speeds = [r["words_per_second"] for r in mine if r["words_per_second"]]
        row = [method, str(len(mine)), setting]
        row += [reporting.spread(perplexities(results, method, part)) for part in PARTS]
        row.append(f"{np.median(speeds):,.0f}" if speeds else "")
        if preset.finetune:
            row.append(reporting.spread(r["before"]["valid"] for r in mine))
        if paper:
            row.append(paper.get(method, ""))
        rows.append(row)
    head += ["validation before tuning"] * bool(preset.finetune) + ["published: validation / test"] * bool(paper)
    return reporting.markdown(head, rows)


PAIRS = (
    *(("VD", "none"), ("EL", "none"), ("FD", "none")),
    *(("AdD K=1", "none"), ("AdD K=2", "none"), ("AdD reselect", "none")),
    *(("AdD K=1", "FD"), ("AdD K=2", "AdD K=1"), ("AdD reselect", "AdD K=2")),
)


OVERFIT = 1.1
"""A model overfits if validation perplexity is more than this times that of training text, both without noise."""


def verdict(preset: Preset, results: Results, methods: Sequence[str]) -> str:
    """Which order came out, how far apart, whether the bar was reached, and why a method is not below `none`.

    Methods are compared by the seeds that they share.
    """
    shared = common(results, methods)
    order = sorted(methods, key=lambda m: mean(shared, m, "valid"))
    ranked = ", ".join(f"{m} {mean(shared, m, 'valid'):.1f}" for m in order)
    lines = [f"- Validation perplexity from low to high ({_seeds(shared)}): {ranked}."]
    lines += [_against(results, one, other) for one, other in PAIRS if one in methods and other in methods]
    if "none" in methods:
        plain = mean(results, "none", "valid")
        if preset.reach is not None:
            said = "reaches" if plain <= preset.reach else "does not reach"
            lines.append(f"- `none` {said} a validation perplexity of {preset.reach:g}: {plain:.1f}.")
        lines.append(f"- {_fit(results, 'none')}.")
        lines += [_why(results, m) for m in methods if m != "none" and _gap(results, m, "none", "valid") >= 0]
    return "\n".join(lines)


def _gap(results: Results, one: str, other: str, part: str) -> float:
    """How much higher the mean perplexity of ``one`` is than that of ``other``, over the seeds that both have."""
    shared = common(results, (one, other))
    return mean(shared, one, part) - mean(shared, other, part)


def _seeds(results: Results) -> str:
    n = len({r["seed"] for r in results})
    return f"{n} seed{'s' if n > 1 else ''}"


def _against(results: Results, one: str, other: str) -> str:
    said = []
    for part, name in (("valid", "validation"), ("test", "test")):
        gap = _gap(results, one, other, part)
        found = "no difference" if abs(gap) < 0.005 else f"{abs(gap):.2f} {'lower' if gap < 0 else 'higher'}"
        said.append(f"{name} {found}")
    return f"  - {one} against {other}: {', '.join(said)} ({_seeds(common(results, (one, other)))})"


def _fit(results: Results, method: str) -> str:
    """Whether a method overfits, so that there is something to regularize, in words."""
    train, valid = mean(results, method, "clean"), mean(results, method, "valid")
    said = (
        f"`{method}` has perplexity {train:.1f} on training text and {valid:.1f} on validation text, both without noise"
    )
    if valid > OVERFIT * train:
        return f"{said}: it overfits, so that there is something to regularize"
    return f"{said}: it does not overfit (a ratio of {OVERFIT:g} or less), so that there is little to regularize"


def _why(results: Results, method: str) -> str:
    """What the training text says of a method that is not below `none` on validation."""
    shared = common(results, (method, "none"))
    own, plain = (mean(shared, m, "clean") for m in (method, "none"))
    said = (
        f"- {method} is not below `none` on validation. Training text has perplexity {own:.1f}, with `none` {plain:.1f}"
    )
    if own > plain:
        return f"{said}: it fits what it has seen less well too, and underfits at this length and strength."
    return f"{said}: it fits what it has seen no less well, so that the loss is in what it has not seen."


def figure(preset: Preset, results: Results, methods: Sequence[str]) -> Any:
    """Validation perplexity by epoch, the mean over seeds, and the test perplexity of every seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

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
    left.yaxis.set_major_locator(LogLocator(subs=tuple(0.5 * n for n in range(2, 20))))
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter(NullFormatter())
    left.legend(fontsize=8)
    right.set_xticks(range(len(methods)), methods, rotation=20)
    right.set(ylabel="test perplexity")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    drawn.tight_layout()
    return drawn
