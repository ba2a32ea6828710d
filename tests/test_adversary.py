"""The search: what it spends, what it returns, and that everything it tells can be run again."""

import math

import numpy as np
import pytest

from minadv import fast, masks, protocol
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import tree_map
from minadv.distances import by_name
from minadv.flip import flip
from minadv.searches import Exact, Greedy, Random, Reselect, ball_size
from tests.support.cells import RAGGED
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched, network

EPS0 = np.array([[1.0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1]])

SEARCHES = {  # a search, then the forward and backward passes beside the base pass for H = 4 and a budget of 2
    "greedy, K=1": (Greedy(), 2, 1),
    "greedy, K=3": (Greedy(K=3), 4, 3),
    "greedy, last": (Greedy(K=2, keep="last"), 2, 2),
    "reselect, K=1": (Reselect(K=1), 3, 1),
    "reselect, K=2": (Reselect(), 5, 2),
    "reselect, K=3": (Reselect(K=3), 6, 3),
    "reselect, swaps": (Reselect(swaps=2), 5 + 1 + 2 * 2, 3),
    "exact": (Exact(), 11, 0),
    "random": (Random(tries=5), 5, 0),
}
every_search = pytest.mark.parametrize(("search", "forward", "backward"), SEARCHES.values(), ids=SEARCHES)


def distance(net, eps, name="js", scale="none", m0=None):
    """D of a mask, and its influence map, from the protocol alone."""
    model, params, batch = net
    f0, _, _ = model.body(params, batch, masks=m0 or {}, noise=None)
    m = {site: masks.scale(e, scale) for site, e in eps.items()}
    f1, _, cache = model.body(params, batch, masks=m, noise=None)
    comparison = model.compare(params, f0, f1, None, by_name(name))
    dm = model.body_backward(params, cache, comparison.dfeatures1, masks=tuple(eps)).masks
    return comparison.d, {site: masks.scale_backward(e, dm[site], scale) for site, e in eps.items()}


@every_search
def test_the_passes_are_as_documented_and_as_counted(search, forward, backward, rng, put):
    model, params, batch = network(rng, put)
    watched = Watched(model)
    trace = find_adversary(watched, params, batch, rng=rng, budgets=2, search=search)
    assert (trace.passes.forward, trace.passes.backward) == (forward, backward)
    assert len(watched.forward) == 1 + forward
    assert watched.backward == [{"weights": False, "masks": ("layer0",)}] * backward


@every_search
@pytest.mark.parametrize("reusing", [False, True], ids=["", "with buffers"])
def test_the_base_pass_is_in_the_trace_and_can_be_gone_back_through(search, forward, backward, reusing, rng, put):
    model, params, batch = network(rng, put)
    features, state, cache = model.body(params, batch, masks={}, noise=None)
    expected = model.body_backward(params, cache, features, inputs=True, masks=("layer0",))
    model = fast.reusing(model) if reusing else model
    with protocol.scope(model):
        base = find_adversary(model, params, batch, rng=rng, budgets=2, search=search).base
        assert_same_bits((base.features, base.state), (features, state))
        found = model.body_backward(params, base.cache, features, inputs=True, masks=("layer0",))
        assert_same_bits(
            (found.params.cells, found.masks, found.inputs), (expected.params.cells, expected.masks, expected.inputs)
        )


def test_the_number_of_masks_in_a_ball():
    assert [ball_size(4, b) for b in range(5)] == [1, 5, 11, 15, 16]
    assert ball_size(200, 63) < ball_size(200, 64) == ball_size(200, 65)


@every_search
@pytest.mark.parametrize("scale", ["none", "kept"])
@pytest.mark.parametrize("name", ["js", "kl"])
def test_the_trace_can_be_run_again(search, forward, backward, scale, name, rng, put):
    net = network(rng, put, valid=RAGGED)
    trace = find_adversary(*net, rng=rng, budgets=2, scale=scale, distance=name, search=search)
    assert trace.search is search
    assert trace.budgets == {"layer0": 2}
    assert sum(visit.im is not None for visit in trace.visits) == backward
    for visit in trace.visits:
        d, im = distance(net, visit.eps, name, scale)
        assert bool((masks.hamming(visit.eps["layer0"], trace.eps0["layer0"]) <= 2).all())
        if visit.d is not None:
            assert_close(visit.d, d)
        if visit.im is not None:
            assert_close(visit.im, im)
    assert_same_bits(trace.flips["layer0"], masks.hamming(trace.eps["layer0"], trace.eps0["layer0"]))
    if trace.d is not None:
        assert_close(trace.d, distance(net, trace.eps, name, scale)[0])


@every_search
def test_the_best_mask_visited_is_kept_example_by_example(search, forward, backward, rng, put):
    trace = find_adversary(*network(rng, put, B=8), rng=rng, budgets=2, search=search)
    if getattr(search, "keep", "best") == "last":
        assert trace.d is None
        assert trace.eps is trace.visits[-1].eps
        return
    d = np.array([to_host(visit.d) for visit in trace.visits])  # (visits, B)
    assert_same_bits(trace.d, d.max(axis=0))
    for b, winner in enumerate(d.argmax(axis=0)):
        assert_same_bits(trace.eps["layer0"][b], trace.visits[winner].eps["layer0"][b])


@every_search
def test_the_same_seed_finds_the_same_mask(search, forward, backward, rng, put):
    net = network(rng, put)
    one, two = (find_adversary(*net, rng=np.random.default_rng(5), budgets=2, search=search) for _ in range(2))
    assert_same_bits((one.eps, one.start, one.d), (two.eps, two.start, two.d))


def test_another_seed_starts_elsewhere(rng, put):
    net = network(rng, put, B=20)
    one, two = (find_adversary(*net, rng=np.random.default_rng(seed), budgets=2) for seed in (0, 1))
    assert not np.array_equal(to_host(one.start["layer0"]), to_host(two.start["layer0"]))


@every_search
def test_arguments_are_not_changed(search, forward, backward, rng, put):
    model, params, batch = network(rng, put)
    eps0 = put(EPS0)
    before = tree_map(lambda a: a.copy(), (params, batch, eps0))
    find_adversary(model, params, batch, rng=rng, budgets=2, eps0=eps0, search=search)
    assert_same_bits((params, batch, eps0), before)


@every_search
@pytest.mark.parametrize("scale", ["none", "kept"])
def test_any_base_mask(search, forward, backward, scale, rng, put):
    net = network(rng, put)
    m0 = {"layer0": masks.scale(put(EPS0), scale)}
    base = net[0].body(*net[1:], masks=m0, noise=None)[0]
    runs = [
        find_adversary(*net, rng=np.random.default_rng(2), budgets=2, eps0=eps0, scale=scale, search=search)
        for eps0 in (put(EPS0), {"layer0": put(EPS0)})
    ]
    for trace in runs:
        assert_same_bits(trace.eps0["layer0"], put(EPS0))
        assert_same_bits(trace.base.features, base)
        assert_same_bits((trace.eps, trace.d), (runs[0].eps, runs[0].d))
        assert int(trace.flips["layer0"].max()) <= 2
        if trace.d is not None:
            assert_close(trace.d, distance(net, trace.eps, scale=scale, m0=m0)[0])


def test_greedy_is_the_iterated_flip(rng, put):
    """Eq. 8: the map at the current mask, then a flip within the cumulative budget."""
    K, b = 3, 4
    trace = find_adversary(*network(rng, put, H=8), rng=rng, budgets=b, search=Greedy(K=K))
    eps, eps0 = trace.start["layer0"], trace.eps0["layer0"]
    assert to_host(masks.hamming(eps, eps0)).tolist() == [1, 1, 1]
    for k in range(K):
        assert_same_bits(trace.visits[k].eps["layer0"], eps)
        eps = flip(eps, trace.visits[k].im["layer0"], eps0, math.ceil((k + 1) * b / K))
    assert_same_bits(trace.visits[K].eps["layer0"], eps)
    assert_same_bits(trace.im, trace.visits[K - 1].im)


def test_reselect_is_two_sided_and_then_selects_afresh(rng, put):
    trace = find_adversary(*network(rng, put, H=8, B=6), rng=rng, budgets=3, search=Reselect(K=3))
    eps0 = trace.eps0["layer0"]
    start, up, down, first, second, last = trace.visits

    def top(im):
        return flip(eps0, im, eps0, 3)

    assert_same_bits(start.eps, trace.start)
    assert_same_bits(up.eps["layer0"], top(start.im["layer0"]))
    assert_same_bits(down.eps["layer0"], top(-start.im["layer0"]))
    better = to_host(up.d) >= to_host(down.d)
    assert_same_bits(
        first.eps["layer0"], np.where(better[:, None], to_host(up.eps["layer0"]), to_host(down.eps["layer0"]))
    )
    assert_same_bits(second.eps["layer0"], top(first.im["layer0"]))
    assert_same_bits(last.eps["layer0"], top(second.im["layer0"]))


def test_reselect_goes_on_from_a_side_even_where_the_random_start_is_better(put):
    """The start has spent one flip on a random unit: it is remembered for the result, and not selected from."""
    rng = np.random.default_rng(2)
    trace = find_adversary(*network(rng, put, H=8, B=40), rng=rng, budgets=1, search=Reselect(K=2))
    start, up, down, first, _ = trace.visits
    lucky = to_host(start.d) > np.maximum(to_host(up.d), to_host(down.d))
    assert lucky.any()
    sides = np.stack([to_host(side.eps["layer0"]) for side in (up, down)])
    assert (sides == to_host(first.eps["layer0"])).all(axis=2).any(axis=0).all()


def test_greedy_keeps_an_earlier_mask_where_the_last_is_worse(put):
    rng = np.random.default_rng(0)
    trace = find_adversary(*network(rng, put, H=8, B=40), rng=rng, budgets=3, search=Greedy(K=2))
    d = np.array([to_host(visit.d) for visit in trace.visits])  # (visits, B)
    assert (d.argmax(axis=0) < 2).any()
    assert_same_bits(trace.d, d.max(axis=0))


def test_swaps_take_out_the_weakest_first_and_bring_in_the_strongest(rng, put):
    """By the gain of each unit at the best mask: of the flipped ones the least, of the others the greatest."""
    b, swaps = 2, 3
    mixed = {"layer0": put(rng.integers(0, 2, (6, 8)).astype(float))}
    trace = find_adversary(*network(rng, put, B=6, H=8), rng=rng, budgets=b, search=Reselect(swaps=swaps), eps0=mixed)
    top, tried = trace.visits[-1 - b * swaps], trace.visits[-b * swaps :]
    eps, eps0, im = (to_host(part["layer0"]) for part in (top.eps, trace.eps0, top.im))
    gain = (1 - 2 * eps0) * im
    full = [row for row in range(len(eps)) if (eps[row] != eps0[row]).sum() == b]
    assert full
    for row in full:
        inside = sorted(np.flatnonzero(eps[row] != eps0[row]), key=lambda unit: gain[row, unit])
        outside = sorted(np.flatnonzero(eps[row] == eps0[row]), key=lambda unit: -gain[row, unit])
        moved = [set(np.flatnonzero(to_host(visit.eps["layer0"])[row] != eps[row])) for visit in tried]
        assert moved == [{out, into} for out in inside for into in outside[:swaps]]


@pytest.mark.parametrize("seed", range(5))
def test_swaps_never_make_it_worse_and_move_one_flip_each(seed, put):
    net = network(np.random.default_rng(seed), put, B=6, H=6)

    def run(swaps):
        rng = np.random.default_rng(seed)
        return find_adversary(*net, rng=rng, budgets=2, search=Reselect(swaps=swaps))

    without, with_swaps = run(0), run(2)
    assert bool((with_swaps.d >= without.d).all())
    n = len(without.visits)
    assert_same_bits([v.eps for v in with_swaps.visits[:n]], [v.eps for v in without.visits])
    assert_same_bits(with_swaps.visits[n].eps, without.eps)
    eps = without.eps["layer0"]
    for visit in with_swaps.visits[n + 1 :]:
        moved = to_host(masks.hamming(visit.eps["layer0"], eps))
        flips = to_host(masks.hamming(visit.eps["layer0"], with_swaps.eps0["layer0"]))
        free = to_host(without.flips["layer0"]) < 2  # an example with a free place may fill it instead
        assert (flips <= 2).all()
        assert ((moved == 2) | (free & (moved == 1))).all()


def test_the_random_search_spends_its_budget_and_starts_anew_each_try(rng, put):
    trace = find_adversary(*network(rng, put, B=8), rng=rng, budgets=2, search=Random(tries=6))
    assert {int(n) for visit in trace.visits for n in masks.hamming(visit.eps["layer0"], trace.eps0["layer0"])} == {2}
    assert len({to_host(visit.eps["layer0"]).tobytes() for visit in trace.visits}) > 1


def test_float32_stays_float32(rng, put):
    model, *rest = network(rng, put)
    params, batch = tree_map(lambda a: a.astype(np.float32) if a.dtype == np.float64 else a, rest)
    trace = find_adversary(model, params, batch, rng=rng, budgets=2, search=Reselect())
    assert {trace.eps["layer0"].dtype, trace.im["layer0"].dtype, trace.d.dtype} == {np.dtype(np.float32)}
