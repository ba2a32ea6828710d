"""Initial weights: from the host's generator alone, so the same on every device."""

import numpy as np
import pytest

from minadv import gru, lstm, rnn
from minadv.base import initial
from tests.support.compare import assert_same_bits


@pytest.mark.parametrize("cell", [rnn, lstm, gru])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_seed_decides(cell, dtype):
    first, again, other = (cell.init(np.random.default_rng(seed), 3, 4, dtype=dtype) for seed in (1, 1, 2))
    assert first.U.dtype == dtype
    assert_same_bits(first, again)
    assert not np.array_equal(first.W, other.W)
    assert not np.array_equal(first.U, other.U)


def test_glorot_fills_its_interval(rng):
    W = initial.glorot(rng, 200, 100, np.float64)
    limit = np.sqrt(6 / 300)
    assert np.abs(W).max() <= limit
    assert np.abs(W).max() > 0.99 * limit
    assert abs(W.std() - limit / np.sqrt(3)) < 0.02 * limit


@pytest.mark.parametrize("n", [1, 2, 7])
def test_orthogonal(rng, n):
    Q = initial.orthogonal(rng, n, np.float64)
    np.testing.assert_allclose(Q @ Q.T, np.eye(n), atol=1e-12)


def test_orthogonal_has_both_signs(rng):
    """Without the signs of R's diagonal, n = 1 would give the same sign every time."""
    assert {float(initial.orthogonal(rng, 1, np.float64)[0, 0]) for _ in range(20)} == {-1.0, 1.0}
