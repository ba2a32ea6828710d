r"""Random streams, each keyed by (seed, name, place): any step's numbers can be drawn without drawing those before.

::

    eps = masks.bernoulli(stream(seed, "masks", step), p, (B, H), like=x)

There is no generator whose state would have to be saved: a run resumed at step n asks for ``stream(seed, "masks", n)``
and draws what the uninterrupted run drew. Streams of different names, seeds or places are independent, so that one more
draw from one of them moves no other. Numbers are drawn on the host, and so are the same for NumPy and CuPy runs.
"""

from __future__ import annotations

import hashlib

import numpy as np

from minadv.backend import Array


def stream(seed: int, name: str, *place: int) -> np.random.Generator:
    """The generator of the stream ``name`` of a run at a place: a step, an epoch, or several such numbers.

    The name enters by its SHA-256 (Python's own hash of a string changes from process to process) and the place as it
    is, through NumPy's SeedSequence; the bits are those of PCG64, in every version of NumPy.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected zero or a positive integer")
    for number in place:
        if not 0 <= number < 2**32:
            raise ValueError(f"the place of stream {name!r} is {place}, expected integers from 0 to 2**32 - 1")
    digest = hashlib.sha256(name.encode()).digest()
    words = tuple(int.from_bytes(digest[n : n + 4], "little") for n in range(0, 16, 4))
    sequence = np.random.SeedSequence(seed, spawn_key=(*words, *map(int, place)))
    return np.random.Generator(np.random.PCG64(sequence))


def permutation(rng: np.random.Generator, n: int) -> Array:
    """A uniformly random order of ``0 .. n - 1``: int64, shape ``(n,)``.

    It sorts n raw 64-bit draws instead of calling ``rng.permutation``, because NumPy promises the raw bits of a
    generator in all its versions, and the results of its methods in none.
    """
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    return np.argsort(np.asarray(rng.bit_generator.random_raw(n)), kind="stable").astype(np.int64)
