"""Each engine computes what the readable cells define: every output, any sizes, masks, padding and states.

The readable cells are checked by finite differences (tests/gradients); here each engine is held to them, in double
precision to rounding and in single precision to its own.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from minadv import fast
from minadv.base.trees import leaves, tree_add, tree_map
from minadv.fast.engines import Inputs, Plain
from minadv.fast.workspace import StaleCacheError, Workspace, scope
from tests.support.cells import GAPS, RAGGED, make, seeds, sizes_and_masks
from tests.support.compare import assert_close, assert_same_bits
from tests.support.engines import ENGINES, cast, inputs, readable, rounded, run

every_engine = pytest.mark.parametrize(("cell", "engine"), ENGINES.values(), ids=ENGINES)
fast_engines = pytest.mark.parametrize(
    ("cell", "engine"), [pair for pair in ENGINES.values() if not isinstance(pair[1], Plain)],
    ids=[name for name, pair in ENGINES.items() if not isinstance(pair[1], Plain)],
)  # fmt: skip


@every_engine
@given(drawn=sizes_and_masks(longest=7), rng=seeds)
def test_every_output_in_double_precision(cell, engine, put, drawn, rng):
    problem = make(cell, rng, put, **drawn)
    assert_close(run(engine, problem), readable(problem), 1e-11)


@every_engine
@given(drawn=sizes_and_masks(longest=7), rng=seeds)
def test_every_output_in_single_precision(cell, engine, put, drawn, rng):
    exact = rounded(make(cell, rng, put, **drawn))
    found = run(engine, cast(exact, np.float32))
    assert {a.dtype for _, a in leaves(found)} == {np.dtype(np.float32)}
    expected = readable(exact)
    largest = max(float(abs(a).max()) for _, a in leaves(expected))  # masks up to 2 let states and gradients grow
    assert_close(found, expected, 5e-5 * max(1.0, largest))


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("remat", [False, True])
@given(drawn=sizes_and_masks(longest=7), rng=seeds)
def test_the_engine_that_is_chosen(cell, remat, put, drawn, rng):
    """In both precisions; where Numba is installed, whole passes of the LSTM in single precision are compiled."""
    exact = rounded(make(cell, rng, put, **drawn))
    expected = readable(exact)
    largest = max(1.0, *(float(abs(a).max()) for _, a in leaves(expected)))
    for dtype, tolerance in ((np.float64, 1e-11), (np.float32, 5e-5 * largest)):
        problem = cast(exact, dtype)
        engine = fast.engine(cell, problem.params, [inputs(problem)], remat=remat)
        assert_close(run(engine, problem), expected, tolerance)


@every_engine
@pytest.mark.parametrize("T", [33, 100])
def test_long_sequences(cell, engine, T, rng, put):
    mask = "binary" if cell == "gru-masked-leak" else "real"  # a leak times 2 a step would grow beyond any tolerance
    problem = make(cell, rng, put, T=T, B=5, I=4, H=6, mask=mask, valid=rng.random((T, 5)) < 0.8)
    problem.args["params"] = put(problem.cell.init(rng, 4, 6, dtype=np.float64))
    assert_close(run(engine, problem), readable(problem), 1e-10)


@every_engine
@pytest.mark.parametrize("left_out", ["weights", "inputs", "masks"])
def test_what_is_not_asked_for_is_left_out(cell, engine, left_out, rng, put):
    problem = make(cell, rng, put, valid=RAGGED)
    h, state, grads = run(engine, problem, **{left_out: False})
    whole = run(engine, problem)
    field = {"weights": "params", "inputs": "x", "masks": "m"}[left_out]
    assert getattr(grads, field) is None
    others = {field: None}
    assert_close((h, state, replace(grads, **others)), (*whole[:2], replace(whole[2], **others)))


@every_engine
def test_several_passes_are_each_pass_by_itself(cell, engine, rng, put):
    problems = [make(cell, rng, put, valid=valid, mask=mask) for valid, mask in ((RAGGED, "real"), (None, None))]
    x, params = problems[0].args["x"], problems[0].params
    problems = [replace(p, args={**p.args, "x": x, "params": params}) for p in problems]
    done = engine.forward(params, [inputs(p) for p in problems])
    caches, dhs, dstates = [c for _, _, c in done], [p.dh for p in problems], [p.dstate for p in problems]
    total, grads = engine.backward(params, caches, dhs, dstates)
    expected = [readable(p) for p in problems]
    assert_close([(h, state) for h, state, _ in done], [(h, state) for h, state, _ in expected])
    assert_close([replace(g, hhat=None) for g in grads], [replace(g, params=None) for _, _, g in expected])
    assert_close(total, tree_add(*(g.params for _, _, g in expected)))


@every_engine
def test_without_h(cell, engine, rng, put):
    problem = make(cell, rng, put, valid=GAPS)
    [(_, state, cache)] = engine.forward(problem.params, [inputs(problem)], keep_h=False)
    total, [grads] = engine.backward(problem.params, [cache], [problem.dh], [problem.dstate])
    assert_close((state, replace(grads, params=total, hhat=None)), readable(problem)[1:])


@every_engine
def test_a_cache_may_be_gone_back_through_more_than_once(cell, engine, rng, put):
    problem = make(cell, rng, put, valid=GAPS)
    work = Workspace()
    with scope(work):
        [(_, _, cache)] = engine.forward(problem.params, [inputs(problem)], work=work)

        def backward(dh, **wanted):
            made = engine.backward(problem.params, [cache], [dh], [problem.dstate], **wanted)
            return tree_map(lambda a: a.copy(), made)

        first = backward(problem.dh)
        backward(-problem.dh, weights=False, inputs=False)
        assert_same_bits(backward(problem.dh), first)
        assert_close(first[0], readable(problem)[2].params)


@every_engine
def test_arguments_are_not_changed(cell, engine, rng, put):
    problem = make(cell, rng, put, valid=GAPS)
    given_before = tree_map(lambda a: a.copy(), (problem.args, problem.valid, problem.dh, problem.dstate))
    run(engine, problem)
    assert_same_bits((problem.args, problem.valid, problem.dh, problem.dstate), given_before)


@every_engine
@pytest.mark.parametrize("how", ["strided", "transposed"])
def test_any_memory_layout(cell, engine, how, rng, xp, put):
    problem = make(cell, rng, put, valid=GAPS)

    def view(a):
        if how == "transposed":
            return xp.ascontiguousarray(a.T).T
        wide = xp.zeros([2 * n for n in a.shape], dtype=a.dtype)
        second = tuple(slice(None, None, 2) for _ in a.shape)
        wide[second] = a
        return wide[second]

    parts = {name: getattr(problem, name) for name in ("args", "valid", "dh", "dstate")}
    assert_close(run(engine, replace(problem, **tree_map(view, parts))), readable(problem))


@fast_engines
def test_same_bits_from_used_buffers(cell, engine, rng, put):
    problem, work = make(cell, rng, put, valid=RAGGED), Workspace()
    held = []
    for factor in (10, 1, 1):
        other = replace(problem, args={**problem.args, "x": factor * problem.args["x"]})
        with scope(work):
            found = tree_map(lambda a: a.copy(), run(engine, other, work))
        held.append((len(work), work.nbytes))
    assert_same_bits(found, run(engine, problem))
    assert held == [held[0]] * 3 and held[0][1] > 0


@fast_engines
def test_a_stale_cache_raises(cell, engine, rng, put):
    problem, work = make(cell, rng, put), Workspace()
    with scope(work):
        [(_, _, cache)] = engine.forward(problem.params, [inputs(problem)], work=work)
    with scope(work):
        engine.forward(problem.params, [inputs(problem)], work=work)
    if "recomputing" in engine.name:  # it keeps states, not buffers
        engine.backward(problem.params, [cache], [problem.dh], [None])
    else:
        with pytest.raises(StaleCacheError, match="taken by a later pass"):
            engine.backward(problem.params, [cache], [problem.dh], [None])


@fast_engines
def test_vanished_gradients_do_not_linger_as_subnormal_numbers(cell, engine, rng, xp, put):
    """The cell state of a masked unit only decays, backwards; in single precision it would reach subnormal numbers."""
    double = rounded(make(cell, rng, put, T=400, B=3, H=3, mask=None, state=False))
    m = xp.ones((3, 3))
    m[:, 0] = 0
    dstate = tree_map(lambda a: 1e-3 * xp.ones_like(a), double.dstate)
    exact = rounded(replace(double, args={**double.args, "m": m}, dh=None, dstate=dstate))
    single = run(engine, cast(exact, np.float32))[2]
    reference = readable(exact)[2]
    parts = ((g.params, g.x, g.m) for g in (single, reference))
    for (_, a), (_, b) in zip(*map(leaves, parts), strict=True):
        assert float(abs(a - b).max()) <= 1e-4 * float(abs(b).max())
    if xp is not np:  # subnormal numbers cost a device nothing: it keeps them
        return
    for _, handed_back in leaves(single.state):
        assert int((abs(handed_back) < np.finfo(np.float32).tiny).sum()) == int((handed_back == 0).sum())


@fast_engines
def test_bad_input_is_refused_before_any_buffer_is_taken(cell, engine, rng, put):
    problem, work = make(cell, rng, put), Workspace()
    with pytest.raises(ValueError, match=r"m has shape \(2, 3\), expected \(3, 3\)"):
        engine.forward(problem.params, [Inputs(problem.args["x"], m=problem.args["m"][:2])], work=work)
    [(_, _, cache)] = engine.forward(problem.params, [inputs(problem)])
    with pytest.raises(ValueError, match=r"dh has shape \(2, 3, 3\), expected"):
        engine.backward(problem.params, [cache], [problem.dh[:2]], [None])
    if "recomputing" not in engine.name:
        assert len(work) == 0
        other = put(problem.cell.init(rng, 2, 5, dtype=np.float64))
        with pytest.raises(ValueError, match=r"the cache is one of 3 units, but params\.U has H = 5"):
            engine.backward(other, [cache], [None], [None])
