r"""Training examples that come batch by batch: a generator, a list of batches, a loader of another library.

::

    fit(model, batches, valid=(x_valid, y_valid), test=(x_test, y_test), steps=1000)

A batch is what `minadv.data.split.as_split` takes, examples first: (x, y) or (x, y, lengths). What can be read again,
as a list, begins anew after its last batch; a generator must have a batch for each step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.data.split import Split, as_split

EPOCH = 100
"""Steps that count as an epoch where the batches do not say how many they are."""


class Feed:
    """Batches by the number of their step, read one after the other; ``x``, ``y`` and ``lengths`` are the first's."""

    def __init__(self, batches: Iterable[Any], *, dtype: Any = np.float32) -> None:
        self._batches, self._dtype = batches, dtype
        self._iterator = iter(batches)
        self._again = self._iterator is not batches
        self._lock = threading.Lock()
        self._step = -1
        self._split: Split | None = None
        self._first = self.at(0)

    @property
    def x(self) -> Array:
        return self._first.x

    @property
    def y(self) -> Array:
        return self._first.y

    @property
    def lengths(self) -> Array | None:
        return self._first.lengths

    def __len__(self) -> int:
        """The examples of the first batch."""
        return len(self._first)

    @property
    def per_epoch(self) -> int:
        """How many batches there are, if they say so."""
        return len(self._batches) if self._again and isinstance(self._batches, Sized) else EPOCH

    def at(self, step: int) -> Split:
        """The batch of a step; those between it and the last one that was read are read and left out."""
        with self._lock:
            if step < self._step:
                raise DataError(f"the batches have been read up to step {self._step}: step {step} cannot be read again")
            while self._step < step or self._split is None:
                self._split = self._read()
                self._step += 1
            return self._split

    def _read(self) -> Split:
        number = self._step + 1
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not self._again or number == 0:
                said = f"the batches ended after {number}, and step {number + 1} needs one more"
                raise DataError(f"{said}: give fewer steps, or a list") from None
            self._iterator = iter(self._batches)
            batch = next(self._iterator, None)
            if batch is None:
                said = f"the batches ended after {number} and had none when they were read again"
                raise DataError(f"{said}: give a list, or what begins anew at each iter()") from None
        split = as_split(batch, f"batch {number}", dtype=self._dtype)
        if number and split.x.shape[2] != self.x.shape[2]:
            raise DataError(
                f"batch {number} has {split.x.shape[2]} inputs a step, expected {self.x.shape[2]}, as the first"
            )
        return split
