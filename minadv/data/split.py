r"""One part of a data set of sequences: its arrays, checked when they come in, and how long each sequence is.

::

    Split(x, y)                                     # x (N, T, I), y (N,)
    Split(x, y, lengths)                            # row n of x ends after lengths[n] steps: the rest is padding
    as_split(([a, b, c], [0, 1, 0]))                # sequences (T_n, I) of different lengths
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv.backend import Array, as_host, namespace, to_host
from minadv.base.checks import shape_text
from minadv.base.errors import DataError


@dataclass(frozen=True)
class Split:
    """One part of the data: ``x (N, ...)``, images ``(N, rows, columns)`` or sequences ``(N, T, I)``; ``y (N,)``.

    ``lengths (N,)`` are the steps of each sequence, from 1 to T: what follows them in x is padding, which must be
    finite and has no effect. None: every sequence has T steps. They are kept on the host wherever x is: how long a
    batch is depends on them, and whoever reads that from a device waits for it. Raises DataError, which names the row,
    for parts that do not fit each other, for no examples at all, and for a number that is not finite.
    """

    x: Array
    y: Array
    lengths: Array | None = None

    def __post_init__(self) -> None:
        namespace(x=self.x, y=self.y)
        namespace(lengths=self.lengths)
        object.__setattr__(self, "lengths", to_host(self.lengths))
        if self.x.ndim != 3:
            said = shape_text(self.x.shape) if self.x.ndim else "()"
            raise DataError(f"x has shape {said}, expected sequences (N, T, I) or images (N, rows, columns)")
        if self.y.ndim != 1 or len(self.y) != len(self.x):
            said = shape_text(self.y.shape) if self.y.ndim else "()"
            raise DataError(f"x has {len(self.x):,} rows and y has shape {said}: expected one label for each row of x")
        if not self.x.size:
            raise DataError(f"x has shape {shape_text(self.x.shape)}: expected at least one example, step and input")
        self._expect_lengths()
        self._expect_finite()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Split:
        """The split of some rows: a slice, or an array of row numbers."""
        return Split(self.x[rows], self.y[rows], None if self.lengths is None else self.lengths[to_host(rows)])

    def _expect_lengths(self) -> None:
        if self.lengths is None:
            return
        N, T = self.x.shape[:2]
        if self.lengths.shape != (N,) or self.lengths.dtype.kind not in "iu":
            said = f"{self.lengths.dtype} of shape {shape_text(self.lengths.shape or (0,))}"
            raise DataError(f"lengths is {said}, expected whole numbers ({N},), one for each row of x")
        bad = (self.lengths < 1) | (self.lengths > T)
        if bool(bad.any()):
            row = int(bad.argmax())
            raise DataError(f"lengths[{row}] is {int(self.lengths[row])}, expected 1 to {T}, the steps of x")

    def _expect_finite(self) -> None:
        """One sum over everything says whether to look closer: a NaN or an infinity survives it."""
        for name, array in (("x", self.x), ("y", self.y)):
            if array.dtype.kind != "f":
                continue
            with np.errstate(all="ignore"):
                if math.isfinite(float(array.sum(dtype=np.float64))):
                    continue
            bad = ~namespace(array).isfinite(array)
            if not bool(bad.any()):
                continue
            at = np.unravel_index(int(bad.argmax()), array.shape)
            row, *place = map(int, at)
            where = f", step {place[0]}, input {place[1]}" if place else ""
            what = "leave the row out, or fill it in"
            if place and self.lengths is not None and place[0] >= int(self.lengths[row]):
                what = f"the sequence has {int(self.lengths[row])} steps, fill its padding with zeros"
            raise DataError(f"{name} is {float(array[at])} in row {row}{where}: expected finite numbers; {what}")


def padded(sequences: Sequence[Any]) -> tuple[Array, Array]:
    """Sequences ``(T_n, I)``, or ``(T_n,)`` for I = 1, as one array x (N, T, I) with zeros behind each, and lengths.

    Raises DataError, which names the row, for one that is empty or has another number of inputs than the first.
    """
    arrays = [_unmasked(sequence, f"sequence {row}") for row, sequence in enumerate(sequences)]
    arrays = [a[:, None] if a.ndim == 1 else a for a in arrays]
    for row, a in enumerate(arrays):
        if a.ndim != 2 or not a.size or a.shape[1] != arrays[0].shape[1]:
            inputs = arrays[0].shape[1] if arrays[0].ndim == 2 and row else "I"
            said = shape_text(a.shape) if a.ndim else "()"
            raise DataError(f"sequence {row} has shape {said}, expected (T, {inputs}), with at least one step")
        if a.dtype.kind not in "fiub":
            raise DataError(f"sequence {row} has dtype {a.dtype}, expected numbers")
    if not arrays:
        raise DataError("x holds no sequences: expected at least one")
    lengths = np.array([len(a) for a in arrays])
    x = np.zeros((len(arrays), int(lengths.max()), arrays[0].shape[1]), np.result_type(*arrays))
    for row, a in enumerate(arrays):
        x[row, : len(a)] = a
    return x, lengths


def as_split(data: Any, name: str = "data", *, dtype: Any = np.float32) -> Split:
    """A split from ``(x, y)`` or ``(x, y, lengths)``, whatever the arrays are made of; a `Split` stays as it is.

    x is (N, T, I), (N, T) for one input a step, images (N, rows, columns) or (N, rows, columns, channels), which are
    read row by row, or a list of sequences of different lengths; numbers of x become ``dtype``, y whole numbers.
    """
    if isinstance(data, Split):
        return data
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise TypeError(f"{name} is a {type(data).__name__}, expected arrays (x, y) or (x, y, lengths), or a Split")
    x, y, *rest = data
    lengths = rest[0] if rest else None
    ragged = isinstance(x, tuple | list) and len({_size(one) for one in x if hasattr(one, "__len__")}) > 1
    if ragged:
        if lengths is not None:
            raise ValueError(f"{name} has lengths, and x is a list of sequences, which have their own: give one")
        x, lengths = padded(x)
    x = as_numbers(x, f"x of {name}")
    x = x.reshape(*x.shape, 1) if x.ndim == 2 else x.reshape(*x.shape[:2], -1) if x.ndim == 4 else x
    try:
        return Split(x.astype(dtype, copy=False), _labels(y), None if lengths is None else as_host(lengths))
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _size(sequence: Any) -> Any:
    """What sequences of one array have in common: the shape of an array, the length of anything else."""
    return sequence.shape if hasattr(sequence, "shape") else len(sequence)


def _unmasked(value: Any, name: str) -> Array:
    """As `as_host`; raises DataError where numbers are masked, which would be read as if they were not."""
    if any(np.ma.is_masked(one) for one in (value if isinstance(value, tuple | list) else [value])):
        raise DataError(f"{name} has masked numbers: leave their rows out, or fill them in")
    return as_host(value)


def as_numbers(x: Any, name: str) -> Array:
    """Arrays, lists and tensors as a NumPy array; raises DataError unless all it holds are real numbers."""
    array = _unmasked(x, name)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} has dtype {array.dtype}, expected numbers")
    return array


def _labels(y: Any) -> Array:
    """Classes as whole numbers; numbers such as 3.0 are taken for 3."""
    y = _unmasked(y, "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "fiub":
        names = "np.unique(y, return_inverse=True)"
        raise DataError(f"y has dtype {y.dtype}, expected classes 0, 1, 2, ...: {names} numbers them")
    if y.dtype.kind == "f":
        bad = ~(y == np.floor(y)).reshape(-1)
        if bad.any():
            row = int(bad.argmax())
            raise DataError(f"y is {y.reshape(-1)[row]} in row {row}, expected a class: 0, 1, 2, ...")
    if y.size and y.min() < 0:
        row = int(y.reshape(-1).argmin())
        raise DataError(f"y is {y.reshape(-1)[row]} in row {row}, expected a class: 0, 1, 2, ...")
    whole: Array = y.astype(np.int64)
    return whole


def expect_classes(split: Split, n_classes: int, name: str) -> None:
    """Raise DataError, which names the row, for a label that is no class of a model of ``n_classes``."""
    y = to_host(split.y)
    bad = (y < 0) | (y >= n_classes)
    if bad.any():
        row = int(bad.argmax())
        said = f"y of the {name} part is {y[row]} in row {row}"
        raise DataError(f"{said}, expected 0 to {n_classes - 1}: the model has n_classes = {n_classes}")
