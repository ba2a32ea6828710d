"""Masks: what is drawn, what is counted, and the bridge between eps and m."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import gradcheck, masks
from minadv.backend import to_host
from minadv.base.shared_draws import Keyed, Share
from minadv.masks import SCALES
from tests.support.cells import seeds
from tests.support.compare import assert_close, assert_same_bits, assert_zero

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@every_dtype
def test_drawn_masks_are_binary_and_look_like_their_model(dtype, rng, xp, put):
    like = put(np.zeros(1, dtype))
    drawn = {
        "ones": masks.ones((3, 4), like=like),
        "bernoulli": masks.bernoulli(rng, 0.5, (3, 4), like=like),
        "one flip": masks.one_flip(rng, masks.ones((3, 4), like=like)),
        "random flips": masks.random_flips(rng, masks.ones((3, 4), like=like), 2),
    }
    for eps in drawn.values():
        assert isinstance(eps, xp.ndarray)
        assert eps.dtype == dtype
        masks.expect_binary("eps", eps)
    assert float(drawn["ones"].min()) == 1


def test_both_array_modules_see_the_same_masks(put):
    def draw(move):
        rng, like = np.random.default_rng(3), move(np.zeros(1))
        eps0 = masks.bernoulli(rng, 0.3, (5, 7), like=like)
        return eps0, masks.one_flip(rng, eps0), masks.random_flips(rng, eps0, 3)

    assert_same_bits(draw(put), draw(np.asarray))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.7])
def test_bernoulli_drops_a_share_of_p(p, rng, put):
    eps = masks.bernoulli(rng, p, (100, 100), like=put(np.zeros(1)))
    assert abs(1 - p - float(eps.mean())) < 0.02


@every_dtype
def test_a_worker_draws_its_rows_of_the_whole_batchs_mask(dtype, put):
    """Drawn number by number, or made of a key."""
    like = put(np.zeros(1, dtype))

    def drawn(first, last, keyed):
        share = Share(np.random.default_rng(1), first, last, 6)
        return masks.bernoulli(Keyed.of(share, 6) if keyed else share, 0.5, (last - first, 7), like=like)

    for keyed in (False, True):
        whole = drawn(0, 6, keyed)
        assert whole.dtype == dtype
        assert_same_bits(drawn(2, 5, keyed), whole[2:5])


@given(B=st.integers(1, 5), H=st.integers(1, 6), rng=seeds)
def test_one_flip_is_one_flip(put, B, H, rng):
    eps0 = put(rng.integers(0, 2, (B, H)).astype(float))
    before = eps0.copy()
    assert to_host(masks.hamming(masks.one_flip(rng, eps0), eps0)).tolist() == [1] * B
    assert_same_bits(eps0, before)


def test_one_flip_reaches_every_unit(rng, put):
    eps = to_host(masks.one_flip(rng, put(np.ones((2000, 4)))))
    assert abs(eps.mean(axis=0) - 0.75).max() < 0.05


@given(B=st.integers(1, 5), H=st.integers(1, 6), rng=seeds, data=st.data())
def test_random_flips_spend_the_budget(put, B, H, rng, data):
    budget = data.draw(st.integers(0, H))
    eps0 = put(rng.integers(0, 2, (B, H)).astype(float))
    assert to_host(masks.hamming(masks.random_flips(rng, eps0, budget), eps0)).tolist() == [budget] * B


def test_random_flips_choose_every_set_equally_often(rng, put):
    eps = to_host(masks.random_flips(rng, put(np.ones((6000, 4))), 2))
    _, counts = np.unique(eps, axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 150


def test_hamming(put):
    eps, eps0 = np.array([[1.0, 0, 1], [0, 0, 0]]), np.array([[1.0, 1, 0], [0, 0, 0]])
    assert to_host(masks.hamming(put(eps), put(eps0))).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("delta", "H", "flips"),
    [(0.03, 100, 3), (0.04, 1024, 40), (0.06, 1150, 69), (0.06, 400, 24), (0.1, 30, 3), (1, 7, 7)],
)
def test_budget(delta, H, flips):
    assert masks.budget(delta, H) == flips


def test_the_budget_where_none_is_given():
    few = {1: 1, 2: 2, 3: 3, 4: 3, 50: 3, 133: 3, 134: 4, 200: 6, 1000: 30, 1150: 34}
    assert {H: masks.few_flips(H) for H in few} == few


@pytest.mark.parametrize("H", range(1, 60))
def test_a_share_of_k_units_allows_k_flips(H):
    """floor(k / H * H) would lose a flip to rounding, at H = 22 for one."""
    assert [masks.budget(k / H, H) for k in range(1, H + 1)] == list(range(1, H + 1))


@pytest.mark.parametrize("delta", [-0.1, 1.0001, float("nan"), "0.1"])
def test_delta_is_a_share(delta):
    with pytest.raises(ValueError, match=r"delta is .*, expected a share of the units from 0 to 1"):
        masks.budget(delta, 10)


@pytest.mark.parametrize("delta", [0, 0.0099])
def test_a_delta_without_a_flip_names_the_smallest_useful_one(delta):
    with pytest.raises(
        ValueError, match=r"delta is .*, which allows no flip .* smallest useful delta is 1/100 = 0\.01"
    ):
        masks.budget(delta, 100)


EPS = np.array([[1.0, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0]])


@every_dtype
@pytest.mark.parametrize(
    ("how", "factors"), [("none", [1, 1, 1]), ("inverted", [1.25, 1.25, 1.25]), ("kept", [2, 1, 4])]
)
def test_scale(how, factors, dtype, put):
    m = masks.scale(put(EPS.astype(dtype)), how, p=0.2)
    assert m.dtype == dtype
    assert_close(m, (EPS * np.array(factors)[:, None]).astype(dtype), 1e-6)


def test_kept_preserves_the_sum_and_leaves_an_empty_row_empty(put):
    m = masks.scale(put(np.vstack([EPS, np.zeros(4)])), "kept")
    assert to_host(m.sum(axis=1)).tolist() == [4, 4, 4, 0]


@pytest.mark.parametrize("how", SCALES)
def test_scale_backward_against_central_differences(how, rng, put):
    def backward(args, dm):
        return {"eps": masks.scale_backward(args["eps"], dm, how, p=0.2)}

    report = gradcheck.check(lambda eps: masks.scale(eps, how, p=0.2), backward, {"eps": put(EPS)}, rng=rng)
    report.raise_if_failed()
    assert report["eps"].analytic > 0.1


def test_kept_backward_is_the_centred_form(rng, put):
    """IM_i = (H/S) (A_i - (1/S) sum_j eps_j A_j): no influence along eps itself, because kept ignores its size."""
    A = rng.standard_normal(EPS.shape)
    im = to_host(masks.scale_backward(put(EPS), put(A), "kept"))
    for eps, a, row in zip(EPS, A, im, strict=True):
        S = eps.sum()
        assert_close(row, 4 / S * (a - (eps @ a) / S))
        assert abs(eps @ row) < 1e-12


def test_scale_leaves_its_arguments_alone(rng, put):
    eps, dm = put(EPS), put(rng.standard_normal(EPS.shape))
    before = eps.copy(), dm.copy()
    for how in SCALES:
        masks.scale(eps, how, p=0.2)
        masks.scale_backward(eps, dm, how, p=0.2)
    assert_same_bits((eps, dm), before)


def test_bad_input(rng, put):
    eps = put(EPS)
    with pytest.raises(ValueError, match=r"scale is 'twice', expected one of 'none', 'inverted', 'kept'"):
        masks.scale(eps, "twice")
    with pytest.raises(ValueError, match=r"needs the probability of dropping: give p"):
        masks.scale(eps, "inverted")
    with pytest.raises(ValueError, match=r"p is 1, expected a probability"):
        masks.bernoulli(rng, 1, (2, 3), like=eps)
    with pytest.raises(ValueError, match=r"eps0 is 0\.5 at \(1, 2\), expected a mask of zeros and ones"):
        masks.one_flip(rng, put(np.where(np.arange(12).reshape(3, 4) == 6, 0.5, EPS)))
    with pytest.raises(ValueError, match=r"eps has shape \(3, 4\), expected \(3, 3\) \(the shape of eps0\)"):
        masks.hamming(eps, put(np.ones((3, 3))))
    with pytest.raises(TypeError, match=r"eps has dtype int64, expected float32 or float64"):
        masks.expect_binary("eps", put(EPS.astype(int)))
    with pytest.raises(ValueError, match=r"eps has shape \(4,\), expected \(B, H\)"):
        masks.expect_binary("eps", put(EPS[0]))
    with pytest.raises(ValueError, match=r"p is 1, expected a probability"):
        masks.scale(eps, "inverted", p=1)
    with pytest.raises(ValueError, match=r"scale is 'twice', expected one of 'none', 'inverted', 'kept'"):
        masks.scale_backward(eps, eps, "twice")
    with pytest.raises(ValueError, match=r"dm has shape \(1, 4\), expected \(3, 4\) \(the shape of eps\)"):
        masks.scale_backward(eps, eps[:1], "none")


def test_a_drawn_mask_has_a_row_for_each_example(rng, put):
    assert masks.bernoulli(rng, 0.5, (7, 3), like=put(EPS)).shape == (7, 3)


def test_nan_is_not_binary(put):
    with pytest.raises(ValueError, match=r"eps is nan at \(0, 1\)"):
        masks.expect_binary("eps", put(np.array([[1.0, np.nan]])))


def test_a_full_mask_is_the_full_network_for_none_and_kept(put):
    full = put(np.ones((2, 5)))
    for how in ("none", "kept"):
        assert_zero(masks.scale(full, how) - full)
