"""Segments run again on the way back give the gradients of the cell itself, from a fraction of the memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from minadv import lstm
from minadv.fast import remat
from minadv.fast.workspace import Workspace
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import AdD
from tests.support.cells import CELLS, make, seeds, sizes_and_masks
from tests.support.compare import assert_close, assert_same_bits


def check(problem, length):
    h, last, whole = problem.run()
    given = {name: value for name, value in problem.args.items() if name not in ("params", "x")}
    again, end, cache = remat.forward(
        problem.cell, problem.params, problem.args["x"], length=length, valid=problem.valid, **given, **problem.options
    )
    assert_close(again, h)
    assert_close(end, last)
    grads = remat.backward(problem.cell, problem.params, cache, problem.dh, dstate=problem.dstate, hhat=True)
    for part in ("params", "x", "state", "m", "hhat"):
        assert_close(getattr(grads, part), getattr(whole, part))


@pytest.mark.parametrize("length", [None, 1, 3, 100])
@pytest.mark.parametrize("name", CELLS)
def test_segments_equal_the_whole(name, length, rng, put):
    check(make(name, rng, put, T=10, valid=rng.random((10, 3)) < 0.8), length)


@pytest.mark.parametrize("name", CELLS)
@given(drawn=sizes_and_masks(), rng=seeds)
def test_any_sizes_masks_and_lengths(name, put, drawn, rng):
    check(make(name, rng, put, **drawn), None)


@pytest.mark.parametrize("steps", ["last", "all"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_with_remat_is_the_same_model(steps, layers, rng, put):
    model = Classifier(2, 6, 3, n_layers=layers, steps=steps)
    params = put(model.init(rng, dtype=np.float64))
    batch = put(Batch(rng.standard_normal((12, 4, 2)), np.array([0, 1, 2, 0])))
    terms = [
        AdD(delta=0.5, adv_steps=2)(
            one, params, batch, rng=np.random.default_rng(0), weight=0.5, likelihood=1.0, work=work
        )
        for one, work in ((model, None), (replace(model, remat=True), None), (replace(model, remat=True), Workspace()))
    ]
    for term in terms[1:]:
        assert_same_bits(term.trace.eps, terms[0].trace.eps)
        assert_close(term.grads, terms[0].grads)


def test_what_is_kept_is_a_few_states(rng, put):
    """Of T = 100 steps, the buffers of one segment of ten are held, and one state before each."""
    T, B, H = 100, 4, 8
    params = put(lstm.init(rng, 1, H))
    x = put(rng.standard_normal((T, B, 1)).astype(np.float32))
    work, whole = Workspace(), Workspace()
    _, _, cache = remat.forward(lstm, params, x, states=False, work=work)
    lstm.forward(params, x, work=whole)
    assert len(cache.states) == 10 and cache.length == 10
    assert work.nbytes - work.common_nbytes < (whole.nbytes - whole.common_nbytes) / 8
    dlast = lstm.State(put(np.ones((B, H), np.float32)), put(np.zeros((B, H), np.float32)))
    remat.backward(lstm, params, cache, None, dstate=dlast, inputs=False)
    assert work.taken == frozenset()


def test_bad_lengths(rng, put):
    params = put(lstm.init(rng, 1, 2))
    with pytest.raises(ValueError, match="length is 0, expected segments of at least one step"):
        remat.forward(lstm, params, put(np.zeros((3, 1, 1), np.float32)), length=0)
