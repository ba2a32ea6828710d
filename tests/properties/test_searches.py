"""How the searches compare, on random small networks: nothing beats the exact one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import bounds, masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import tree_map
from minadv.searches import Exact, Greedy, Memory, Random, Relax, Reselect
from tests.support.cells import seeds
from tests.support.networks import network

CHEAP = [
    *(Greedy(), Greedy(K=2), Reselect(K=1), Reselect(swaps=2), Random(tries=4)),
    *(Relax(), Relax((1,)), Relax((4, 2), reselect=1, borrow=2, swaps=4), Memory(), Memory(stage=3, tries=3)),
]


@st.composite
def settings(draw):
    """A network and how it is attacked; a random base mask or the full network."""
    rng = draw(seeds)
    H = draw(st.integers(3, 5))
    size = {"H": H, "T": draw(st.integers(2, 4)), "B": 4, "size": draw(st.sampled_from([0.5, 1.0, 3.0]))}
    kind = {
        "cell": draw(st.sampled_from(["rnn", "lstm", "gru"])),
        "readout": draw(st.sampled_from(["clean", "masked"])),
    }
    eps0 = rng.integers(0, 2, (4, H)).astype(float) if draw(st.booleans()) else None
    attack = {
        "budgets": draw(st.integers(2, 3)),
        "scale": draw(st.sampled_from(["none", "kept"])),
        "distance": draw(st.sampled_from(["js", "kl", "rkl", "skl", "l2", "logit2"])),
    }
    return rng, {**size, **kind}, eps0, attack


@given(setting=settings())
def test_nothing_beats_the_exact_search(put, setting):
    rng, options, eps0, attack = setting
    net = network(rng, put, **options)
    eps0 = None if eps0 is None else put(eps0)
    exact = find_adversary(*net, rng=rng, eps0=eps0, search=Exact(), **attack)
    most = to_host(exact.d)
    for search in CHEAP:
        trace = find_adversary(*net, rng=rng, eps0=eps0, search=search, **attack)
        visited = np.array([to_host(visit.d) for visit in trace.visits if not visit.relaxed])
        assert (visited <= most + 1e-12 * (1 + most)).all()
        assert (to_host(trace.d) == visited.max(axis=0)).all()  # never worse than the best it visited
        assert int(trace.flips["layer0"].max()) <= attack["budgets"]


@given(setting=settings())
def test_nothing_beats_the_exact_search_however_often_an_example_is_seen(put, setting):
    """Visits of every kind, at weights that change; masks are lent from what others remember."""
    rng, options, eps0, attack = setting
    model, params, batch = network(rng, put, **options)
    eps0, memory = None if eps0 is None else put(eps0), None
    for _ in range(3):
        given = {"eps0": eps0, **attack}
        most = to_host(find_adversary(model, params, batch, search=Exact(), **given).d)
        trace = find_adversary(model, params, batch, search=Memory(tries=2), memory=memory, **given)
        visited = np.array([to_host(visit.d) for visit in trace.visits if not visit.relaxed])
        assert (visited <= most + 1e-12 * (1 + most)).all()
        assert (to_host(trace.d) == visited.max(axis=0)).all()
        assert int(trace.memory.flips["layer0"].sum(axis=1).max()) <= attack["budgets"]
        memory = replace(trace.memory, lent=trace.memory.flips)
        params = tree_map(lambda a: a + put(0.1 * rng.standard_normal(a.shape)), params)


@given(setting=settings())
def test_the_exact_search_is_the_maximum_over_the_ball(put, setting):
    rng, options, _, attack = setting
    model, params, batch = network(rng, put, **options)
    trace = find_adversary(model, params, batch, rng=rng, search=Exact(), **attack)
    ball = bounds.ball(np.ones(options["H"]), attack["budgets"])
    logits = bounds.outputs(model, params, batch, ball, scale=attack["scale"])
    w = np.full(len(ball), 1 / len(ball))
    chain = bounds.chain(bounds.base_output(model, params, batch), logits, w, distance=attack["distance"])
    np.testing.assert_allclose(to_host(trace.d), chain.add, rtol=1e-10, atol=1e-14)
    assert trace.passes.forward == len(ball)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_with_a_budget_for_every_unit_the_ball_holds_every_mask(cell, rng, put):
    model, params, batch = network(rng, put, cell=cell, H=4, B=3)
    trace = find_adversary(model, params, batch, rng=rng, search=Exact(), budgets=4)
    logits = bounds.outputs(model, params, batch, bounds.all_masks(4))
    chain = bounds.chain(bounds.base_output(model, params, batch), logits, np.full(16, 1 / 16))
    np.testing.assert_allclose(to_host(trace.d), chain.add, rtol=1e-10)


@pytest.mark.many_passes
def test_on_average_reselection_and_relaxation_are_stronger_than_greed_and_greed_than_chance(put):
    """Not a theorem: the mean share of the maximum over a few hundred examples, one network for each seed."""
    shares = {Random(): [], Greedy(K=2): [], Reselect(): [], Relax(): []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        net = network(rng, put, H=8, B=100, T=5)
        most = to_host(find_adversary(*net, rng=rng, budgets=2, search=Exact()).d)
        for search, found in shares.items():
            trace = find_adversary(*net, rng=rng, budgets=2, search=search)
            found.append(np.mean(to_host(trace.d) / most))
            assert int(masks.hamming(trace.eps["layer0"], trace.eps0["layer0"]).max()) <= 2
    chance, greed, reselection, relaxation = (np.mean(found) for found in shares.values())
    assert chance < greed < reselection <= 1
    assert greed < relaxation <= 1
