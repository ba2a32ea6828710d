r"""The benchmark in one figure: seconds, memory, growth, accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.bench.contenders.registry import JAX, LEAN, LIMIT, OURS, SHARED, TORCH, TWO

COLOURS = {
    **dict.fromkeys((OURS, LEAN, "minadv, 1 process"), "C0"),
    **dict.fromkeys((*TORCH, TWO[0]), "C1"),
    **dict.fromkeys((*JAX, TWO[1]), "C2"),
    **dict.fromkeys((LIMIT, SHARED), "k"),
    "textbook NumPy": "C7",
}


def figure(results: dict[str, Any]) -> Any:
    """A panel for each size, then memory, growth and accuracy, as far as there are numbers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    races = [race for race in results.get("speed", {}).values() if len(race["contenders"]) > 1]
    panels: list[tuple[Any, Any]] = [(_race, race) for race in races]
    for part, draw in (("memory", _memory), ("scaling", _scaling), ("accuracy", _accuracy)):
        if results.get(part):
            panels.append((draw, results[part]))
    columns = min(3, max(1, len(panels)))
    rows = -(-max(1, len(panels)) // columns)
    longest = max((len(race["contenders"]) for race in races), default=0)
    raced = -(-len(races) // columns)  # rows with a race: each contender needs room for two labels
    heights = [max(4.2, 0.33 * longest)] * raced + [4.2] * (rows - raced)
    drawn, axes = plt.subplots(
        rows, columns, figsize=(6.2 * columns, sum(heights)), squeeze=False, height_ratios=heights
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (draw, numbers) in zip(axes.flat, panels, strict=False):
        draw(axis, numbers)
    drawn.tight_layout()
    return drawn


def _race(axis: Any, race: dict[str, Any]) -> None:
    """Medians as bars, ranges as lines."""
    names = list(race["contenders"])
    ks = list(race["contenders"][names[0]]["seconds"])
    place = np.arange(len(names))
    for n, K in enumerate(ks):
        seconds = [np.asarray(race["contenders"][name]["seconds"][K]) for name in names]
        middle = np.array([np.median(s) for s in seconds])
        ends = np.array([[np.median(s) - s.min(), s.max() - np.median(s)] for s in seconds]).T
        colours = [COLOURS.get(race["contenders"][name]["family"], "C4") for name in names]
        offset = (n - (len(ks) - 1) / 2) * 0.8 / len(ks)
        axis.barh(place + offset, middle, 0.8 / len(ks), color=colours, alpha=1 - 0.45 * n)
        axis.errorbar(middle, place + offset, xerr=ends, fmt="none", ecolor="0.3", capsize=2)
        for y, s, m in zip(place + offset, seconds, middle, strict=True):
            axis.annotate(f"{m:.2f}", (s.max(), y), (4, 0), textcoords="offset points", va="center", fontsize=7)
    size = race["size"]
    axis.set_yticks(place, names, fontsize=8)
    axis.invert_yaxis()
    shape = ", ".join(f"{key} = {size[key]}" for key in "TBIH")
    shades = f", K = {' and '.join(ks)} (paler)" if len(ks) > 1 else f", K = {ks[0]}"
    axis.set(title=f"{size['name']}: {shape}", xlabel=f"seconds a step{shades}")
    axis.margins(x=0.15)


def _memory(axis: Any, memory: dict[str, Any]) -> None:
    families = list(dict.fromkeys(name for by_family in memory.values() for name in by_family))
    place = np.arange(len(families))
    for n, (size, by_family) in enumerate(memory.items()):
        peaks = [by_family[name]["peak"] / 1e3 if name in by_family else 0 for name in families]
        axis.barh(place + 0.8 * n / len(memory) - 0.4, peaks, 0.8 / len(memory), align="edge", label=size)
    axis.set_yticks(place, families, fontsize=8)
    axis.invert_yaxis()
    axis.set(title="peak memory, K = 1", xlabel="GB, all processes")
    axis.legend(fontsize=8)


def _scaling(axis: Any, scaling: dict[str, Any]) -> None:
    furthest = 1.0
    for name, fit in scaling.items():
        values = np.asarray(fit["values"]) / fit["values"][0]
        furthest = max(furthest, float(values.max()))
        label = f"{name} from {fit['values'][0]}: exponent {fit['exponent']:.2f}"
        axis.loglog(values, np.asarray(fit["seconds"]) / fit["seconds"][0], "o-", label=label)
    axis.loglog([1, furthest], [1, furthest], color="0.7", linestyle=":")
    axis.set(title="cost of a step in one process", xlabel="times the first value", ylabel="times its seconds")
    axis.legend(fontsize=8)


def _accuracy(axis: Any, accuracy: dict[str, Any]) -> None:
    names = list(dict.fromkeys(name for by_contender in accuracy.values() for name in by_contender))
    groups = [(size, what) for size in accuracy for what in ("grads", "map")]
    place = np.arange(len(groups))
    for n, name in enumerate(names):
        errors = [[e[what] for e in accuracy[size].get(name, [])] for size, what in groups]
        middle = [float(np.median(e)) if e else np.nan for e in errors]
        axis.bar(place + 0.8 * n / len(names) - 0.4, middle, 0.8 / len(names), align="edge", label=name)
    axis.set_xticks(place, [f"{size}\n{what}" for size, what in groups], fontsize=8)
    axis.set(title="float32 against float64", ylabel="relative error", yscale="log")
    axis.legend(fontsize=7)
