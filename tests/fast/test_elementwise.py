"""The element-wise steps where their formulas are at risk: saturated gates."""

import numpy as np

from minadv.fast import elementwise
from tests.support.compare import assert_close


def step(xp, put, z, c_prev):
    """The gates i, f, g, o and the cell from pre-activations (4, H, B) that are not negated yet."""
    a = put(z * np.array([-1.0, -1.0, 1.0, -1.0])[:, None, None])
    c, h = (xp.empty_like(a[0]) for _ in range(2))
    elementwise.lstm_step(a, put(c_prev), a=a, c=c, h=h)
    return a, c, h


def test_the_gates_are_sigma_and_tanh(rng, xp, put):
    z, c_prev = 3 * rng.standard_normal((4, 5, 2)), rng.standard_normal((5, 2))
    a, c, h = step(xp, put, z, c_prev)
    i, f, o = 1 / (1 + np.exp(-z[[0, 1, 3]]))
    g = np.tanh(z[2])
    assert_close(a, put(np.stack([i, f, g, o])))
    assert_close(c, put(f * c_prev + i * g))
    assert_close(h, put(o * np.tanh(f * c_prev + i * g)))


def test_saturated_gates_are_exact(xp, put):
    a, _, _ = step(xp, put, np.array([1e4, -1e4, -1e4, 1e4]).reshape(4, 1, 1), np.zeros((1, 1)))
    assert a.reshape(-1).tolist() == [1, 0, -1, 1]


def test_the_way_back_through_saturated_gates(rng, xp, put):
    """The slope of the cell is that of its formula, with tanh c for h/o, also where the output gate is shut or open."""
    z, c_prev = 3 * rng.standard_normal((4, 6, 2)), rng.standard_normal((6, 2))
    z[3, :3] = np.array([-1e4, -80.0, 1e4])[:, None]
    a, c, h = step(xp, put, z, c_prev)
    dh, dc_next = rng.standard_normal((2, 6, 2))
    dc, dz, scratch = put(dc_next.copy()), xp.empty_like(a), xp.empty_like(c)
    elementwise.lstm_step_backward(a, put(c_prev), h, put(dh), dc=dc, dz=dz, scratch=scratch)
    with np.errstate(over="ignore"):
        i, f, o = 1 / (1 + np.exp(-z[[0, 1, 3]]))
    g, cell = np.tanh(z[2]), f * c_prev + i * np.tanh(z[2])
    through = dc_next + dh * o * (1 - np.tanh(cell) ** 2)
    slopes = [through * g * i * (1 - i), through * c_prev * f * (1 - f), through * i * (1 - g**2)]
    assert_close(dz, put(np.stack([*slopes, dh * np.tanh(cell) * o * (1 - o)])))
    assert_close(dc, put(through * f))
    assert not bool(dz[3, 0].any()) and not bool(dz[3, 2].any())
