"""The GRU: its initial weights, its gate order r, z, n, the reset after the product, and the two leaks."""

import numpy as np
import pytest

from minadv import gru
from tests.support.compare import assert_close

OFF, ON = -1e3, 1e3  # pre-activations that shut a logistic gate and open it


def test_init(rng):
    params = gru.init(rng, 5, 4, dtype=np.float64)
    assert params.W.shape == (5, 12)
    for block in np.split(params.U, 3, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-12)
    assert not params.b.any()
    assert not params.bn.any()


def one_step(put, r, z, *, U=0.0, bn=0.0, h=0.6, m=None, leak="clean"):
    """H = 1: r and z are their biases, and n = tanh(0.3 + r (m h U + bn))."""
    params = gru.Params(
        W=np.zeros((1, 3)), U=np.array([[0, 0, U]], dtype=float), b=np.array([r, z, 0.3]), bn=np.array([bn])
    )
    mask = None if m is None else put(np.array([[m]]))
    state = put(gru.State(np.array([[h]])))
    out, _, _ = gru.forward(put(params), put(np.zeros((1, 1, 1))), state=state, m=mask, leak=leak)
    return out[0, 0]


def test_z_keeps_the_old_state(put):
    assert_close(one_step(put, r=ON, z=ON), put(np.array([0.6])))
    assert_close(one_step(put, r=ON, z=OFF), put(np.array([np.tanh(0.3)])))


def test_r_multiplies_the_whole_recurrent_share(put):
    assert_close(one_step(put, r=OFF, z=OFF, U=2.0, bn=0.5), put(np.array([np.tanh(0.3)])))
    assert_close(one_step(put, r=0.0, z=OFF, U=2.0, bn=0.5), put(np.array([np.tanh(0.3 + 0.5 * (1.2 + 0.5))])))


@pytest.mark.parametrize(("leak", "kept"), [("clean", 0.6), ("masked", 0.0)])
def test_leak(put, leak, kept):
    assert_close(one_step(put, r=ON, z=ON, m=0.0, leak=leak), put(np.array([kept])))
