r"""Several runs side by side: a row about each, where their configurations differ, and their evaluations as a table.

Nothing is loaded but configurations and logs.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minadv.tasks.config import build_recipe
from minadv.tasks.family import of_kind
from minadv.tasks.reports import best_record
from minadv.tasks.schema import read_config
from minadv.training.loop import LOG
from minadv.training.runs import folder
from minadv.training.runs.folder import CONFIG, RunError, kind_of

QUIET = ("vocabulary", "data", "scaling", "before", "ranks", "workers")  # parts of a configuration that tell little
NO_LIMIT = 2**63


@dataclass(frozen=True)
class Listed:
    """A run as its configuration and its log have it."""

    path: Path
    config: dict[str, Any]
    records: list[dict[str, Any]]

    @property
    def metric(self) -> str:
        """What is told of an evaluation."""
        return of_kind(kind_of(self.config)).metrics[0]

    def row(self) -> tuple[str, str, str, str, str, str]:
        """Name, task, method, seed, steps, and the best evaluation, in words."""
        about, recipe = self.config["about"], build_recipe(self.config["recipe"])
        method = self.config.get("regularizer", {}).get("kind", "none")
        done = self.records[-1]["step"] if self.records else 0
        best = "no evaluation yet"
        if self.records:
            record = best_record(self, recipe.monitor)  # whose weights the run has
            best = f"{self.metric} {record[f'valid_{self.metric}']:.2f} at step {record['step']:,}"
        task = str(about.get("task") or kind_of(self.config))
        return str(self.path), task, method, str(self.config["seed"]), f"{done:,} of {recipe.steps:,}", best


@dataclass(frozen=True)
class Unreadable:
    """A run whose configuration or log cannot be read, and why."""

    path: Path
    reason: str

    def row(self) -> tuple[str, str, str, str, str, str]:
        """As that of a `Listed`, with the reason as its last word."""
        return str(self.path), "-", "-", "-", "-", f"cannot be read: {self.reason}"


def listed(path: Path) -> Listed:
    """A run by its folder; raises RunError or LogError for what is none."""
    config = read_config(path)
    family = of_kind(kind_of(config), path)
    there = (path / LOG).exists()
    return Listed(path, config, folder.records(path, NO_LIMIT, family.metrics) if there else [])


def below(root: Path) -> Iterator[Path]:
    """The folders of runs in a folder, by name."""
    if (root / CONFIG).exists():
        yield root
    elif root.is_dir():
        yield from sorted(path for path in root.iterdir() if (path / CONFIG).exists())


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines with columns."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def distinct(paths: Sequence[Path]) -> list[str]:
    """A name for each folder: its last part, or all of its path where several end in the same."""
    names = [path.name for path in paths]
    return [
        "-".join(part for part in path.parts if part not in ("/", "..", ".")) if names.count(name) > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]


def differences(runs: Sequence[Listed]) -> list[list[str]]:
    """The settings in which runs differ: a row a setting, its value in each run."""
    flat = [dict(_leaves({k: v for k, v in run.config.items() if k not in QUIET})) for run in runs]
    names = sorted({name for one in flat for name in one})
    values = {name: [json.dumps(one.get(name)) for one in flat] for name in names}
    return [[name, *(v[:40] for v in several)] for name, several in values.items() if len(set(several)) > 1]


def as_csv(runs: Sequence[Listed]) -> str:
    """The evaluations of runs as CSV: the run, and every number of a record."""
    rows = [{"run": str(run.path), **record} for run in runs for record in run.records]
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if _is_cell(name, value)))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """The numbers of an evaluation, by name."""
    return {
        name: float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "step"
    }


def _is_cell(name: str, value: Any) -> bool:
    return name != "kind" and (value is None or isinstance(value, int | float | str))


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else key)
    else:
        yield name, value


def expect_runs(paths: Sequence[Path]) -> tuple[list[Listed], list[Unreadable]]:
    """The runs of these folders, or in them, and those that cannot be read; raises RunError if there are none."""
    runs, unreadable = list[Listed](), list[Unreadable]()
    for path in paths:
        inside = list(below(path))
        if not inside:
            raise RunError(f"{path} is no run and holds none: name the folder of a run, or one with runs in it")
        for run in inside:
            try:
                runs.append(listed(run))
            except (ValueError, OSError) as error:  # a damaged file must not hide the other runs
                unreadable.append(Unreadable(run, str(error)))
    return runs, unreadable
