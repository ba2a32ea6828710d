r"""Batches of documents of like length, by number, so that padding costs little.

::

    buckets = Buckets(steps_of(corpus.train, max_tokens=400), size=64, seed=0)
    for step in range(start, stop):
        batch = make_batch(corpus.train, buckets.rows(step), max_tokens=400)  # tokens (T, B), valid, targets (B,)

An epoch has an order of its own, drawn from the stream (seed, name, epoch). It is cut into pools of ``pool`` batches;
within a pool documents are sorted by length and cut into batches; then all batches of the epoch are shuffled. So a
batch has documents of like length, but other ones in every epoch, and long and short batches come mixed. As in
`minadv.data.images.batches`, which documents a step sees is a function of the seed and the step, and of nothing else. A
batch whose padding would still cost more than `LIMIT` is cut into groups (`like_lengths`), each to be run by itself.

Padding stands in front: all documents of a batch end at its last step, where a classifier reads. On padding ``valid``
is False and the token ``<eos>``; a cell keeps its first state, zero, over these steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from minadv.backend import Array
from minadv.base.checks import expect_shape
from minadv.base.streams import permutation, stream
from minadv.data.texts.counting import EOS_TOKEN
from minadv.data.texts.documents import Documents

LIMIT = 1.3
"""The most steps, padding included, that the groups of a batch may take for each real step."""


@dataclass(frozen=True)
class Padded:
    """B documents side by side, time-major; ``rows`` are their numbers, ``targets`` None where they have no labels."""

    tokens: Array  # (T, B) int64
    valid: Array  # (T, B) bool, False on padding
    targets: Array | None  # (B,) int64
    rows: Array  # (B,) int64

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Buckets:
    """The batches, ``size`` documents each, of documents that take ``steps (N,)`` steps (`steps_of`).

    The last documents of an epoch's order, too few to fill a batch, are left out: different ones each epoch. A smaller
    ``pool`` needs more padding, but makes batches vary more where documents are few. ``name`` is that of the random
    stream: two sets of documents that a run reads side by side need two names.
    """

    steps: Array  # (N,) integers
    size: int
    seed: int
    pool: int = 50  # batches
    name: str = "buckets"

    def __post_init__(self) -> None:
        expect_shape("steps", self.steps, ("N",))
        if not 1 <= self.size <= len(self.steps):
            raise ValueError(f"the batch size is {self.size}, expected 1 to {len(self.steps)}, the number of documents")
        if self.pool < 1:
            raise ValueError(f"pool is {self.pool}, expected at least 1 batch")
        stream(self.seed, self.name)  # raises for a bad seed

    @property
    def per_epoch(self) -> int:
        """The number of batches in an epoch, each of which is a step of a run."""
        return len(self.steps) // self.size

    def epoch_and_number(self, step: int) -> tuple[int, int]:
        """The epoch that a step belongs to and the batch's number within it, both from 0."""
        return divmod(step, self.per_epoch)

    def rows(self, step: int) -> Array:
        """The row numbers of the documents in the batch of a step: ``(B,)``, int64."""
        epoch, batch = self.epoch_and_number(step)
        rows: Array = _epoch(self, epoch)[batch]
        return rows

    def groups(self, step: int) -> list[Array]:
        """The rows of a step in groups, each run by itself: one group of all rows unless padding costs too much."""
        return like_lengths(self.steps, self.rows(step))

    def costs(self, epoch: int = 0) -> Array:
        """Steps with padding for each real step, by batch of an epoch, if none were cut into groups: (per_epoch,)."""
        steps = self.steps[_epoch(self, epoch)]  # (per_epoch, B)
        cost: Array = steps.max(axis=1) * self.size / steps.sum(axis=1)
        return cost


@lru_cache(maxsize=4)
def _epoch(buckets: Buckets, epoch: int) -> Array:
    """All batches of an epoch: ``(per_epoch, B)``, read-only because it is kept for the next call."""
    rng = stream(buckets.seed, buckets.name, epoch)
    n = buckets.per_epoch * buckets.size
    order = permutation(rng, len(buckets.steps))[:n]
    for first in range(0, n, buckets.pool * buckets.size):
        pool = order[first : first + buckets.pool * buckets.size]
        pool[:] = pool[np.argsort(buckets.steps[pool], kind="stable")]
    batches: Array = order.reshape(-1, buckets.size)[permutation(rng, buckets.per_epoch)]
    batches.flags.writeable = False
    return batches


def steps_of(documents: Documents, *, max_tokens: int | None = None, eos: bool = True) -> Array:
    """The steps each document takes, int64 ``(N,)``: its last ``max_tokens`` tokens at most, and ``<eos>``."""
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}, expected at least 1")
    lengths = documents.lengths if max_tokens is None else np.minimum(documents.lengths, max_tokens)
    steps: Array = lengths + int(eos)
    return steps


def make_batch(
    documents: Documents, rows: Array, *, part: slice | None = None, max_tokens: int | None = None, eos: bool = True
) -> Padded:
    """The batch of these documents: the last ``max_tokens`` tokens of each, and ``<eos>`` after them.

    With ``part``, one worker's share: only these of the rows, padded to the length of the whole batch, so that all
    workers together have what one process would have.
    """
    steps = steps_of(documents.take(rows), max_tokens=max_tokens, eos=eos)  # (B,)
    T = int(steps.max())
    if part is not None:
        if len(rows[part]) == 0:
            raise ValueError(f"part is {part}, expected at least one of the {len(rows)} documents of the batch")
        rows, steps = rows[part], steps[part]
    ends = documents.starts[rows] + documents.lengths[rows]  # (B,): where each document ends in the flat text
    back = np.arange(T)[:, None] - (T - int(eos))  # (T, 1): steps from a document's end, 0 at <eos>
    valid = np.arange(T)[:, None] >= T - steps  # (T, B)
    words = valid & (back < 0)
    tokens = np.where(words, documents.text[np.where(words, ends + back, 0)], EOS_TOKEN).astype(np.int64)
    targets = None if documents.labels is None else documents.labels[rows]
    return Padded(tokens, valid, targets, rows)


def in_length_order(steps: Array, size: int) -> Iterator[Array]:
    """All documents once, from the shortest to the longest, at most ``size`` at a time: for evaluation.

    ``results[rows] = ...`` puts what was computed for a batch back into the order of the documents.
    """
    if size < 1:
        raise ValueError(f"the batch size is {size}, expected at least 1")
    order = np.argsort(steps, kind="stable")
    for first in range(0, len(order), size):
        yield from like_lengths(steps, order[first : first + size])


def like_lengths(steps: Array, rows: Array) -> list[Array]:
    """The documents of a batch, from the shortest to the longest, in groups that together keep to `LIMIT`.

    While padding costs more than `LIMIT`, a group is cut in two, where that saves most; one document has no padding.
    """
    rows = rows[np.argsort(steps[rows], kind="stable")]
    lengths, ends = steps[rows], np.array([0, len(rows)])
    while (padded := np.repeat(lengths[ends[1:] - 1], np.diff(ends))).sum() > LIMIT * lengths.sum():
        order = np.arange(len(rows)) - np.repeat(ends[:-1], np.diff(ends))  # the position of a document in its group
        ends = np.sort([*ends, 1 + ((padded - lengths) * (order + 1)).argmax()])
    return np.split(rows, ends[1:-1])


def density(steps: Array, batches: Iterable[Array]) -> float:
    """The share of real steps among all steps, padding included, of batches of rows."""
    real = padded = 0
    for rows in batches:
        real += int(steps[rows].sum())
        padded += int(steps[rows].max()) * len(rows)
    return real / padded
