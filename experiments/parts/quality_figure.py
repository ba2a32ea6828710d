r"""The figure of `experiments.search_quality`: share against passes, a panel for each kind of networks.

Families of searches differ in colour (Okabe and Ito's, which colour-blind readers can tell apart), in mark and in the
style of the line, and are named at their lines, so that no reader depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.parts import quality_report as report


@dataclass(frozen=True)
class Family:
    """Searches that are drawn as one line, each point with its label."""

    name: str
    colour: str
    marker: str
    line: str
    members: Mapping[str, str]  # labels by search
    below: bool = False  # where the labels are


ONE_SHOT = (
    Family("random", "#000000", "x", ":", {"random": "1", "best of 8 random": "best of 8"}),
    Family(
        *("greedy", "#D55E00", "o", "--"),
        {"greedy K=1": "K=1", "greedy K=2": "K=2", "greedy K=3": "K=3", "greedy K=8": "K=8"},
        below=True,
    ),
    Family(
        *("reselect", "#0072B2", "s", "-."),
        {"two-sided": "two-sided", "reselect K=2": "K=2", "reselect K=3": "K=3", "reselect K=2, swap": "K=2, swap"},
        below=True,
    ),
    Family(
        *("Relax", "#009E73", "D", "-"),
        {
            "Relax, margin only": "margin",
            "Relax": "Relax()",
            "Relax, borrow 1": "+ borrow",
            "Relax, reselect 1": "+ reselect",
            "Relax, reselect 1, borrow 1": "+ both",
            "Relax, longest": "longest",
        },
    ),
)
TRAINING = (
    Family("greedy", "#D55E00", "o", "--", {"greedy K=2, unscored": "K=2, unscored", "greedy K=2": "K=2"}, below=True),
    Family("reselect", "#0072B2", "s", "", {"reselect K=2": "K=2"}, below=True),
    Family("Relax", "#009E73", "D", "-", {"Relax": "Relax()", "Relax, longest": "longest"}, below=True),
    Family(
        *("Memory", "#CC79A7", "*", "-"),
        {
            "Memory, fresh=0": "fresh=0",
            "Memory, fresh=4": "fresh=4",
            "Memory": "Memory()",
            "Memory, tries=2": "tries=2",
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
    drawn, axes = plt.subplots(rows, columns, figsize=(4.6 * columns, 4.1 * rows), squeeze=False)
    panels = list(axes.flat)
    for n, (axis, group) in enumerate(zip(panels, names, strict=False)):
        points = {s: (sum(data["passes"][group][s]), _shares(data, s, group)) for s in data["searches"]}
        best = "exact maximum" if group not in ("H = 128, 6 flips", "text, H = 64, 4 flips") else "best known D"
        _panel(axis, ONE_SHOT, points, labels=n == 0)
        axis.set(title=group, ylabel=f"share of the {best}")
    last = panels[len(names)]
    found = {
        s: (sum(report.training_passes(data, s)), report.training_shares(data, s))
        for s in report.searches_along_training(data)
    }
    _panel(last, TRAINING, found, labels=True)
    last.set(title="along training, second half", ylabel="share of the exact maximum", xlabel="passes a visit")
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
    return {"color": family.colour, "marker": family.marker, "linestyle": family.line or "none", "markersize": size}


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
        where = {
            "xytext": (0, -13 if family.below else 8),
            "textcoords": "offset points",
            "ha": "center",
            "fontsize": 7,
        }
        for at, share, label in zip(x, y, members.values(), strict=True):
            if labels:
                axis.annotate(label, (at, share), color=family.colour, **where)
        axis.annotate(
            family.name,
            (x[-1], y[-1]),
            xytext=(9, -3),
            textcoords="offset points",
            color=family.colour,
            fontsize=9,
            fontweight="bold",
        )
    axis.set(xscale="log", ylim=(0, 1.05), xlim=(0.8, 60), xlabel="passes beside the base pass, forward + backward")
    axis.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
