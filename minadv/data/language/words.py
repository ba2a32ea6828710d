r"""The vocabulary of a word-level language model: the words of its training text, the most frequent first.

::

    vocabulary = Words.of(lines, min_count=2)
    ids = vocabulary.encode_lines(lines)  # one <eos> after each line

A line is a string of tokens with white space between them, and ends in one ``<eos>`` more, an empty line too: so the
Penn Treebank's 887,521 words in 42,068 lines are its 929,589 tokens. A word that is not in the vocabulary is read as
``<unk>`` if the vocabulary has that, and is an error if not.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from minadv.backend import Array
from minadv.base.checks import shape_text
from minadv.base.errors import DataError
from minadv.base.files import seal, unseal, write_whole

EOS = "<eos>"
UNK = "<unk>"


@dataclass(frozen=True)
class Words:
    """V words and how often each occurs in the training text; a word's number is its place."""

    words: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.counts):
            raise ValueError(f"{len(self.words)} words and {len(self.counts)} counts, expected as many of both")
        if len(self.index) != len(self.words):
            word = next(word for n, word in enumerate(self.words) if self.index[word] != n)
            raise ValueError(f"the word {word!r} stands twice in the vocabulary")
        if EOS not in self.index:
            raise ValueError(f"the vocabulary lacks {EOS}, which ends every line")

    @classmethod
    def of(cls, lines: Iterable[str], *, min_count: int = 1) -> Words:
        """The words of a text, by falling count, equal counts in the order of their code points.

        Words that occur fewer than ``min_count`` times are counted as ``<unk>``, which is then part of the vocabulary
        even if there are none.
        """
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}, expected 1 or more")
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(line.split())
            counts[EOS] += 1
        if min_count > 1:
            rare = [word for word, count in counts.items() if count < min_count and word not in (EOS, UNK)]
            counts[UNK] += sum(counts.pop(word) for word in rare)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(tuple(word for word, _ in ordered), tuple(count for _, count in ordered))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each word."""
        return {word: n for n, word in enumerate(self.words)}

    @property
    def eos(self) -> int:
        """The number of ``<eos>``."""
        return self.index[EOS]

    @property
    def unk(self) -> int | None:
        """The number of ``<unk>``, or None if the vocabulary lacks it."""
        return self.index.get(UNK)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the words in their order: two vocabularies that share it number every word alike."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def encode(self, words: Iterable[str], where: str = "the text") -> Array:
        """The numbers of some words, int32 ``(N,)``; ``where`` names their source in an error."""
        ids = array("i")
        self._extend(ids, list(words), where, "use other words")
        return np.array(ids, dtype=np.int32)

    def encode_lines(self, lines: Iterable[str], where: str = "the text") -> Array:
        """The numbers of the words of all lines and of the ``<eos>`` after each, int32 ``(N,)``."""
        ids = array("i")
        way = f"write {UNK} for rare words there, or set min_count (--min-count) to 2 or more"
        for number, line in enumerate(lines, 1):
            self._extend(ids, line.split(), f"{where}, line {number}", way)
            ids.append(self.eos)
        return np.array(ids, dtype=np.int32)

    def _extend(self, ids: array[int], words: list[str], where: str, way: str) -> None:
        index, unk = self.index, self.unk
        if unk is not None:
            ids.extend([index.get(word, unk) for word in words])
            return
        try:
            ids.extend([index[word] for word in words])
        except KeyError as error:
            raise DataError(
                f"{where}: {error.args[0]!r} is not among the {len(self):,} words of the training text, and there is "
                f"no {UNK} to stand for it: {way}"
            ) from None

    def decode(self, ids: Array) -> list[str]:
        """The words of an array of numbers ``(N,)``."""
        ids = np.asarray(ids)
        if ids.ndim != 1:
            raise ValueError(f"ids has shape {shape_text(ids.shape)}, expected (N,)")
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise ValueError(f"ids holds {ids.min()} to {ids.max()}, expected numbers from 0 to {len(self) - 1}")
        return [self.words[n] for n in ids]

    def save(self, path: Path) -> None:
        """Write the vocabulary to a file that is whole or not there, and that knows when it has been changed."""
        write_whole(path, seal({"words": self.words, "counts": self.counts}))

    @classmethod
    def load(cls, path: Path) -> Words:
        """The vocabulary of a file that `save` wrote; raises SealError if it did not, or the file was changed."""
        content = unseal(path)
        return cls(tuple(content["words"]), tuple(content["counts"]))


def lines_of(text: str) -> list[str]:
    r"""The lines of a text, which end at ``\n`` and nowhere else; the last may lack it."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def cross_entropy(counts: Iterable[int], tokens: Array) -> float:
    r"""The mean of :math:`-\log p` in nats of tokens under the unigram model :math:`p_w = n_w / \sum_v n_v`.

    It is infinite if a token has count 0. On tokens in the proportions of the counts it is the model's entropy.
    """
    n = np.asarray(tuple(counts), dtype=np.float64)  # (V,)
    seen = np.bincount(tokens, minlength=len(n))  # (V,)
    there = seen > 0
    if not n[there].all():
        return float("inf")
    return float(-(seen[there] * np.log(n[there] / n.sum())).sum() / seen.sum())
