"""Along a ray of logits from the base: docs/theorems.md has the proofs. And js in floating point is never negative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minadv.backend import to_host
from minadv.distances import DISTANCES, js

F_DIVERGENCES = ["js", "kl", "rkl", "skl"]


@st.composite
def rays(draw, classes):
    """Logits (n, C) along a ray from the base (C,), nearest first, the base among them."""
    C = draw(classes)
    base, direction = (draw(arrays(float, C, elements=st.floats(-8, 8))) for _ in range(2))
    along = np.sort(draw(arrays(float, 12, elements=st.floats(0, 8))))
    return base, base + np.concatenate([[0.0], along])[:, None] * direction


def distances_along(name, put, ray):
    base, logits = ray
    return to_host(DISTANCES[name](put(np.broadcast_to(base, logits.shape).copy()), put(logits))[0])


def falls(d, ray):
    """How far the distance falls below what it was nearer to the base, beyond the rounding of the logits."""
    rounding = 1e-15 * (1 + np.abs(ray[1]).max()) * (1 + d.max())
    return (np.maximum.accumulate(d) - d).max() > 4 * rounding


@pytest.mark.parametrize("name", F_DIVERGENCES)
@given(ray=rays(st.integers(2, 6)))
def test_an_f_divergence_never_falls_along_a_ray(name, put, ray):
    assert not falls(distances_along(name, put, ray), ray)


@given(ray=rays(st.just(2)))
def test_l2_never_falls_for_two_classes(put, ray):
    assert not falls(distances_along("l2", put, ray), ray)


def test_l2_falls_from_three_classes_on(put):
    """From the third class to the second, and on to both of the others: two halves have less of a sum of squares."""
    base, direction = np.array([0.0, 4.0, 6.0]), np.array([0.0, -1.0, -6.0])
    ray = base, base + np.array([0.0, 1.4, 3.8])[:, None] * direction
    d = distances_along("l2", put, ray)
    assert d == pytest.approx([0, 1.41576, 1.15879], abs=1e-5)
    assert falls(d, ray)
    assert not any(falls(distances_along(name, put, ray), ray) for name in F_DIVERGENCES)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_js_is_never_negative(dtype, put, data):
    """Most often tried where rounding decides: logits that differ in their last bits."""
    C = data.draw(st.integers(1, 60))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    size = 10.0 ** rng.integers(-9, 3, (200, 1))
    logits0 = (rng.standard_normal((200, C)) * 10.0 ** rng.integers(-1, 3, (200, 1))).astype(dtype)
    logits1 = (logits0 + size * rng.standard_normal((200, C))).astype(dtype)
    assert (to_host(js(put(logits0), put(logits1))[0]) >= 0).all()
