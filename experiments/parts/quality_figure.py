r"""The figure of `experiments.search_quality`: share against passes, a panel for each kind of networks.

Families of searches differ in colour (Okabe and Ito's, which colour-blind readers can tell apart), in mark and in the
style of the line, and are named at their lines, so that no reader depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.parts import quality_report as report


@dataclass(frozen=True)
class Family:
    """Searches that are drawn as one line; each has a label, and where that stands, in points from its mark."""

    name: str
    colour: str
    marker: str
    line: Any
    members: Mapping[str, tuple[str, int, int]]


BELOW = -14
ONE_SHOT = (
    Family("random", "#000000", "x", ":", {"random": ("1", 0, 8), "best of 8 random": ("best of 8", 0, BELOW)}),
    Family(
        *("greedy", "#D55E00", "o", "--"),
        {
            "greedy K=1": ("K=1", 0, BELOW),
            "greedy K=2": ("K=2", 0, BELOW),
            "greedy K=3": ("K=3", 0, BELOW),
            "greedy K=8": ("K=8", 0, BELOW),
        },
    ),
    Family(
        *("reselect", "#0072B2", "s", "-."),
        {
            "two-sided": ("two-sided", 28, 4),
            "reselect K=2": ("K=2", 14, -8),
            "reselect K=3": ("K=3", 14, -8),
            "reselect K=2, swap": ("K=2, swap", 26, 6),
        },
    ),
    Family(
        *("Relax", "#009E73", "D", "-"),
        {
            "Relax, margin only": ("margin", -20, 4),
            "Relax": ("Relax()", -22, 2),
            "Relax, borrow 1": ("+ borrow", -26, 3),
            "Relax, reselect 1": ("+ reselect", -20, 16),
            "Relax, reselect 1, borrow 1": ("+ both", -17, 14),
            "Relax, longest": ("longest", -20, 6),
        },
    ),
)
TRAINING = (
    replace(
        ONE_SHOT[1],
        members={"greedy K=2, unscored": ("K=2,\nunscored", -3, -24), "greedy K=2": ("K=2", 8, BELOW)},
    ),
    replace(ONE_SHOT[2], members={"reselect K=2": ("K=2", 0, BELOW)}),
    replace(ONE_SHOT[3], members={"Relax": ("Relax()", 0, BELOW), "Relax, longest": ("longest", 0, BELOW)}),
    Family(
        *("Memory", "#CC79A7", "*", (0, (5, 1, 1, 1, 1, 1))),
        {
            "Memory, fresh=0": ("fresh=0", -26, -3),
            "Memory, fresh=4": ("fresh=4", -28, -2),
            "Memory": ("Memory()", 20, BELOW),
            "Memory, tries=2": ("tries=2", 0, 10),
        },
    ),
)
TICKS = (1, 2, 3, 5, 10, 20, 30)


def figure(data: report.Data) -> Any:
    """The panels of part one, then that of part two; points of the first and the last panel have labels."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    names = report.groups(data)
    columns = min(4, len(names) + 1)
    rows = -(-(len(names) + 2) // columns)  # one panel is the legend's
    drawn, axes = plt.subplots(rows, columns, figsize=(5 * columns, 4.4 * rows), squeeze=False)
    panels = list(axes.flat)
    for n, (axis, group) in enumerate(zip(panels, names, strict=False)):
        points = {s: (sum(data["passes"][group][s]), _shares(data, s, group)) for s in data["searches"]}
        best = "best known D" if group in data["best_known"] else "exact maximum"
        _panel(axis, ONE_SHOT, points, labels=n == 0)
        axis.set(title=group, ylabel=f"share of the {best}")
    last = panels[len(names)]
    found = {
        s: (sum(report.training_passes(data, s)), report.training_shares(data, s))
        for s in report.searches_along_training(data)
    }
    _panel(last, TRAINING, found, labels=True)
    last.set(title="along training, second half", ylabel="share of the exact maximum", xlabel="passes a visit")
    last.set(xscale="linear", xlim=(0, 22), ylim=(0.3, 1.05))
    last.set_xticks(range(0, 21, 5), [str(tick) for tick in range(0, 21, 5)])
    for axis in panels[len(names) + 1 :]:
        axis.axis("off")
    handles = {f.name: Line2D([], [], **_style(f), label=f.name) for f in (*ONE_SHOT, *TRAINING)}
    panels[len(names) + 1].legend(handles=list(handles.values()), loc="center", fontsize=12, handlelength=4)
    drawn.tight_layout()
    return drawn


def _shares(data: report.Data, search: str, group: str) -> list[float]:
    return report.one_shot_shares(data, search, group=group)


def _style(family: Family) -> dict[str, Any]:
    size = 10 if family.marker == "*" else 6
    return {"color": family.colour, "marker": family.marker, "linestyle": family.line, "markersize": size}


def _panel(axis: Any, families: tuple[Family, ...], points: Mapping[str, Any], *, labels: bool) -> None:
    """One panel: a line a family, with its name at the end."""
    for family in families:
        members = {s: label for s, label in family.members.items() if s in points}
        if not members:
            continue
        x = [points[s][0] for s in members]
        y = [float(np.mean(points[s][1])) for s in members]
        error = [float(np.std(points[s][1], ddof=1)) if len(points[s][1]) > 1 else 0.0 for s in members]
        axis.errorbar(x, y, yerr=error, capsize=2, linewidth=1.2, **_style(family))
        near: dict[str, Any] = {"textcoords": "offset points", "color": family.colour}
        for at, share, (label, *offset) in zip(x, y, members.values(), strict=True):
            if labels:
                axis.annotate(label, (at, share), xytext=offset, ha="center", fontsize=7, **near)
        height = {"Relax": 3, "reselect": -9}.get(family.name, -3)  # the two end close to each other
        axis.annotate(family.name, (x[-1], y[-1]), xytext=(9, height), fontsize=9, fontweight="bold", **near)
    axis.set(xscale="log", ylim=(0, 1.05), xlim=(0.8, 100), xlabel="passes beside the base pass, forward + backward")
    axis.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
