r"""The vocabulary: words with their numbers, how often each was counted, and how a text is cut into words.

::

    vocabulary = corpus.vocabulary  # of any corpus of texts
    vocabulary.decode(vocabulary.encode("It's a <br />GREAT film!"))  # "It's", "a", "GREAT", "film", "!"

Two entries are no words: ``<unk>`` stands for all words that the vocabulary lacks, ``<eos>`` for the end of a document
or of a line. A vocabulary of documents begins with the two; that of a language model has them wherever their counts put
them, and ``<unk>`` only if the text has it. There is no entry for padding: padded steps hold ``<eos>`` and are not
valid.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.errors import DataError

UNK, EOS = SPECIAL = ("<unk>", "<eos>")

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Raw text cut into words and signs, the case kept.

    A line break of HTML, ``<br />``, is white space. A word is a run of letters, digits and underscores, with
    apostrophes inside it (``don't`` is one word); every other character that is not white space stands alone.
    """
    return _WORD.findall(_BREAK.sub(" ", text))


SPLITS: dict[str, Callable[[str], list[str]]] = {"words": words, "spaces": str.split, "lines": str.split}
"""How a text is cut: raw documents; documents with white space between words; lines with white space between words."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """V words by falling count and how often each was counted; ``split`` names how a text is cut into words.

    A word of a document (``split`` "words" or "spaces") that reads ``<unk>`` or ``<eos>`` is not the special entry of
    that name; a word in the lines of a language model (``split="lines"``) is.
    """

    words: tuple[str, ...]
    counts: Array  # (V,) int64
    split: str = "words"

    def __post_init__(self) -> None:
        expect_choice("split", self.split, SPLITS)
        if self.counts.shape != (len(self.words),):
            raise ValueError(f"counts has shape {self.counts.shape}, expected a count for each of {len(self)} words")
        if len(set(self.words)) != len(self.words):
            raise ValueError("a word is twice in the vocabulary, expected every word once")
        if self.split == "lines" and EOS not in self.words:
            raise ValueError(f"the vocabulary lacks {EOS}, which ends every line")
        if self.split != "lines" and self.words[:2] != SPECIAL:
            raise ValueError(f"words begins with {self.words[:2]}, expected words that begin with {SPECIAL}")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each word of a text; of documents, without the special entries, which no word stands for."""
        special = SPECIAL if self.split != "lines" else ()
        return {word: n for n, word in enumerate(self.words) if word not in special}

    @property
    def eos(self) -> int:
        """The number of ``<eos>``."""
        return self.words.index(EOS)

    @cached_property
    def unk(self) -> int | None:
        """The number of ``<unk>``, or None if the vocabulary lacks it."""
        return self.words.index(UNK) if UNK in self.words else None

    @cached_property
    def frequencies(self) -> Array:
        r"""The unigram distribution: float64 ``(V,)``, :math:`\max(c, 1) / \sum \max(c, 1)` of the counts c.

        An entry that was never counted (``<unk>``, if the vocabulary keeps all words) still has a probability above 0,
        so that its logarithm is finite where the entry turns up in another text.
        """
        counted = np.maximum(self.counts, 1).astype(np.float64)
        frequencies: Array = counted / counted.sum()
        return frequencies

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the words in their order; of a vocabulary of documents, also of their counts and ``split``."""
        content = json.dumps([self.split, self.words, self.counts.tolist()], ensure_ascii=True)
        return hashlib.sha256(("\n".join(self.words) if self.split == "lines" else content).encode()).hexdigest()

    def numbers(self, given: Iterable[str], where: str = "the text", remedy: str = "use other words") -> Array:
        """The numbers of words, int32 ``(N,)``: ``<unk>`` for a word that is not in the vocabulary.

        If the vocabulary lacks ``<unk>``, a word that is not in it raises DataError, with ``where`` and ``remedy``.
        """
        words, index, unk = list(given), self.index, self.unk
        tokens = np.fromiter((index.get(word, -1 if unk is None else unk) for word in words), np.int32)
        if unk is None and tokens.size and tokens.min() < 0:
            raise DataError(
                f"{where}: {words[int(tokens.argmin())]!r} is not among the {len(self):,} words of the training text, "
                f"and there is no {UNK} to stand for it: {remedy}"
            )
        return tokens

    def encode(self, text: str) -> Array:
        """The numbers of the words of a text, int32 ``(T,)``; without ``<eos>``."""
        return self.numbers(SPLITS[self.split](text))

    def decode(self, tokens: Array | Sequence[int]) -> list[str]:
        """The words of these numbers."""
        for token in tokens:
            if not 0 <= token < len(self):
                raise ValueError(f"a token is {token}, expected 0 to {len(self) - 1}, the vocabulary's")
        return [self.words[token] for token in tokens]

    def expect(self, fingerprint: str, owner: str) -> None:
        """Raise DataError unless this vocabulary has that fingerprint, which is the one of ``owner``."""
        if self.fingerprint != fingerprint:
            raise DataError(
                f"the text has the vocabulary {self.fingerprint[:12]} ({len(self)} words), expected "
                f"{fingerprint[:12]}, that of {owner}: give the same data and the same vocabulary options"
            )
