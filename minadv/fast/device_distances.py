r"""Distances with their gradients, and the cross-entropy, on a device: a block takes a row of logits, in one launch.

The formulas are those of `minadv.distances` and `minadv.layers`. Imported only once there are CuPy arrays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import cupy
import numpy as np

from minadv import layers
from minadv.backend import Array
from minadv.base import readings
from minadv.fast.device_source import DISTANCES, INTEGERS, PRECISIONS, ROW_THREADS, source


@functools.cache
def kernel(name: str, dtype: str, integers: str = "int64") -> Any:
    """A kernel of this file for logits of a dtype; ``integers`` is that of the targets."""
    return cupy.RawKernel(source("distances", T=dtype, I=integers), f"minadv_{name}")


def distance(kind: str) -> Callable[[Array, Array], Any]:
    """The distance of a name: see the function of that name in `minadv.distances`."""

    def compute(logits0: Array, logits1: Array) -> Any:
        alike = isinstance(logits0, cupy.ndarray) and isinstance(logits1, cupy.ndarray)
        if not alike or logits0.shape != logits1.shape or logits0.dtype != logits1.dtype or logits0.size == 0:
            return NotImplemented
        if str(logits0.dtype) not in PRECISIONS or logits0.ndim == 0:
            return NotImplemented
        a, b = (cupy.ascontiguousarray(one) for one in (logits0, logits1))
        d: Any = cupy.empty(a.shape[:-1], a.dtype)
        g0, g1 = cupy.empty(a.shape, a.dtype), cupy.empty(a.shape, a.dtype)
        swapped = kind == "rkl"
        arguments = (b, a, d, g1, g0) if swapped else (a, b, d, g0, g1)
        sizes = (np.int32(a.shape[-1]), np.int32(DISTANCES.index("kl" if swapped else kind)))
        kernel("distance", str(a.dtype))((d.size,), (ROW_THREADS,), (*arguments, *sizes))
        return d, g0, g1

    return compute


def cross_entropy(logits: Array, targets: Array, *, check: bool = True) -> Any:
    """See `minadv.layers.cross_entropy`; a target that is out of range is raised when the device is next read."""
    fits = isinstance(logits, cupy.ndarray) and isinstance(targets, cupy.ndarray) and logits.size > 0
    if not (fits and str(logits.dtype) in PRECISIONS and str(targets.dtype) in INTEGERS):
        return NotImplemented
    if targets.shape != logits.shape[:-1]:
        return NotImplemented
    C, rows = logits.shape[-1], math.prod(targets.shape)
    logits, targets = cupy.ascontiguousarray(logits), cupy.ascontiguousarray(targets)
    nll, g = cupy.empty(targets.shape, logits.dtype), cupy.empty(logits.shape, logits.dtype)

    def raise_it() -> None:
        layers.expect_range("targets", targets, C)

    with readings.word(logits, raise_it) if check else nullcontext(np.intp(0)) as wrong:
        arguments = (logits, targets, nll, g, wrong, np.int32(C))
        kernel("cross_entropy", str(logits.dtype), str(targets.dtype))((rows,), (ROW_THREADS,), arguments)
    return nll, g
