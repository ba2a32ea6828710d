r"""The gradient of an embedding on a device: the tokens are sorted, and one launch sums the places of each in order.

How many tokens there are is known to the device alone, and nobody asks it. Imported only once there are CuPy arrays.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from minadv.backend import Array
from minadv.fast.device_source import INTEGERS, PRECISIONS, ROW_THREADS, source


@functools.cache
def kernel(dtype: str, integers: str) -> Any:
    """The kernel for rows of a dtype; ``integers`` is that of the tokens."""
    return cupy.RawKernel(source("embedding", T=dtype, I=integers), "minadv_sum_by_token")


def embedding_backward(E: Array, tokens: Array, dy: Array) -> Any:
    """See `minadv.layers.embedding_backward`; a token that is out of range is taken modulo V, as CuPy indexes."""
    on_it = all(isinstance(a, cupy.ndarray) for a in (E, tokens, dy))
    if not (on_it and E.ndim == 2 and dy.shape == (*tokens.shape, E.shape[1]) and dy.size > 0 and E.size > 0):
        return NotImplemented
    if E.dtype != dy.dtype or str(E.dtype) not in PRECISIONS or str(tokens.dtype) not in INTEGERS:
        return NotImplemented
    (V, D), flat, dy = E.shape, cupy.ascontiguousarray(tokens).reshape(-1), cupy.ascontiguousarray(dy)
    order = cupy.argsort(flat, kind="stable")
    in_order = flat[order]  # so that the loop over the places of a token reads one number after the other
    dE: Any = cupy.zeros((V, D), E.dtype)
    blocks = (flat.size, -(-D // ROW_THREADS))
    arguments = (in_order, order, dy, dE, np.int64(flat.size), np.int64(V), np.int32(D))
    kernel(str(E.dtype), str(tokens.dtype))(blocks, (ROW_THREADS,), arguments)
    return dE
