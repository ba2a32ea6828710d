"""The workspace: the same numbers from reused buffers, and an error where a buffer has been taken back."""

import pytest

from minadv import StaleCacheError, Workspace
from minadv.backend import to_host
from minadv.base.trees import tree_map
from tests.support.cells import CELLS, RAGGED, make
from tests.support.compare import assert_same_bits


def step(problem, work=None, **changed):
    """One forward and one backward, their results copied out of the buffers."""
    h, state, cache = problem.forward(work=work, **changed)
    grads = problem.cell.backward(problem.params, cache, problem.dh, dstate=problem.dstate)
    return tree_map(lambda a: a.copy(), (h, state, grads))


@pytest.mark.parametrize("name", CELLS)
def test_same_bits_from_used_buffers(name, rng, put):
    problem = make(name, rng, put, valid=RAGGED)
    work = Workspace()
    step(problem, work, x=10 * problem.args["x"])  # leaves other numbers behind
    work.free_all()
    assert_same_bits(step(problem, work), step(problem))


@pytest.mark.parametrize("name", CELLS)
def test_buffers_are_reused(name, rng, put):
    problem = make(name, rng, put)
    work = Workspace()
    held = []
    for _ in range(3):
        step(problem, work)
        held.append((len(work), work.nbytes))
        work.free_all()
    assert held == [held[0]] * 3
    assert held[0][1] > 0


def test_a_shorter_batch_fits_the_same_buffers(rng, put):
    work = Workspace()
    held = []
    for T in (6, 3, 5):
        step(make("lstm", rng, put, T=T), work)
        work.free_all()
        held.append(work.nbytes)
    assert held == [held[0]] * 3


def test_a_longer_batch_grows_them(rng, put):
    work = Workspace()
    short, long = make("lstm", rng, put, T=2), make("lstm", rng, put, T=5)
    step(short, work)
    work.free_all()
    assert_same_bits(step(long, work), step(long))


def test_live_passes_have_slots_of_their_own(rng, put):
    problem = make("gru", rng, put)
    work = Workspace()
    h1, _, cache1 = problem.forward(work=work)
    before = to_host(h1).copy()
    problem.forward(work=work, m=None)
    assert len(work) == 2
    assert_same_bits(h1, before)
    work.free(cache1)
    problem.forward(work=work)
    assert len(work) == 2


@pytest.mark.parametrize("name", CELLS)
def test_a_stale_cache_raises(name, rng, put):
    problem = make(name, rng, put)
    work = Workspace()
    _, _, old = problem.forward(work=work)
    work.free(old)
    _, _, new = problem.forward(work=work)
    with pytest.raises(StaleCacheError, match="taken by a later pass"):
        problem.cell.backward(problem.params, old, problem.dh)
    problem.cell.backward(problem.params, new, problem.dh)


def test_a_freed_cache_lives_until_its_slot_is_taken(rng, put):
    problem = make("rnn", rng, put)
    work = Workspace()
    _, _, cache = problem.forward(work=work)
    work.free_all()
    problem.cell.backward(problem.params, cache, problem.dh)


def test_freeing_a_stale_cache_frees_nothing(rng, put):
    problem = make("rnn", rng, put)
    work = Workspace()
    _, _, old = problem.forward(work=work)
    work.free(old)
    problem.forward(work=work)  # the slot now belongs to this pass
    work.free(old)
    problem.forward(work=work)
    assert len(work) == 2


def test_freeing_twice_frees_once(rng, put):
    problem = make("rnn", rng, put)
    work = Workspace()
    _, _, cache = problem.forward(work=work)
    work.free(cache, cache)
    problem.forward(work=work)
    problem.forward(work=work)
    assert len(work) == 2


def test_a_workspace_does_not_take_a_strangers_slot(rng, put):
    problem = make("rnn", rng, put)
    work, other = Workspace(), Workspace()
    _, _, cache = problem.forward(work=other)
    work.free(cache)
    problem.forward(work=work)
    problem.cell.backward(problem.params, cache, problem.dh)


def test_without_a_workspace_nothing_is_stale(rng, put):
    problem = make("rnn", rng, put)
    _, _, first = problem.forward()
    problem.forward()
    problem.cell.backward(problem.params, first, problem.dh)


def test_buffers_follow_the_dtype(rng, put):
    double = make("rnn", rng, put)
    work = Workspace()
    step(double, work)
    work.free_all()
    single = tree_map(lambda a: a.astype("float32"), double.args)
    h, _, _ = double.forward(work=work, **single)
    assert h.dtype == "float32"
