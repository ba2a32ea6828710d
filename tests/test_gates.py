"""The element-wise steps where their formulas are at risk: saturated gates and slopes."""

import numpy as np

from minadv import gates
from tests.compare import assert_close


def test_activate_is_sigma_and_tanh_by_block(rng, put):
    z = 3 * rng.standard_normal((5, 8))
    a = put(z.copy())
    gates.activate(a, gates.lstm_half(2, a))
    expected = 1 / (1 + np.exp(-z))
    expected[:, 4:6] = np.tanh(z[:, 4:6])
    assert_close(a, expected)


def test_saturated_gates_are_exact(put):
    a = put(np.array([[1e4, -1e4, -1e4, 1e4]]))
    gates.activate(a, gates.lstm_half(1, a))
    assert a.tolist() == [[1, 0, -1, 1]]


def test_slope_is_the_derivative(rng, xp, put):
    z, step = put(rng.standard_normal((5, 8))), 1e-6
    half = gates.lstm_half(2, z)

    def activated(z):
        a = z.copy()
        gates.activate(a, half)
        return a

    out = xp.empty_like(z)
    gates.slope(activated(z), half, out=out)
    assert_close(out, (activated(z + step) - activated(z - step)) / (2 * step), 1e-9)
