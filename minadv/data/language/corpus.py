r"""Text for word-level language models: three arrays of word numbers, and the vocabulary that numbers them.

::

    corpus = load()  # CPython's own documentation, no download
    corpus = load("ptb", data_dir)  # or "wikitext2"
    corpus = load(data_dir=folder)  # whatever the folder holds: train.txt, valid.txt and test.txt, or any text files

The vocabulary is that of the training part alone; `minadv.data.language.lines` says how lines become tokens, and how a
word that the vocabulary lacks is read. (The validation and test parts of the Penn Treebank and WikiText-2 have none.)
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.errors import DataError, DataWarning
from minadv.data import files
from minadv.data.language import own, published, topics
from minadv.data.language.lines import count_words, encode_lines, lines_of
from minadv.data.language.published import PARTS
from minadv.data.vocabulary import EOS, UNK, Vocabulary

NAMES = ("pydoc", *published.PUBLISHED, "folder", "texts")
_HAS_UNK = re.compile(rf"(?<!\S){UNK}(?!\S)")
MIN_COUNT = 2  # of raw text: it has words in its other parts that are rare or missing in the training part


@dataclass(frozen=True, eq=False)
class Corpus:
    """The parts, int32 arrays ``(N,)`` of numbers below V, the vocabulary of V words, and where the parts are from."""

    name: str
    train: Array
    valid: Array
    test: Array
    vocabulary: Vocabulary
    where: Mapping[str, str] = field(default_factory=dict, repr=False)

    def called(self, part: str) -> str:
        """A part's name in errors, with its source where that is known."""
        return f"{part} ({self.where[part]})" if part in self.where else part

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the vocabulary and the three parts: figures can be compared where it is the same."""
        digest = hashlib.sha256(self.vocabulary.fingerprint.encode())
        for part in (self.train, self.valid, self.test):
            digest.update(len(part).to_bytes(8, "little") + part.astype("<i4").tobytes())
        return digest.hexdigest()


def load(name: str | None = None, data_dir: str | Path | None = None, *, min_count: int | None = None) -> Corpus:
    """The corpus of that name: "pydoc", "ptb", "wikitext2", "folder" for three plain files of ``data_dir``, "texts".

    Without a name it is the corpus that ``data_dir`` holds; without both, "pydoc". `published.find` says where files
    are looked for and which are downloaded; "texts" is raw text (`minadv.data.language.own`). Words that occur fewer
    than ``min_count`` times in the training part become ``<unk>``. The default is 2 for "pydoc" and "texts" and 1,
    which replaces no word, for other files: these have ``<unk>`` already.
    """
    if name is not None:
        expect_choice("name", name, NAMES)
    if name == "pydoc" or (name is None and data_dir is None):
        where = {part: f"the {part} part of pydoc_data.topics" for part in PARTS}
        at_least = topics.MIN_COUNT if min_count is None else min_count
        return from_lines("pydoc", topics.lines(), min_count=at_least, where=where)
    name, paths = _paths(name, data_dir)
    if name == "texts":
        folder = Path(str(data_dir)).expanduser()
        where = {part: f"the {part} part of {folder}" for part in PARTS}
        return from_lines(name, own.lines(folder), min_count=MIN_COUNT if min_count is None else min_count, where=where)
    lines = {part: _lines(path) for part, path in paths.items()}
    where = {part: str(path) for part, path in paths.items()}
    return from_lines(name, lines, min_count=1 if min_count is None else min_count, where=where)


def from_lines(
    name: str, lines: Mapping[str, list[str]], *, min_count: int = 1, where: Mapping[str, str] | None = None
) -> Corpus:
    """The corpus of three lists of lines, "train", "valid" and "test"; ``where`` names their sources in errors."""
    vocabulary = count_words(lines["train"], min_count=min_count)
    if min_count > 1 and not set(vocabulary.words) - {UNK, EOS}:
        raise DataError(f"min_count (--min-count) is {min_count:,}, and no word of the training text occurs so often")
    train, valid, test = (
        encode_lines(vocabulary, lines[part], part if where is None else where[part]) for part in PARTS
    )
    if vocabulary.unk is not None and (share := float((train == vocabulary.unk).mean())) > 0.75:
        said = f"{share:.0%} of the training text is read as {UNK}: perplexities say little then"
        warnings.warn(
            f"{said}; lower min_count (--min-count {min_count})" if min_count > 1 else said, DataWarning, stacklevel=2
        )
    return Corpus(name, train, valid, test, vocabulary, where or {})


def own_min_count(data_dir: str | Path) -> int | None:
    """The least count of a word that fits the text of a user's own folder; None for text that has ``<unk>`` already."""
    name, paths = _paths(None, data_dir)
    if name != "folder":
        return MIN_COUNT if name == "texts" else None
    return None if _HAS_UNK.search(files.text(paths["train"])) else MIN_COUNT


def _paths(name: str | None, data_dir: str | Path | None) -> tuple[str, dict[str, Path]]:
    """The name of a corpus that lies in files, and its files."""
    if name in published.PUBLISHED:
        return name, published.find(name, data_dir)
    if data_dir is None:
        raise DataError("a folder of text needs data_dir, the folder with train.txt, valid.txt and test.txt")
    folder = Path(data_dir).expanduser()
    if name == "texts" or (name is None and published.lacks(folder) and own.inside(folder)):
        return "texts", {}
    return published.recognise(folder) if name is None else ("folder", published.in_folder(folder))


def _lines(path: Path) -> list[str]:
    lines = lines_of(files.text(path))
    if not any(line.strip() for line in lines):
        raise DataError(f"{path} is empty, expected lines of words")
    return lines
