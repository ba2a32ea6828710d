"""The theorems on thousands of random tiny networks, every mask of each enumerated.

The networks are tanh recurrences, all run at once with one row of weights each; `bounds` sees them as one batch. The
predictions of minadv's own cells go through the same inequalities below.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from minadv import bounds
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.distances import DISTANCES
from minadv.searches import Exact
from tests.support.cells import seeds
from tests.support.networks import network

NETS, H, C = 500, 3, 3  # with every distance and distribution below: some thousands of networks in all
ROUNDING = 1e-11


def tiny_networks(rng, eps, scale):
    """(nets, C) logits of the full network, (n, nets, C) of each mask: h_t = tanh(w x_t + (m h_{t-1}) U), T = 3."""
    size = rng.choice([0.5, 2.0, 6.0], (NETS, 1, 1))
    U, V = size * rng.standard_normal((NETS, H, H)), 2 * size * rng.standard_normal((NETS, H, C))
    x = rng.standard_normal((3, NETS, H))

    def logits(m):
        h = np.zeros((NETS, H))
        for x_t in x:
            h = np.tanh(x_t + np.einsum("ni,nij->nj", m * h, U))
        return np.einsum("ni,nij->nj", h, V)

    kept = np.maximum(eps.sum(axis=1, keepdims=True), 1)
    s = {"none": 1.0, "inverted": 2.0, "kept": H / kept}[scale]
    return logits(np.ones(H)), np.stack([logits(m) for m in s * eps])


@st.composite
def enumerations(draw):
    """Masks, a distribution on them, and the predictions of many networks under each."""
    rng = draw(seeds)
    eps = draw(st.sampled_from([bounds.all_masks(H), bounds.ball(np.ones(H), 1), bounds.ball(np.ones(H), 2)]))
    kind = draw(st.sampled_from(["bernoulli", "uniform", "any", "few"]))
    w = np.full(len(eps), 1 / len(eps))
    if kind == "bernoulli":
        w = bounds.bernoulli_weights(eps, draw(st.floats(0.05, 0.95)))
    elif kind == "any":
        w = rng.dirichlet(np.ones(len(eps)))
    elif kind == "few":  # most of the masks have no probability at all
        w = rng.multinomial(3, w) / 3
    logits0, logits = tiny_networks(rng, eps, draw(st.sampled_from(["none", "inverted", "kept"])))
    return logits0, logits, w


@pytest.mark.parametrize("distance", DISTANCES)
@given(case=enumerations())
def test_el_is_at_most_the_exact_adversary(distance, case):
    logits0, logits, w = case
    chain = bounds.chain(logits0[None], logits[:, None], w, distance=distance)
    assert (chain.el <= chain.add * (1 + ROUNDING)).all()


@pytest.mark.parametrize("distance", ["l2", "logit2", "js"])
@given(case=enumerations())
def test_half_of_fd_is_at_most_el(distance, case):
    logits0, logits, w = case
    chain = bounds.chain(logits0[None], logits[:, None], w, distance=distance)
    assert (chain.fd / 2 <= chain.el * (1 + ROUNDING) + 1e-14).all()


@given(case=enumerations())
def test_what_is_lost_is_the_squared_bias(case):
    logits0, logits, w = case
    for distance, bias in (("l2", bounds.bias_l2), ("js", bounds.bias_js)):
        chain = bounds.chain(logits0[None], logits[:, None], w, distance=distance)
        lost = bias(logits0, logits, w)
        np.testing.assert_allclose(chain.bias, lost, atol=1e-13)
        assert (lost >= -1e-13).all()


@given(case=enumerations())
def test_the_bias_of_the_symmetrised_kl(case):
    """A product of two differences of means, of either sign: no inequality follows from it."""
    logits0, logits, w = case
    chain = bounds.chain(logits0[None], logits[:, None], w, distance="skl")
    np.testing.assert_allclose(chain.bias, bounds.bias_skl(logits0, logits, w), rtol=1e-9, atol=1e-12)


def test_half_of_fd_often_exceeds_el_for_the_symmetrised_kl(rng):
    eps = bounds.all_masks(H)
    lost = bounds.bias_skl(*tiny_networks(rng, eps, "none"), bounds.bernoulli_weights(eps, 0.5))
    assert 0.02 < np.mean(lost < -1e-3) < 0.5
    assert np.mean(lost > 1e-3) > 0.3


def test_the_bias_is_not_nothing(rng):
    logits0, logits = tiny_networks(rng, bounds.all_masks(H), "none")
    for bias in (bounds.bias_l2, bounds.bias_js):
        assert np.median(bias(logits0, logits, np.full(8, 1 / 8))) > 1e-3


@given(case=enumerations(), rng=seeds)
def test_remark_1_for_any_coupled_pair(case, rng):
    """The second mask of each pair is any function of the first: a random map from masks to masks."""
    _, logits, w = case
    p = softmax(logits, axis=-1)
    partner = p[rng.integers(0, len(p), len(p))]
    r = bounds.remark1(p, partner, w)
    np.testing.assert_allclose(r.total, r.expected, atol=1e-13)
    assert (r.variance >= 0).all()


@given(case=enumerations())
def test_remark_1_for_independent_masks_has_no_covariance(case):
    """All pairs of masks, weighted by the product of their probabilities: the expected distance is FD."""
    logits0, logits, w = case
    p, n = softmax(logits, axis=-1), len(w)
    r = bounds.remark1(np.repeat(p, n, axis=0), np.tile(p, (n, 1, 1)), np.outer(w, w).reshape(-1))
    np.testing.assert_allclose(r.covariance, 0, atol=1e-13)
    np.testing.assert_allclose(r.mean_gap, 0, atol=1e-13)
    fd = bounds.chain(logits0[None], logits[:, None], w, distance="l2").fd
    np.testing.assert_allclose(r.variance, fd, atol=1e-13)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@given(rng=seeds, budget=st.integers(1, 3), scale=st.sampled_from(["none", "kept"]))
def test_the_chain_holds_for_the_cells_and_their_exact_adversary(put, cell, distance, rng, budget, scale):
    model, params, batch = network(rng, put, cell=cell, H=4, B=10, T=3, size=2.0)
    near = bounds.ball(np.ones(4), budget)
    logits = bounds.outputs(model, params, batch, near, scale=scale)
    w = rng.dirichlet(np.ones(len(near)))
    chain = bounds.chain(bounds.base_output(model, params, batch), logits, w, distance=distance)
    exact = find_adversary(
        *(model, params, batch), rng=rng, budgets=budget, scale=scale, distance=distance, search=Exact()
    )
    assert (chain.el <= to_host(exact.d) * (1 + ROUNDING) + 1e-15).all()
    if distance in ("l2", "logit2", "js"):
        assert (chain.fd / 2 <= chain.el * (1 + ROUNDING) + 1e-14).all()
