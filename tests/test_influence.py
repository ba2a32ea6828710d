"""The influence map by hand, and the warning when it is nothing but rounding."""

from dataclasses import replace

import numpy as np
import pytest

from minadv import rnn
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.influence import ZeroInfluenceWarning, influence_map, influence_map_double_sum
from minadv.regularizers import AdD
from minadv.searches import Greedy, Reselect
from tests.support.compare import assert_close
from tests.support.networks import network

BOTH_REMEDIES = (
    r"(?s)zero up to rounding: at the base mask itself the distance has its minimum and no slope: "
    r".*start=\"flip\", --init flip.*share_noise=False"
)


def test_the_sum_over_time(put):
    h_prev = np.array([[[1.0, 2]], [[3, 4]], [[5, 6]]])  # (T, B, H) = (3, 1, 2)
    g = np.array([[[1.0, 10]], [[-1, 0]], [[2, 1]]])
    assert to_host(influence_map(put(h_prev), put(g))).tolist() == [[1 - 3 + 10, 20 + 0 + 6]]


def test_one_unit_by_hand(put):
    """H = 1, linear for small states: h_2 = tanh(u m h_1), so dh_2/dm = (1 - h_2²) u h_1."""
    w, u, x = 0.7, 0.4, 0.9
    params = put(rnn.Params(np.array([[w]]), np.array([[u]]), np.zeros(1)))
    _, _, cache = rnn.forward(params, put(np.array([x, 0.0]).reshape(2, 1, 1)), m=put(np.ones((1, 1))))
    dh = put(np.array([0.0, 1.0]).reshape(2, 1, 1))
    h_1 = np.tanh(w * x)
    expected = np.array([[(1 - np.tanh(u * h_1) ** 2) * u * h_1]])
    assert_close(influence_map_double_sum(rnn, params, cache, dh), expected)
    assert_close(rnn.backward(params, cache, dh).m, expected)


def test_the_double_sum_of_a_masked_readout_begins_at_its_first_step(rng, put):
    """T = 1 with an initial state: one term u = 0 through the cell, and one u = t = 1 at the readout."""
    params = put(rnn.init(rng, 2, 3, dtype=np.float64))
    state = put(rnn.State(rng.standard_normal((2, 3))))
    _, _, cache = rnn.forward(params, put(rng.standard_normal((1, 2, 2))), state=state)
    dread = put(rng.standard_normal((1, 2, 3)))  # m = 1: what reaches h_1 through its masked copy is the same
    hhat = rnn.backward(params, cache, dread).hhat
    found = influence_map_double_sum(rnn, params, cache, dread, dread)
    assert_close(found, hhat[0] * cache.h[0] + dread[0] * cache.h[1])


def test_shapes(put):
    ones = put(np.ones((3, 2, 4)))
    with pytest.raises(ValueError, match=r"dhhat has shape \(2, 2, 4\), expected \(3, 2, 4\) \(the shape of h_prev\)"):
        influence_map(ones, ones[1:])
    with pytest.raises(ValueError, match=r"h_prev has shape \(2, 4\), expected \(T, B, H\)"):
        influence_map(ones[0], ones)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("distance", ["js", "kl", "rkl", "skl", "l2"])
@pytest.mark.parametrize("search", [Greedy(start="base"), Reselect(K=1, start="base")], ids=lambda search: search.name)
def test_a_start_at_the_base_warns_and_names_both_remedies(cell, distance, search, rng, put):
    net = network(rng, put, cell=cell)
    with pytest.warns(ZeroInfluenceWarning, match=BOTH_REMEDIES):
        trace = find_adversary(*net, rng=rng, budgets=2, distance=distance, search=search)
    assert float(abs(trace.im["layer0"]).max()) < 1e-12


@pytest.mark.parametrize("keep", ["best", "last"])
def test_shared_noise_does_not_help_a_start_at_the_base(keep, rng, put):
    net = network(rng, put, I=8, input_dropout=0.5)
    with pytest.warns(ZeroInfluenceWarning, match=BOTH_REMEDIES):
        AdD(budgets=2, search=Greedy(start="base", keep=keep))(*net, rng=rng)


@pytest.mark.parametrize("search", [Greedy(keep="last"), Reselect(K=1)], ids=lambda search: search.name)
def test_either_remedy_is_quiet_and_its_map_is_not_zero(search, rng, put):
    net = network(rng, put, I=8, input_dropout=0.5)
    assert search.start == "flip"
    at_the_base = replace(search, start="base")
    for remedy in (AdD(budgets=2, search=search), AdD(budgets=2, search=at_the_base, share_noise=False)):
        trace = remedy(*net, rng=rng).trace  # a warning would be an error
        assert float(abs(trace.im["layer0"]).max(axis=1).min()) > 1e-9
