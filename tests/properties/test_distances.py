"""Properties of the distances that hold for any logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minadv.backend import to_host
from minadv.distances import DISTANCES
from tests.support.cells import seeds
from tests.support.compare import assert_close

every_distance = pytest.mark.parametrize("name", DISTANCES)
on_probabilities = pytest.mark.parametrize("name", ["js", "kl", "rkl", "skl", "l2"])
logits = st.integers(1, 6).flatmap(lambda C: arrays(float, (2, 3, C), elements=st.floats(-1e4, 1e4)))


@every_distance
@given(pair=logits)
def test_a_distance_is_finite_and_not_negative(name, put, pair):
    parts = [to_host(part) for part in DISTANCES[name](*put(pair))]
    assert all(np.isfinite(part).all() for part in parts)
    assert (parts[0] >= 0).all()


@on_probabilities
@given(pair=logits)
def test_gradients_have_no_part_along_a_common_shift(name, put, pair):
    _, *gradients = (to_host(part) for part in DISTANCES[name](*put(pair)))
    rounding = 4e-15 * (1 + np.abs(pair).max())
    for gradient in gradients:
        assert (np.abs(gradient.sum(axis=-1)) <= rounding).all()


@on_probabilities
@given(rng=seeds, C=st.integers(1, 6), shift=st.floats(-50, 50))
def test_a_common_shift_changes_nothing(name, put, rng, C, shift):
    a0, a1 = 2 * rng.standard_normal((2, 3, C))
    assert_close(DISTANCES[name](put(a0), put(a1 + shift)), DISTANCES[name](put(a0), put(a1)))


@every_distance
@given(rng=seeds, C=st.integers(1, 6))
def test_classes_have_no_order(name, put, rng, C):
    a0, a1 = 2 * rng.standard_normal((2, 3, C))
    order = rng.permutation(C)
    d, d0, d1 = to_host(DISTANCES[name](put(a0), put(a1)))
    assert_close(DISTANCES[name](put(a0[:, order]), put(a1[:, order])), (d, d0[:, order], d1[:, order]))


@every_distance
@given(rng=seeds, C=st.integers(1, 6))
def test_rows_do_not_know_each_other(name, put, rng, C):
    a0, a1 = 2 * rng.standard_normal((2, 3, C))
    rows = to_host(DISTANCES[name](put(a0), put(a1)))
    for b in range(3):
        assert_close(DISTANCES[name](put(a0[b]), put(a1[b])), tuple(part[b] for part in rows))
