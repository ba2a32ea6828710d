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

Padding stands in front: all documents of a batch end at its last step, where a classifier reads, and a cell carries its
state, zero, over the steps before (``valid`` is False there, and the token ``<eos>``).
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
"""The most steps, with padding, that a batch may cost for each real one."""


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

    What is left at the end of an epoch's order and fills no batch is left out, other documents each epoch. A smaller
    ``pool`` pads more, and mixes more where documents are few. Two sets of documents that a run reads side by side need
    streams of two names.
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
        stream(self.seed, self.name)  # a bad seed is an error here

    @property
    def per_epoch(self) -> int:
        """Steps of a run in an epoch."""
        return len(self.steps) // self.size

    def epoch_and_number(self, step: int) -> tuple[int, int]:
        """The epoch that a step belongs to and the batch's number within it, both from 0."""
        return divmod(step, self.per_epoch)

    def rows(self, step: int) -> Array:
        """The documents of a step, all of the batch: row numbers ``(B,)``, int64."""
        epoch, batch = self.epoch_and_number(step)
        rows: Array = _epoch(self, epoch)[batch]
        return rows

    def groups(self, step: int) -> list[Array]:
        """The same documents in the groups that are run by themselves: one of all, unless padding costs too much."""
        return like_lengths(self.steps, self.rows(step))

    def costs(self, epoch: int = 0) -> Array:
        """Padded steps for each real one of every batch of an epoch, (per_epoch,), if none were cut into groups."""
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

    With ``part``, those of the rows only, as long as the whole batch: the share of one worker of several, who together
    have what one process would have.
    """
    steps = steps_of(documents.take(rows), max_tokens=max_tokens, eos=eos)  # (B,)
    T = int(steps.max())
    if part is not None:
        if len(rows[part]) == 0:
            raise ValueError(f"part is {part}, expected at least one of the {len(rows)} documents of the batch")
        rows, steps = rows[part], steps[part]
    ends = documents.starts[rows] + documents.lengths[rows]  # (B,), where a document ends in the text
    back = np.arange(T)[:, None] - (T - int(eos))  # (T, 1): how far from there a step is, 0 at <eos>
    valid = np.arange(T)[:, None] >= T - steps  # (T, B)
    words = valid & (back < 0)
    tokens = np.where(words, documents.text[np.where(words, ends + back, 0)], EOS_TOKEN).astype(np.int64)
    targets = None if documents.labels is None else documents.labels[rows]
    return Padded(tokens, valid, targets, rows)


def in_length_order(steps: Array, size: int) -> Iterator[Array]:
    """All documents once, from the shortest to the longest, at most ``size`` at a time: for evaluation.

    What is found for the rows of a batch goes back into the documents' order by ``found[rows] = ...``.
    """
    if size < 1:
        raise ValueError(f"the batch size is {size}, expected at least 1")
    order = np.argsort(steps, kind="stable")
    for first in range(0, len(order), size):
        yield from like_lengths(steps, order[first : first + size])


def like_lengths(steps: Array, rows: Array) -> list[Array]:
    """The documents of a batch, from the shortest to the longest, in groups that cost at most `LIMIT` in all.

    As long as padding makes them cost more, they are cut once more, where that saves most; a document alone has none.
    """
    rows = rows[np.argsort(steps[rows], kind="stable")]
    mine, ends = steps[rows], np.array([0, len(rows)])
    while (padded := np.repeat(mine[ends[1:] - 1], np.diff(ends))).sum() > LIMIT * mine.sum():
        order = np.arange(len(rows)) - np.repeat(ends[:-1], np.diff(ends))  # in its group
        ends = np.sort([*ends, 1 + ((padded - mine) * (order + 1)).argmax()])
    return np.split(rows, ends[1:-1])


def density(steps: Array, batches: Iterable[Array]) -> float:
    """Real steps by padded steps of some batches of rows."""
    real = padded = 0
    for rows in batches:
        real += int(steps[rows].sum())
        padded += int(steps[rows].max()) * len(rows)
    return real / padded
