"""The LSTM: its initial weights, its gate order i, f, g, o, and a cell that the mask never touches."""

import numpy as np
import pytest

from minadv import lstm
from tests.support.cells import make
from tests.support.compare import assert_close

OFF, ON = -1e3, 1e3  # pre-activations that shut a logistic gate and open it


@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_init(rng, forget_bias):
    params = lstm.init(rng, 5, 4, dtype=np.float64, forget_bias=forget_bias)
    assert params.W.shape == (5, 16)
    for block in np.split(params.U, 4, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-12)
    assert params.b.tolist() == [0] * 4 + [forget_bias] * 4 + [0] * 8


def test_the_forget_gate_begins_open(rng):
    assert lstm.init(rng, 2, 3).b.tolist() == [0] * 3 + [1] * 3 + [0] * 6


def biased(put, i, f, g, o):
    """H = 1 with no weights: each gate is its bias."""
    return put(lstm.Params(W=np.zeros((1, 4)), U=np.zeros((1, 4)), b=np.array([i, f, g, o])))


@pytest.mark.parametrize(
    ("gates", "c"),
    [((ON, OFF, 2.0, ON), np.tanh(2.0)), ((OFF, ON, 2.0, ON), 0.7), ((ON, ON, 2.0, ON), 0.7 + np.tanh(2.0))],
    ids=["write", "keep", "add"],
)
def test_gate_order(put, gates, c):
    state = put(lstm.State(h=np.array([[0.2]]), c=np.array([[0.7]])))
    _, last, _ = lstm.forward(biased(put, *gates), put(np.zeros((1, 1, 1))), state=state)
    assert_close(last, put(lstm.State(h=np.array([[np.tanh(c)]]), c=np.array([[c]]))))


def test_a_shut_output_gate_hides_the_cell(put):
    state = put(lstm.State(h=np.array([[0.2]]), c=np.array([[0.7]])))
    _, last, _ = lstm.forward(biased(put, OFF, ON, 0.0, OFF), put(np.zeros((1, 1, 1))), state=state)
    assert_close(last, put(lstm.State(h=np.array([[0.0]]), c=np.array([[0.7]]))))


def test_a_mask_of_zeros_leaves_the_cell_its_memory(rng, xp, put):
    """With m = 0 the gates no longer see h, yet the last c still depends on the first."""
    problem = make("lstm", rng, put, mask=np.zeros((3, 3)))
    dc = problem.cell.State(h=xp.zeros((3, 3)), c=xp.ones((3, 3)))
    _, _, cache = problem.forward()
    grads = lstm.backward(problem.params, cache, None, dstate=dc)
    f = cache.a[:, :, 3:6]  # (T, B, H)
    assert_close(grads.state.c, f[0] * f[1] * f[2] * f[3])
