r"""The vocabulary of documents: which of their words it keeps, by how often they occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minadv.backend import Array
from minadv.base.numbers import Size
from minadv.base.schema import expect_fields
from minadv.data.vocabulary import SPECIAL, Vocabulary

UNK_TOKEN, EOS_TOKEN = 0, 1  # the numbers of the special entries in every vocabulary of documents


class Numbers(dict[str, int]):
    """Words numbered in the order of their first use: ``numbers[word]`` gives a new word the next number."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


@dataclass(frozen=True)
class Cut:
    """Which words a vocabulary keeps: those that occur ``min_count`` times or more, in ``min_documents`` or more.

    With ``max_size``, only the ``max_size - 2`` most frequent of them: the two special entries count as well.
    """

    min_count: Size = 2
    min_documents: Size = 1
    max_size: Size | None = None

    def __post_init__(self) -> None:
        expect_fields(self)
        if self.max_size is not None and self.max_size <= len(SPECIAL):
            raise ValueError(f"max_size is {self.max_size}, expected at least {len(SPECIAL) + 1}")


def choose_words(
    found: Sequence[str], counts: Array, documents: int, *, in_documents: Array | None = None, cut: Cut, split: str
) -> Vocabulary:
    """The vocabulary of the words ``found`` with these ``counts (n,)``; ``documents`` is the number of documents.

    Words are in descending order of count, ties in the order of their characters, so that the order in which documents
    were read does not matter. The count of ``<unk>`` is that of all words that were cut, the count of ``<eos>`` that of
    the documents. ``in_documents (n,)`` is the number of documents with each word, needed for ``cut.min_documents``
    above 1.
    """
    keep = counts >= cut.min_count
    if cut.min_documents > 1:
        if in_documents is None:
            raise ValueError(f"min_documents is {cut.min_documents}, expected in_documents with it")
        keep &= in_documents >= cut.min_documents
    kept = [n for n in np.flatnonzero(keep).tolist() if found[n] not in SPECIAL]
    kept.sort(key=lambda n: (-int(counts[n]), found[n]))
    if cut.max_size is not None:
        kept = kept[: cut.max_size - len(SPECIAL)]
    kept_counts = counts[kept]
    special = [int(counts.sum()) - int(kept_counts.sum()), documents]
    return Vocabulary(
        (*SPECIAL, *(found[n] for n in kept)), np.concatenate([special, kept_counts]).astype(np.int64), split
    )
