"""The neighbours of a mask that Relax tries: the runner-up, borrowed masks, exchanges of one unit."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import same_place, to_host
from minadv.base.trees import tree_map
from minadv.objective import Visit
from minadv.protocol import Pass
from minadv.relax import GROUP, Relax, borrowed, exchanged, runner_up
from tests.support.cells import seeds
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import network
from tests.support.searching import LONG, SHORT, bare

SITES, B = {"a": 4, "b": 3}, 3
MAPS = st.sampled_from(["real", "ties"])


def ranked(rng, kind, put):
    """A bare objective of two sites with a map of real numbers, or of few whole ones."""
    eps0 = {name: rng.integers(0, 2, (B, H)).astype(float) for name, H in SITES.items()}
    budgets = {name: int(rng.integers(1, H + 1)) for name, H in SITES.items()}
    im = {name: rng.standard_normal((B, H)) for name, H in SITES.items()}
    if kind == "ties":
        im = {name: np.round(values) for name, values in im.items()}
    return bare(put(eps0), budgets), put(im)


def ball(on, b):
    """Every mask within the budgets of example b, as flips by site."""
    each = []
    for name, H in SITES.items():
        every = (np.array(flips, dtype=bool) for flips in itertools.product((0, 1), repeat=H))
        each.append([flips for flips in every if flips.sum() <= on.budgets[name]])
    return [dict(zip(SITES, pair, strict=True)) for pair in itertools.product(*each)]


def flips_of(on, eps, b):
    return {name: to_host(eps[name] != on.eps0[name])[b] for name in SITES}


def promise(on, im, flips, b):
    gains = {name: to_host((1 - 2 * on.eps0[name]) * im[name])[b] for name in SITES}
    return sum((gains[name] * flips[name]).sum() for name in SITES)


@given(rng=seeds, kind=MAPS)
def test_the_runner_up_is_the_next_mask_in_the_map_s_order(put, rng, kind):
    """Of all masks within the budgets that flip a unit which the selected one does not, none promises more."""
    on, im = ranked(rng, kind, put)
    selected, second = on.select(im), runner_up(on, im)
    for b in range(B):
        first, found = flips_of(on, selected, b), flips_of(on, second, b)
        others = [m for m in ball(on, b) if any((m[name] & ~first[name]).any() for name in SITES)]
        if not others:
            assert all((found[name] == first[name]).all() for name in SITES)
            continue
        assert any((found[name] & ~first[name]).any() for name in SITES)
        assert all(found[name].sum() <= on.budgets[name] for name in SITES)
        assert promise(on, im, found, b) == pytest.approx(max(promise(on, im, m, b) for m in others), abs=1e-12)
        assert promise(on, im, first, b) == pytest.approx(max(promise(on, im, m, b) for m in ball(on, b)), abs=1e-12)


@given(rng=seeds, kind=MAPS, times=st.integers(1, 5))
def test_exchanges_come_in_the_order_of_what_they_promise(put, rng, kind, times):
    on, im = ranked(rng, kind, put)
    eps = {n: masks.random_flips(rng, e, int(rng.integers(0, on.budgets[n] + 1))) for n, e in on.eps0.items()}
    before = tree_map(lambda a: a.copy(), (eps, im, on.eps0))
    found = list(exchanged(on, Visit(eps, None, im), times))
    assert_same_bits((eps, im, on.eps0), before)
    assert len(found) <= times
    for b in range(B):
        here = flips_of(on, eps, b)
        possible = [
            m
            for m in ball(on, b)
            if sum((m[name] != here[name]).sum() for name in SITES) == 2
            and all(m[name].sum() == here[name].sum() for name in SITES)
        ]
        worth = sorted((promise(on, im, m, b) for m in possible), reverse=True)
        got = [flips_of(on, mask, b) for mask in found]
        moved = [m for m in got if any((m[name] != here[name]).any() for name in SITES)]
        assert len(moved) == min(times, len(possible))
        assert [promise(on, im, m, b) for m in moved] == pytest.approx(worth[: len(moved)], abs=1e-12)
        assert len({str(m) for m in moved}) == len(moved)
        assert all(any(all((m[n] == q[n]).all() for n in SITES) for q in possible) for m in moved)
        assert moved == got[: len(moved)] or str(moved) == str(got[: len(moved)])  # the others leave the mask alone


def test_of_equal_promises_the_lowest_index(rng, put):
    """So that NumPy and CuPy, whose sorts differ, find the same neighbours of a mask."""
    eps0, gain = np.ones((B, 40)), rng.integers(1, 4, (B, 40))
    on, im = bare(put({"a": eps0}), {"a": 20}), put({"a": -gain.astype(float)})
    second = to_host(runner_up(on, im)["a"] != on.eps0["a"])
    eps = masks.random_flips(rng, eps0, 20)
    found = list(exchanged(on, Visit(put({"a": eps}), None, im), 30))
    for b in range(B):
        order = sorted(range(40), key=lambda i, g=gain[b]: (-g[i], i))
        assert np.flatnonzero(second[b]).tolist() == sorted([*order[:19], order[20]])
        pairs = itertools.product(np.flatnonzero(eps[b] == 0), np.flatnonzero(eps[b] == 1))
        ranked_pairs = sorted(pairs, key=lambda p, g=gain[b]: (g[p[0]] - g[p[1]], g[p[0]], p))  # leaves, enters
        moved = [np.flatnonzero(to_host(mask["a"])[b] != eps[b]).tolist() for mask in found]
        assert moved == [sorted(pair) for pair in ranked_pairs[:30]]


def test_a_site_of_one_unit_has_nothing_to_exchange(put):
    on, im = bare(put({"a": np.ones((B, 1))}), {"a": 1}), put({"a": -np.ones((B, 1))})
    for eps in (0.0, 1.0):
        assert list(exchanged(on, Visit(put({"a": np.full((B, 1), eps)}), None, im), 3)) == []


class Predicting:
    """A model whose features are the classes that it predicts."""

    def logits(self, params, features):
        return (features == same_place(np.arange(3.0), features)).astype(float)


class Mute:
    """A model without ``logits``."""


def lending(rng, put, B=40, classes=True):
    """A bare objective with predicted classes, and a mask and a distance of each example, some of them alike."""
    e = rng.integers(0, 2, (B, 4)).astype(float)
    flips = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])[rng.integers(0, 4, B)]  # some in others
    y, d = rng.integers(0, 2, B), np.round(rng.random(B), 1)
    model = Predicting() if classes else Mute()
    steps = np.stack([rng.integers(0, 2, B), y]).astype(float)  # the last step is the one that counts
    on = bare(put({"a": e}), {"a": 2}, model=model, base=Pass(put(steps[..., None]), None, None))
    return on, Visit(put({"a": np.where(flips > 0, 1 - e, e)}), put(d)), e, flips > 0, y, d


@pytest.mark.parametrize("classes", [True, False], ids=["by class", "without logits"])
@pytest.mark.parametrize("seed", range(10))
def test_masks_are_borrowed_from_neighbours_of_the_same_class_that_were_moved_far(seed, classes, put, xp):
    on, top, e, flips, y, d = lending(np.random.default_rng(seed), put, classes=classes)
    found = [to_host(eps["a"]) != e for eps in borrowed(on, top, 3)]
    for b in range(40):
        used = [flips[b].tolist()]
        for each in found:
            lenders = [
                q
                for q in range(40)
                if q // GROUP == b // GROUP and (y[q] == y[b] or not classes) and flips[q].tolist() not in used
            ]
            if lenders:
                lender = max(lenders, key=lambda q: (d[q], -q))
                assert each[b].tolist() == flips[lender].tolist()
                used.append(flips[lender].tolist())
            else:
                assert each[b].tolist() == flips[b].tolist()


def test_borrowing_in_a_large_batch_makes_no_array_of_all_pairs_and_units(rng):
    B, H = 200, 400
    on, d = bare({"a": np.ones((B, H))}, {"a": 2}, model=Mute()), rng.random(B)
    top = Visit({"a": masks.random_flips(rng, on.eps0["a"], 2)}, d)
    tracemalloc.start()
    next(borrowed(on, top, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < B * B * H / 4


def test_masks_alike_at_one_site_only_are_not_the_same(put):
    eps0 = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    eps = {"a": np.array([[0.0, 1], [0, 1]]), "b": np.array([[0.0, 1], [1, 0]])}
    on = bare(put(eps0), {"a": 1, "b": 1}, model=Mute())
    [one] = borrowed(on, Visit(put(eps), put(np.array([1.0, 2.0]))), 1)
    assert_same_bits(one, {"a": eps["a"], "b": eps["b"][::-1]})


def test_examples_of_other_groups_make_no_difference(rng, put):
    model, params, batch = network(rng, put, H=8, B=40, T=3)
    x = to_host(batch.x).copy()
    x[:, GROUP:] = rng.standard_normal((3, 40 - GROUP, 2))
    other = replace(batch, x=put(x))
    one, two = (find_adversary(model, params, each, budgets=2, search=LONG) for each in (batch, other))
    assert_same_bits(one.eps["layer0"][:GROUP], two.eps["layer0"][:GROUP])
    assert_close(one.d[:GROUP], two.d[:GROUP])
    assert not np.array_equal(to_host(one.d)[GROUP:], to_host(two.d)[GROUP:])
    assert (LONG.group, SHORT.group) == (GROUP, 1)


def test_more_neighbours_never_make_it_worse(rng, put):
    net = network(rng, put, H=10, B=40, size=3.0)  # weights so large that units act together
    few, borrow, swaps = (
        find_adversary(*net, budgets=3, search=search) for search in (SHORT, Relax(borrow=3), Relax(swaps=3))
    )
    for more in (borrow, swaps):
        assert bool((more.d >= few.d).all()) and bool((more.d > few.d).any())
    eps = swaps.visits[3].eps["layer0"]
    assert_same_bits(eps, few.eps["layer0"])  # the map of the exchanges is taken at the best mask
    for visit in swaps.visits[4:]:
        assert set(to_host(masks.hamming(visit.eps["layer0"], eps)).tolist()) <= {0, 2}
