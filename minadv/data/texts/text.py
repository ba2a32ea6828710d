r"""Text as numbers: two ways to cut it into words, and the vocabulary that numbers them.

::

    vocabulary = corpus.vocabulary  # see minadv.data.texts.documents
    vocabulary.decode(vocabulary.encode("It's a <br />GREAT film!"))  # "It's", "a", "GREAT", "film", "!"

The case of letters is kept. A vocabulary begins with two entries that are no words of any text: ``<unk>``, all words
that were cut, and ``<eos>``, the end of a document. There is none for padding: padded steps hold ``<eos>`` and are not
valid.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.errors import DataError
from minadv.base.files import SealError, flush_directory, seal, unseal, write_whole

UNK, EOS = 0, 1
SPECIAL = ("<unk>", "<eos>")

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Raw text cut into words and signs, the case kept.

    A line break of HTML, ``<br />``, is white space. A word is a run of letters, digits and underscores, with
    apostrophes inside it (``don't`` is one word); every other character that is not white space stands alone.
    """
    return _WORD.findall(_BREAK.sub(" ", text))


def spaces(text: str) -> list[str]:
    """Text that somebody else has cut into words: they are what stands between white space."""
    return text.split()


SPLITS: dict[str, Callable[[str], list[str]]] = {"words": words, "spaces": spaces}


class Numbers(dict[str, int]):
    """Words numbered as they first come: ``numbers[word]`` of a new word is the number of words so far."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


@dataclass(frozen=True)
class Cut:
    """Which words a vocabulary keeps: those that are in the text ``min_count`` times and in ``min_documents`` of it.

    Of these the ``max_size - 2`` most frequent, if a size is given: the two special entries are part of it.
    """

    min_count: int = 2
    min_documents: int = 1
    max_size: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("min_count", 1), ("min_documents", 1), ("max_size", len(SPECIAL) + 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}, expected at least {least}")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """V words in order of frequency after the special entries, how often each was counted, and how text is cut.

    The count of ``<unk>`` is that of all words that were cut, the count of ``<eos>`` that of the documents.
    """

    words: tuple[str, ...]
    counts: Array  # (V,) int64
    split: str = "words"

    def __post_init__(self) -> None:
        expect_choice("split", self.split, SPLITS)
        if self.words[: len(SPECIAL)] != SPECIAL or self.counts.shape != (len(self.words),):
            raise ValueError(f"expected words that begin with {SPECIAL} and a count for each of the {len(self.words)}")
        if len(set(self.words)) != len(self.words):
            raise ValueError("a word is twice in the vocabulary, expected every word once")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each word of the text; the special entries are no words of any text."""
        return {word: n for n, word in enumerate(self.words) if n >= len(SPECIAL)}

    @cached_property
    def frequencies(self) -> Array:
        r"""The unigram distribution: float64 ``(V,)``, :math:`\max(c, 1) / \sum \max(c, 1)` of the counts c.

        An entry that was never counted (``<unk>``, if no word was cut) still has a probability, so that it has a
        logarithm where it turns up after all.
        """
        counted = np.maximum(self.counts, 1).astype(np.float64)
        frequencies: Array = counted / counted.sum()
        return frequencies

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the words, their counts and the way of cutting text."""
        content = json.dumps([self.split, self.words, self.counts.tolist()], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def numbers(self, given: Iterable[str]) -> Array:
        """The numbers of words, int32: ``<unk>`` for a word that is not in the vocabulary."""
        number = self.number
        return np.fromiter((number.get(word, UNK) for word in given), dtype=np.int32)

    def encode(self, text: str) -> Array:
        """The numbers of the words of a text, int32 ``(T,)``; without ``<eos>``."""
        return self.numbers(SPLITS[self.split](text))

    def decode(self, tokens: Array | Sequence[int]) -> list[str]:
        """The words of these numbers."""
        for token in tokens:
            if not 0 <= token < len(self):
                raise ValueError(f"a token is {token}, expected 0 to {len(self) - 1}, the vocabulary's")
        return [self.words[token] for token in tokens]

    def save(self, path: Path) -> None:
        """Write the vocabulary to a file, JSON with its checksum, whole or not at all."""
        write_whole(path, seal({"split": self.split, "words": self.words, "counts": self.counts.tolist()}))
        flush_directory(path.parent)

    def expect(self, fingerprint: str, owner: str) -> None:
        """Raise DataError unless this is the vocabulary of that fingerprint; ``owner`` says whose that is."""
        if self.fingerprint != fingerprint:
            raise DataError(
                f"the text has the vocabulary {self.fingerprint[:12]} ({len(self)} words), expected "
                f"{fingerprint[:12]}, that of {owner}: give the same data and the same vocabulary options"
            )


def load_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a file that `Vocabulary.save` wrote; raises DataError for any other file."""
    try:
        content = unseal(path)
        return Vocabulary(tuple(content["words"]), np.array(content["counts"], dtype=np.int64), content["split"])
    except (SealError, KeyError, TypeError) as error:
        said = str(error) if isinstance(error, SealError) else f"{path} holds no vocabulary"
        raise DataError(said) from error


def choose_words(
    found: Sequence[str], counts: Array, documents: int, *, in_documents: Array | None = None, cut: Cut, split: str
) -> Vocabulary:
    """The vocabulary of words found with these ``counts (n,)`` in so many documents.

    Words are in descending order of count, ties in the order of their characters, so that the order in which documents
    were read does not matter. ``in_documents (n,)`` is the number of documents with each word, needed for
    ``cut.min_documents`` above 1.
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
    chosen = counts[kept]
    special = [int(counts.sum()) - int(chosen.sum()), documents]
    return Vocabulary((*SPECIAL, *(found[n] for n in kept)), np.concatenate([special, chosen]).astype(np.int64), split)
