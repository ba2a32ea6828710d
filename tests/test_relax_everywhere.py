"""Relax on every model, engine, scale and base mask, on one example and on both backends."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import fast, protocol
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import leaves
from minadv.models import Batch
from minadv.regularizers import AdD
from minadv.relax import Relax, margin_map
from minadv.searches import Exact, Memory
from tests.support import language_models, texts
from tests.support.cells import RAGGED, seeds
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import network
from tests.support.regularized import Case, check, first_to_last, run
from tests.support.searching import (
    LONG,
    SHORT,
    assert_true,
    cast,
    every_engine,
    objective,
    replay,
    slope,
    weighed_log_odds,
)

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


@pytest.mark.many_passes
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


@pytest.mark.many_passes
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


@pytest.mark.many_passes
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
