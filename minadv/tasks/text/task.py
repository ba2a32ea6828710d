r"""The task of classifying texts, with unlabelled texts beside the labelled ones.

A step reads two batches, labelled texts and texts without labels, and its loss is

.. math:: \frac1B \sum_{b\ \text{labelled}} NLL_b + \frac{w}{B + B'} \sum_{b\ \text{of both}} R_b

A regularizer that needs labels (AT, and a sum with AT in it) is on the labelled texts alone, with :math:`w / B`, and a
method without a regularizer (none, VD) reads labelled texts only. All texts of a batch end at its last
step, the end of sequence, where the classifier answers: NLL and R are taken there. A batch whose padding would cost too
much is run in groups of like length (`minadv.data.texts.buckets.like_lengths`), whose gradients are added: its loss is
the same mean over all its texts.

Which texts a step reads, and its random numbers, are functions of the seed and the step, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from minadv.backend import Array, same_place
from minadv.base.numbers import Count, Seed, Size
from minadv.base.shared_draws import Share
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.data.texts.buckets import LIMIT, Buckets, steps_of
from minadv.data.texts.documents import Corpus, Documents
from minadv.models import encoder
from minadv.models.encoder import Encoder
from minadv.models.text import TextClassifier
from minadv.regularizers import AdD, Plain, Regularizer, Sum, Term
from minadv.tasks.methods import expect_room
from minadv.tasks.text.reading import evaluate, like_params, load_of, text_batch
from minadv.tasks.unlabelled import added, uses_unlabelled
from minadv.training.memory import Rows, Table, rows_of
from minadv.training.parallel.workers import WHOLE, Part
from minadv.training.task import Load

POOLS = (4, 8, 16, 32, 50)  # batches
CUT = 1 / 8  # share of the batches of an epoch that may have to be run in groups


@dataclass(frozen=True, eq=False)
class Reading:
    """A set of texts, labelled or not, of which every step reads a batch, and what the batch is used for."""

    documents: Documents
    buckets: Buckets
    weight: float  # the share of the regularizer's weight that these texts have
    likelihood: float
    masks: str  # the name of the stream of their random numbers
    before: int = 0  # texts of the readings before this one: where its own begin in the table of what is remembered


@dataclass(frozen=True, eq=False)
class TextTask:
    """Classification of texts, with unlabelled ones where the corpus has them and the regularizer can use them.

    ``model`` has the frequencies of the corpus's vocabulary, which lie where the parameters are to lie. ``max_tokens``
    is how many of a text's tokens are read, from its end (None: all); ``encoder`` holds pre-trained embeddings and
    cells. ``unlabelled_size=0`` leaves the unlabelled texts alone.
    """

    model: TextClassifier
    corpus: Corpus
    regularizer: Regularizer = field(default_factory=Plain)
    batch_size: Size = 64
    unlabelled_size: Count = 64
    max_tokens: Size | None = None
    seed: Seed = 0
    dtype: str = "float32"
    encoder: encoder.Params | None = None

    def __post_init__(self) -> None:
        """Raise whatever is wrong with the task here, before anything is written."""
        stream(self.seed, "init")
        expect_fit(self.model, self.corpus)
        expect_regularizer(self.model, self.regularizer)
        if self.unlabelled_size < 0:
            raise ValueError(f"unlabelled_size is {self.unlabelled_size}, expected zero or a number of texts")
        if self.model.n_classes != (n := len(self.corpus.classes)):
            raise ValueError(f"n_classes is {self.model.n_classes}, expected {n}, the classes of {self.corpus.name}")
        _ = self.readings

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """The labelled texts and, if there are any that the regularizer can use, the unlabelled ones."""
        train, unlabelled = self.corpus.train, self.corpus.unlabelled
        labelled = self._buckets(train, self.batch_size, "labelled")
        n = min(self.unlabelled_size, len(unlabelled))
        if n == 0 or not uses_unlabelled(self.regularizer):
            return (Reading(train, labelled, 1.0, 1.0, "masks"),)
        share = self.batch_size / (self.batch_size + n)
        return (
            Reading(train, labelled, share, 1.0, "masks"),
            Reading(
                unlabelled, self._buckets(unlabelled, n, "unlabelled"), 1 - share, 0.0, "unlabelled masks", len(train)
            ),
        )

    def _buckets(self, documents: Documents, size: int, name: str) -> Buckets:
        """Batches of texts of like length, from the smallest pools, which mix texts most, that keep padding low."""
        steps = steps_of(documents, max_tokens=self.max_tokens)
        for pool in POOLS:
            buckets = Buckets(steps, size, self.seed, pool, name)
            if (buckets.costs() > LIMIT).mean() <= CUT:
                break
        return buckets

    @property
    def per_epoch(self) -> int:
        """Steps over the labelled texts."""
        return self.readings[0].buckets.per_epoch

    @property
    def unit(self) -> str:
        return "text"

    @property
    def units_per_step(self) -> int:
        return sum(reading.buckets.size for reading in self.readings)

    @property
    def tokens(self) -> int:
        """Time steps times examples of the largest batch: what its passes keep for going back."""
        most = self.model.truncate
        return max(r.buckets.size * min(int(r.buckets.steps.max()), most or 2**63) for r in self.readings)

    def rate(self, step: int) -> float:
        return 1.0

    def first_carry(self) -> Table | None:
        sites = self.regularizer.remembers(self.model)
        return Table.empty(sum(len(r.documents) for r in self.readings), sites) if sites else None

    def ids(self, step: int) -> Array:
        """The rows of a step's texts in the table of what is remembered: labelled texts, then the others."""
        return np.concatenate([r.before + r.buckets.rows(step) for r in self.readings])

    def init(self) -> Any:
        """Initial parameters, the embeddings and cells pre-trained if they are given."""
        params = self.model.init(stream(self.seed, "init"), dtype=self.dtype)
        if self.encoder is not None:
            params = replace(params, encoder=self.encoder)
        return tree_map(lambda a: same_place(a, like_params(self.model)), params)

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, Rows | None]:
        model = self.model if model is None else model
        part = replace(part, group=max(part.group, self.regularizer.group))
        with model.scope():  # within it, what passes derive from the parameters is computed once
            made = [pair for r in self.readings for pair in self._terms(r, params, step, weight, carry, part, model)]
        if not made:  # neighbours that see each other's masks stay together: all may be another worker's
            nothing = Term(like_params(self.model)[:0], tree_map(lambda p: 0 * p, params))
            return nothing, None if carry is None else tree_map(lambda a: a[:0], carry.rows)
        (first, rows), *others = made
        if rows is not None:
            rows = tree_map(lambda *parts: np.concatenate(parts), *(own for _, own in made))
        return reduce(added, [term for term, _ in others], first), rows

    def _terms(
        self, reading: Reading, params: Any, step: int, weight: float, carry: Any, part: Part, model: TextClassifier
    ) -> Iterator[tuple[Term, Rows | None]]:
        """The terms of the groups of a batch in which this worker has texts, as shares of the batch's mean.

        With each goes what its adversary found, where that is remembered.
        """
        n = len(reading.buckets.rows(step))
        part.rows(n)  # raises ValueError if there are more workers than texts
        before = 0
        for g, rows in enumerate(reading.buckets.groups(step)):
            mine = part.of_group(before, len(rows))
            before += len(rows)
            if mine.start == mine.stop:
                continue
            share, generator = (mine.stop - mine.start) / n, stream(self.seed, reading.masks, step, g)
            ids = reading.before + rows[mine]
            term = self.regularizer(
                model,
                params,
                text_batch(self.model, reading.documents, rows, max_tokens=self.max_tokens, part=mine),
                rng=generator if part.count == 1 else Share(generator, mine.start, mine.stop, len(rows)),
                weight=share * reading.weight * weight,
                likelihood=share * reading.likelihood,
                **({} if carry is None else {"memory": carry.of(ids, like=like_params(self.model))}),
            )
            yield term, None if carry is None else rows_of(ids, term)

    @property
    def _examples(self) -> int:
        """How many workers a step can keep busy."""
        return min(r.buckets.size for r in self.readings) // self.regularizer.group or 1

    @property
    def load(self) -> Load:
        tokens = sum(r.buckets.size * float(r.buckets.steps.mean()) for r in self.readings)
        return load_of(self.model, self.dtype, tokens, self._examples, padded=True)

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        return evaluate(self.model, params, getattr(self.corpus, part), max_tokens=self.max_tokens)


def expect_regularizer(model: TextClassifier, regularizer: Regularizer) -> None:
    """Raise ValueError for a search with no unit or too many masks, or one that would start where its map is zero."""
    if isinstance(regularizer, Sum):
        for part in regularizer.parts:
            expect_regularizer(model, part)
    if not isinstance(regularizer, AdD):
        return
    expect_room(model, regularizer)
    differs = not regularizer.share_noise and model.embedding_dropout > 0
    if getattr(regularizer.search, "start", None) == "base" and not differs:
        raise ValueError(
            'start is "base" with the same noise in both passes, where the influence map is zero but for rounding: '
            'start from one random flip (start="flip", --init flip), or draw the dropout on the embeddings twice '
            "(share_noise=False, --noise independent)"
        )


def expect_fit(model: Encoder, corpus: Corpus) -> None:
    """Raise ValueError unless the model has the words and the frequencies of the corpus's vocabulary."""
    V = len(corpus.vocabulary)
    if model.n_words != V:
        raise ValueError(f"n_words is {model.n_words}, expected {V}, the words of the vocabulary of {corpus.name}")
    if model.frequencies is None:
        raise ValueError("frequencies is None, expected those of the vocabulary: corpus.vocabulary.frequencies")
