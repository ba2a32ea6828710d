r"""Raw text of one's own as the lines of a language model: any ``.txt`` and ``.md`` files, cut into words and parts.

A paragraph is a line; a file without empty lines between its lines has a line for each of its own. Words and signs are
cut as `minadv.data.vocabulary.words` does, the case kept. ``train.txt``, ``valid.txt`` and ``test.txt`` are the parts
of these names; parts that are missing are taken from the training text: it is cut into `STRETCHES` stretches of
neighbouring lines, and of every ten of them the fifth validates and the tenth tests.
"""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path

from minadv.base.errors import DataError
from minadv.data import files
from minadv.data.language.topics import paragraphs
from minadv.data.vocabulary import words

SUFFIXES = (".txt", ".md")
PARTS = ("train", "valid", "test")
STRETCHES = 50
LONG = 20  # lines: a file whose paragraphs are longer on average has none
_EMPTY = re.compile(r"\n[^\S\n]*\n")


def inside(folder: Path) -> list[Path]:
    """The text files of a folder, by name; hidden ones are left out."""
    named = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")]
    files.tell_links(folder, named)
    return sorted(path for path in named if path.is_file())


def lines(folder: Path) -> dict[str, list[str]]:
    """The lines of the parts "train", "valid" and "test", words and signs with spaces between them."""
    paths = inside(folder)
    if not paths:
        raise DataError(f"{folder} holds no text, expected files that end in {' or '.join(SUFFIXES)}")
    named = {path.stem.lower(): path for path in paths if path.stem.lower() in PARTS}
    given = {part: lines_of(files.text(path)) for part, path in named.items()} if "train" in named else {}
    whole = given.get("train", [line for path in paths for line in lines_of(files.text(path))])
    missing = [part for part in PARTS[1:] if part not in given]
    if len(whole) < STRETCHES:
        had = f"{len(whole)} line{'s' * (len(whole) != 1)} or paragraphs"
        raise DataError(f"{folder} holds {had} of text, expected at least {STRETCHES} to be cut into parts")
    return {**cut(whole, missing), **{part: found for part, found in given.items() if part != "train"}}


def lines_of(text: str) -> list[str]:
    """The lines of a raw text: its paragraphs, or its lines where it has no paragraphs."""
    text = text.replace("\r\n", "\n")
    rows = [row for row in text.split("\n") if row.strip()]
    blocks = paragraphs(text) if len(_EMPTY.findall(text.strip())) * LONG >= len(rows) else rows
    return [joined for block in blocks if (joined := " ".join(words(block)))]


def cut(whole: list[str], missing: list[str]) -> dict[str, list[str]]:
    """The training lines without the stretches that the missing parts take, and these parts."""
    ends = list(accumulate(len(line.split()) + 1 for line in whole))
    takes = {4: "valid", 9: "test"}
    found: dict[str, list[str]] = {"train": [], **{part: [] for part in missing}}
    for line, end in zip(whole, ends, strict=True):
        stretch = (end - 1) * STRETCHES // ends[-1]
        part = takes.get(stretch % 10, "train")
        found[part if part in missing else "train"].append(line)
    empty = [part for part, held in found.items() if not held]
    if empty:
        raise DataError(
            f"the text has lines too unlike in length to be cut into parts: {', '.join(empty)} would be empty"
        )
    return found
