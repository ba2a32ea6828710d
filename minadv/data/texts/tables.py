r"""Tables of texts and labels: CSV (also TSV) with a line of column names, or JSON lines with an object each.

The columns are called ``text`` and ``label``, or have another usual name; of two columns without such names, the one
with fewer different values has the labels. A row whose label is empty is an unlabelled text.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minadv.base.errors import DataError
from minadv.data import files
from minadv.data.texts.documents import Text

SUFFIXES = (".csv", ".tsv", ".jsonl")
TEXT = ("text", "sentence", "review", "comment", "content", "message", "document", "body")
LABEL = ("label", "class", "category", "target", "sentiment", "topic", "y")
NO_TEXT = re.compile("[\0\ud800-\udfff]")  # JSON can name characters that no file of texts holds
LONGEST = 2**27  # characters of a cell


def inside(root: Path) -> dict[str, Path]:
    """The tables that lie in a folder, by name."""
    if not root.is_dir():
        return {}
    found = [path for path in sorted(root.iterdir()) if path.suffix.lower() in SUFFIXES and path.is_file()]
    return {path.name: path for path in found if not path.name.startswith(".")}


def read(path: Path) -> Iterator[Text]:
    """The rows of a table, for training; those without a label are unlabelled."""
    rows = _rows(path)
    of_text, of_label = columns(path, rows)
    for line, row in rows:
        given, label = _text(path, line, row, of_text), row.get(of_label)
        label = None if label is None else _text(path, line, {of_label: str(label).strip()}, of_label)
        yield Text("train" if label else "unlabelled", label or None, path.name, given, line)


def texts(path: Path) -> list[str]:
    """The texts of a table that are to be answered, row by row: of a column with a usual name, or of the only one."""
    rows = _rows(path, labelled=False)
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    column = names[0] if len(names) == 1 else _named(TEXT, names)
    if column is None:
        raise _no_column(path, names, "'text'")
    return [_text(path, line, row, column) for line, row in rows]


def _rows(path: Path, *, labelled: bool = True) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a table, each with its line; without labels one column is enough, and a row may be empty."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is no table: expected a name that ends in {', '.join(SUFFIXES)}")
    text = files.text(path)
    rows = list(_objects(path, text) if path.suffix.lower() == ".jsonl" else _cells(path, text, labelled=labelled))
    if not rows:
        raise DataError(f"{path} has no rows, expected texts{' and labels' if labelled else ''}")
    return rows


def _text(path: Path, line: int, row: dict[str, Any], column: str) -> str:
    """The text of a row."""
    given = row.get(column)
    if not isinstance(given, str):
        raise DataError(f"line {line} of {path} has no text in the column {column!r}")
    if (stray := NO_TEXT.search(given)) is not None:
        raise DataError(f"line {line} of {path} holds {stray[0]!r}, which is no character of a text: remove it")
    return given


def columns(path: Path, rows: list[tuple[int, dict[str, Any]]]) -> tuple[str, str]:
    """The names of the columns that hold the texts and the labels."""
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    text = _named(TEXT, names)
    label = _named(LABEL, [name for name in names if name != text])
    if len(names) == 2 and (text is None or label is None):
        if text is None and label is None:
            label = min(names, key=lambda name: len({str(row.get(name)) for _, row in rows}))
        text = text or next(name for name in names if name != label)
        label = label or next(name for name in names if name != text)
    if text is None or label is None:
        raise _no_column(path, names, " and ".join(["'text'"] * (text is None) + ["'label'"] * (label is None)))
    return text, label


def _named(usual: Sequence[str], names: list[str]) -> str | None:
    """The name, as it stands in the table, that is the first of the usual ones; None if none of them is there."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    return next((by_name[name] for name in usual if name in by_name), None)


def _no_column(path: Path, names: list[str], missing: str) -> DataError:
    shown = ", ".join(map(repr, names[:12]))
    return DataError(f"{path} has the columns {shown}, and none is called {missing}: rename the one that is meant")


def _cells(path: Path, text: str, *, labelled: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a CSV file by column name, each with its line; the separator is that of the first line."""
    first = text.partition("\n")[0].rstrip("\r")
    separator = max((",", ";", "\t"), key=first.count)
    csv.field_size_limit(LONGEST)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        if (twice := next((name for name in names if name and names.count(name) > 1), None)) is not None:
            raise DataError(
                f"{path} begins with {first[:60]!r}, where {twice!r} stands twice: rename one of the columns"
            )
        if len(set(names)) != len(names) or len(names) < 1 + labelled:
            wanted = "the names of two or more columns" if labelled else "the name of a column"
            raise DataError(f"{path} begins with {first[:60]!r}, expected {wanted}")
        for row in reader:
            if not any(cell.strip() for cell in row) and (labelled or not row):
                continue
            if len(row) != len(names):
                said = f"line {reader.line_num} of {path} has {len(row)} cells, expected {len(names)}"
                raise DataError(f"{said}, one for each column")
            yield reader.line_num, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise DataError(f"line {reader.line_num} of {path} is not CSV: {error}") from error


def _objects(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its line."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} of {path} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(
                f"line {number} of {path} is a {type(row).__name__}, expected an object with text and label"
            )
        yield number, row
