"""Noise is what it is given: None is no noise, "draw" a fresh draw, a record that very record."""

import numpy as np
import pytest

from minadv import bounds
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.regularizers import EL, Plain
from minadv.searches import Exact
from tests.support import foreign_model
from tests.support.compare import assert_same_bits
from tests.support.networks import Watched, network


def test_without_noise_the_search_sees_the_network_that_the_bounds_enumerate(rng, put):
    """EL <= AdD(exact) needs one network in both; a draw of input dropout in one of them would break the theorem."""
    model, params, batch = network(rng, put, input_dropout=0.5)
    eps = bounds.ball(np.ones(4), 2)
    logits = bounds.outputs(model, params, batch, eps)
    chain = bounds.chain(bounds.base_output(model, params, batch), logits, np.full(len(eps), 1 / len(eps)))
    found = find_adversary(model, params, batch, rng=rng, budgets=2, search=Exact())
    np.testing.assert_allclose(to_host(found.d), chain.add, rtol=1e-9)


def test_a_regularizer_draws_noise_unless_it_is_given_some(rng, put):
    model, params, batch = network(rng, put, input_dropout=0.5)
    for noise, expected in (("draw", "one"), (None, "none"), (model.noise(rng, batch), "given")):
        watched = Watched(model)
        Plain()(watched, params, batch, rng=rng, noise=noise, likelihood=1.0)
        seen = watched.forward[0]["noise"]
        assert {"one": seen is not None, "none": seen is None, "given": seen is noise}[expected]


def test_noise_may_be_an_array(rng, put):
    model, params, songs = foreign_model.example(rng, put, jitter=0.5)
    noise = model.noise(rng, songs)
    term = Plain()(model, params, songs, rng=rng, noise=noise, likelihood=1.0)
    features, _, _ = model.body(params, songs, masks={}, noise=noise)
    assert_same_bits(term.nll, model.head(params, features, songs.targets).nll)


def test_several_monte_carlo_masks_are_their_mean(rng, put):
    net = network(rng, put)
    three = EL(p=0.4, samples=3)(*net, rng=np.random.default_rng(0), likelihood=1.0)
    shared = np.random.default_rng(0)
    one_by_one = [EL(p=0.4)(*net, rng=shared, likelihood=1.0) for _ in range(3)]
    assert to_host(three.value) == pytest.approx(np.mean([to_host(t.value) for t in one_by_one], axis=0))
    assert to_host(three.nll) == pytest.approx(np.mean([to_host(t.nll) for t in one_by_one], axis=0))
    mean = np.mean([to_host(t.grads.V) for t in one_by_one], axis=0)
    assert to_host(three.grads.V) == pytest.approx(mean)
