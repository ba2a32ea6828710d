"""What the three cells have in common."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from tests.support import textbook
from tests.support.cells import CELLS, GAPS, RAGGED, make
from tests.support.compare import assert_close, assert_same_bits

pytestmark = pytest.mark.parametrize("name", CELLS)


@pytest.mark.parametrize("valid", [None, RAGGED, GAPS], ids=["full", "ragged", "gaps"])
@pytest.mark.parametrize("mask", [None, "scaled", "real"])
@pytest.mark.parametrize("state", [True, False])
def test_forward_is_the_textbook(name, valid, mask, state, rng, put):
    problem = make(name, rng, put, valid=valid, mask=mask, state=state)
    h, last, _ = problem.forward()
    assert_close((h, last), textbook.run(problem))


@pytest.mark.parametrize("sizes", [{"T": 1}, {"B": 1}, {"I": 1}, {"H": 1}, {"T": 1, "B": 1, "I": 1, "H": 1}], ids=str)
def test_sizes_of_one(name, sizes, rng, put):
    problem = make(name, rng, put, **sizes)
    h, last, grads = problem.run()
    assert_close((h, last), textbook.run(problem))
    for argument in problem.args:
        shapes = [a.shape for _, a in leaves(problem.args[argument])]
        assert [a.shape for _, a in leaves(getattr(grads, argument))] == shapes


@pytest.mark.parametrize("valid", [None, GAPS], ids=["full", "gaps"])
def test_two_pieces_are_one(name, valid, rng, xp, put):
    whole = make(name, rng, put, valid=valid)
    h, last, grads = whole.run()

    def piece(steps, state):
        part = replace(whole, dh=whole.dh[steps], valid=None if valid is None else whole.valid[steps])
        return part, *part.forward(x=whole.args["x"][steps], state=state)

    first, h1, middle, cache1 = piece(slice(0, 1), whole.args["state"])
    second, h2, end, cache2 = piece(slice(1, None), middle)
    grads2 = whole.cell.backward(whole.params, cache2, second.dh, dstate=whole.dstate)
    grads1 = whole.cell.backward(whole.params, cache1, first.dh, dstate=grads2.state)

    assert_close((xp.concatenate([h1, h2]), end), (h, last))
    assert_close(grads1.state, grads.state)
    assert_close(xp.concatenate([grads1.x, grads2.x]), grads.x)
    assert_close(xp.concatenate([grads1.hhat, grads2.hhat]), grads.hhat)
    assert_close(grads1.m + grads2.m, grads.m)
    assert_close(tree_map(lambda a, b: a + b, grads1.params, grads2.params), grads.params)


def test_a_ragged_batch_is_each_example_alone(name, rng, put):
    batch = make(name, rng, put, valid=RAGGED)
    h, last, grads = batch.run()
    total = tree_map(lambda a: 0 * a, batch.params)
    for b, length in enumerate([4, 3, 1]):
        alone, spoken_of_padding = example(batch, b, length)
        dstate = replace(alone.dstate, h=alone.dstate.h + spoken_of_padding)
        h_b, last_b, grads_b = replace(alone, dstate=dstate).run()
        assert_close(h[:length, b : b + 1], h_b)
        assert_close(rows(last, b), last_b)
        assert_close(grads.x[:length, b : b + 1], grads_b.x)
        assert_close(rows((grads.state, grads.m), b), (grads_b.state, grads_b.m))
        total = tree_map(lambda a, c: a + c, total, grads_b.params)
    assert_close(grads.params, total)


def rows(tree, b):
    """Row b of each leaf, as a batch of one."""
    return tree_map(lambda a: a[b : b + 1], tree)


def example(batch, b, length):
    """Example b without its padding, and what the loss says about h on the padding: it is said of the last state."""
    args = {"params": batch.params, "x": batch.args["x"][:length, b : b + 1], "m": rows(batch.args["m"], b)}
    args["state"] = rows(batch.args["state"], b)
    dh, padding = batch.dh[:length, b : b + 1], batch.dh[length:, b : b + 1].sum(axis=0)
    return replace(batch, args=args, valid=None, dh=dh, dstate=rows(batch.dstate, b)), padding


@pytest.mark.parametrize("how", ["strided", "transposed"])
def test_any_memory_layout(name, how, rng, xp, put):
    plain = make(name, rng, put, valid=GAPS)

    def view(a):
        if how == "transposed":
            return xp.ascontiguousarray(a.T).T
        wide = xp.zeros([2 * n for n in a.shape], dtype=a.dtype)
        every_second = tuple(slice(None, None, 2) for _ in a.shape)
        wide[every_second] = a
        return wide[every_second]

    odd = replace(plain, **tree_map(view, {k: getattr(plain, k) for k in ("args", "valid", "dh", "dstate")}))
    assert not odd.args["x"].flags.c_contiguous
    assert_close(odd.run(), plain.run())


def test_float32(name, rng, put):
    double = make(name, rng, put, valid=RAGGED)
    single = tree_map(lambda a: a.astype(np.float32), {k: getattr(double, k) for k in ("args", "dh", "dstate")})
    single = replace(double, **single)
    assert {a.dtype for _, a in leaves(single.run())} == {np.dtype(np.float32)}
    assert_close(single.run(), double.run(), 2e-5)


def test_without_weights(name, rng, put):
    problem = make(name, rng, put, valid=RAGGED)
    _, _, cache = problem.forward()
    full = to_host(problem.cell.backward(problem.params, cache, problem.dh, dstate=problem.dstate))
    light = problem.cell.backward(problem.params, cache, problem.dh, dstate=problem.dstate, weights=False)
    assert light.params is None
    assert_same_bits(light, replace(full, params=None))


def test_no_dh_is_a_dh_of_zeros(name, rng, xp, put):
    problem = make(name, rng, put, valid=RAGGED)
    without = replace(problem, dh=None).run()
    zeros = replace(problem, dh=xp.zeros_like(problem.dh)).run()
    assert_same_bits(without, zeros)


def test_arguments_are_not_changed(name, rng, put):
    problem = make(name, rng, put, valid=GAPS)
    given = {k: getattr(problem, k) for k in ("args", "valid", "dh", "dstate")}
    before = tree_map(lambda a: a.copy(), given)
    problem.run()
    assert_same_bits(given, before)


def test_backward_can_be_run_again(name, rng, put):
    """A cache is read, not used up: base and probe passes go back through it more than once."""
    problem = make(name, rng, put, valid=GAPS)
    _, _, cache = problem.forward()

    def backward(dh):
        return tree_map(lambda a: a.copy(), problem.cell.backward(problem.params, cache, dh, dstate=problem.dstate))

    first = backward(problem.dh)
    backward(-problem.dh)
    assert_same_bits(backward(problem.dh), first)


def test_two_backwards_share_nothing_they_return(name, rng, put):
    problem = make(name, rng, put)
    _, _, cache = problem.forward()
    first = problem.cell.backward(problem.params, cache, problem.dh)
    before = tree_map(lambda a: a.copy(), first)
    problem.cell.backward(problem.params, cache, -problem.dh)
    assert_same_bits(first, before)


def test_the_last_state_is_a_copy(name, rng, put):
    problem = make(name, rng, put)
    h, state, _ = problem.forward()
    before = h.copy()
    state.h[...] = 7
    assert_same_bits(h, before)


def test_the_mask_does_not_touch_what_is_read_out(name, rng, put):
    """The first step from a zero state is the same whatever the mask: only the recurrent copy is masked."""
    problem = make(name, rng, put, state=False)
    masked, _, _ = problem.forward()
    plain, _, _ = problem.forward(m=None)
    assert_same_bits(masked[0], plain[0])
    assert float(abs(masked[1:] - plain[1:]).min()) > 0


def test_records_of_another_cell_are_refused(name, rng, put):
    """A cache of another cell can have all the right shapes, and would give nonsense."""
    problem = make(name, rng, put)
    other = make("lstm" if CELLS[name][0].__name__ != "minadv.lstm" else "gru", rng, put)
    _, last, cache = other.forward()
    with pytest.raises(TypeError, match=r"cache is a .*Cache, but params is a .*Params: expected both of one cell"):
        problem.cell.backward(problem.params, cache, problem.dh)
    with pytest.raises(TypeError, match=r"state is a .*State, but params"):
        problem.forward(state=last)
