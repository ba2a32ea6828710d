r"""Random numbers of a batch that several workers share: each draws the whole batch's, and keeps its own rows.

A mask belongs to an example, so a worker that has the examples 50 to 99 must see the rows 50 to 99 of the masks that
one process would draw for all 100. It draws all 100, from a generator in the same state, and keeps its own: that wastes
a few random numbers, and gives the same masks however many workers there are. What belongs to the batch as a whole,
such as one dropped word or weight for all its examples, is drawn from `whole` and is the same for every worker.

Masks of a `Keyed` share are not drawn number by number: each takes a key from the generator, and its entries are made
of that key where they are needed, on host or device (`minadv.base.philox`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from minadv.backend import Array
from minadv.base import philox


@dataclass(frozen=True)
class Share:
    """The random numbers of the rows ``first`` to ``last`` (exclusive) of a batch of ``n`` examples."""

    rng: np.random.Generator
    first: int
    last: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last <= self.n:
            raise ValueError(f"a share of the rows {self.first} to {self.last} of {self.n}, expected at least one row")


@dataclass(frozen=True)
class Keyed(Share):
    """A share whose masks are made of keys."""

    @classmethod
    def of(cls, rng: Rng, n: int) -> Keyed:
        """The same random numbers of a batch of ``n`` examples, or of a share of it, with masks that are keyed."""
        return cls(rng.rng, rng.first, rng.last, rng.n) if isinstance(rng, Share) else cls(rng, 0, n, n)

    def keeps(self, p: float, shape: tuple[int, ...], *, by_row: bool, like: Array) -> Array:
        """What a mask keeps, bool of a ``shape``, where ``like`` is; ``by_row`` has a row for each example."""
        low, high = (int(word) for word in np.asarray(self.rng.bit_generator.random_raw(2)))
        first = self.first * math.prod(shape[1:]) if by_row else 0
        return philox.keeps((low, high), p, first, shape, like=like)


Rng: TypeAlias = np.random.Generator | Share


def rows(rng: Rng, draw: Callable[[np.random.Generator, int], Any], n: int) -> Any:
    """``draw(generator, n)``, one row an example; a `Share` draws for its whole batch and keeps its own rows."""
    if not isinstance(rng, Share):
        return draw(rng, n)
    if n != rng.last - rng.first:
        raise ValueError(f"{n} rows were asked for of a share of {rng.last - rng.first}")
    return draw(rng.rng, rng.n)[rng.first : rng.last]


def whole(rng: Rng) -> np.random.Generator:
    """The generator itself, for what all examples of a batch have in common."""
    return rng.rng if isinstance(rng, Share) else rng
