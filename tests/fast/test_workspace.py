"""The workspace: buffers that grow, are reused, and follow the precision; what a scope makes once."""

import numpy as np

from minadv.backend import to_host
from minadv.base.trees import tree_map
from minadv.fast.rows import GruRows, RnnRows
from minadv.fast.workspace import Workspace, scope
from tests.support.cells import make
from tests.support.compare import assert_same_bits
from tests.support.engines import ENGINES, inputs, run


def test_a_shorter_batch_fits_the_same_buffers(rng, put):
    work, held = Workspace(), []
    for T in (6, 3, 5):
        with scope(work):
            run(ENGINES["columns"][1], make("lstm", rng, put, T=T), work)
        held.append(work.nbytes)
    assert held == [held[0]] * 3


def test_a_longer_batch_grows_them(rng, put):
    work, engine = Workspace(), ENGINES["columns"][1]
    short, long = make("lstm", rng, put, T=2), make("lstm", rng, put, T=5)
    with scope(work):
        run(engine, short, work)
    with scope(work):
        assert_same_bits(run(engine, long, work), run(engine, long))


def test_live_passes_have_slots_of_their_own(rng, put):
    problem, work, engine = make("gru", rng, put), Workspace(), GruRows()
    with scope(work):
        [(h1, _, _)] = engine.forward(problem.params, [inputs(problem)], work=work)
        before = to_host(h1).copy()
        engine.forward(problem.params, [inputs(problem, m=None)], work=work)
        assert len(work) == 2
        assert_same_bits(h1, before)


def test_outside_any_scope_a_workspace_does_not_grow(rng, put):
    """And a pass keeps its memory, whatever is run after it."""
    problem, work, engine = make("lstm", rng, put), Workspace(), ENGINES["columns"][1]
    with scope(work):
        run(engine, problem, work)
    held = work.nbytes
    [(h, _, cache)] = engine.forward(problem.params, [inputs(problem)], work=work)
    before = to_host(h).copy()
    for _ in range(3):
        run(engine, problem, work)
    with scope(work):
        run(engine, problem, work)
    assert (work.nbytes, len(work), work.taken) == (held, 1, frozenset())
    assert_same_bits(h, before)
    engine.backward(problem.params, [cache], [problem.dh], [None])


def test_without_a_workspace_nothing_is_stale(rng, put):
    problem, engine = make("rnn", rng, put), RnnRows()
    [(_, _, first)] = engine.forward(problem.params, [inputs(problem)])
    engine.forward(problem.params, [inputs(problem)])
    engine.backward(problem.params, [first], [problem.dh], [None])


def test_a_workspace_knows_its_own_slots_only(rng, put):
    problem, engine = make("rnn", rng, put), RnnRows()
    work, other = Workspace(), Workspace()
    with scope(other):
        [(_, _, cache)] = engine.forward(problem.params, [inputs(problem)], work=other)
        assert work.slots_of(cache) == frozenset()
        assert other.slots_of({"twice": (cache, [cache, None])}) == {0} == other.taken


def test_buffers_follow_the_dtype(rng, put):
    double, work, engine = make("rnn", rng, put), Workspace(), RnnRows()
    with scope(work):
        run(engine, double, work)
    single = tree_map(lambda a: a.astype("float32"), double.args)
    given = inputs(double, **single)
    with scope(work):
        [(h, _, _)] = engine.forward(single["params"], [given], work=work)
    assert h.dtype == "float32"


def test_what_is_made_once_is_made_anew_in_the_next_scope():
    work, made = Workspace(), []
    key = np.zeros(3)

    def make_it(of, slot):
        made.append(slot.take("it", (3,), of))
        return made[-1]

    for n in (1, 2):
        with scope(work):
            with scope(work):
                first = work.once(key, make_it)
            assert work.once(key, make_it) is first  # an inner scope does not end what the outer one remembers
            assert work.has_made(key) and not work.has_made(key, "another thing")
        assert len(made) == n and not work.has_made(key)
    assert np.shares_memory(made[0], made[1])
    assert work.once(key, make_it) is not work.once(key, make_it)  # outside a scope nothing is remembered
