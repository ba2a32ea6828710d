"""Passes side by side: the numbers of each pass by itself, whatever they share and however they are multiplied."""

import numpy as np
import pytest

from minadv import Workspace, lstm
from minadv.backend import to_host
from minadv.models import Batch, Classifier, cells
from minadv.regularizers import FD, AdD
from minadv.trees import tree_add, tree_map
from minadv.workspace import scope
from tests.cells import GAPS, RAGGED, make
from tests.compare import assert_close
from tests.networks import network

SIZES = {"x beside the state": {"I": 1, "H": 8}, "x by itself": {"I": 4, "H": 3}}


def three(rng, put, **sizes):
    """Parameters, and three passes: two over one x, one of them without a mask, and one of its own; all padded."""
    problems = [make("lstm", rng, put, valid=valid, **sizes) for valid in (RAGGED, None, GAPS)]
    x = problems[0].args["x"]
    passes = [
        lstm.Inputs(x, problems[0].args["state"], problems[0].args["m"], problems[0].valid),
        lstm.Inputs(x),
        lstm.Inputs(problems[2].args["x"], problems[2].args["state"], problems[2].args["m"], problems[2].valid),
    ]
    return problems[0].params, passes, [p.dh for p in problems], [p.dstate for p in problems]


@pytest.fixture(params=[True, False], ids=["gate by gate", "all gates at once"])
def products(request, monkeypatch):
    monkeypatch.setattr(lstm, "_by_gate", lambda H, z: request.param)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_forward(sizes, products, rng, put):
    params, passes, _, _ = three(rng, put, **sizes)
    together = lstm.forward_together(params, passes)
    for (h, state, _), p in zip(together, passes, strict=True):
        alone = lstm.forward(params, p.x, state=p.state, m=p.m, valid=p.valid)
        assert_close((h, state), alone[:2])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_backward(sizes, products, rng, put):
    params, passes, dhs, dstates = three(rng, put, **sizes)
    caches = [cache for _, _, cache in lstm.forward_together(params, passes)]
    dhs[1] = dstates[2] = None
    total, grads = lstm.backward_together(params, caches, dhs, dstates)
    expected = None
    for n, p in enumerate(passes):
        _, _, cache = lstm.forward(params, p.x, state=p.state, m=p.m, valid=p.valid)
        alone = lstm.backward(params, cache, dhs[n], dstate=dstates[n])
        assert_close((grads[n].x, grads[n].state, grads[n].hhat), (alone.x, alone.state, alone.hhat))
        assert (grads[n].m is None) == (p.m is None)
        if p.m is not None:
            assert_close(grads[n].m, alone.m)
        expected = tree_add(expected, alone.params)
    assert_close(total, expected)


def test_weights_over_several_chunks(rng, put):
    """The sum over chunks of steps, the last of which is shorter, is the sum over steps."""
    problem = make("lstm", rng, put, T=47, B=70)  # 3290 columns
    _, _, cache = problem.forward()
    grads = lstm.backward(problem.params, cache, problem.dh)
    expected = None
    for rows in np.array_split(np.arange(70), 7):  # 329 columns each: one chunk
        part = {
            "state": tree_map(lambda a, rows=rows: a[rows], problem.args["state"]),
            "m": problem.args["m"][rows],
            "x": problem.args["x"][:, rows],
        }
        _, _, few = problem.forward(**part)
        expected = tree_add(expected, lstm.backward(problem.params, few, problem.dh[:, rows]).params)
    assert_close(grads.params, expected)


def test_passes_of_another_shape_are_refused(rng, put):
    params, passes, _, _ = three(rng, put)
    longer = make("lstm", rng, put, T=5).args["x"]
    with pytest.raises(ValueError, match=r"x of a later pass has shape \(5, 3, 2\), expected \(4, 3, 2\)"):
        lstm.forward_together(params, [passes[0], lstm.Inputs(longer)])
    caches = [lstm.forward(params, x)[2] for x in (passes[0].x, longer)]
    with pytest.raises(ValueError, match=r"x of a later cache has shape \(5, 3, 2\)"):
        lstm.backward_together(params, caches, [None, None], [None, None])


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


class OneByOne:
    """A classifier that has lost the power to run passes together."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        if name in ("bodies", "bodies_backward"):
            raise AttributeError(name)
        return getattr(self.model, name)


@pytest.mark.parametrize(
    "regularizer",
    [FD(p=0.4), AdD(budgets=2, adv_steps=2), AdD(budgets=2, search="reselect"), AdD(budgets=1, search="exact")],
    ids=["FD", "AdD", "reselect", "exact"],
)
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


def test_two_passes_at_a_time_hold_two_slots(rng, put):
    """The first probe's memory is free again when the adversarial pass takes its own."""
    model, params, batch = network(rng, put)
    work = Workspace()
    with scope(work):
        AdD(budgets=2, adv_steps=2)(model, params, batch, rng=rng, likelihood=1.0, work=work)
    assert len(work) == 2
    assert not work.taken


def test_release_frees_what_a_record_holds(rng, put):
    model, params, batch = network(rng, put, n_layers=2)
    work = Workspace()
    _, _, cache = model.body(params, batch, masks={}, noise=None, work=work)
    assert len(work.taken) == 2
    work.release(cache)
    work.release(cache)
    assert not work.taken
    _, _, again = model.body(params, batch, masks={}, noise=None, work=work)
    assert len(work.taken) == 2 == len(work)
    assert again.caches[0].slot is not again.caches[1].slot


def test_a_batch_that_is_read_by_columns(rng, put):
    """Batch-major views of column-major memory: the next layer and the softmax get them as they are."""
    model = Classifier(2, 4, 3, n_layers=2, steps="all")
    params = put(tree_map(lambda a: a.astype(np.float64), model.init(rng)))
    batch = Batch(put(rng.standard_normal((5, 3, 2))), put(rng.integers(0, 3, 3)))
    features, _, _ = model.body(params, batch, masks={}, noise=None)
    below, _, _ = cells.forward("lstm", params.cells[:1], batch.x, state=None, masks=(None,), valid=None)
    above, _, _ = lstm.forward(params.cells[1], put(np.ascontiguousarray(to_host(below))))
    assert_close(features, above)
