r"""The lines of a language model's text: its vocabulary and its numbers.

The words of a line have white space between them, and an ``<eos>`` follows every line, an empty one too: so the Penn
Treebank's 887,521 words in 42,068 lines are its 929,589 tokens. A word that is not in the vocabulary is read as
``<unk>`` if the vocabulary has that, and is an error if not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from minadv.backend import Array
from minadv.data.vocabulary import EOS, UNK, Vocabulary

PIECE = 10**6


def lines_of(text: str) -> list[str]:
    r"""The lines of a text, which end at ``\n`` and nowhere else; the last may lack it."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def tokens_of(line: str) -> Iterator[list[str]]:
    """The words of a line and ``<eos>``, `PIECE` at a time: a line may be a whole text, whose words take far more."""
    while len(words := line.split(None, PIECE)) > PIECE:
        line = words.pop()
        yield words
    yield [*words, EOS]


def count_words(lines: Iterable[str], *, min_count: int = 1) -> Vocabulary:
    """The vocabulary of a text: its words by falling count, equal counts in the order of their code points.

    Words that occur fewer than ``min_count`` times are counted as ``<unk>``; with ``min_count`` above 1, ``<unk>`` is
    part of the vocabulary even if no word is that rare.
    """
    if min_count < 1:
        raise ValueError(f"min_count is {min_count}, expected 1 or more")
    counts: Counter[str] = Counter()
    for line in lines:
        for words in tokens_of(line):
            counts.update(words)
    if min_count > 1:
        rare = [word for word, count in counts.items() if count < min_count and word not in (EOS, UNK)]
        counts[UNK] += sum(counts.pop(word) for word in rare)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Vocabulary(tuple(word for word, _ in ordered), np.array([n for _, n in ordered], dtype=np.int64), "lines")


def encode_lines(vocabulary: Vocabulary, lines: Iterable[str], where: str = "the text") -> Array:
    """The numbers of the words of all lines and of the ``<eos>`` after each, int32 ``(N,)``."""
    remedy = f"write {UNK} for rare words there, or set min_count (--min-count) to 2 or more"
    tokens = [np.zeros(0, np.int32)]
    for number, line in enumerate(lines, 1):
        for words in tokens_of(line):
            tokens.append(vocabulary.numbers(words, f"{where}, line {number}", remedy))
    return np.concatenate(tokens)
