r"""The rows of a comparison's table, found in its results, and what tells whether they make one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.parts import records
from experiments.parts.compared.plan import MATCHED, Task
from minadv.base.errors import DataError

Data = Mapping[str, Any]
Result = Mapping[str, Any]


def task_of(data: Data) -> Task:
    """The task that a comparison's data are of."""
    return Task(**records.tuples(data["facts"]["task"]))


def row_of(result: Result) -> str:
    """The row of the table that a reported result belongs to."""
    if result.get("networks", 1) > 1:
        return f"{result['method']}, {result['networks']} networks"
    return f"{result['method']}, {result['longer']} x longer" if result["longer"] > 1 else str(result["method"])


def reported(data: Data) -> dict[str, dict[int, Result]]:
    """The reported results by row and seed, in the order of the table; members of ensembles are not rows."""
    task = task_of(data)
    order = [row for method in task.methods for row in rows_of(method, task)]
    found: dict[str, dict[int, Result]] = {}
    for result in data["results"]:
        if result["part"] == "final" and not result["member"]:
            found.setdefault(row_of(result), {})[result["seed"]] = result
    return {row: found[row] for row in order if row in found}


def rows_of(method: str, task: Task) -> tuple[str, ...]:
    """The rows of a method: its own, and those at the cost of AdD K=2."""
    if method not in MATCHED:
        return (method,)
    n = task.times(method)
    return method, f"{method}, {n} x longer", f"{method}, {n} networks"


def expect_alike(data: Data) -> None:
    """Raise DataError for results of different sizes, data or beginnings: they do not make one table."""
    results = [r for r in data["results"] if r["part"] == "final"]
    told_of = {"digest": "settings of the task", "data": "data", "lr": "learning rates", "began": "language models"}
    for name, told in told_of.items():
        if len(found := sorted({str(r.get(name)) for r in results})) > 1:
            raise DataError(f"the runs have {len(found)} different {told} ({', '.join(found)}), expected one")
    for row, by_seed in reported(data).items():
        if len(set_to := sorted({(r["strength"], r["weight"]) for r in by_seed.values()})) > 1:
            raise DataError(f"the runs of {row} have {len(set_to)} different settings {set_to}, expected one")


def tests(row: str, by_seed: Mapping[int, Result]) -> dict[int, float]:
    return {seed: float(result["test"]) for seed, result in by_seed.items()}


def passes(data: Data, result: Result) -> str:
    """The forward and backward passes of a row, over a batch each, in the time of one step of none."""
    forward, backward = data["facts"]["passes"][result["method"]]
    times = result.get("networks", result["longer"]) * task_of(data).batches(result["method"])
    return f"{forward * times:g} + {backward * times:g}"
