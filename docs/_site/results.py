r"""What the results say, read from ``experiments/results/*.json``: the paper's claims, and its tables beside ours.

A `Comparison` is one column of numbers, lower being better: test errors, or perplexities, of several methods. The
paper's own tables are comparisons too, so that every claim is held against its table in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import records
from experiments.parts.comparison_report import NAMES, errors, p_value
from experiments.parts.comparison_report import PAPER as TABLE1
from experiments.parts.text_verdicts import PAPER as TABLE2
from experiments.parts.text_verdicts import mcnemar

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
TABLE3 = {"none": (58.3, 65.8), "FD": (56.8, 64.1), "AdD K=1": (56.4, 63.4)}
"""Table 3 of the paper, test perplexity, PTB and WikiText-2."""
CHANCE = 0.05
ORDER = ("none", "VD", "EL", "FD", "RDrop", "AT", "VAT", "AdD last", "AdD K=1", "AdD K=2")
"""Of methods in a table; others come after them as they are."""

CLAIMS = {
    "AdD below none": ("AdD K=1", "none"),
    "AdD below VD": ("AdD K=1", "VD"),
    "AdD below FD": ("AdD K=1", "FD"),
    "K = 2 below K = 1": ("AdD K=2", "AdD K=1"),
    "recurrent below last state": ("AdD K=1", "AdD last"),
    "AdD + VAT below VAT": ("AdD K=1 + VAT", "VAT"),
}
"""What the paper's tables say, each as a pair of methods of which the first has the lower number."""
OURS = {"reselect below K = 2": ("AdD reselect", "AdD K=2")}
"""What minadv asks beside: whether a stronger search helps training."""


@dataclass(frozen=True)
class Comparison:
    """``means`` by method; ``chance`` gives the P value of a pair of methods, None where there is no test."""

    name: str
    means: dict[str, float]
    spreads: dict[str, float] = field(default_factory=dict)  # standard deviations over seeds
    seeds: int = 1
    chance: Callable[[str, str], float | None] = lambda one, other: None
    paper: bool = False

    def says(self, one: str, other: str) -> Finding | None:
        """Whether ``one`` is below ``other``; None if either is missing."""
        if one not in self.means or other not in self.means:
            return None
        return Finding(self.means[one] - self.means[other], None if self.paper else self.chance(one, other))


@dataclass(frozen=True)
class Finding:
    """The difference of two methods, and the probability of one as large by chance, where it was tested."""

    gap: float
    p: float | None

    @property
    def verdict(self) -> str:
        """``yes`` and ``no`` where chance hardly explains it, ``unclear`` where it may; untested, which is lower."""
        if self.p is None:
            return "lower" if self.gap < 0 else "higher"
        return "unclear" if self.p > CHANCE else "yes" if self.gap < 0 else "no"

    def __str__(self) -> str:
        chance = "" if self.p is None else f", P = {self.p:.2g}"
        gap = f"{self.gap:+.2f}".replace("-", "−")
        return f"{self.verdict} ({gap}{chance})"


def load(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    found: dict[str, Any] = records.parse((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def papers() -> list[Comparison]:
    """The columns of the paper's three tables."""
    table1 = {m: [float(cell.split()[0]) for cell in cells] for m, cells in TABLE1.items() if cells[0]}
    columns = [("Table 1, sMNIST", table1, 0), ("Table 1, pMNIST", table1, 1), ("Table 2, IMDB", TABLE2, 0)]
    columns += [("Table 2, Elec", TABLE2, 1), ("Table 3, PTB", TABLE3, 0), ("Table 3, WikiText-2", TABLE3, 1)]
    return [Comparison(name, {m: v[n] for m, v in table.items()}, paper=True) for name, table, n in columns]


def ours(folder: Path = RESULTS) -> list[Comparison]:
    """Every table that the experiments have written, in the order of the paper's."""
    names = sorted(path.stem for path in folder.glob("table[123]-*.json"))
    found: list[Comparison] = []
    for name in names:
        data = load(name, folder)
        if "results" in data:
            makers = {"table1": images, "table2": texts, "table3": language}
            found += makers[name.split("-")[0]](name, data)
    return found


def images(name: str, data: dict[str, Any]) -> Iterator[Comparison]:
    """Both orders of a table of sequential images."""
    results = data["results"]
    methods = list(dict.fromkeys(r["method"] for r in results))
    for task in dict.fromkeys(r["task"] for r in results):
        by_seed = {m: errors(results, m, task) for m in methods}

        def chance(one: str, other: str, by_seed: dict[str, list[float]] = by_seed) -> float | None:
            found = p_value(by_seed[one], by_seed[other])
            return float(found) if found else None

        yield _comparison(f"{name.removeprefix('table1-')}, {NAMES[task]}", by_seed, chance)


def texts(name: str, data: dict[str, Any]) -> Iterator[Comparison]:
    """A table of texts; its test is McNemar's, on the texts that only one of two methods gets wrong."""
    results = data["results"]
    methods = list(dict.fromkeys(r["method"] for r in results))
    by_seed = {m: [r["test"]["error"] for r in results if r["method"] == m] for m in methods}
    yield _comparison(
        name.removeprefix("table2-"), by_seed, lambda one, other: mcnemar(results, data["bayes"], one, other)
    )


def language(name: str, data: dict[str, Any]) -> Iterator[Comparison]:
    """A table of language models, test perplexity; one seed is no test."""
    results = data["results"]
    methods = list(dict.fromkeys(r["method"] for r in results))
    by_seed = {m: [r["test"] for r in results if r["method"] == m] for m in methods}
    yield _comparison(name.removeprefix("table3-"), by_seed, lambda one, other: None)


def _comparison(name: str, by_seed: dict[str, list[float]], chance: Callable[[str, str], float | None]) -> Comparison:
    means = {m: float(np.mean(v)) for m, v in by_seed.items()}
    spreads = {m: float(np.std(v, ddof=1)) for m, v in by_seed.items() if len(v) > 1}
    return Comparison(name, means, spreads, max(map(len, by_seed.values())), chance)


def claims(comparisons: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """A table: a row for each comparison, a column for each claim."""
    asked = {**CLAIMS, **OURS}
    rows = []
    for one in comparisons:
        found = [one.says(*pair) for pair in asked.values()]
        about = "the paper" if one.paper else f"{one.seeds} seed{'s' if one.seeds > 1 else ''}"
        rows.append([one.name, about, *("" if finding is None else str(finding) for finding in found)])
    return ["comparison", "made by", *asked], rows


def summary(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence for each claim: in how many of our comparisons it holds, and in how many beyond chance."""
    lines = []
    for claim, pair in {**CLAIMS, **OURS}.items():
        found = [finding for one in comparisons if not one.paper and (finding := one.says(*pair)) is not None]
        lower = sum(finding.gap < 0 for finding in found)
        tested = [finding for finding in found if finding.p is not None]
        clear = {word: sum(finding.verdict == word for finding in tested) for word in ("yes", "no")}
        said = f"**{claim}**: lower in {lower} of {len(found)} comparisons"
        if tested:
            said += f"; of {len(tested)} that were tested, {clear['yes']} for it and {clear['no']} against it"
            said += f" beyond chance (P ≤ {CHANCE:g})"
        lines.append(said + ".")
    return lines


BESIDE = {"table1": (0, 1), "table2-imdb": (2,), "table2-elec": (3,), "table3-ptb": (4,)}
"""Which of the paper's columns belong beside which of ours; other data have none."""


def beside(name: str, folder: Path = RESULTS) -> tuple[list[str], list[list[str]]]:
    """One of our tables with the paper's columns beside it."""
    makers = {"table1": images, "table2": texts, "table3": language}
    mine = list(makers[name.split("-")[0]](name, load(name, folder)))
    theirs = [papers()[n] for prefix, columns in BESIDE.items() if name.startswith(prefix) for n in columns]
    rows = []
    for method in sorted(mine[0].means, key=lambda m: ORDER.index(m) if m in ORDER else len(ORDER)):
        row = [method]
        for one in mine:
            spread = one.spreads.get(method)
            row.append(f"{one.means[method]:.2f}" + (f" ± {spread:.2f}" if spread is not None else ""))
        row += [f"{one.means[method]:.3f}" if method in one.means else "" for one in theirs]
        rows.append(row)
    return ["method", *(one.name for one in mine), *(f"paper: {one.name}" for one in theirs)], rows


def best(name: str, folder: Path = RESULTS) -> str:
    """The first sentence of a table: who came out lowest, and what it is of `none`."""
    makers = {"table1": images, "table2": texts, "table3": language}
    said = []
    for one in makers[name.split("-")[0]](name, load(name, folder)):
        first, *_ = sorted(one.means, key=lambda m: one.means[m])
        said.append(f"{one.name}: {first} {one.means[first]:.2f}, none {one.means['none']:.2f}")
    unit = "test perplexity" if name.startswith("table3") else "test error, %"
    return f"Lowest {unit}: {'; '.join(said)}."


def report(name: str, folder: Path = RESULTS) -> str:
    """The Markdown that an experiment wrote, without its title, and with headings as bold lines, to stand in a fold."""
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    text = re.sub(r"\A# .*\n", "", text)
    return re.sub(r"^#+ (.*)$", r"**\1**", text, flags=re.MULTILINE)


def opening(name: str, folder: Path = RESULTS) -> tuple[str, str]:
    """The title of what an experiment wrote, and its first list, which is its verdict."""
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    points = re.search(r"^- .*(?:\n(?!\n|\||#).*)*", text, re.MULTILINE)
    return title[1] if title else name, points[0] if points else ""
