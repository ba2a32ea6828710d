"""The distances against central differences, by both of their arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import gradcheck
from minadv.distances import DISTANCES
from tests.support.cells import seeds
from tests.support.compare import assert_close


def check(distance, args, rng):
    """Each row has a distance of its own, so a cotangent of D weighs the rows of both gradients."""

    def backward(args, dd):
        _, dlogits0, dlogits1 = distance(**args)
        return {"logits0": dd[..., None] * dlogits0, "logits1": dd[..., None] * dlogits1}

    report = gradcheck.check(lambda **args: distance(**args)[0], backward, args, rng=rng)
    report.raise_if_failed()
    return report


@pytest.mark.parametrize("size", [0.3, 1, 4])
@pytest.mark.parametrize("name", DISTANCES)
def test_both_gradients_are_right_and_not_zero(name, size, rng, put):
    args = put({side: size * rng.standard_normal((5, 4)) for side in ("logits0", "logits1")})
    report = check(DISTANCES[name], args, rng)
    assert all(row.analytic > 1e-3 for row in report.rows), str(report)


@pytest.mark.parametrize("name", DISTANCES)
@given(lead=st.lists(st.integers(1, 3), max_size=2).map(tuple), C=st.integers(1, 5), rng=seeds)
def test_any_leading_axes_and_classes(name, put, lead, C, rng):
    args = put({side: 2 * rng.standard_normal((*lead, C)) for side in ("logits0", "logits1")})
    check(DISTANCES[name], args, rng)


@pytest.mark.parametrize("name", DISTANCES)
def test_two_classes_are_the_sigmoid(name, xp, rng, put):
    """A logistic output z is the pair of logits (z, 0)."""
    z0, z1 = put(rng.standard_normal((2, 6)))

    def pair(z):
        return xp.stack([z, xp.zeros_like(z)], axis=-1)

    _, dlogits0, _ = DISTANCES[name](pair(z0), pair(z1))
    step = 1e-6
    slope = (DISTANCES[name](pair(z0 + step), pair(z1))[0] - DISTANCES[name](pair(z0 - step), pair(z1))[0]) / (2 * step)
    assert_close(dlogits0[:, 0], slope, 1e-8)
