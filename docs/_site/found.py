"""What the experiments found, for the walk's last chapter: tables and verdicts, computed from their JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.compared import questions, rows, verdict

RESULTS = Path(__file__).parents[2] / "experiments" / "results"

PAPER = {  # Tables 1, 2 and 3 of the paper: sMNIST in %, IMDB in %, PTB's test perplexity
    "images": {"none": 1.018, "VD": 0.721, "FD": 0.720, "AdD K=1": 0.705, "AdD K=2": 0.644},
    "texts": {
        "none": 7.164,
        "AT": 6.296,
        "VAT": 5.914,
        "VD": 7.042,
        "EL": 6.358,
        "FD": 6.349,
        "AdD last": 6.471,
        "AdD K=1": 6.155,
        "AdD K=2": 6.005,
        "AdD K=1 + VAT": 5.715,
        "AdD K=2 + VAT": 5.687,
    },
    "words": {"none": 58.3, "FD": 56.8, "AdD K=1": 56.4},
}

ASKED = (
    *(("AdD K=2", other) for other in ("none", "FD", "AdD K=1", "none, 4 networks", "FD, 2 networks")),
    *(("reselect", "AdD K=2"), ("Relax", "AdD K=2"), ("Memory", "AdD K=2")),
)
"""The comparisons that the chapter tells in words."""


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def by_seed(results: Sequence[Mapping[str, Any]], method: str) -> np.ndarray:
    """The test numbers of a method, in the order of the seeds."""
    rows = [r for r in results if r["method"] == method]
    numbers = {r["seed"]: r["test"] if isinstance(r["test"], float) else r["test"]["error"] for r in rows}
    return np.array([numbers[seed] for seed in sorted(numbers)])


def methods(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The methods of a result file, the network without a regularizer first, others in their order."""
    names = list(dict.fromkeys(r["method"] for r in results))
    return sorted(names, key=lambda name: (name != "none", names.index(name)))


def summary(numbers: np.ndarray, digits: int = 2) -> str:
    """Mean ± standard deviation over seeds; of one seed the number alone."""
    spread = f" ± {numbers.std(ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():.{digits}f}{spread}"


def published(table: str, method: str, digits: int) -> str:
    """The paper's number with as many digits as it has there, or a dash."""
    number = PAPER[table].get(method)
    return "–" if number is None else f"{number:.{digits}f}"


def compared(task: str) -> list[list[str]]:
    """Rows of a comparison by the protocol: method, error, difference to none, its p, passes, the paper's error."""
    data = read(f"compare-{task}")
    differences, table = questions.differences(data), []
    for row, by_seed in rows.reported(data).items():
        difference, p = differences.get((row, "none"), ("", None))
        spread = reporting.spread(rows.tests(row, by_seed).values())
        told = ["" if p is None else f"{p:.2g}", rows.passes(data, next(iter(by_seed.values())))]
        table.append([row, spread, str(difference), *told, published("images", row, 3)])
    return table


def said(task: str, *pairs: tuple[str, str]) -> str:
    """A line for each pair of a comparison's methods, in words that are no stronger than its test."""
    data = read(f"compare-{task}")
    return "\n".join(answer for one, other in pairs if (answer := questions.said(data, one, other)) is not None)


def converged(task: str) -> str:
    """Whether a comparison had converged by the protocol's rule, in words."""
    return verdict.converged(read(f"compare-{task}"))


def one_column(name: str, paper: str, digits: int = 2) -> list[list[str]]:
    """Rows of a table 2 or 3: method, test number, and the paper's."""
    results = read(name)["results"]
    return [
        [method, summary(by_seed(results, method), digits), published(paper, method, 1 if digits == 1 else 3)]
        for method in methods(results)
    ]


def against(name: str, one: str, other: str) -> str:
    """A sentence about two methods of one seed."""
    results = read(name)["results"]
    [d] = by_seed(results, one) - by_seed(results, other)
    size = f"{abs(d):.2f} points {'below' if d < 0 else 'above'}"
    return f"{one} is {size} {other}; one seed, so nothing can be said about chance"


def stronger(task: str) -> list[list[str]]:
    """Rows about a stronger adversary: test error, and that under attack, at the strength of least validation error."""
    data = read("stronger")["tasks"][task]
    final = [r for r in data["results"] if r["part"] == "final"]
    rows = []
    for method in data["facts"]["setting"]["methods"]:
        runs = [r for r in final if r["method"] == method]
        strengths = sorted({r["strength"] for r in runs})

        def mean(what: str, s: float, runs: Sequence[Mapping[str, Any]] = runs) -> float:
            return float(np.mean([r[what] for r in runs if r["strength"] == s]))

        chosen = min(strengths, key=lambda s: mean("valid_error", s))
        forward, backward = data["facts"]["passes"][method]
        rows.append([method, f"{mean('test_error', chosen):.2f}", f"{mean('attacked_error', chosen):.1f}"])
        rows[-1].append(f"{forward:g} + {backward:g}")
    return rows
