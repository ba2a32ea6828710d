"""All comparisons by the protocol in one figure and five sentences, both computed from ``compare-*.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _site.drawing import WIDTH, Shown, line, svg, text
from _site.plots import round_ticks
from _site.results import RESULTS, load
from experiments.parts.compared.plan import LABELLED_ALONE, TASKS
from experiments.parts.compared.questions import differences, named_pair
from experiments.parts.compared.rows import reported, task_of, tests

Found = Mapping[str, Any]

SENTENCES = (
    ("**The adversary against no regularizer**", (("AdD K=1", "none"), ("AdD K=2", "none"))),
    ("**Against random masks**", (("AdD K=1", "FD"), ("AdD K=2", "FD"), ("AdD K=2", "RDrop"))),
    ("**A second influence map**", (("AdD K=2", "AdD K=1"),)),
    ("**A stronger adversary**", (("Relax", "AdD K=2"), ("Memory", "AdD K=2"), ("reselect", "AdD K=2"))),
    (
        "**At equal cost**, twice that of FD and N times that of none: 4, or 8 where there are unlabelled examples",
        (
            ("AdD K=2", "none, N x longer"),
            ("AdD K=2", "none, N networks"),
            ("AdD K=2", "FD, N x longer"),
            ("AdD K=2", "FD, N networks"),
        ),
    ),
)


SAME = {"mnist-2000-unlabelled": "mnist-2000"}
"""Tasks that have the labelled examples of another one: runs that read no others are the same in both."""


def comparisons(folder: Path = RESULTS) -> dict[str, Found]:
    """The data of every comparison that there is, in the order of the plan."""
    return {name: load(f"compare-{name}", folder) for name in TASKS if (folder / f"compare-{name}.json").exists()}


def tally(found: Mapping[str, Found], one: str, other: str) -> str | None:
    """In how many tasks a method is better than another by its corrected test; None if none compares them.

    Runs that two tasks share are counted once.
    """
    made = []
    for name, data in found.items():
        if SAME.get(name) in found and {one, other} <= set(LABELLED_ALONE):
            continue
        pair = named_pair((one, other), task_of(data))
        if pair in (compared := differences(data)):
            made.append(compared[pair])
    if not made:
        return None
    beyond = [difference.mean for difference, p in made if p < 0.05]
    better, worse = sum(mean < 0 for mean in beyond), sum(mean > 0 for mean in beyond)
    words = ((better, "better than"), (worse, "worse than"), (len(made) - better - worse, "not to be told from"))
    (n, first), *more = [(n, word) for n, word in words if n]
    told = [f"{one} is {first} {other} in {n} of {len(made)} tasks", *(f"{word} it in {n}" for n, word in more)]
    return ", ".join(told)


def sentences(found: Mapping[str, Found]) -> list[str]:
    """Five sentences, no stronger than the tests: tasks where a method is better, worse, or where that is unclear."""
    said = []
    for opening, pairs in SENTENCES:
        parts = [part for one, other in pairs if (part := tally(found, one, other)) is not None]
        said += [f"{opening}: {'; '.join(parts)}."] if parts else []
    return said


def figure(found: Mapping[str, Found]) -> Shown:
    """Each method's difference to none in per cent of none's result, a task below the other, with 95 % intervals."""
    rows: list[tuple[str, tuple[float, float, float] | None]] = []
    for name, data in found.items():
        none = float(np.mean(list(tests("none", reported(data)["none"]).values())))
        rows.append((f"{name} (none: {none:.3g})", None))
        for (row, other), (d, _) in differences(data).items():
            if other == "none":
                low, mean, high = (100 * value / none for value in (d.low, d.mean, d.high))
                rows.append((row, (low, mean, high)))
    drawn = [interval for _, interval in rows if interval is not None]
    ticks = round_ticks(min(0.0, *(low for low, _, _ in drawn)), max(0.0, *(high for _, _, high in drawn)))
    left, room, row_height = 150, 16, 19
    bottom = 6 + row_height * len(rows)

    def px(v: float) -> float:
        return left + (v - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - left - room)

    art = [line(px(tick), 4, px(tick), bottom, "muted" if tick == 0 else "grid") for tick in ticks]
    art += [text(px(tick), bottom + 14, f"{tick:g} %", "middle", "fg", 11) for tick in ticks]
    for n, (name, interval) in enumerate(rows):
        y = 6 + row_height * n + row_height / 2
        if interval is None:
            art.append(text(4, y + 4, name, "start", "fg", 13))
            continue
        low, mean, high = map(px, interval)
        art += [text(left - 8, y + 4, name, "end", "muted", 11), line(low, y, high, y, "s1", 2)]
        art.append(f'<circle cx="{mean:.1f}" cy="{y:.1f}" r="3.5" fill="var(--s1,#0b61a4)"/>')
    said = "; ".join(f"{name} {i[1]:+.1f} % [{i[0]:+.1f}, {i[2]:+.1f}]" if i else name for name, i in rows)
    return svg(art, bottom + 22, "Difference to none, in per cent of its test result; less is better", said)


def shown(names: Sequence[str], left: Sequence[str]) -> str:
    """Which tasks the figure has, and which of the plan are still to be run."""
    missing = f" Not run to the end yet: {', '.join(left)}." if left else ""
    return f"Tasks: {', '.join(names)}.{missing}"
