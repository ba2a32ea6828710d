r"""What training remembers of each example for `minadv.memory.Memory`: the flips of the best mask that was found last.

A task that remembers begins with a `Table` for its carry (`minadv.training.task.Task.first_carry`), one row for each
example of its data, H bits and two numbers each; it is a part of every checkpoint. Before a step the loop looks up the
rows of the step's examples (`handed`), and after it puts back what the workers found (`kept`). Masks that are lent come
from the table as it was before the step, so that they do not depend on how many workers share the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv.backend import Array, same_place, to_host
from minadv.base.streams import stream
from minadv.objective import Remembered
from minadv.terms import Term

LENT = 64
"""Masks that are lent to the examples of a step: those of as many other examples, drawn anew for each step."""


@dataclass(frozen=True)
class Rows:
    """What is remembered of some examples, on the host; ``flips`` are packed, eight units a byte."""

    ids: Array  # (n,), int64: rows of the table
    flips: dict[str, Array]  # uint8, (n, H / 8 rounded up) a site
    d: Array  # (n,)
    visits: Array  # (n,)


@dataclass(frozen=True)
class Recall:
    """What the workers of a step are handed: the rows of its examples, and flips of others."""

    rows: Rows  # in the order of their ids
    lent: dict[str, Array]  # uint8, (P, H / 8 rounded up) a site
    units: dict[str, int]  # H by site

    def of(self, ids: Array, like: Array) -> Remembered:
        """The memory of some of the examples, on the device of ``like``."""
        at = np.searchsorted(self.rows.ids, ids)
        flips = {n: same_place(_unpack(bits[at], self.units[n]), like) for n, bits in self.rows.flips.items()}
        lent = {n: same_place(_unpack(bits, self.units[n]), like) for n, bits in self.lent.items()}
        some = all(len(bits) for bits in lent.values())
        return Remembered(
            flips,
            d=same_place(self.rows.d[at], like),
            visits=same_place(self.rows.visits[at], like),
            lent=lent if some else None,
        )


@dataclass(frozen=True)
class Table:
    """What is remembered of all examples; row n is that of the example with the id n."""

    flips: dict[str, Array]  # uint8, (N, H / 8 rounded up) a site
    units: dict[str, int]  # H by site
    d: Array  # (N,), float32
    visits: Array  # (N,), int32

    @staticmethod
    def empty(n: int, units: Mapping[str, int]) -> Table:
        """The table of ``n`` examples that were never seen, for masks of ``units`` (H by site)."""
        flips = {name: np.zeros((n, -(-H // 8)), np.uint8) for name, H in units.items()}
        return Table(flips, dict(units), np.zeros(n, np.float32), np.zeros(n, np.int32))

    @property
    def nbytes(self) -> int:
        """The memory that it takes, and what it adds to a checkpoint."""
        return sum(bits.nbytes for bits in self.flips.values()) + self.d.nbytes + self.visits.nbytes

    def recall(self, ids: Array, rng: np.random.Generator) -> Recall:
        """The rows of some examples, and the flips of `LENT` others that were seen before, drawn from ``rng``."""
        ids = np.unique(ids)
        seen = np.flatnonzero(self.visits)
        lenders = np.sort(rng.choice(seen, min(LENT, len(seen)), replace=False))
        rows = Rows(ids, {n: bits[ids] for n, bits in self.flips.items()}, self.d[ids], self.visits[ids])
        return Recall(rows, {n: bits[lenders] for n, bits in self.flips.items()}, self.units)

    def put(self, rows: Rows) -> Table:
        """The table with other rows for some examples."""
        flips, d, visits = {n: bits.copy() for n, bits in self.flips.items()}, self.d.copy(), self.visits.copy()
        for name, bits in flips.items():
            bits[rows.ids] = rows.flips[name]
        d[rows.ids], visits[rows.ids] = rows.d, rows.visits
        return Table(flips, self.units, d, visits)


def rows_of(ids: Array, term: Term) -> Rows:
    """What the adversary of a term found for the examples with these ids, for the table."""
    assert term.trace is not None and term.trace.memory is not None
    memory = term.trace.memory
    flips = {name: np.packbits(to_host(flips), axis=1) for name, flips in memory.flips.items()}
    return Rows(ids, flips, to_host(memory.d).astype(np.float32), to_host(memory.visits).astype(np.int32))


def handed(task: Any, carry: Any, step: int) -> Any:
    """What the workers of a step are handed of the carry: of a table the rows of its examples, anything else whole."""
    if not isinstance(carry, Table):
        return carry
    return carry.recall(task.ids(step), stream(task.seed, "lent masks", step))


def kept(carry: Any, rows: Any) -> Any:
    """The carry after a step, from that before it and from what the workers hand back."""
    return carry.put(rows) if isinstance(carry, Table) else rows


def _unpack(bits: Array, H: int) -> Array:
    """Booleans (n, H)."""
    return np.unpackbits(bits, axis=1, count=H).astype(bool)
