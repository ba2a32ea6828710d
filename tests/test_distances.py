"""The distances: values by explicit sums, and the corners where formulas of this kind break."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr, softmax

from minadv import distances
from minadv.backend import to_host
from minadv.distances import DISTANCES
from tests.support.compare import assert_close, assert_same_bits, assert_zero

EXPLICIT = {
    "js": lambda a0, a1: jensenshannon(softmax(a0, axis=-1), softmax(a1, axis=-1), axis=-1) ** 2,
    "kl": lambda a0, a1: rel_entr(softmax(a0, axis=-1), softmax(a1, axis=-1)).sum(axis=-1),
    "rkl": lambda a0, a1: rel_entr(softmax(a1, axis=-1), softmax(a0, axis=-1)).sum(axis=-1),
    "skl": lambda a0, a1: 0.5 * (EXPLICIT["kl"](a0, a1) + EXPLICIT["rkl"](a0, a1)),
    "l2": lambda a0, a1: ((softmax(a0, axis=-1) - softmax(a1, axis=-1)) ** 2).sum(axis=-1),
    "logit2": lambda a0, a1: ((a0 - a1) ** 2).mean(axis=-1),
}
every_distance = pytest.mark.parametrize("name", DISTANCES)


@every_distance
@pytest.mark.parametrize("lead", [(), (6,), (2, 3), (2, 1, 2)], ids=str)
def test_values(name, lead, rng, put):
    a0, a1 = 2 * rng.standard_normal((2, *lead, 5))
    d, d0, d1 = DISTANCES[name](put(a0), put(a1))
    assert d.shape == lead
    assert d0.shape == d1.shape == (*lead, 5)
    assert_close(d, np.asarray(EXPLICIT[name](a0, a1)))


@every_distance
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 1e4])
def test_equal_arguments_are_at_distance_zero(name, dtype, size, rng, put):
    a = put((size * rng.uniform(-1, 1, (4, 5))).astype(dtype))
    everything = DISTANCES[name](a, a.copy())
    assert_zero(everything)
    assert {part.dtype for part in everything} == {np.dtype(dtype)}


@every_distance
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_logits_stay_finite(name, dtype, put):
    rows = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 0], [1e4, 1e4, -1e4], [0, 0, 0], [-1e4, -1e4, -1e4]], dtype)
    a0, a1 = np.repeat(rows, len(rows), axis=0), np.tile(rows, (len(rows), 1))
    for part in DISTANCES[name](put(a0), put(a1)):
        assert np.isfinite(to_host(part)).all()


def test_the_distance_of_opposite_certainties(put):
    a0, a1 = put(np.array([1e4, -1e4])), put(np.array([-1e4, 1e4]))
    values = {name: float(distance(a0, a1)[0]) for name, distance in DISTANCES.items()}
    assert values == pytest.approx(
        {"js": np.log(2), "kl": 2e4, "rkl": 2e4, "skl": 2e4, "l2": 2, "logit2": 4e8}, rel=1e-12
    )


def any_pairs(rng, put, dtype):
    """Pairs of logits from nearly equal to certain of different classes."""
    return put((rng.standard_normal((2, 200, 4)) * 10.0 ** rng.integers(-3, 5, (200, 1))).astype(dtype))


@pytest.mark.parametrize("name", ["js", "skl"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_js_and_skl_are_symmetric_to_the_bit(name, dtype, rng, put):
    a0, a1 = any_pairs(rng, put, dtype)
    d, d0, d1 = DISTANCES[name](a0, a1)
    assert_same_bits((d, d1, d0), DISTANCES[name](a1, a0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_js_is_at_most_log_2_and_half_of_skl(dtype, rng, put):
    """KL(p, mean) <= KL(p, q)/2, because KL is convex in its second argument."""
    a0, a1 = any_pairs(rng, put, dtype)
    d, rounding = to_host(distances.js(a0, a1)[0]), 4 * np.finfo(dtype).eps
    assert d.max() <= np.log(2) * (1 + rounding)
    assert (d <= to_host(distances.skl(a0, a1)[0]) / 2 * (1 + 4 * rounding)).all()


def test_skl_is_the_mean_of_kl_and_rkl(rng, put):
    a0, a1 = put(3 * rng.standard_normal((2, 50, 4)))
    halves = zip(distances.kl(a0, a1), distances.rkl(a0, a1), strict=True)
    assert_close(distances.skl(a0, a1), tuple((one + other) / 2 for one, other in halves))


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1, 30])
def test_skl_in_single_precision(size, rng, put):
    """The relative error of the value stays at rounding for logits as near as float32 can hold them apart."""
    a0 = rng.standard_normal((100, 5)).astype(np.float32)
    a1 = (a0 + size * rng.standard_normal((100, 5))).astype(np.float32)
    single, double = (to_host(distances.skl(put(a0.astype(t)), put(a1.astype(t)))) for t in (np.float32, np.float64))
    # what is left is that of log p, about 1e-7, in the difference of two logits
    np.testing.assert_allclose(single[0], double[0], rtol=3e-6 + 1e-6 / size)
    for mine, exact in zip(single[1:], double[1:], strict=True):
        np.testing.assert_allclose(mine, exact, atol=2e-6 * np.abs(exact).max() + 2e-7)


def test_rkl_mirrors_kl(rng, put):
    a0, a1 = put(rng.standard_normal((2, 6, 4)))
    d, d0, d1 = distances.kl(a0, a1)
    assert_same_bits((d, d1, d0), distances.rkl(a1, a0))


@pytest.mark.parametrize(
    ("name", "weight", "rounding"),
    [("js", 1 / 8, 1e-20), ("kl", 1 / 2, 1e-15), ("rkl", 1 / 2, 1e-15), ("skl", 1 / 2, 1e-20)],
)
def test_near_equality_it_is_the_quadratic_form(name, weight, rounding, rng, put):
    """For logits a ± δ/2, D = w Σ p (δ - Σ p δ)² + O(δ⁴); js and skl stay exact far below the rounding of 1."""
    a, delta = rng.standard_normal((2, 20, 5))
    delta *= 1e-6
    p = softmax(a, axis=-1)
    centred = delta - (p * delta).sum(axis=-1, keepdims=True)
    d, _, d1 = DISTANCES[name](put(a - delta / 2), put(a + delta / 2))
    np.testing.assert_allclose(to_host(d), weight * (p * centred**2).sum(axis=-1), rtol=1e-7, atol=rounding)
    np.testing.assert_allclose(to_host(d1), 2 * weight * p * centred, atol=1e-12)


@every_distance
def test_one_class_is_always_the_same(name, put):
    a0, a1 = put(np.array([[3.0]])), put(np.array([[5.0]]))
    d, d0, d1 = DISTANCES[name](a0, a1)
    if name == "logit2":
        assert [float(part.sum()) for part in (d, d0, d1)] == [4, -4, 4]
    else:
        assert_zero((d, d0, d1))


@every_distance
def test_by_name(name):
    assert distances.by_name(name) is getattr(distances, name)
