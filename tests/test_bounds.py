"""The bounds: enumerations counted, each number against a plain loop, and the integral behind Jensen-Shannon."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import softmax

from minadv import bounds, masks
from minadv.backend import to_host
from minadv.distances import DISTANCES, by_name
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import network


def test_all_masks():
    eps = bounds.all_masks(3)
    assert eps.shape == (8, 3)
    assert len({tuple(row) for row in eps}) == 8


@pytest.mark.parametrize("budget", range(5))
def test_ball(budget, rng):
    eps0 = rng.integers(0, 2, 4).astype(float)
    near = bounds.ball(eps0, budget)
    everything = bounds.all_masks(4)
    expected = everything[(everything != eps0).sum(axis=1) <= budget]
    assert near[0].tolist() == eps0.tolist()
    assert {tuple(row) for row in near} == {tuple(row) for row in expected}
    assert len(near) == len(expected)


def test_a_ball_around_whole_numbers_has_masks_of_floating_point_numbers():
    assert bounds.ball(np.array([1, 0]), 1).dtype == np.float64


def test_bernoulli_weights():
    eps = bounds.all_masks(3)
    w = bounds.bernoulli_weights(eps, 0.2)
    for row, weight in zip(eps, w, strict=True):
        assert weight == pytest.approx(np.prod([0.8 if e else 0.2 for e in row]))
    some = bounds.bernoulli_weights(bounds.ball(np.ones(3), 1), 0.2)  # given that it is one of these
    assert_close(some, np.array([0.512, 0.128, 0.128, 0.128]) / 0.896)
    other = bounds.bernoulli_weights(bounds.all_masks(3)[[0, 7]], 0.2)  # as many masks as not to be taken for units
    assert_close(other, np.array([0.008, 0.512]) / 0.52)
    with pytest.raises(ValueError, match=r"p is 1\.5"):
        bounds.bernoulli_weights(bounds.all_masks(2), 1.5)


@pytest.mark.parametrize(("scale", "p"), [("none", None), ("kept", None), ("inverted", 0.3)])
def test_outputs_are_the_network_under_each_mask(scale, p, rng, put):
    model, params, batch = network(rng, put, steps="all")
    eps = bounds.all_masks(4)
    logits = bounds.outputs(model, params, batch, eps, scale=scale, p=p)
    assert logits.shape == (16, 4, 3, 3)
    for row, found in zip(eps, logits, strict=True):
        m = masks.scale(put(np.tile(row, (3, 1))), scale, p=p)
        features, _, _ = model.body(params, batch, masks={"layer0": m}, noise=None)
        assert_same_bits(found, model.logits(params, features))
    assert_close(bounds.base_output(model, params, batch), bounds.outputs(model, params, batch, np.ones((1, 4)))[0])
    assert isinstance(logits, np.ndarray)


@pytest.mark.parametrize("lam", [None, np.array([0.5, 0.2, 0.3])])
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_chain_is_three_plain_sums(distance, lam, rng):
    n, N, B, C = 5, 3, 2, 4
    logits0, logits, w = rng.standard_normal((N, B, C)), rng.standard_normal((n, N, B, C)), rng.dirichlet(np.ones(n))

    def d(a, b):
        per_step = by_name(distance)(a, b)[0]  # (N, B)
        return per_step[-1] if lam is None else lam @ per_step

    chain = bounds.chain(logits0, logits, w, distance=distance, lam=lam)
    pairs = itertools.product(range(n), repeat=2)
    assert_close(chain.fd, sum(w[k] * w[l] * d(logits[k], logits[l]) for k, l in pairs))
    assert_close(chain.el, sum(w[k] * d(logits0, logits[k]) for k in range(n)))
    assert_close(chain.add, np.max([d(logits0, logits[k]) for k in range(n)], axis=0))
    assert_close(chain.bias, chain.el - chain.fd / 2)
    if lam is not None:  # the same weights for all examples, as (N, B)
        each = bounds.chain(logits0, logits, w, distance=distance, lam=np.repeat(lam[:, None], B, axis=1))
        assert_close(each.fd, chain.fd)
        weighed = lam[:, None] * np.array([1.0, 3.0])
        assert_close(bounds.chain(logits0, logits, w, distance=distance, lam=weighed).add, chain.add * [1.0, 3.0])


def test_a_mask_of_probability_zero_is_not_in_the_maximum(rng):
    logits0, logits = rng.standard_normal((1, 2, 3)), rng.standard_normal((4, 1, 2, 3))
    logits[3] *= 50
    w = np.array([0.5, 0.3, 0.2, 0.0])
    assert_close(bounds.chain(logits0, logits, w).add, bounds.chain(logits0, logits[:3], w[:3]).add)


def test_the_chain_checks_shapes(rng):
    logits = rng.standard_normal((4, 1, 2, 3))
    with pytest.raises(ValueError, match=r"logits has shape \(4, 1, 2, 3\), expected \(3, 1, 2, 3\)"):
        bounds.chain(logits[0], logits, np.ones(3) / 3)
    three = np.ones(3) / 3
    with pytest.raises(ValueError, match="lam"):
        bounds.chain(logits[0], logits[:3], three, lam=np.ones(2))
    for w in (three + 0.1, np.array([-0.5, 0.5, 1.0])):  # a wrong sum, a negative entry
        with pytest.raises(ValueError, match="expected probabilities"):
            bounds.chain(logits[0], logits[:3], w)


def test_remark_1_by_hand():
    """Two base masks of probability ½, predictions that swap: the covariance is negative and adds to the distance."""
    p_base = np.array([[[0.6, 0.4]], [[0.4, 0.6]]])
    r = bounds.remark1(p_base, p_base[::-1], np.array([0.5, 0.5]))
    for found, expected in [(r.variance, 0.04), (r.covariance, -0.02), (r.mean_gap, 0), (r.expected, 0.08)]:
        assert found[0] == pytest.approx(expected)
    assert r.total[0] == pytest.approx(0.08)


def test_js_is_the_squared_norm_that_the_docstring_says():
    """JS(p, q) = ¼ Σ_i ∫ (e^{-s p_i} - e^{-s q_i})² ds/s², by numerical integration."""
    p, q = softmax([0.3, -1.0, 2.0]), softmax([1.5, 0.2, -0.4])

    def integrand(s, a, b):
        return ((np.exp(-s * a) - np.exp(-s * b)) / s) ** 2

    halves = [
        quad(integrand, start, end, args=(a, b), epsabs=1e-12, epsrel=1e-12, limit=200)[0]
        for a, b in zip(p, q, strict=True)
        for start, end in ((0, 1), (1, np.inf))
    ]
    assert by_name("js")(np.log(p), np.log(q))[0] == pytest.approx(sum(halves) / 4, rel=1e-9)


def test_the_bias_of_js_is_the_integral_too(rng):
    """¼ Σ_i ∫ (e^{-s p0_i} - E e^{-s p_i})² ds/s² against the closed form, for three masks."""
    logits0, logits, w = rng.standard_normal((1, 3)), rng.standard_normal((3, 1, 3)), np.array([0.5, 0.2, 0.3])
    p0, p = softmax(logits0, axis=-1), softmax(logits, axis=-1)

    def integrand(s, i):
        return ((np.exp(-s * p0[0, i]) - w @ np.exp(-s * p[:, 0, i])) / s) ** 2

    parts = [
        quad(integrand, start, end, args=(i,), epsabs=1e-12, epsrel=1e-12, limit=200)[0]
        for i in range(3)
        for start, end in ((0, 1), (1, np.inf))
    ]
    assert bounds.bias_js(logits0, logits, w)[0] == pytest.approx(sum(parts) / 4, rel=1e-8)


def test_a_prediction_of_probability_zero_does_not_break_the_bias():
    logits0, logits = np.array([[800.0, -800.0]]), np.array([[[0.0, 0.0]], [[800.0, -800.0]]])
    w = np.array([0.5, 0.5])
    chain = bounds.chain(logits0[None], logits[:, None], w)
    assert_close(bounds.bias_js(logits0, logits, w), chain.bias)
    assert to_host(chain.bias)[0] > 0.01
