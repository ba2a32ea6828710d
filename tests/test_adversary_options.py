"""The search with several sites, other rules, noise, states, and the warning for a budget of one."""

import numpy as np
import pytest

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.distances import by_name
from minadv.flip import flip
from minadv.searches import Exact, Greedy, Random, Reselect, SmallBudgetWarning, ball_size
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched, network
from tests.support.searching import assert_true

every_search = pytest.mark.parametrize(
    "search", [Greedy(), Reselect(K=1), Exact(), Random()], ids=lambda search: search.name
)


@pytest.mark.parametrize("search", [Greedy(K=2), Reselect(), Exact(), Random()], ids=lambda search: search.name)
def test_several_sites_have_a_budget_each(search, rng, put):
    net = network(rng, put, n_layers=2, H=5)
    budgets = {"layer0": 2, "layer1": 3} if isinstance(search, Greedy) else {"layer0": 1, "layer1": 3}
    trace = find_adversary(*net, rng=rng, budgets=budgets, search=search)
    assert trace.budgets == budgets
    for name, budget in budgets.items():
        assert int(trace.flips[name].max()) <= budget
    if isinstance(search, Exact):
        assert trace.passes.forward == ball_size(5, 1) * ball_size(5, 3)


def test_sites_are_ranked_within_themselves(rng, put):
    """Each site's flip is that of its own map: a strong layer does not take the places of a weak one."""
    trace = find_adversary(*network(rng, put, n_layers=2, H=6), rng=rng, budgets={"layer0": 2, "layer1": 3})
    start, end = trace.visits
    for name, budget in trace.budgets.items():
        assert_same_bits(end.eps[name], flip(start.eps[name], start.im[name], trace.eps0[name], budget))


def test_swaps_of_several_sites_respect_each_budget(rng, put):
    net = network(rng, put, n_layers=2, H=5)
    budgets = {"layer0": 1, "layer1": 2}
    trace = find_adversary(*net, rng=rng, budgets=budgets, search=Reselect(swaps=2))
    assert trace.passes.forward == 5 + 1 + 2 * (1 + 2)
    for visit in trace.visits:
        for name, budget in budgets.items():
            assert int(masks.hamming(visit.eps[name], trace.eps0[name]).max()) <= budget


def test_delta_is_a_share_of_each_site(rng, put):
    net = network(rng, put, n_layers=2, H=10)
    assert find_adversary(*net, rng=rng, delta=0.2).budgets == {"layer0": 2, "layer1": 2}
    shares = {"layer0": 0.2, "layer1": 0.55}
    assert find_adversary(*net, rng=rng, delta=shares).budgets == {"layer0": 2, "layer1": 5}


def test_the_recurrent_sites_are_searched_unless_others_are_named(rng, put):
    net = network(rng, put, n_layers=2)
    assert set(find_adversary(*net, rng=rng, budgets=2).eps) == {"layer0", "layer1"}
    assert set(find_adversary(*net, rng=rng, budgets=2, sites=("readout",)).eps) == {"readout"}
    assert set(find_adversary(*net, rng=rng, budgets=2, sites=("readout", "layer1")).eps) == {"readout", "layer1"}


@every_search
def test_a_site_that_is_not_searched_keeps_its_base_mask(search, rng, put):
    model, params, batch = network(rng, put)
    eps0 = {name: put(rng.integers(0, 2, (3, 4)).astype(float)) for name in ("layer0", "readout")}
    watched = Watched(model)
    trace = find_adversary(watched, params, batch, rng=rng, budgets=2, eps0=eps0, sites=("layer0",), search=search)
    assert set(trace.eps) == {"layer0"}
    for given in watched.forward:
        assert_same_bits(given["masks"]["readout"], eps0["readout"])


@pytest.mark.parametrize(("norm", "flips"), [("count", 4), ("l2", 10)])
def test_the_paper_s_rule_overshoots_in_the_search_too(norm, flips, rng, put):
    net = network(rng, put, H=12)
    trace = find_adversary(*net, rng=rng, budgets=3, search=Greedy(rule="paper", norm=norm, keep="last"))
    assert set(to_host(trace.flips["layer0"]).tolist()) <= {
        flips,
        flips - 2,
    }  # the start may be flipped back on the way


def test_the_released_rule_splits_the_budget_with_the_rest_last(rng, put):
    trace = find_adversary(*network(rng, put, H=12), rng=rng, budgets=5, search=Greedy(K=3, rule="authors"))
    eps = trace.start["layer0"]
    for visit, after, budget in zip(trace.visits, trace.visits[1:], (1, 1, 3), strict=False):
        eps = flip(eps, visit.im["layer0"], trace.eps0["layer0"], budget, rule="authors")
        assert_same_bits(after.eps["layer0"], eps)


def test_options_reach_the_rule(rng, put):
    net = network(rng, put, H=8, B=10)
    trace = find_adversary(*net, rng=rng, budgets=3, search=Greedy(K=3, allow_unflip=False, keep="last"))
    flips = [to_host(masks.hamming(v.eps["layer0"], trace.eps0["layer0"])) for v in trace.visits]
    assert (np.diff(flips, axis=0) >= 0).all()
    started = to_host(trace.start["layer0"] != trace.eps0["layer0"])
    assert (to_host(trace.eps["layer0"] != trace.eps0["layer0"])[started]).all()


@every_search
def test_noise_is_drawn_once_and_shared_unless_two_are_given(search, rng, put):
    model, params, batch = network(rng, put, I=8, input_dropout=0.5)
    watched = Watched(model)
    find_adversary(watched, params, batch, rng=rng, budgets=2, search=search)
    assert len({id(given["noise"]) for given in watched.forward}) == 1

    one, two = model.noise(rng, batch), model.noise(rng, batch)
    watched = Watched(model)
    find_adversary(watched, params, batch, rng=rng, budgets=2, search=search, noise=one)
    assert all(given["noise"] is one for given in watched.forward)
    watched = Watched(model)
    find_adversary(watched, params, batch, rng=rng, budgets=2, search=search, noise=one, adv_noise=two)
    assert watched.forward[0]["noise"] is one
    assert all(given["noise"] is two for given in watched.forward[1:])


@every_search
def test_the_initial_state_enters_every_pass(search, rng, put):
    model, params, batch = network(rng, put)
    _, state, _ = model.body(params, batch, masks={}, noise=None)
    watched = Watched(model)
    trace = find_adversary(watched, params, batch, rng=rng, budgets=2, search=search, state=state)
    assert all(given["state"] is state for given in watched.forward)
    f0, f1 = (model.body(params, batch, masks=m, noise=None, state=state)[0] for m in ({}, trace.eps))
    assert_close(trace.d, model.compare(params, f0, f1, None, by_name("js")).d)


def test_inverted_masks_are_compared_with_the_full_network(rng, put):
    """The expected mask has m = 1 whatever the scale, so that even the untouched binary mask is at a distance."""
    model, params, batch = network(rng, put)
    trace = find_adversary(model, params, batch, rng=rng, budgets=2, scale="inverted", p=0.5, search=Exact())
    f0, _, _ = model.body(params, batch, masks={}, noise=None)
    f1, _, _ = model.body(params, batch, masks={"layer0": 2 * trace.eps["layer0"]}, noise=None)
    assert_close(trace.d, model.compare(params, f0, f1, None, by_name("js")).d)


def test_a_base_mask_is_scaled_like_the_others(rng, put):
    net, given = network(rng, put), {"scale": "inverted", "p": 0.25}
    eps0 = {"layer0": put(rng.integers(0, 2, (3, 4)).astype(float))}
    trace = find_adversary(*net, rng=rng, budgets=2, search=Greedy(K=2), eps0=eps0, **given)
    assert_true(net, trace, eps0=eps0, **given)


def test_a_budget_of_one_warns(rng, put):
    net = network(rng, put, H=10)
    for given in ({"budgets": 1}, {"delta": 0.1}):
        remedies = r"spent by the random start.*raise delta, or use search=Reselect\(\) \(--search reselect\)"
        with pytest.warns(SmallBudgetWarning, match=remedies) as warned:
            find_adversary(*net, rng=rng, **given)
        assert [warning.filename for warning in warned] == [__file__]


def test_a_budget_of_one_at_one_of_two_sites_warns(rng, put):
    with pytest.warns(SmallBudgetWarning):
        find_adversary(*network(rng, put, n_layers=2), rng=rng, budgets={"layer0": 3, "layer1": 1})


@pytest.mark.parametrize("search", [Reselect(K=1), Exact(), Random(), Greedy(start="base")], ids=str)
def test_a_budget_of_one_is_fine_without_a_random_start(search, rng, put):
    model, params, batch = network(rng, put, I=8, input_dropout=0.5)
    noises = {}
    if isinstance(search, Greedy):
        noises = {"noise": model.noise(rng, batch), "adv_noise": model.noise(rng, batch)}
    find_adversary(model, params, batch, rng=rng, budgets=1, search=search, **noises)  # a warning would be an error


def test_the_released_rule_counts_from_the_start(rng, put):
    """With a random flip as its start it may end one unit beyond the budget, and sometimes does."""
    model, params, batch = network(rng, put, H=8, B=20)
    trace = find_adversary(model, params, batch, rng=rng, budgets=3, search=Greedy(rule="authors"))
    flips = to_host(trace.flips["layer0"])
    assert flips.max() == 4
