r"""What a comparison is asked: the pairs of rows that are tested, and the answers in words."""

from __future__ import annotations

from experiments.parts.compared.plan import Task
from experiments.parts.compared.rows import Data, reported, task_of, tests
from experiments.parts.statistics import Difference, holm, paired

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
    ("AdD K=2", "none, N x longer"),
    ("AdD K=2", "none, N networks"),
    ("AdD K=2", "FD, N x longer"),
    ("AdD K=2", "FD, N networks"),
    ("Memory", "FD, N networks"),
)
"""The comparisons that are tested beside those of every row with none: the second is subtracted from the first.

N is the number by which a task gives a method the cost of AdD K=2."""

ADDED = (("FD, N networks", "none, N networks"),)
"""Comparisons that were added on 19 November 2026, but not to the tasks of `WITHOUT_ADDED`: their correction stays."""

WITHOUT_ADDED = ("digits", "mnist-20000", "mnist-2000")
"""The tasks that were done or running by then."""

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
            ("AdD K=2", "none, N x longer"),
            ("AdD K=2", "none, N networks"),
            ("AdD K=2", "FD, N x longer"),
            ("AdD K=2", "FD, N networks"),
            ("Memory", "FD, N networks"),
            *ADDED,
        ),
    ),
)


def named(row: str, task: Task) -> str:
    """A row of `PAIRS` as it is called in a task: with its number for N."""
    method = row.partition(",")[0]
    return row.replace(", N ", f", {task.times(method)} ") if ", N " in row else row


def named_pair(pair: tuple[str, str], task: Task) -> tuple[str, str]:
    """Both rows of a pair as they are called in a task."""
    return named(pair[0], task), named(pair[1], task)


def pairs_of(task: Task) -> list[tuple[str, str]]:
    """The comparisons of a task beside those with none."""
    return [named_pair(pair, task) for pair in (PAIRS if task.name in WITHOUT_ADDED else PAIRS + ADDED)]


def differences(data: Data) -> dict[tuple[str, str], tuple[Difference, float]]:
    """Each difference of test results over the seeds that both rows have, and its p-value by Holm's method."""
    rows, task = reported(data), task_of(data)
    pairs = [(row, "none") for row in rows if row != "none"]
    pairs += [pair for pair in pairs_of(task) if set(pair) <= rows.keys()]
    found = []
    for one, other in pairs:
        a, b = tests(one, rows[one]), tests(other, rows[other])
        seeds = a.keys() & b.keys()
        found.append(paired({s: a[s] for s in seeds}, {s: b[s] for s in seeds}) if len(seeds) > 1 else None)
    corrected = holm([difference.p for difference in found if difference is not None])
    kept = [(pair, difference) for pair, difference in zip(pairs, found, strict=True) if difference is not None]
    return {pair: (difference, p) for (pair, difference), p in zip(kept, corrected, strict=True)}


def said(data: Data, one: str, other: str) -> str | None:
    """One comparison in words that are no stronger than its test; None if it was not made."""
    made = differences(data).get((one, other))
    if made is None:
        return None
    difference, p = made
    if p >= 0.05:
        return f"{one} cannot be told from {other} ({difference}, p = {p:.2g})"
    return f"{one} is {'better' if difference.mean < 0 else 'worse'} than {other} ({difference}, p = {p:.2g})"
