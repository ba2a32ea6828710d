"""The distances: values by explicit sums, and the corners where formulas of this kind break."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import log_softmax, rel_entr, softmax

from minadv import distances, gradcheck
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


@every_distance
@pytest.mark.parametrize("gap", [1e-8, 1e-7, 1e-6])
def test_no_distance_is_negative(name, gap, rng, put, device):
    """Nearly equal predictions: rounding alone would make some of these sums negative."""
    rows = 1000 if device.name == "cpu" else 100  # a kernel that is emulated takes long for each row
    a0 = 0.1 * rng.standard_normal((rows, 10))
    a1 = a0 + gap * rng.standard_normal(a0.shape)
    d, _, _ = DISTANCES[name](put(a0.astype(np.float32)), put(a1.astype(np.float32)))
    assert float(d.min()) >= 0


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


# surprise, which is no distance


def surprise_of(a0, a1):
    """By its definition, in extended precision."""
    a1 = a1.astype(np.longdouble)
    y = a0.argmax(axis=-1)[..., None]
    gap = a1 - np.take_along_axis(a1, y, axis=-1)
    top = gap.max(axis=-1)
    return top + np.log(np.exp(gap - top[..., None]).sum(axis=-1))


@pytest.mark.parametrize("lead", [(), (6,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_surprise_is_what_is_left_of_the_predicted_class(dtype, lead, rng, put):
    a0, a1 = (2 * rng.standard_normal((2, *lead, 5))).astype(dtype)
    d, d0, d1 = distances.surprise(put(a0), put(a1))
    assert {part.dtype for part in (d, d0, d1)} == {np.dtype(dtype)}
    assert (d.shape, d0.shape, d1.shape) == (lead, a0.shape, a1.shape)
    expected = np.asarray(surprise_of(a0, a1), dtype=np.float64)
    assert_close(d, expected, 8 * np.finfo(dtype).eps)
    assert_close(d, np.asarray(-log_softmax(a1, axis=-1)[(*np.indices(lead), a0.argmax(axis=-1))]), 1e-5)
    assert_zero(d0)
    onehot = np.arange(5) == a0.argmax(axis=-1)[..., None]
    assert_close(d1, softmax(a1.astype(float), axis=-1) - onehot, 8 * np.finfo(dtype).eps)


def test_the_gradient_of_surprise_by_finite_differences(rng, put):
    a0 = rng.standard_normal((4, 5))
    for a1 in (a0, rng.standard_normal((4, 5)), -5 * a0):

        def forward(a1):
            return distances.surprise(put(a0), a1)[0]

        def backward(args, d):
            return {"a1": d[:, None] * distances.surprise(put(a0), args["a1"])[2]}

        gradcheck.check(forward, backward, {"a1": put(a1)}, rng=rng).raise_if_failed()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_surprise_at_a_sure_prediction_is_exact_to_rounding(dtype, put):
    """1 - p is far below the rounding of p itself; the gradients keep their relative size."""
    gaps = np.array([20, 40, 60, 80], dtype)
    logits = np.stack([gaps, 0 * gaps, gaps - gaps - 1], axis=-1)
    d, _, d1 = (to_host(part).astype(float) for part in distances.surprise(put(logits), put(logits)))
    odds = np.exp(-gaps.astype(float)) * (1 + np.exp(-1.0))
    near = {"rtol": 1e-5 if dtype == np.float32 else 1e-13}
    np.testing.assert_allclose(d, np.log1p(odds), **near)
    np.testing.assert_allclose(-d1[:, 0], odds / (1 + odds), **near)
    np.testing.assert_allclose(d1[:, 1:].sum(axis=1), -d1[:, 0], **near)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_surprise_of_huge_logits_and_of_ties(dtype, put):
    rows = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 0], [1e4, 1e4, -1e4], [0, 0, 0]], dtype)
    a0, a1 = np.repeat(rows, 4, axis=0), np.tile(rows, (4, 1))
    d, d0, d1 = (to_host(part) for part in distances.surprise(put(a0), put(a1)))
    assert all(np.isfinite(part).all() for part in (d, d0, d1))
    np.testing.assert_allclose(d, np.asarray(surprise_of(a0, a1), dtype=float), rtol=1e-6)
    np.testing.assert_allclose(d1.sum(axis=-1), 0, atol=1e-6)
    _, _, tied = distances.surprise(*put((rows[3], rows[3])))
    np.testing.assert_allclose(to_host(tied), [-2 / 3, 1 / 3, 1 / 3], rtol=1e-6)  # of equal logits the first


def test_surprise_of_one_class_and_by_name(put):
    assert_zero(distances.surprise(put(np.array([[3.0]])), put(np.array([[5.0]]))))
    with pytest.raises(ValueError, match=r"distance is 'surprise', expected one of 'js'"):
        distances.by_name("surprise")
