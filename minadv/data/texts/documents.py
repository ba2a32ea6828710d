r"""A corpus: documents as numbers, in one flat array, and the parts of them that a run trains on and is tested on.

``text[starts[n] : starts[n] + lengths[n]]`` is document n. All parts of a corpus share the flat array, so that to
choose documents, to split or to join parts copies none of it: IMDB's 100,000 reviews are one array of 27 million int32.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.base.numbers import Seed, Share
from minadv.base.schema import expect_fields
from minadv.base.streams import permutation, stream
from minadv.data.texts.counting import Cut, Numbers, choose_words
from minadv.data.vocabulary import SPECIAL, SPLITS, Vocabulary

Part: TypeAlias = Literal["train", "test", "unlabelled"]


@dataclass(frozen=True, eq=False)
class Documents:
    """N documents of a flat array of tokens, without ``<eos>``; ``labels`` is None where there are none."""

    text: Array  # all tokens of the corpus, int32
    starts: Array  # (N,) int64
    lengths: Array  # (N,) int64
    labels: Array | None = None  # (N,) int64

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, n: int) -> Array:
        """The tokens of document n, a view."""
        tokens: Array = self.text[self.starts[n] : self.starts[n] + self.lengths[n]]
        return tokens

    def take(self, rows: Array) -> Documents:
        """The documents of these numbers, in this order."""
        labels = None if self.labels is None else self.labels[rows]
        return replace(self, starts=self.starts[rows], lengths=self.lengths[rows], labels=labels)

    def join(self, other: Documents) -> Documents:
        """These documents and the other's after them, without labels: the text that a language model reads."""
        if other.text is not self.text:
            raise ValueError("the documents are of two corpora, expected parts of one")
        starts, lengths = np.concatenate([[self.starts, self.lengths], [other.starts, other.lengths]], axis=1)
        return Documents(self.text, starts, lengths)


@dataclass(frozen=True, eq=False)
class Corpus:
    """The parts of a corpus, the names of its classes in the order of their labels, and its vocabulary.

    ``unlabelled`` may be empty. ``removed`` is the number of unlabelled documents that were in another part too.
    """

    name: str
    classes: tuple[str, ...]
    vocabulary: Vocabulary
    train: Documents
    valid: Documents
    test: Documents
    unlabelled: Documents
    removed: int = 0

    def __str__(self) -> str:
        sizes = ", ".join(f"{len(getattr(self, p)):,} {p}" for p in ("train", "valid", "test", "unlabelled"))
        return f"{self.name}: {sizes}; classes {', '.join(self.classes)}; {len(self.vocabulary):,} words"


@dataclass(frozen=True)
class Options:
    """How a corpus is made of texts: its vocabulary, and the share of the labelled training texts that validate.

    ``test_share`` of a user's own texts are for the test, where they have no part for it. The split depends on
    ``split_seed`` alone: it is part of the data, not of a run's seed.
    """

    cut: Cut = field(default_factory=Cut)
    valid_share: Share = 0.15
    split_seed: Seed = 0
    test_share: Share = 0.2

    def __post_init__(self) -> None:
        expect_fields(self)


@dataclass(frozen=True)
class Text:
    """One document as it is read: its part, its class (None in the unlabelled part), its file and, in it, its line."""

    part: Part
    label: str | None
    file: str
    text: str
    line: int = 0  # counted from 1; 0 if the document is the whole file

    @property
    def where(self) -> str:
        """The file and the line, in words."""
        return f"line {self.line} of {self.file}" if self.line else self.file


@dataclass(frozen=True)
class Source:
    """Where texts come from: ``texts`` reads them, in any order; ``fingerprint`` tells one source from another.

    ``where`` is the source's name in errors, ``split`` the way to cut its text (`minadv.data.vocabulary.SPLITS`).
    ``unique`` asks to remove unlabelled documents that are in another part too, or among the unlabelled twice.
    """

    name: str
    where: str
    split: str
    fingerprint: Callable[[], str]
    texts: Callable[[], Iterable[Text]]
    unique: bool = False


def build(source: Source, options: Options, vocabulary: Vocabulary | None = None) -> Corpus:
    """The corpus of the texts of a source: documents are in the order of part, file and line.

    The vocabulary is that of the training and the unlabelled documents, unless one is given: nothing of the validation
    and test documents is looked at.
    """
    if vocabulary is not None and vocabulary.split != source.split:
        raise DataError(
            f"the vocabulary cuts text by {vocabulary.split!r}, expected {source.split!r} for {source.where}"
        )
    numbers = Numbers()
    numbered = sorted(_numbered(source, numbers), key=lambda f: f[:3])
    train, test = (Counter(str(label) for part, _, _, label, _ in numbered if part == p) for p in ("train", "test"))
    classes = expect_classes(train, test, source.where)
    text = np.concatenate([tokens for *_, tokens in numbered])  # the words by their provisional numbers
    lengths = np.array([len(tokens) for *_, tokens in numbered], dtype=np.int64)
    labels = np.array([-1 if label is None else classes.index(label) for *_, label, _ in numbered], dtype=np.int64)
    everything = Documents(text, np.cumsum(lengths) - lengths, lengths, labels)
    of_part = np.array([part for part, *_ in numbered])
    rows = {p: np.flatnonzero(of_part == p) for p in ("train", "test", "unlabelled")}
    unlabelled = _unseen(everything, rows["unlabelled"]) if source.unique else rows["unlabelled"]
    valid = validation_rows(labels[rows["train"]], len(classes), options)
    parts = {
        "train": rows["train"][~valid],
        "valid": rows["train"][valid],
        "test": rows["test"],
        "unlabelled": unlabelled,
    }
    if vocabulary is None:
        counted = everything.take(np.concatenate([parts["train"], unlabelled]))
        vocabulary = _count(counted, list(numbers), options.cut, source.split)
    everything = replace(everything, text=vocabulary.numbers(numbers)[text])
    by_part = {p: everything.take(r) for p, r in parts.items()}
    by_part["unlabelled"] = replace(by_part["unlabelled"], labels=None)
    return Corpus(source.name, classes, vocabulary, removed=len(rows["unlabelled"]) - len(unlabelled), **by_part)


def expect_classes(train: Mapping[str, int], test: Mapping[str, int], source: str) -> tuple[str, ...]:
    """The names of the classes, sorted; raises DataError unless there are two or more, each in train and in test."""
    classes = tuple(sorted(train))
    listed = ", ".join(classes)
    if len(classes) < 2:
        raise DataError(f"{source} has the classes ({listed}) in train, expected at least two")
    for part, counts in (("train", train), ("test", test)):
        for label in classes:
            if counts.get(label, 0) == 0:
                raise DataError(f"{source} has no documents in {part}/{label}, expected some of each class: {listed}")
    unknown = sorted(test.keys() - train.keys())
    if unknown:
        raise DataError(f"{source} has {', '.join(unknown)} in test, expected the classes of train only: {listed}")
    few = [label for label in classes if train[label] < 2]
    if few:
        raise DataError(f"{source} has one document in train/{few[0]}, expected two or more: one of them validates")
    return classes


def validation_rows(labels: Array, classes: int, options: Options) -> Array:
    """Which of the labelled documents are for validation: bool ``(N,)``, the same share of each class, at least one."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        n = min(max(round(options.valid_share * len(rows)), 1), len(rows) - 1)
        chosen[rows[permutation(stream(options.split_seed, "split text", label), len(rows))[:n]]] = True
    return chosen


def _numbered(source: Source, numbers: Numbers) -> Iterator[tuple[str, str, int, str | None, Array]]:
    """Part, file, line, label and tokens, int32 ``(T,)``, of each document; words are numbered as they first come."""
    cut = SPLITS[source.split]
    for text in source.texts():
        words = cut(text.text)
        if not words:
            raise DataError(f"{source.where}: {text.where} is empty, expected at least one word: remove it, or mend it")
        yield text.part, text.file, text.line, text.label, np.fromiter(map(numbers.__getitem__, words), np.int32)


def _unseen(everything: Documents, rows: Array) -> Array:
    """The rows whose text is not that of a document outside of ``rows``, nor of an earlier one among them."""
    others = np.setdiff1d(np.arange(len(everything)), rows)
    seen = {_digest(everything[n]) for n in others.tolist()}
    kept = []
    for n in rows.tolist():
        digest = _digest(everything[n])
        if digest not in seen:
            seen.add(digest)
            kept.append(n)
    return np.array(kept, dtype=np.int64)


def _digest(tokens: Array) -> bytes:
    return hashlib.sha256(tokens.tobytes()).digest()


def _count(documents: Documents, found: list[str], cut: Cut, split: str) -> Vocabulary:
    """The vocabulary of documents whose tokens are numbers of the words in ``found``."""
    counts = np.zeros(len(found), dtype=np.int64)
    in_documents = np.zeros(len(found), dtype=np.int64)
    for n in range(len(documents)):
        tokens, times = np.unique(documents[n], return_counts=True)
        counts[tokens] += times
        in_documents[tokens] += 1
    vocabulary = choose_words(found, counts, len(documents), in_documents=in_documents, cut=cut, split=split)
    if len(vocabulary) == len(SPECIAL):
        raise DataError(f"none of the {len(found):,} words found is left by {cut}: lower its limits")
    return vocabulary
