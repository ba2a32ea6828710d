"""The simple recurrent network: its initial weights, and one step that can be done by hand."""

import numpy as np

from minadv import rnn
from minadv.backend import to_host
from tests.support.compare import assert_close


def test_init(rng):
    params = rnn.init(rng, 50, 8)
    assert {a.dtype for a in vars(params).values()} == {np.dtype(np.float32)}
    assert params.W.shape == (50, 8)
    assert np.abs(params.W).max() <= np.sqrt(6 / 58)
    np.testing.assert_allclose(params.U @ params.U.T, np.eye(8), atol=1e-6)
    assert not params.b.any()


def test_two_steps_by_hand(put):
    """H = 1: h_1 = tanh(1), and the mask ½ enters before U, so h_2 = tanh(½ h_1 · 2)."""
    params = put(rnn.Params(W=np.array([[1.0]]), U=np.array([[2.0]]), b=np.array([0.0])))
    x = put(np.array([1.0, 0.0]).reshape(2, 1, 1))
    h, state, _ = rnn.forward(params, x, m=put(np.array([[0.5]])))
    h1 = np.tanh(1.0)
    assert_close(h[:, 0, 0], np.array([h1, np.tanh(0.5 * h1 * 2)]))
    assert to_host(state.h).shape == (1, 1)
