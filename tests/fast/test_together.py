"""Passes side by side: the numbers of each pass by itself, whatever they share and however they are multiplied."""

import weakref
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from minadv import lstm
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import tree_add, tree_map
from minadv.fast import columns, packing, reusing
from minadv.fast.columns import Columns
from minadv.fast.engines import Inputs
from minadv.fast.workspace import StaleCacheError, Workspace, scope
from minadv.models import Batch, Classifier, stack
from minadv.models.classifier import Noise
from minadv.regularizers import EL, FD, AdD, RDrop
from minadv.searches import Exact, Greedy, Memory, Relax, Reselect
from tests.support import textbook
from tests.support.cells import GAPS, RAGGED, Problem, make
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched, network

SIZES = {"x beside the state": {"I": 1, "H": 8}, "x by itself": {"I": 4, "H": 3}}


def three(rng, put, **sizes):
    """Parameters, and three passes: two over one x, padded and under a mask the one, bare the other, and a third."""
    problems = [make("lstm", rng, put, valid=valid, **sizes) for valid in (RAGGED, None, GAPS)]
    x = problems[0].args["x"]
    passes = [
        Inputs(x, problems[0].args["state"], problems[0].args["m"], problems[0].valid),
        Inputs(x),
        Inputs(problems[2].args["x"], problems[2].args["state"], problems[2].args["m"], problems[2].valid),
    ]
    return problems[0].params, passes, [p.dh for p in problems], [p.dstate for p in problems]


@pytest.fixture(params=[True, False], ids=["gate by gate", "all gates at once"])
def products(request, monkeypatch):
    """Chooses how the steps are multiplied; calling it chooses the other way."""
    monkeypatch.setattr(columns, "by_gate", lambda H, columns: request.param)
    return lambda: monkeypatch.setattr(columns, "by_gate", lambda H, columns: not request.param)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_forward(sizes, products, rng, put):
    params, passes, _, _ = three(rng, put, **sizes)
    for (h, state, _), p in zip(Columns().forward(params, passes), passes, strict=True):
        given = {"state": p.state, "m": p.m} if p.m is not None else {}
        problem = Problem(lstm, {}, {"params": params, "x": p.x, **given}, p.valid)
        assert_close((h, state), put(textbook.run(problem)))


@pytest.mark.parametrize("within", [True, False], ids=["a scope", "none"])
def test_products_with_an_input_are_kept(within, rng, put, monkeypatch):
    """For later passes over it, in a scope, and made anew in the next one; the numbers are the same to the bit."""
    calls, real = [], packing.project
    monkeypatch.setattr(packing, "project", lambda *args, **out: calls.append(1) or real(*args, **out))
    work, held_before = Workspace(), []
    for _ in range(3):
        params, passes, _, _ = three(rng, put, **SIZES["x by itself"])
        passes = [replace(p, lasting=True) for p in passes]
        expected = [h for h, _, _ in Columns().forward(params, [*passes, passes[0]])]
        calls.clear()
        with scope(work) if within else nullcontext():
            found = [h.copy() for h, _, _ in Columns().forward(params, passes, work=work)]
            found.append(Columns().forward(params, passes[:1], work=work)[0][0].copy())
        work.free_all()
        assert_same_bits(found, expected)
        assert len(calls) == (2 if within else 3)  # two inputs; without a scope the first of them once more
        held_before.append(work.common_nbytes)
    assert held_before == [held_before[0]] * 3
    assert (held_before[0] > 0) == within


@pytest.mark.parametrize("change", [{"lasting": False}, {"KEPT": 0}], ids=["passing", "large"])
def test_products_that_are_not_kept(change, rng, put, monkeypatch):
    params, passes, _, _ = three(rng, put, **SIZES["x by itself"])
    passes = [replace(p, lasting=change.get("lasting", True)) for p in passes]
    monkeypatch.setattr(packing, "KEPT", change.get("KEPT", packing.KEPT))
    work = Workspace()
    with scope(work):
        Columns().forward(params, passes, work=work)
        assert not work.has_made(passes[0].x, f"x W by {id(packing.packed(params, work))}")
        assert work.has_made(params)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("n", [2, 3], ids=["one x", "two"])
def test_backward(n, sizes, products, rng, put):
    params, *several = three(rng, put, **sizes)
    passes, dhs, dstates = (given[:n] for given in several)
    caches = [cache for _, _, cache in Columns().forward(params, passes)]
    dhs[1] = dstates[-1] = None
    total, grads = Columns().backward(params, caches, dhs, dstates)
    less, without = Columns().backward(params, caches, dhs, dstates, masks=False)
    assert_same_bits((less, [g.x for g in without]), (total, [g.x for g in grads]))
    assert all(g.m is None for g in without)
    products()
    expected = None
    for n, p in enumerate(passes):
        _, _, cache = lstm.forward(params, p.x, state=p.state, m=p.m, valid=p.valid)
        alone = lstm.backward(params, cache, dhs[n], dstate=dstates[n])
        assert_close((grads[n].x, grads[n].state, grads[n].m), (alone.x, alone.state, alone.m))
        expected = tree_add(expected, alone.params)
    assert_close(total, expected)


def test_several_chunks(rng, xp, put):
    """The sum over chunks of steps, the last of which is shorter, is the sum over steps."""
    problem = make("lstm", rng, put, T=47, B=70)  # 6580 columns of two passes: six chunks
    given = Inputs(problem.args["x"], problem.args["state"], problem.args["m"])
    caches = [cache for _, _, cache in Columns().forward(problem.params, [given, given])]
    total, grads = Columns().backward(problem.params, caches, [problem.dh, problem.dh], [None, None])
    expected, dx = None, []
    for rows in np.array_split(np.arange(70), 7):  # 329 columns each: one chunk
        part = {
            "state": tree_map(lambda a, rows=rows: a[rows], problem.args["state"]),
            "m": problem.args["m"][rows],
            "x": problem.args["x"][:, rows],
        }
        _, _, few = problem.forward(**part)
        back = lstm.backward(problem.params, few, problem.dh[:, rows])
        expected = tree_add(expected, tree_map(lambda g: 2 * g, back.params))
        dx.append(back.x)
    assert_close(total, expected)
    assert_close([each.x for each in grads], [xp.concatenate(dx, axis=1)] * 2)


def test_passes_of_another_shape_are_refused(rng, put):
    params, passes, _, _ = three(rng, put)
    longer = make("lstm", rng, put, T=5).args["x"]
    with pytest.raises(ValueError, match=r"x of a later pass has shape \(5, 3, 2\), expected \(4, 3, 2\)"):
        Columns().forward(params, [passes[0], Inputs(longer)])
    caches = [Columns().forward(params, [Inputs(x)])[0][2] for x in (passes[0].x, longer)]
    with pytest.raises(ValueError, match=r"x of a later cache has shape \(5, 3, 2\)"):
        Columns().backward(params, caches, [None, None], [None, None])


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("remat", [False, True])
def test_a_classifier(cell, remat, rng, put):
    """Two layers, every step read; a cell without passes of its own side by side runs them one after the other."""
    model, params, batch = network(rng, put, cell=cell, n_layers=2, steps="all", valid=RAGGED, remat=remat)
    given = [{"layer1": put(rng.uniform(0, 2, (3, 4)))}, {}, {"readout": put(rng.uniform(0, 2, (3, 4)))}]
    runs = model.bodies(params, batch, masks=given, noises=[None] * 3)
    dfeatures = [put(rng.standard_normal((4, 3, 4))) for _ in runs]
    total = model.bodies_backward(params, [cache for _, _, cache in runs], dfeatures)
    expected = None
    for (features, state, _), masks, d in zip(runs, given, dfeatures, strict=True):
        alone = model.body(params, batch, masks=masks, noise=None)
        assert_close((features, state), alone[:2])
        expected = tree_add(expected, model.body_backward(params, alone[2], d).params)
    assert_close(total, expected)


REGULARIZERS = {
    "FD": FD(p=0.4),
    "RDrop": RDrop(p=0.4),
    "EL": EL(p=0.4, samples=2),
    "AdD": AdD(budgets=2, search=Greedy(K=2, keep="last")),
    "reselect": AdD(budgets=2, search=Reselect(swaps=1)),
    "relax": AdD(budgets=2, search=Relax(reselect=1, borrow=1, swaps=2)),
    "memory": AdD(budgets=2, search=Memory()),
    "exact": AdD(budgets=1, search=Exact()),
}


class OneByOne:
    """A classifier that has lost the power to run passes together."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        if name in ("bodies", "bodies_backward", "scope"):
            raise AttributeError(name)
        return getattr(self.model, name)


@pytest.mark.parametrize("regularizer", REGULARIZERS.values(), ids=REGULARIZERS)
def test_a_regularizer_of_a_model_without_it_is_the_same(regularizer, rng, put):
    model, params, batch = network(rng, put, input_dropout=0.3, I=4)
    seed = int(rng.integers(2**32))
    one, two = (
        regularizer(m, params, batch, rng=np.random.default_rng(seed), likelihood=1.0) for m in (model, OneByOne(model))
    )
    assert_close((one.value, one.nll, one.grads), (two.value, two.nll, two.grads))
    if one.trace is not None:
        assert_close(one.trace.eps, two.trace.eps)
        assert one.trace.passes == two.trace.passes


def test_a_body_of_ones_own_needs_bodies_of_ones_own():
    """Regularizers call ``bodies``: a class that overrode ``body`` alone would be trained as if it had not."""
    with pytest.raises(TypeError, match="Half overrides body, expected that it overrides bodies as well"):

        class Half(Classifier):
            def body(self, params, batch, **given):
                return super().body(params, batch, **given)


@pytest.mark.many_passes
@pytest.mark.parametrize("regularizer", REGULARIZERS.values(), ids=REGULARIZERS)
@pytest.mark.parametrize("share", [True, False])
def test_same_bits_from_used_buffers(regularizer, share, rng, put):
    """Two layers, every step read, padding, noise: what a workspace held before makes no difference."""
    options = {"n_layers": 2, "steps": "all", "valid": RAGGED, "input_dropout": 0.3, "I": 4}
    model, params, batch = network(rng, put, **options)
    asked = replace(regularizer, share_noise=share)
    seed, reused = int(rng.integers(2**32)), reusing(model)

    def term(model, seed):
        found = asked(model, params, batch, rng=np.random.default_rng(seed), likelihood=1.0)
        return found.value, found.nll, found.grads

    for n in range(3):
        assert_same_bits(term(reused, seed + n), term(model, seed + n))


def test_two_passes_at_a_time_hold_two_slots(rng, put):
    """The first probe's memory is free again when the adversarial pass takes its own."""
    model, params, batch = network(rng, put)
    work = Workspace()
    add = AdD(budgets=2, search=Greedy(K=2, keep="last"))
    add(reusing(model, work), params, batch, rng=rng, likelihood=1.0)
    assert len(work) == 2
    assert not work.taken


def test_two_caches_live_at_a_time_without_a_workspace(rng, put):
    model, params, batch = network(rng, put)
    alive, most = weakref.WeakSet(), [0]

    class Counted(Watched):
        def body(self, *args, **given):
            done = super().body(*args, **given)
            return self._count(done)

        def _bodies(self, *args, **given):
            return [self._count(done) for done in super()._bodies(*args, **given)]

        def _count(self, done):
            alive.add(done[2].caches[0].own.slot)
            most[0] = max(most[0], len(alive))
            return done

    add = AdD(budgets=3, search=Greedy(K=3, keep="last"))
    add(Counted(model), params, batch, rng=rng, likelihood=1.0)
    assert most == [2]


def test_no_noise_means_the_same_with_and_without(rng, put):
    """A record that is given, a model that would draw none: the second pass shares it in both ways of running."""
    model, params, batch = network(rng, put, I=4)
    noise = put(Noise(np.array([[2.0, 0, 2, 0]] * 3)))
    seen = Watched(model)
    AdD(budgets=2, share_noise=False)(seen, params, batch, rng=rng, noise=noise)
    assert all(given["noise"] is noise for given in seen.forward)


def test_no_passes_are_refused(rng, put):
    params = make("lstm", rng, put).params
    with pytest.raises(ValueError, match="passes is empty, expected at least one"):
        Columns().forward(params, [])
    with pytest.raises(ValueError, match="caches is empty, expected at least one"):
        Columns().backward(params, [], [], [])


def test_a_scope_forgets_its_passes_but_those_that_are_kept(rng, put):
    model, params, batch = network(rng, put, n_layers=2)
    work = Workspace()
    model = reusing(model, work)
    dfeatures = put(rng.standard_normal((1, 3, 4)))

    def body():
        return model.body(params, batch, masks={}, noise=None)[2]

    with model.scope():
        with model.scope() as keep:
            kept, forgotten = body(), body()
            keep(kept)
            assert len(work.taken) == 4
        assert len(work.taken) == 2
        body()
        model.body_backward(params, kept, dfeatures)
        with pytest.raises(StaleCacheError):
            model.body_backward(params, forgotten, dfeatures)
    assert not work.taken and len(work) == 4
    with model.scope() as keep:
        body()
        keep(kept)  # stale: its slots are another pass's now
    assert not work.taken


def test_a_batch_that_is_read_by_columns(rng, put):
    """Batch-major views of column-major memory: the next layer and the softmax get them as they are."""
    model = Classifier(2, 4, 3, n_layers=2, steps="all")
    params = put(tree_map(lambda a: a.astype(np.float64), model.init(rng)))
    batch = Batch(put(rng.standard_normal((5, 3, 2))), put(rng.integers(0, 3, 3)))
    features, _, _ = model.body(params, batch, masks={}, noise=None)
    [(below, _, _)] = stack.forward("lstm", params.cells[:1], [batch.x], state=None, masks=[(None,)], valid=None)
    above, _, _ = lstm.forward(params.cells[1], put(np.ascontiguousarray(to_host(below))))
    assert_close(features, above)


def test_a_search_outside_any_scope_compares_with_the_base_pass(rng, put):
    """The base pass's features may lie in its buffers: the search must not take those for passes of its own."""
    model, params, batch = network(rng, put, steps="all", B=6)
    lam = put(np.full(4, 0.25))
    reused = reusing(model)
    for seed in range(3):
        traces = [
            find_adversary(one, params, batch, rng=np.random.default_rng(seed), budgets=2, search=Greedy(K=3), lam=lam)
            for one in (model, reused)
        ]
        assert_same_bits((traces[0].eps, traces[0].d), (traces[1].eps, traces[1].d))
