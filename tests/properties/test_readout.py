"""The theorems on the readout, where the logits are linear in the mask: docs/theorems.md has the proofs.

The truth is the exact search, which runs every mask within the budget.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.searches import Exact, Reselect
from tests.support.cells import seeds
from tests.support.networks import network
from tests.support.objectives import READOUT, dropped, dropping, linear_readout, objective

AT_READOUT = {"sites": (READOUT,)}
OF_THE_LOG_ODDS = ["js", "kl", "rkl", "skl", "l2"]  # logit2 is no function of the log-odds
CONVEX = ["kl", "logit2"]  # in the logits of the perturbed pass
B = 4


@st.composite
def networks(draw, least_classes, scales):
    """A network of any cell, and how its readout is attacked."""
    rng, H = draw(seeds), draw(st.integers(2, 6))
    scale = draw(st.sampled_from(scales))
    how = {"scale": scale, "p": 0.3 if scale == "inverted" else None, **AT_READOUT}
    how["budgets"] = draw(st.integers(1, H - 1 if scale == "kept" else H))
    net = {
        "H": H,
        "B": B,
        "C": draw(st.integers(least_classes, 4)) if least_classes > 2 else 2,
        "T": draw(st.integers(1, 3)),
        "cell": draw(st.sampled_from(["rnn", "lstm", "gru"])),
    }
    if scale != "kept" and draw(st.booleans()):
        how["eps0"] = rng.integers(0, 2, (B, H)).astype(float)
    return rng, net, how


def made(put, drawn):
    rng, net, how = drawn
    return network(rng, put, **net), {name: put(a) if name == "eps0" else a for name, a in how.items()}


@pytest.mark.parametrize("distance", OF_THE_LOG_ODDS)
@given(drawn=networks(2, ["none", "inverted"]))
def test_the_better_of_two_sides_is_the_maximum_for_two_classes(distance, put, drawn):
    """One map, of whatever mask, and one pass for each side."""
    net, how = made(put, drawn)
    exact = find_adversary(*net, search=Exact(), distance=distance, **how)
    trace = find_adversary(*net, search=Reselect(K=1), distance=distance, rng=drawn[0], **how)
    np.testing.assert_allclose(to_host(trace.d), to_host(exact.d), rtol=1e-9, atol=1e-15)
    assert (trace.passes.forward, trace.passes.backward) == (3, 1)
    sides = [to_host(visit.d) for visit in trace.visits[1:]]  # the start itself is not needed
    np.testing.assert_allclose(np.maximum(*sides), to_host(exact.d), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("distance", OF_THE_LOG_ODDS)
@given(rng=seeds, H=st.integers(2, 6), cell=st.sampled_from(["rnn", "lstm", "gru"]), data=st.data())
def test_with_the_scale_kept_it_is_the_best_of_two_sides_over_all_counts(distance, put, rng, H, cell, data):
    """A map shifted below zero makes every gain positive, so that `select` drops exactly as many units as it may."""
    net, budget = network(rng, put, H=H, C=2, B=B, cell=cell), data.draw(st.integers(1, H))
    how = {"scale": "kept", "distance": distance, **AT_READOUT}
    exact = to_host(find_adversary(*net, search=Exact(), budgets=budget, **how).d)
    found = [np.zeros(B)]  # of the base mask
    for count in range(1, budget + 1):
        ask = objective(net, budgets=count, **how)
        im = ask.influence({READOUT: masks.one_flip(rng, ask.eps0[READOUT])}).im[READOUT]
        for side in (im, -im):
            eps = ask.select({READOUT: side - side.max() - 1})
            assert (to_host(masks.hamming(eps[READOUT], ask.eps0[READOUT])) == count).all()
            found.append(to_host(ask.score(eps)))
    np.testing.assert_allclose(np.max(found, axis=0), exact, rtol=1e-9, atol=1e-15)


def test_with_three_classes_two_sides_are_not_enough(rng, put):
    net = network(rng, put, H=5, C=3, B=50)
    exact, two = (
        to_host(find_adversary(*net, search=search, budgets=2, rng=rng, **AT_READOUT).d)
        for search in (Exact(), Reselect(K=1))
    )
    assert (two < exact - 1e-6).any()


@pytest.mark.parametrize("distance", CONVEX)
@pytest.mark.parametrize("steps", ["last", "all"])
@given(drawn=networks(3, ["none", "inverted", "kept"]), data=st.data())
def test_reselection_never_loses_where_the_distance_is_convex(distance, steps, put, drawn, data):
    """From any mask within the budget, for any number of classes and any weights of the steps."""
    (model, params, batch), how = made(put, drawn)
    rng, lam = drawn[0], None
    if steps == "all":
        model, lam = replace(model, steps="all"), put(rng.uniform(0, 1, (drawn[1]["T"], B)))
    ask = objective((model, params, batch), distance=distance, lam=lam, **how)
    eps = {READOUT: masks.random_flips(rng, ask.eps0[READOUT], data.draw(st.integers(1, how["budgets"])))}
    for _ in range(3):
        visit = ask.influence(eps)
        eps = ask.select(visit.im)
        before, after = to_host(visit.d), to_host(ask.score(eps))
        assert (after >= before - 1e-12 * (1 + before)).all()
        if (after <= 1e-20).all():  # every example is back at its base mask, where there is no map
            break


@pytest.mark.parametrize("distance", OF_THE_LOG_ODDS)
@given(drawn=networks(2, ["none", "inverted"]), data=st.data())
def test_reselection_never_loses_for_two_classes(distance, put, drawn, data):
    net, how = made(put, drawn)
    ask = objective(net, distance=distance, **how)
    flips = data.draw(st.integers(1, how["budgets"]))
    visit = ask.influence({READOUT: masks.random_flips(drawn[0], ask.eps0[READOUT], flips)})
    before, after = to_host(visit.d), to_host(ask.score(ask.select(visit.im)))
    assert (after >= before - 1e-12 * (1 + before)).all()


@pytest.mark.parametrize("distance", CONVEX)
@given(drawn=networks(3, ["none", "inverted", "kept"]))
def test_a_maximiser_is_a_fixed_point_up_to_ties(distance, put, drawn):
    """No mask within the budget is better than it by its own map; what `select` chooses is as far from the base."""
    net, how = made(put, drawn)
    exact = find_adversary(*net, search=Exact(), distance=distance, **how)
    ask = objective(net, distance=distance, **how)
    visit = ask.influence(exact.eps)
    chosen = ask.select(visit.im)
    im, size = to_host(visit.im[READOUT]), to_host(abs(visit.im[READOUT])).sum(axis=1)
    linear = (im * (to_host(chosen[READOUT]) - to_host(exact.eps[READOUT]))).sum(axis=1)
    assert (np.abs(linear) <= 1e-12 * (1 + size)).all()
    np.testing.assert_allclose(to_host(ask.score(chosen)), to_host(exact.d), rtol=1e-9, atol=1e-13)


LOSES = {  # weights (H, C), bias (C,), units dropped, units that re-selection drops, distance before and after
    "js": ([[0, -1, 2], [0, -2, -3], [0, -3, 3]], [0, 3, -1], [0, 2], [1, 2], 0.4606, 0.2866),
    "rkl": ([[0, -3, 3], [0, -1, 3], [0, -2, -3]], [0, 1, -1], [0, 1], [0, 2], 2.7834, 0.4207),
    "skl": ([[0, 1, 2], [0, 2, -3], [0, -3, -2]], [0, 1, 2], [1], [1, 2], 1.7539, 1.6680),
    "l2": ([[0, 3, -3], [0, 3, -1], [0, -3, -1]], [0, -2, -2], [0, 1], [], 0.9863, 0.0),
}


@pytest.mark.parametrize("distance", LOSES)
def test_reselection_can_lose_where_it_is_not_convex(distance, put):
    """Three units, three classes, a budget of two; what it leaves is the maximum itself."""
    weights, bias, units, expected, before, after = LOSES[distance]
    net, how = linear_readout(put, weights, bias), {"budgets": 2, "distance": distance, **AT_READOUT}
    ask = objective(net, **how)
    visit = ask.influence(dropping(put, 3, units))
    eps = ask.select(visit.im)
    assert dropped(eps) == expected
    assert float(visit.d[0]) == pytest.approx(before, abs=1e-4)
    assert float(ask.score(eps)[0]) == pytest.approx(after, abs=1e-4)
    assert dropped(find_adversary(*net, search=Exact(), **how).eps) == units


def forward_selection(ask, budget):
    """Flip the one unit that raises the distance most, at most ``budget`` times, as long as one raises it."""
    eps, best = ask.eps0, 0.0
    for _ in range(budget):
        rest = [i for i in range(eps[READOUT].shape[1]) if i not in dropped(eps)]
        several = []
        for i in rest:
            candidate = eps[READOUT].copy()
            candidate[:, i] = 0
            several.append({READOUT: candidate})
        d = [float(score[0]) for score in ask.scores(several)]
        if max(d) <= best:
            break
        eps, best = several[int(np.argmax(d))], max(d)
    return best


def of_gains(put, gains, log_odds):
    """Two classes; dropping unit i moves the log-odds by ``gains[i]`` from those of the full network."""
    weights = np.stack([-np.asarray(gains), np.zeros(len(gains))], axis=1)
    return linear_readout(put, weights, [log_odds + np.sum(gains), 0])


def compared(put, gains, budget, log_odds=0.0, distance="js"):
    """The distances that forward selection and the exact search find; that of two sides is the exact one."""
    net, how = of_gains(put, gains, log_odds), {"budgets": budget, "distance": distance, **AT_READOUT}
    exact = float(find_adversary(*net, search=Exact(), **how).d[0])
    two = float(find_adversary(*net, search=Reselect(K=1), rng=np.random.default_rng(0), **how).d[0])
    assert two == pytest.approx(exact, rel=1e-6)
    return forward_selection(objective(net, **how), budget), exact


@pytest.mark.parametrize("distance", OF_THE_LOG_ODDS)
def test_forward_selection_takes_the_wrong_side(distance, put):
    """Gains 1, -0.9, -0.9 and two flips: the first flip is the 1, and every other flip undoes it."""
    greedy, exact = compared(put, [1, -0.9, -0.9], 2, distance=distance)
    assert greedy < 0.42 * exact
    ask = objective(of_gains(put, [1, -0.9, -0.9], 0.0), budgets=2, distance=distance, **AT_READOUT)
    F = {units: float(ask.score(dropping(put, 3, units))[0]) for units in [(0,), (1,), (2,), (0, 1), (1, 2)]}
    assert F[0,] == greedy > F[0, 1]  # not monotone
    assert F[1, 2] - F[1,] > F[2,]  # nor submodular


@pytest.mark.parametrize("budget", [2, 4, 8])
def test_the_share_that_forward_selection_finds_falls_with_the_budget(budget, put):
    greedy, exact = compared(put, [0.02, *[-0.0198] * budget], budget)
    assert greedy / exact == pytest.approx((0.99 * budget) ** -2, rel=0.01)


def test_for_kl_two_flips_are_enough_for_any_factor(put):
    """Gains g, -log g, -log g from the log-odds 3 log g."""
    shares = []
    for g in (10.0, 100.0, 1000.0):
        greedy, exact = compared(put, [g, -np.log(g), -np.log(g)], 2, 3 * np.log(g), "kl")
        shares.append(greedy / exact)
    assert shares == pytest.approx([1 / 10, 1 / 100, 1 / 1000], rel=0.2)
