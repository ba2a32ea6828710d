"""The search Relax: the margin of the base pass, relaxed masks, the neighbours of a mask, and what they cost."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import fast, masks, protocol
from minadv.adversary import find_adversary
from minadv.backend import same_place, to_host
from minadv.base.trees import leaves, tree_map
from minadv.distances import by_name
from minadv.flip import flip
from minadv.models import Batch
from minadv.objective import Visit, best
from minadv.protocol import Pass
from minadv.regularizers import AdD
from minadv.relax import GROUP, Relax, borrowed, exchanged, margin_map, relaxed, runner_up
from minadv.searches import Exact, Memory
from tests.support import language_models, texts
from tests.support.cells import RAGGED, seeds
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched, network
from tests.support.regularized import Case, check, first_to_last, run
from tests.support.searching import Additive, additive, assert_true, bare, objective, replay

SHORT, LONG = Relax(), Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4)
UNSCORED = Relax(runner_up=False, keep="last")
PASSES = {  # a search, then the forward and backward passes beside the base pass
    "default": (SHORT, 3, 2),
    "long": (LONG, 12, 5),
    "unscored": (UNSCORED, 1, 2),
    "unscored, reselected": (Relax((4, 2), reselect=2, runner_up=False, keep="last"), 4, 5),
    "no runner-up": (Relax(runner_up=False), 2, 2),
    "no stage": (Relax(()), 2, 1),
    "two stages": (Relax((4, 2)), 4, 3),
    "reselect": (Relax(reselect=2), 5, 4),
    "borrow": (Relax(borrow=3), 6, 2),
    "swaps": (Relax(swaps=3), 3 + 1 + 3, 3),
}
every_search = pytest.mark.parametrize(("search", "forward", "backward"), PASSES.values(), ids=PASSES)
ENGINES = {  # options of a classifier, each of which another engine computes
    **{f"plain {cell}": {"cell": cell, "engine": "plain"} for cell in ("rnn", "lstm", "gru")},
    **{f"fast {cell}": {"cell": cell, "engine": "fast"} for cell in ("rnn", "lstm", "gru")},
    **{f"recomputing {cell}": {"cell": cell, "engine": "fast", "remat": True} for cell in ("rnn", "lstm", "gru")},
    "recomputing plain lstm": {"cell": "lstm", "engine": "plain", "remat": True},
}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


def log_odds(model, params, batch, m, lam=None, y=None, **given):
    """z (B,) of the classes y (N, B), or of the predicted ones, and those classes."""
    features = model.body(params, batch, masks=m, noise=None, **given)[0]
    return weighed_log_odds(to_host(model.logits(params, features)), lam, y)


def weighed_log_odds(logits, lam, y):
    """The same from logits (N, B, C), exact to rounding however sure they are."""
    y = logits.argmax(axis=-1) if y is None else y
    others = np.arange(logits.shape[-1]) != y[..., None]
    surprise = np.log1p((np.exp(logits - np.take_along_axis(logits, y[..., None], axis=-1)) * others).sum(axis=-1))
    lam = np.eye(len(logits))[-1] if lam is None else to_host(lam)
    lam = lam if lam.ndim == 2 else lam[:, None]
    mean = (lam * surprise).sum(axis=0) / lam.sum(axis=0)
    return -mean - np.log(-np.expm1(-mean)), y


def slope(f, m, step=1e-6):
    """Central differences of f (B,) in each unit of m (B, H), whose rows do not know each other."""
    columns = []
    for j in range(m.shape[1]):
        up, down = m.copy(), m.copy()
        up[:, j] += step
        down[:, j] -= step
        columns.append((to_host(f(up)) - to_host(f(down))) / (2 * step))
    return np.stack(columns, axis=1)


@every_search
def test_the_passes_are_as_documented_and_as_counted(search, forward, backward, rng, put):
    model, params, batch = network(rng, put, H=6, B=5)
    watched = Watched(model)
    trace = find_adversary(watched, params, batch, budgets=2, search=search)
    assert (trace.passes.forward, trace.passes.backward) == (forward, backward)
    assert len(watched.forward) == 1 + forward
    assert watched.backward == [{"weights": False, "masks": ("layer0",)}] * backward
    assert (trace.d is None) == (search.keep == "last")


@every_search
def test_nothing_is_drawn(search, forward, backward, rng, put):
    net = network(rng, put, H=6, B=5)
    generator = np.random.default_rng(3)
    traces = [find_adversary(*net, budgets=2, search=search, rng=given) for given in (None, generator)]
    assert generator.random() == np.random.default_rng(3).random()
    assert_same_bits((traces[0].eps, traces[0].im, traces[0].d), (traces[1].eps, traces[1].im, traces[1].d))


# The margin


@pytest.mark.parametrize("weights", [None, "of the steps", "of each example"])
@pytest.mark.parametrize("readout", ["clean", "masked"])
@every_engine
def test_the_margin_is_the_gradient_of_the_log_odds(engine, readout, weights, rng, put):
    options = {"n_layers": 2, "steps": "all", "readout": readout, "valid": RAGGED, "H": 5, **engine}
    model, *_ = net = network(rng, put, **options)
    lam = {None: None, "of the steps": rng.uniform(0.1, 1, 4), "of each example": rng.uniform(0.1, 1, (4, 3))}[weights]
    lam = put(lam)
    sites = tuple(site.name for site in model.sites)
    eps0 = {name: put((rng.random((3, 5)) < 0.8).astype(float)) for name in sites}
    found, p = objective(net, budgets=2, eps0=eps0, sites=sites, lam=lam).margin()
    z, y = log_odds(*net, eps0, lam)
    assert_close(p, 1 / (1 + np.exp(-z)))
    for name in sites:
        assert_close(found[name], slope(lambda m, n=name: log_odds(*net, {**eps0, n: m}, lam, y)[0], eps0[name]), 1e-7)
    assert max(float(abs(each).max()) for each in found.values()) > 1e-2


def test_the_margin_of_the_full_network_has_m_one(rng, put):
    net = network(rng, put)
    found, _ = objective(net, budgets=2, scale="inverted", p=0.4).margin()
    ones = put(np.ones((3, 4)))
    y = log_odds(*net, {})[1]
    assert_close(found["layer0"], slope(lambda m: log_odds(*net, {"layer0": m}, None, y)[0], ones), 1e-7)


@pytest.mark.parametrize("scale", ["none", "inverted", "kept"])
@pytest.mark.parametrize("distance", ["js", "kl", "logit2"])
def test_an_example_moves_to_the_side_that_promises_more(scale, distance, rng, put):
    net = network(rng, put, B=40, H=6)
    eps0 = rng.integers(0, 2, (40, 6)).astype(float)
    p = {"inverted": 0.3}.get(scale)
    on = objective(net, budgets=2, eps0=put(eps0), scale=scale, p=p, distance=distance)
    dm, p0 = to_host(on.margin())
    im = to_host(masks.scale_backward(put(eps0), put(dm["layer0"]), scale, p=p))
    m0 = to_host(masks.scale(put(eps0), scale, p=p))
    sides = []
    for b in range(40):
        gain = (1 - 2 * eps0[b]) * im[b]
        promises = []
        for side in (-1, 1):
            eps = eps0[b].copy()
            for j in sorted(range(6), key=lambda j, g=side * gain: -g[j])[:2]:
                eps[j] = 1 - eps[j] if side * gain[j] > 0 else eps[j]
            m = to_host(masks.scale(put(eps[None]), scale, p=p))[0]
            z = np.log(p0[b] / (1 - p0[b]))
            pair = [np.array([odds, 0.0]) for odds in (z, z + (dm["layer0"][b] * (m - m0[b])).sum())]
            promises.append(float(by_name(distance)(*pair)[0]))
        sides.append(1 if promises[1] > promises[0] else -1)
    assert_close(margin_map(on)["layer0"], np.array(sides)[:, None] * im)
    assert {*sides} == {-1, 1}


@given(rng=seeds, H=st.integers(2, 6), budget=st.integers(1, 3), c=st.floats(-3, 3))
def test_where_flips_add_up_it_is_exact(put, rng, H, budget, c):
    """The margin promises just what a mask does, so that side and units are the best."""
    net = additive(rng.standard_normal((8, H)), c, put)
    eps0 = put(rng.integers(0, 2, (8, H)).astype(float))
    options = {"eps0": eps0, "budgets": min(budget, H)}
    most = find_adversary(*net, search=Exact(), **options)
    for search in (SHORT, Relax(()), Relax((3, 1), reselect=1), Memory()):
        assert_close(find_adversary(*net, search=search, **options).d, most.d)


def test_of_equal_gains_the_lowest_index_and_of_equal_distances_the_first_mask(put):
    net = additive(np.ones((3, 6)), -1.0, put)
    for search in (SHORT, LONG, UNSCORED, Memory(), Memory(tries=3)):
        trace = find_adversary(*net, search=search, budgets=2)
        assert to_host(trace.eps["z"]).tolist() == [[0, 0, 1, 1, 1, 1]] * 3
    trace = find_adversary(*net, search=SHORT, budgets=2)
    start, selected, second = (to_host(visit.eps["z"])[0].tolist() for visit in trace.visits)
    assert start == [0.5, 0.5, 0.5, 0.5, 1, 1]
    assert (selected, second) == ([0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1])
    assert_same_bits(trace.visits[1].d, trace.visits[2].d)


def test_equal_promises_go_to_the_side_that_is_less_sure(put):
    """Logits have the same distance on either side: one unit lowers the log-odds by 1, the other raises them by 1."""
    net = additive([[1.0, -1.0], [-1.0, 1.0]], 1.0, put)
    trace = find_adversary(*net, search=SHORT, budgets=1, distance="logit2")
    assert to_host(trace.visits[1].eps["z"]).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.25, 1e-3])
def test_a_prediction_that_is_sure_has_a_margin(dtype, share, rng, put):
    """At log-odds of 25 a probability in single precision is 1; far beyond, all gradients are zero, and none is NaN."""
    model, params, batch = network(rng, put, steps="all", H=5)
    lam = put(np.full(4, share, dtype))
    for boost in (25.0, 2000.0):
        exact = replace(params, b=put(np.array([boost, 0, 0])), V=params.V)
        net = model, *cast((exact, batch), dtype)
        found, p = objective(net, budgets=2, lam=lam).margin()
        assert (found["layer0"].dtype, p.dtype) == (dtype, np.float64)
        if boost == 25:
            z, y = log_odds(model, exact, batch, {}, np.ones(4))
            expected = slope(
                lambda m, at=exact, y=y: log_odds(model, at, batch, {"layer0": m}, np.ones(4), y)[0],
                put(np.ones((3, 5))),
            )
            np.testing.assert_allclose(-np.log1p(-to_host(p)), z, rtol=1e-4)
            np.testing.assert_allclose(to_host(found["layer0"]), expected, rtol=2e-3, atol=2e-4)
        else:
            assert not to_host(found["layer0"]).any() and (to_host(p) == 1).all()


def test_an_example_of_no_weight_is_left_alone(rng, put):
    net = network(rng, put, steps="all")
    lam = np.full((4, 3), 0.25)
    alone = find_adversary(*net, budgets=2, search=SHORT, lam=put(lam))
    lam[:, 1] = 0
    trace = find_adversary(*net, budgets=2, search=SHORT, lam=put(lam))
    assert to_host(trace.flips["layer0"])[1] == 0 and float(trace.d[1]) == 0
    for b in (0, 2):
        assert_same_bits(trace.eps["layer0"][b], alone.eps["layer0"][b])


def test_single_precision_stays_single_whatever_the_weights_have(rng, put):
    model, *rest = network(rng, put, steps="all", H=6, B=5)
    net = model, *cast(rest, np.float32)
    for search in (SHORT, LONG, Memory()):
        trace = find_adversary(*net, budgets=2, search=search, lam=put(np.full(4, 0.25)))
        assert {trace.eps["layer0"].dtype, trace.im["layer0"].dtype, trace.d.dtype} == {np.dtype(np.float32)}
        assert {visit.eps["layer0"].dtype for visit in trace.visits} == {np.dtype(np.float32)}


def cast(tree, dtype):
    return tree_map(lambda a: a.astype(dtype) if a.dtype.kind == "f" else a, tree)


# Relaxed masks


@pytest.mark.parametrize("scale", ["none", "inverted", "kept"])
@pytest.mark.parametrize("L", [1, 2, 3])
def test_a_relaxed_mask_is_flipped_in_part_and_scaled_as_it_is(L, scale, rng, put, xp):
    model, params, batch = net = network(rng, put, H=6)
    p, eps0 = {"inverted": 0.3}.get(scale), put(rng.integers(0, 2, (3, 6)).astype(float))
    options = {"budgets": 2, "eps0": eps0, "scale": scale, "p": p}
    watched = Watched(model)
    trace = find_adversary(watched, params, batch, search=Relax((L,)), **options)
    on = objective(net, **options)
    whole = flip(eps0, margin_map(on)["layer0"], eps0, min(2 * L, 6))
    eps = eps0 + (whole - eps0) / L
    first = trace.visits[0]
    assert_close(first.eps["layer0"], eps)
    assert_close(relaxed(on, margin_map(on), L)["layer0"], eps)
    factor = {"none": 1.0, "inverted": 1 / 0.7, "kept": 6 / np.maximum(to_host(eps).sum(axis=1, keepdims=True), 1e-9)}
    assert_close(watched.forward[1]["masks"]["layer0"], to_host(eps) * factor[scale])

    def D(e):
        return replay(net, {"layer0": e}, eps0={"layer0": eps0}, scale=scale, p=p)

    assert_close(first.d, D(eps))
    assert_close(first.im["layer0"], slope(D, eps), 1e-7)
    assert_same_bits(trace.visits[1].eps["layer0"], flip(eps0, first.im["layer0"], eps0, 2))
    assert first.relaxed == (L > 1)


def test_a_relaxed_mask_is_never_the_best():
    def visit(eps, d, **given):
        return Visit({"a": np.array([[eps]])}, np.array([d]), **given)

    found = best([visit(0.5, 9.0, relaxed=True), visit(0.0, 1.0), visit(0.25, 8.0, relaxed=True), visit(1.0, 1.0)])
    assert (found.eps["a"].tolist(), found.d.tolist()) == ([[0.0]], [1.0])


class Bent(Additive):
    """A unit that is dropped in part counts for more than one that is dropped or kept."""

    def body(self, params, batch, *, masks, noise, state=None, dx=None):
        m = masks.get("z", 1 + 0 * batch.x)
        features, _, x = super().body(params, batch, masks={"z": m + 8 * m * (1 - m)}, noise=None)
        return features, None, x * (9 - 16 * m)


@pytest.mark.parametrize("search", [SHORT, LONG, Relax((3,), runner_up=False), Memory(), Memory(stage=3)], ids=repr)
def test_a_relaxed_mask_that_is_furthest_is_not_returned(search, rng, put):
    _, *rest = additive(rng.uniform(0.5, 1, (4, 9)), -3.0, put)
    net = Bent(9), *rest
    trace = find_adversary(*net, budgets=2, search=search, distance="logit2")
    assert bool((trace.visits[0].d > trace.d).all())
    assert_true(net, trace, distance="logit2")


def test_each_stage_starts_from_the_map_of_the_one_before(rng, put):
    net = network(rng, put, H=10, B=6)
    trace = find_adversary(*net, budgets=2, search=Relax((4, 2), reselect=2))
    four, two, first, second, last, runner = trace.visits
    e = trace.eps0["layer0"]
    assert_close(two.eps["layer0"], e + (flip(e, four.im["layer0"], e, 4) - e) / 2)
    for before, after in ((two, first), (first, second), (second, last)):
        assert_same_bits(after.eps["layer0"], flip(e, before.im["layer0"], e, 2))
    assert_same_bits(runner.eps, runner_up(objective(net, budgets=2), second.im))
    assert [visit.relaxed for visit in trace.visits] == [True, True, False, False, False, False]
    assert_same_bits(trace.im, second.im)


def test_unscored_is_the_mask_of_the_last_map(rng, put):
    net = network(rng, put, H=8, B=6)
    scored, last = (find_adversary(*net, budgets=2, search=search) for search in (SHORT, UNSCORED))
    assert_same_bits(last.eps, scored.visits[1].eps)
    assert last.d is None and last.visits[-1].d is None


# Neighbours of the mask

SITES = {"a": 4, "b": 3}
MAPS = st.sampled_from(["real", "ties"])


def ranked(rng, kind, put, B=4):
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
    for b in range(4):
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
    for b in range(4):
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
    net = network(rng, put, H=8, B=20)
    few, borrow, swaps = (
        find_adversary(*net, budgets=2, search=search) for search in (SHORT, Relax(borrow=3), Relax(swaps=3))
    )
    for more in (borrow, swaps):
        assert bool((more.d >= few.d).all()) and bool((more.d > few.d).any())
    eps = swaps.visits[3].eps["layer0"]
    assert_same_bits(eps, few.eps["layer0"])  # the map of the exchanges is taken at the best mask
    for visit in swaps.visits[4:]:
        assert set(to_host(masks.hamming(visit.eps["layer0"], eps)).tolist()) <= {0, 2}


# Everything that a search may be given

NETS = {
    "last step": lambda rng, put: network(rng, put, H=5),
    "layers of a budget each": lambda rng, put: network(rng, put, H=5, n_layers=2),
    "padding": lambda rng, put: network(rng, put, valid=RAGGED, steps="all"),
    "text, padded": lambda rng, put: texts.classifier(rng, put, valid=texts.FRONT, n_layers=2),
    "text, one output": lambda rng, put: texts.classifier(rng, put, C=2, output="sigmoid", valid=texts.FRONT),
    "language, pretraining": lambda rng, put: texts.language_model(rng, put),
}
TRIED = {"short": SHORT, "long": LONG, "memory": Memory(), "many": Memory(tries=3, stage=4)}
every_kind = pytest.mark.parametrize("search", TRIED.values(), ids=TRIED)


@pytest.mark.parametrize("search", [LONG, Memory(tries=3, stage=4)], ids=["relax", "memory"])
@pytest.mark.parametrize("scale", ["none", "inverted", "kept"])
@pytest.mark.parametrize("name", NETS)
def test_every_model_and_scale_and_base_mask(name, scale, search, rng, put):
    net = NETS[name](rng, put)
    sites = [site for site in net[0].sites if site.kind == "recurrent"]
    p = {"inverted": 0.3}.get(scale)
    budgets = {site.name: 1 + n for n, site in enumerate(sites)}
    for eps0 in (None, {site.name: put(rng.integers(0, 2, (3, site.H)).astype(float)) for site in sites}):
        options = {"scale": scale, "p": p, "eps0": eps0, "distance": "kl"}
        trace = find_adversary(*net, budgets=budgets, search=search, **options)
        assert_true(net, trace, **options)
        assert float(trace.d.max()) > 0


@every_kind
def test_the_readout_and_the_weights_of_the_steps(search, rng, put):
    net = network(rng, put, H=5, B=4, steps="all")
    for lam in (rng.uniform(0, 1, 4), rng.uniform(0, 1, (4, 4))):
        for sites in (("readout",), ("layer0", "readout")):
            trace = find_adversary(*net, budgets=2, search=search, lam=put(lam), sites=sites)
            assert set(trace.eps) == set(sites)
            assert_true(net, trace, lam=put(lam))
            most = find_adversary(*net, budgets=2, search=Exact(), lam=put(lam), sites=sites)
            assert bool((trace.d <= most.d + 1e-12).all())


@every_kind
def test_noise_state_and_a_site_that_is_not_searched(search, rng, put):
    model, params, batch = net = network(rng, put, I=6, input_dropout=0.5, n_layers=2)
    given = {"noise": model.noise(rng, batch), "adv_noise": model.noise(rng, batch)}
    state = model.body(params, batch, masks={}, noise=None)[1]
    eps0 = {name: put(rng.integers(0, 2, (3, 4)).astype(float)) for name in ("layer0", "layer1")}
    options = {**given, "state": state, "eps0": eps0}
    trace = find_adversary(*net, budgets=2, search=search, sites=("layer1",), **options)
    for visit in trace.visits:
        if visit.d is not None:
            assert_close(visit.d, replay(net, {**eps0, **visit.eps}, **options))


@every_kind
@pytest.mark.parametrize("penalties", [{}, language_models.PENALTIES], ids=["", "penalties"])
def test_a_language_model(search, penalties, rng, put):
    """The vocabulary by blocks of two rows, three layers, every dropout, a carried state."""
    on = language_models.language(rng, put, block=2, **language_models.DROPOUTS, **penalties)
    net, budgets = (on.model, on.params, on.batch), {"layer0": 2, "layer1": 1, "layer2": 2}
    options = {"noise": on.noise, "state": on.state}
    trace = find_adversary(*net, budgets=budgets, search=search, **options)
    assert_true(net, trace, **options)
    lam = put(rng.uniform(0, 1, (4, 3)))
    found, p = objective(net, budgets=budgets, lam=lam, **options).margin()
    masked = {name: put(np.ones((3, H))) for name, H in (("layer0", 4), ("layer1", 2), ("layer2", 3))}

    def z(m, y=None):
        features = on.model.body(on.params, on.batch, masks=m, **options)[0]
        return weighed_log_odds(to_host(on.model.logits(on.params, features)), lam, y)

    at, y = z(masked)
    assert_close(p, 1 / (1 + np.exp(-at)))
    for name, ones in masked.items():
        assert_close(found[name], slope(lambda m, n=name: z({**masked, n: m}, y)[0], ones), 1e-7)


@pytest.mark.parametrize("search", [SHORT, LONG, Memory()], ids=["short", "long", "memory"])
def test_an_input_that_is_not_a_number_names_its_example(search, rng, put, xp):
    model, params, batch = network(rng, put)
    batch.x[1, 2, 0] = xp.nan
    with pytest.raises(ValueError, match=r"NaN for example 2"):
        find_adversary(model, params, batch, budgets=2, search=search)


def test_one_unit_has_no_neighbours(rng, put):
    net = network(rng, put, H=1, B=3)
    trace = find_adversary(*net, budgets=1, search=LONG)
    assert_true(net, trace)
    assert_same_bits(trace.d, find_adversary(*net, budgets=1, search=Exact()).d)


@pytest.mark.parametrize("budget", [5, 6])
def test_a_budget_of_nearly_every_unit(budget, rng, put):
    net = network(rng, put, H=6, B=3)
    for search in TRIED.values():
        assert_true(net, find_adversary(*net, budgets=budget, search=search))


# Training: the base pass is gone back through by the margin, and then by the loss


@pytest.mark.parametrize("buffers", [False, True], ids=["", "with buffers"])
@pytest.mark.parametrize("search", [LONG, Memory()], ids=["relax", "memory"])
@every_engine
def test_the_gradients_of_training_with_it(engine, search, buffers, rng, put, xp):
    if xp is not np and search is LONG:
        search = replace(LONG, stages=(2,), swaps=1, borrow=1)  # CuPy without a GPU is slow
    case = Case(AdD(budgets=2, search=search), first_to_last)
    model, params, batch = network(rng, put, n_layers=2, **engine)
    model = fast.reusing(model) if buffers else model
    for _ in range(2):  # buffers that were used before
        term, again = run(case, model, params, batch, rng)
    assert_close((term.nll, term.value), (case.nll(again(params)), case.value(again(params))))
    check(case, term, again, params, rng, elementwise=0, directions=2 if xp is np else 1)
    assert all(float(abs(g).max()) > 1e-5 for _, g in leaves(term.grads))
    assert {name: a.shape for name, a in term.trace.eps.items()} == {"layer0": (3, 4), "layer1": (3, 4)}


@pytest.mark.parametrize("search", [SHORT, LONG, Memory()], ids=["short", "long", "memory"])
def test_passes_that_are_compiled_as_a_whole(search, rng, xp, put, monkeypatch):
    """In single precision, beside the readable cells in double precision: the margin, the mask, and the gradients."""
    pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")
    if xp is not np:
        pytest.skip("Numba compiles for the processor")
    monkeypatch.delenv("MINADV_COMPILED", raising=False)
    monkeypatch.delenv("MINADV_ENGINE", raising=False)
    model, *rest = network(rng, put, H=8, B=6)
    single = cast(rest, np.float32)
    double = cast(single, np.float64)
    compiled, plain = fast.reusing(model), replace(model, engine="plain")
    _, _, cache = model.body(*single, masks={}, noise=None)
    assert cache.caches[0].engine.name == "compiled"
    margins = [objective((one, *given), budgets=2).margin() for one, given in ((model, single), (plain, double))]
    np.testing.assert_allclose(margins[0][0]["layer0"], margins[1][0]["layer0"], rtol=1e-3, atol=1e-4)
    add = AdD(budgets=2, search=search)
    terms = [add(one, *given, rng=rng, likelihood=1.0) for one, given in ((compiled, single), (plain, double))]
    assert_close(terms[0].trace.eps, terms[1].trace.eps)
    for (_, a), (_, b) in zip(*(leaves(term.grads) for term in terms), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_a_cache_kept_for_the_caller_survives_the_search(rng, put):
    model, params, batch = network(rng, put, H=6)
    features, _, cache = model.body(params, batch, masks={}, noise=None)
    expected = model.body_backward(params, cache, features, masks=("layer0",))
    reused = fast.reusing(model)
    for search in (SHORT, LONG, Memory()):
        with protocol.scope(reused):
            base = find_adversary(reused, params, batch, budgets=2, search=search).base
            found = reused.body_backward(params, base.cache, features, masks=("layer0",))
            assert_same_bits((found.params.cells, found.masks), (expected.params.cells, expected.masks))


# The same masks whatever computes them


def clear(maps, eps0, budgets):
    """(B,): whether no two gains of any map are within 1e-9 of each other or of zero, beside the largest."""
    found = True
    for im in maps:
        for name, e in eps0.items():
            gain = np.sort(np.concatenate([to_host((1 - 2 * e) * im[name]), np.zeros((len(e), 1))], axis=1), axis=1)
            found = found & (np.diff(gain, axis=1).min(axis=1) > 1e-9 * np.abs(gain).max(axis=1))
    return found


@given(rng=seeds, cell=st.sampled_from(["rnn", "lstm", "gru"]), random=st.booleans())
def test_readable_cells_on_the_host_find_the_same_masks(put, rng, cell, random):
    options = {"H": 6, "B": 6, "T": 3, "cell": cell}
    seed = int(rng.integers(2**32))
    host = network(np.random.default_rng(seed), lambda a: a, engine="plain", **options)
    there = network(np.random.default_rng(seed), put, engine="fast", **options)
    eps0 = rng.integers(0, 2, (6, 6)).astype(float) if random else None
    for search in (SHORT, Relax((4, 2), reselect=1, swaps=2), Memory()):
        one = find_adversary(*host, budgets=2, eps0=eps0, search=search)
        two = find_adversary(*there, budgets=2, eps0=put(eps0), search=search)
        on = objective(host, budgets=2, eps0=eps0)
        rows = clear([margin_map(on), *(visit.im for visit in one.visits if visit.im)], one.eps0, one.budgets)
        d = np.sort([visit.d for visit in one.visits if not visit.relaxed], axis=0)
        rows = rows & ((np.diff(d, axis=0) > 1e-9 * d[-1]) | (np.diff(d, axis=0) == 0)).all(axis=0)
        assert_same_bits(to_host(two.eps["layer0"])[rows], one.eps["layer0"][rows])
        assert_close(to_host(two.d)[rows], one.d[rows], 1e-9)
        assert rows.any()


def test_the_batch_may_be_one_example(rng, put):
    net = network(rng, put, B=1, H=6)
    for search in TRIED.values():
        assert_true(net, find_adversary(*net, budgets=2, search=search))
    assert isinstance(net[2], Batch)
