r"""Random masks made on the device: Philox4x64-10 as `minadv.base.philox` defines it, bit for bit.

Imported only once there are CuPy arrays.
"""

from __future__ import annotations

import math

import cupy
import numpy as np

from minadv.backend import Array
from minadv.base.philox import BLOCK, threshold
from minadv.fast.device_source import source

_THREADS = 128

_kernel = cupy.RawKernel(source("masks"), "minadv_keeps")


def keeps(key: tuple[int, int], p: float, first: int, shape: tuple[int, ...], *, like: Array) -> Array:
    """See `minadv.base.philox.keeps`: one launch, a thread makes a block of entries."""
    count = math.prod(shape)
    out: Array = cupy.empty(shape, bool)
    if count:
        blocks = (first + count - 1) // BLOCK - first // BLOCK + 1
        _kernel(
            (-(-blocks // _THREADS),),
            (_THREADS,),
            (*(np.uint64(k) for k in key), np.uint32(threshold(p)), np.uint64(first), np.uint64(count), out),
        )
    return out
