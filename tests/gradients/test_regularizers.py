"""Likelihood plus regularizer against central differences, by every parameter, and the search outside the gradient."""

from dataclasses import replace

import numpy as np
import pytest

from minadv import regularizers
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.regularizers import VAT, AdD, Sum
from minadv.searches import Exact, Greedy, Reselect
from tests.support.cells import RAGGED
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import network
from tests.support.regularized import LIKELIHOOD, WEIGHT, check, every_case, run

LAM = np.array([0.1, 0.4, 0.2, 0.3])
CASES = list(every_case(None))
every_cell = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])


@pytest.mark.many_passes
@every_cell
@pytest.mark.parametrize(("n_layers", "valid"), [(1, None), (2, RAGGED)], ids=["one layer", "two layers, ragged"])
@pytest.mark.parametrize("name", CASES)
def test_the_total_loss(cell, n_layers, valid, name, rng, xp, put):
    case = every_case(put(LAM))[name]
    model, params, batch = network(rng, put, cell=cell, n_layers=n_layers, valid=valid, H=3, size=0.7, **case.net)
    term, again = run(case, model, params, batch, rng)
    assert_close((term.nll, term.value), (case.nll(again(params)), case.value(again(params))))
    several = {} if xp is np else {"directions": 1}  # CuPy without a GPU is slow; the arithmetic is the same
    report = check(case, term, again, params, rng, elementwise=0, **several)
    assert len(report.rows) == len(list(leaves(params)))
    assert all(float(abs(g).max()) > 1e-4 for _, g in leaves(term.grads))


@pytest.mark.parametrize("name", CASES)
def test_every_entry_of_every_gradient(name, rng, xp, put):
    if xp is not np:
        pytest.skip("one pass for each entry: the random directions above are enough on CuPy")
    case = every_case(put(LAM))[name]
    model, params, batch = network(rng, put, cell="lstm", H=2, valid=RAGGED, **case.net)
    term, again = run(case, model, params, batch, rng)
    report = check(case, term, again, params, rng)
    assert {row.how for row in report.rows} == {"every entry"}


SEARCHED = {
    "greedy": AdD(budgets=2),
    "reselect": AdD(budgets=2, search=Reselect()),
    "exact": AdD(budgets=2, search=Exact(), stop_base=True),
    "AdD + VAT": Sum((AdD(budgets=2), VAT(norm=0.5))),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_the_gradient_is_that_of_the_mask_held_fixed(name, rng, put, monkeypatch):
    """With only the mask left of what the search found, not one bit changes: nothing else enters the gradient."""
    net = network(rng, put)
    options = {"weight": WEIGHT, "likelihood": LIKELIHOOD}
    found = SEARCHED[name](*net, rng=np.random.default_rng(0), **options)
    search = regularizers.find_adversary

    def answer(*args, **given):
        base = search(*args, **given).base  # draws what a search draws, so that what is drawn after it is the same
        return replace(found.trace, im=None, visits=(), d=None, base=base)

    monkeypatch.setattr(regularizers, "find_adversary", answer)
    again = SEARCHED[name](*net, rng=np.random.default_rng(0), **options)
    assert again.trace.visits == ()
    assert_same_bits((again.grads, again.value, again.nll), (found.grads, found.value, found.nll))


@every_cell
@pytest.mark.parametrize("search", [Greedy(), Reselect(K=1), Exact()], ids=lambda search: search.name)
def test_searching_again_nearby_finds_the_same_mask_and_slope(cell, search, rng, put):
    """The mask is locally constant: to first order, a loss with the mask searched anew is the loss with it fixed."""
    model, params, batch = network(rng, put, cell=cell)
    regularizer = AdD(budgets=2, search=search)
    step = 1e-6
    direction = tree_map(lambda a: put(rng.standard_normal(a.shape)), params)

    def searched_at(offset):
        moved = tree_map(lambda a, v: a + offset * v, params, direction)
        return regularizer(model, moved, batch, rng=np.random.default_rng(1))

    here, up, down = searched_at(0), searched_at(step), searched_at(-step)
    assert_same_bits((up.trace.eps, down.trace.eps), (here.trace.eps, here.trace.eps))
    slope = float((up.value - down.value).mean()) / (2 * step)
    pairs = zip(leaves(to_host(here.grads)), leaves(to_host(direction)), strict=True)
    analytic = sum(float((g * v).sum()) for (_, g), (_, v) in pairs)
    assert slope == pytest.approx(analytic, rel=1e-5)
    assert abs(analytic) > 1e-6


def test_far_away_the_search_finds_another_mask(rng, put):
    """So the test above is not one of a search that always answers the same."""
    model, params, batch = network(rng, put)
    direction = tree_map(lambda a: put(rng.standard_normal(a.shape)), params)
    found = set()
    for offset in np.linspace(0, 2, 9):
        moved = tree_map(lambda a, v, s=offset: a + s * v, params, direction)
        trace = AdD(budgets=2, search=Exact())(model, moved, batch, rng=rng).trace
        found.add(to_host(trace.eps["layer0"]).tobytes())
    assert len(found) > 1
