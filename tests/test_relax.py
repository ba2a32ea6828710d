"""The search Relax: the margin of the base pass, relaxed masks, the neighbours of a mask, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.distances import by_name
from minadv.flip import flip
from minadv.objective import Visit, best
from minadv.relax import Relax, margin_map, relaxed, runner_up
from minadv.searches import Exact, Memory
from tests.support.cells import RAGGED, seeds
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched, network
from tests.support.searching import (
    LONG,
    SHORT,
    Additive,
    additive,
    assert_true,
    cast,
    every_engine,
    objective,
    replay,
    slope,
    weighed_log_odds,
)

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


def log_odds(model, params, batch, m, lam=None, y=None, **given):
    """z (B,) of the classes y (N, B), or of the predicted ones, and those classes."""
    features = model.body(params, batch, masks=m, noise=None, **given)[0]
    return weighed_log_odds(to_host(model.logits(params, features)), lam, y)


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
@pytest.mark.parametrize("base", ["full", "masked"])
def test_an_example_moves_to_the_side_that_promises_more(base, scale, distance, rng, put):
    net = network(rng, put, B=40, H=6)
    eps0 = rng.integers(0, 2, (40, 6)).astype(float) if base == "masked" else np.ones((40, 6))
    p = {"inverted": 0.3}.get(scale)
    given = {"eps0": put(eps0)} if base == "masked" else {}
    on = objective(net, budgets=2, scale=scale, p=p, distance=distance, **given)
    dm, p0 = to_host(on.margin())
    im = to_host(masks.scale_backward(put(eps0), put(dm["layer0"]), scale, p=p))
    m0 = to_host(masks.scale(put(eps0), scale, p=p)) if base == "masked" else eps0  # the full network has m = 1
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


@pytest.mark.parametrize(("distance", "kept"), [("kl", [1, 0]), ("rkl", [0, 1])])
def test_what_a_side_promises_is_the_distance_from_the_base_to_it(distance, kept, put):
    """From log-odds of 1, KL is larger to 5 than to -1, and the reversed KL is larger from -1 than from 5."""
    net = additive([[2.0, -4.0]], 3.0, put)
    trace = find_adversary(*net, search=Relax((), runner_up=False, keep="last"), budgets=1, distance=distance)
    assert to_host(trace.eps["z"]).tolist() == [kept]


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
