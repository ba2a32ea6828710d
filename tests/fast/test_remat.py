"""Segments run again on the way back give the same model, from a fraction of the memory; tests of the gradients are
in test_engines.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from minadv import lstm
from minadv.fast import packing, reusing
from minadv.fast.columns import Columns
from minadv.fast.engines import Inputs
from minadv.fast.remat import Recomputing
from minadv.fast.workspace import Workspace, scope
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import AdD
from minadv.searches import Greedy
from tests.support.cells import make
from tests.support.compare import assert_close, assert_same_bits
from tests.support.engines import ENGINES, readable, run


@pytest.mark.parametrize("length", [None, 1, 3, 100])
@pytest.mark.parametrize("name", ["recomputing rnn rows", "recomputing gru rows", "recomputing columns"])
def test_segments_of_any_length(name, length, rng, put):
    cell, engine = ENGINES[name]
    problem = make(cell, rng, put, T=10, valid=rng.random((10, 3)) < 0.8)
    assert_close(run(replace(engine, length=length), problem), readable(problem))


@pytest.mark.parametrize("steps", ["last", "all"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_with_remat_is_the_same_model(steps, layers, rng, put):
    model = Classifier(2, 6, 3, n_layers=layers, steps=steps)
    params = put(model.init(rng, dtype=np.float64))
    batch = put(Batch(rng.standard_normal((12, 4, 2)), np.array([0, 1, 2, 0])))
    remat = replace(model, remat=True)
    terms = [
        AdD(delta=0.5, search=Greedy(K=2, keep="last"))(
            one, params, batch, rng=np.random.default_rng(0), weight=0.5, likelihood=1.0
        )
        for one in (model, remat, reusing(remat))
    ]
    for term in terms[1:]:
        assert_same_bits(term.trace.eps, terms[0].trace.eps)
        assert_close(term.grads, terms[0].grads)


def test_what_is_kept_is_a_few_states(rng, put):
    """Of T = 100 steps, the buffers of one segment of ten are held, and one state before each."""
    T, B, H = 100, 4, 8
    params = put(lstm.init(rng, 1, H))
    x = put(rng.standard_normal((T, B, 1)).astype(np.float32))
    work, whole, engine = Workspace(), Workspace(), Recomputing(Columns())
    [(_, _, cache)] = engine.forward(params, [Inputs(x)], keep_h=False, work=work)
    with scope(whole):
        Columns().forward(params, [Inputs(x)], work=whole)
    assert len(cache.states) == 10 and cache.length == 10
    assert work.nbytes - work.common_nbytes < (whole.nbytes - whole.common_nbytes) / 8
    dlast = lstm.State(put(np.ones((B, H), np.float32)), put(np.zeros((B, H), np.float32)))
    engine.backward(params, [cache], [None], [dlast], inputs=False)
    assert work.taken == frozenset()


@pytest.mark.parametrize("within", [False, True], ids=["by itself", "within a scope"])
def test_segments_share_packed_weights(within, rng, put, monkeypatch):
    """A pass packs its weights once, and so does the way back; within a scope both share them."""
    problem, work, packed, pack = make("lstm", rng, put, T=10), Workspace(), [], packing.pack
    monkeypatch.setattr(packing, "pack", lambda *given: packed.append(1) or pack(*given))
    with scope(work if within else None):
        run(ENGINES["recomputing columns"][1], problem, work)
    assert len(packed) == (1 if within else 2)


def test_bad_lengths():
    with pytest.raises(ValueError, match="length is 0, expected segments of at least one step"):
        Recomputing(Columns(), 0)
