"""Streams are decided by their key alone, and different keys give different numbers."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.base.streams import permutation, stream


def test_bits_never_change() -> None:
    """Pinned: another NumPy, another machine or another process must resume an old run with the same numbers."""
    assert stream(0, "masks", 0).bit_generator.random_raw(2).tolist() == [15635730304064616118, 13945145578408836925]
    assert stream(7, "order", 3).bit_generator.random_raw(2).tolist() == [1422710257109161806, 17196437837633763227]
    assert permutation(stream(1, "order", 2), 10).tolist() == [9, 4, 3, 2, 7, 0, 1, 6, 8, 5]


def test_the_same_in_another_process() -> None:
    """Python's hash of a string differs from process to process; the stream must not."""
    text = "from minadv.base.streams import stream; print(stream(3, 'masks', 5).random())"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert float(done.stdout) == stream(3, "masks", 5).random()


def test_every_part_of_the_key_counts() -> None:
    keys = [*itertools.product((0, 1, 2**40), ("masks", "order", ""), (0, 1, 2**32 - 1)), (0, "masks", 0, 0)]
    draws = {stream(seed, name, *place).integers(2**63) for seed, name, *place in keys}
    draws.add(stream(0, "masks").integers(2**63))
    assert len(draws) == len(keys) + 1


def test_streams_look_independent() -> None:
    draws = np.array([stream(0, "masks", step).standard_normal(500) for step in range(40)])
    correlation = np.corrcoef(draws) - np.eye(40)
    assert np.abs(correlation).max() < 0.25
    assert abs(draws.mean()) < 0.03


@given(n=st.integers(0, 50), seed=st.integers(0, 2**64))
def test_permutation(n: int, seed: int) -> None:
    order = permutation(stream(seed, "order", 0), n)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))


def test_permutations_are_uniform() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for step in range(3000):
        order = tuple(permutation(stream(0, "test", step), 3).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(400 < count < 600 for count in counts.values())


def test_bad_keys() -> None:
    with pytest.raises(ValueError, match="seed is -1, expected zero or a positive integer"):
        stream(-1, "masks", 0)
    with pytest.raises(ValueError, match=r"the place of stream 'masks' is \(-1,\), expected integers"):
        stream(0, "masks", -1)
