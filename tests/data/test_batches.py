"""Batches are a function of the seed and the step; every epoch sees every example."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.backend import to_host
from minadv.data.images import Split
from minadv.data.images.batches import Batches, in_order, take


@given(data=st.data(), n=st.integers(1, 40))
def test_an_epoch_sees_every_example_once(data: Any, n: int) -> None:
    batches = Batches(n, data.draw(st.integers(1, n)), seed=data.draw(st.integers(0, 99)))
    epoch = data.draw(st.integers(0, 5))
    steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
    rows = [batches.rows(step) for step in steps]
    seen = np.concatenate(rows).tolist()
    assert len(set(seen)) == len(seen) == n - n % batches.size
    assert set(seen) <= set(range(n))
    assert all(len(r) == batches.size for r in rows)
    assert [batches.epoch_and_number(step) for step in steps] == [(epoch, k) for k in range(batches.per_epoch)]


def test_any_step_can_be_asked_for_alone() -> None:
    straight = [Batches(50, 8, seed=4).rows(step).tolist() for step in range(30)]
    for step in (29, 0, 17, 5, 17):
        assert Batches(50, 8, seed=4).rows(step).tolist() == straight[step]


def test_orders_differ_by_epoch_and_seed() -> None:
    batches = Batches(50, 50, seed=0)
    orders = [batches.rows(0).tolist(), batches.rows(1).tolist(), Batches(50, 50, seed=1).rows(0).tolist()]
    assert len({tuple(order) for order in orders}) == 3
    assert orders[0] != sorted(orders[0])


def test_rows_cannot_be_changed_for_the_next_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Batches(10, 5, seed=0).rows(0)[0] = 3


@pytest.mark.parametrize(("n", "size", "last"), [(10, 3, 1), (9, 3, 3), (2, 5, 2)])
def test_evaluation_in_order(n: int, size: int, last: int) -> None:
    slices = list(in_order(n, size))
    assert np.concatenate([np.arange(n)[s] for s in slices]).tolist() == list(range(n))
    assert slices[-1].stop - slices[-1].start == last


def test_time_major(rng: Any, put: Any) -> None:
    split = Split(rng.random((7, 5, 2)), rng.integers(0, 10, 7))
    rows = np.array([6, 0, 3])
    x, y, valid = take(put(split), rows)
    assert x.shape == (5, 3, 2)
    assert x.flags.c_contiguous
    for t, b in np.ndindex(5, 3):
        np.testing.assert_array_equal(to_host(x)[t, b], split.x[rows[b], t])
    np.testing.assert_array_equal(to_host(y), split.y[rows])
    x, y, valid = take(put(split), slice(2, 4))
    np.testing.assert_array_equal(to_host(x), split.x[2:4].transpose(1, 0, 2))
    assert valid is None


def test_ragged_batches(rng: Any, put: Any) -> None:
    """As long as the longest of its sequences; without padding nothing is said to be valid."""
    split = Split(rng.random((4, 5, 2)), np.arange(4), np.array([2, 5, 3, 3]))
    x, y, valid = take(put(split), np.array([2, 0]))
    assert x.shape == (3, 2, 2)
    np.testing.assert_array_equal(to_host(x), split.x[[2, 0], :3].transpose(1, 0, 2))
    np.testing.assert_array_equal(to_host(y), [2, 0])
    np.testing.assert_array_equal(to_host(valid), [[True, True], [True, True], [True, False]])
    x, _, valid = take(put(split), slice(2, 4))
    assert (x.shape, valid) == ((3, 2, 2), None)


@pytest.mark.parametrize("size", [0, 11, -1])
def test_bad_size(size: int) -> None:
    with pytest.raises(ValueError, match=f"the batch size is {size}, expected 1 to 10, the number of examples"):
        Batches(10, size, seed=0)
