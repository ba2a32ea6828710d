r"""Batches by number: which examples the n-th step of a run sees is a function of the seed and n, and of nothing else.

::

    batches = Batches(len(data.train), size=100, seed=0)
    for step in range(start, stop):
        x, y, valid = take(data.train, batches.rows(step))

Each epoch has an order of its own, drawn from the stream (seed, "order", epoch); so a run that resumes at any step goes
on with the examples it would have seen, and its place in the data is the step's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from minadv.backend import Array, namespace, same_place, to_host
from minadv.base.streams import permutation, stream
from minadv.data.images import Split


@dataclass(frozen=True)
class Batches:
    """The batches of ``n`` examples, ``size`` at a time.

    The last examples of an epoch, too few to fill a batch, are left out: different ones each epoch.
    """

    n: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.n:
            raise ValueError(f"the batch size is {self.size}, expected 1 to {self.n}, the number of examples")

    @property
    def per_epoch(self) -> int:
        """Steps in an epoch."""
        return self.n // self.size

    def epoch_and_number(self, step: int) -> tuple[int, int]:
        """The epoch that a step belongs to and the batch's number within it, both from 0."""
        return divmod(step, self.per_epoch)

    def rows(self, step: int) -> Array:
        """The examples of a step, a host array of row numbers ``(B,)``, int64."""
        epoch, batch = self.epoch_and_number(step)
        return epoch_order(self.seed, epoch, self.n)[batch * self.size : (batch + 1) * self.size]


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, n: int) -> Array:
    """The order of the n examples in an epoch: int64 ``(n,)``, read-only because it is kept for the next call."""
    order = permutation(stream(seed, "order", epoch), n)
    order.flags.writeable = False
    return order


def in_order(n: int, size: int) -> Iterator[slice]:
    """All n examples in their order, ``size`` at a time, the last batch smaller if need be: for evaluation."""
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


def take(split: Split, rows: Array | slice) -> tuple[Array, Array, Array | None]:
    """These rows of a split, time-major, on its device: sequences ``x (T, B, I)``, labels ``y (B,)``, and ``valid``.

    T is the longest of these sequences; the host knows it and waits for no device. ``valid (T, B)`` is False on
    padding, and None where there is none.
    """
    xp = namespace(x=split.x, y=split.y)
    index = rows if isinstance(rows, slice) else same_place(rows, split.x)
    x, valid = split.x[index], None
    if split.lengths is not None:
        lengths = split.lengths[to_host(rows)]
        T = int(lengths.max())
        x = x[:, :T]
        valid = None if int(lengths.min()) == T else xp.arange(T)[:, None] < same_place(lengths, x)
    x = xp.ascontiguousarray(x.transpose(1, 0, 2))  # (T, B, I)
    return x, split.y[index], valid
