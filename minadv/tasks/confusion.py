r"""Which classes a classifier takes for which: counts of its answers by true class, the errors of each class, a table.

.. math:: C_{ij} = \#\{n : y_n = i,\ \hat y_n = j\}, \qquad e_i = 1 - C_{ii} / \sum_j C_{ij}
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minadv.backend import Array

WHOLE = 12  # classes of which the whole matrix is printed
WORST = 20  # of more classes, as many are printed, those with the largest errors first


def confusion(labels: Array, answers: Array, n_classes: int) -> Array:
    """The counts (C, C) of examples by their true class, in rows, and by the answer, in columns."""
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(counts, (labels, answers), 1)
    return counts


def errors(counts: Array) -> Array:
    """The error of each class in per cent; NaN for a class without examples."""
    n = counts.sum(axis=1)
    return np.where(n > 0, 100 * (n - np.diag(counts)) / np.maximum(n, 1), np.nan)


def table(counts: Array, names: Sequence[str]) -> list[str]:
    """The matrix with the error of each class as lines; of many classes only what each is most often taken for."""
    n, wrong, found = counts.sum(axis=1), counts.sum(axis=1) - np.diag(counts), errors(counts)
    said = ["-" if np.isnan(error) else f"{error:.2f}" for error in found]
    few = len(names) <= WHOLE
    order = np.arange(len(names)) if few else np.argsort(-np.nan_to_num(found, nan=-1.0), kind="stable")[:WORST]
    if few:
        head = ["class", *(f"as {name}" for name in names), "wrong", "error %"]
        rows = [[names[i], *map(str, counts[i]), str(wrong[i]), said[i]] for i in order]
    else:
        head = ["class", "examples", "wrong", "error %", "most often taken for"]
        rows = [[names[i], str(n[i]), str(wrong[i]), said[i], _taken_for(counts[i], i, names)] for i in order]
    lines = _aligned([head, *rows], left=(0,) if few else (0, 4))
    rest = len(names) - len(order)
    return [*lines, f"({rest} more classes, none with a larger error)"] if rest else lines


def _taken_for(row: Array, own: int, names: Sequence[str]) -> str:
    others = row.copy()
    others[own] = 0
    most = int(others.argmax())
    return f"{names[most]} ({others[most]})" if others[most] else "-"


def _aligned(rows: Sequence[Sequence[str]], *, left: tuple[int, ...]) -> list[str]:
    """Rows of cells as lines with columns; numbers end at the right, the columns in ``left`` begin at the left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    padded = [
        [cell.ljust(width) if n in left else cell.rjust(width) for cell in column]
        for n, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
