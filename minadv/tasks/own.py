r"""A user's own data: which task a folder or a file is for, by the names of what it holds."""

from __future__ import annotations

from pathlib import Path

from minadv.base.errors import DataError
from minadv.data.images import own as own_images
from minadv.data.language import own as own_language
from minadv.data.language import published
from minadv.data.texts import folders, tables

EXPECTED = (
    "CLASS/*.txt (or .md), or one .csv or .jsonl with text and label, for texts by class; *.txt for a language model; "
    "one .npz with x and y, or CLASS/*.png, for sequences and images by class"
)


def recognise(path: Path) -> str:
    """The task of a user's own data: "text", "lm" or "images"; raises DataError for what is none."""
    try:
        return _recognise(path)
    except OSError as error:
        raise DataError(f"cannot read {str(error.filename or path)[:100]}: {error.strerror or error}") from error


def _recognise(path: Path) -> str:
    if path.is_file():
        if path.suffix.lower() in tables.SUFFIXES:
            return "text"
        if path.suffix.lower() == ".npz":
            return "images"
        raise DataError(f"{path} is a file that minadv cannot train on: expected .csv, .tsv, .jsonl, .npz, or a folder")
    if not path.is_dir():
        raise DataError(f"{path} is neither a task nor a folder that is there")
    below = [path / part for part in ("train", "test") if (path / part).is_dir()] or [path]
    if own_images.arrays_inside(path) or any(map(own_images.images_below, below)):
        return "images"
    if tables.inside(path) or any(map(folders.documents_below, below)):
        return "text"
    if own_language.inside(path) or not published.lacks(path):
        return "lm"
    raise DataError(f"{path} holds nothing that minadv can train on: expected {EXPECTED}")
