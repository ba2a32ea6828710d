r"""Philox4x64-10, a counter-based generator: the same masks on host and device, and none of them has to be moved.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A block of four 64-bit words is
a function of a key and of the block's number, with no state in between, so that any thread can make any block:
`philox` is that function, ten rounds of two multiplications each. A mask takes a key of its own from a run's random
stream, and its entry n is made of bits :math:`32 n` to :math:`32 n + 31` of the words of that key, the lowest first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minadv.backend import Array, same_place
from minadv.base.kernels import on_device

MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # what the two halves of the key grow by from round to round
ROUNDS = 10
BLOCK = 8
"""Entries of a mask that are made of one block."""

_LOW = 2**64 - 1


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The block of a counter and a key, four words of 64 bits, lowest word first: the definition, one block at a time.

    NumPy's compiled ``numpy.random.Philox`` makes the same words, and so does the kernel of a device.
    """
    c, k = counter, key
    for _ in range(ROUNDS):
        one, other = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]  # 128 bits each
        c = (other >> 64 ^ c[1] ^ k[0], other & _LOW, one >> 64 ^ c[3] ^ k[1], one & _LOW)
        k = ((k[0] + WEYL[0]) & _LOW, (k[1] + WEYL[1]) & _LOW)
    return c


def threshold(p: float) -> int:
    r"""An entry is dropped if its 32 bits are a smaller number than this: :math:`\lfloor 2^{32} p \rfloor`."""
    return math.floor(p * 2**32)


@on_device
def keeps(key: tuple[int, int], p: float, first: int, shape: tuple[int, ...], *, like: Array) -> Array:
    """What a mask keeps, bool of a ``shape``, where ``like`` is: its entries ``first``, ``first + 1``, ... in order.

    Each is dropped with probability p (rounded down to a multiple of :math:`2^{-32}`).
    """
    count = math.prod(shape)
    begin, end = first // BLOCK, -(-(first + count) // BLOCK)
    generator: Any = np.random.Philox(counter=(begin - 1) % 2**256, key=np.array(key, np.uint64))  # counts, then makes
    words = np.asarray(generator.random_raw(4 * (end - begin))).astype("<u8", copy=False)
    entries = words.view("<u4")[first - BLOCK * begin :][:count]
    return same_place((entries >= np.uint32(threshold(p))).reshape(shape), like)
