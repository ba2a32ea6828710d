"""Properties of the cells that hold for any sizes, masks and padding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.backend import to_host
from minadv.base.trees import tree_map
from tests.support.cells import CELLS, make, seeds, sizes_and_masks
from tests.support.compare import assert_close, assert_same_bits

every_cell = pytest.mark.parametrize("name", CELLS)


def pick(problem, xp, examples):
    """The same problem for some of its examples, in any order; indices may repeat."""
    index = xp.asarray(examples)

    def along(axis):
        return lambda a: a.take(index, axis=axis)

    args = {"params": problem.params, "x": along(1)(problem.args["x"])}
    args |= tree_map(along(0), {k: v for k, v in problem.args.items() if k in ("state", "m")})
    valid, dh = tree_map(along(1), (problem.valid, problem.dh))
    return replace(problem, args=args, valid=valid, dh=dh, dstate=tree_map(along(0), problem.dstate))


def per_example(run):
    """What a run says of each example: h, x and hhat with the batch on axis 1, the states and m on axis 0."""
    h, last, grads = run
    return (h, grads.x, grads.hhat), (last, grads.state, grads.m)


def take(parts, examples):
    steps, rows = to_host(parts)
    return tree_map(lambda a: a[:, examples], steps), tree_map(lambda a: a[examples], rows)


@every_cell
@given(drawn=sizes_and_masks(), rng=seeds)
def test_examples_do_not_know_each_other(name, xp, put, drawn, rng):
    """Any choice of examples, permuted or repeated, gives their rows; weight gradients add up over the batch."""
    problem = make(name, rng, put, **drawn)
    examples = rng.integers(0, drawn["B"], drawn["B"] + 1)
    whole = problem.run()
    assert_close(per_example(pick(problem, xp, examples).run()), take(per_example(whole), examples))
    singles = [pick(problem, xp, [b]).run()[2].params for b in range(drawn["B"])]
    assert_close(tree_map(lambda *parts: sum(parts), *singles), whole[2].params)


@every_cell
@given(drawn=sizes_and_masks(), rng=seeds)
def test_a_mask_of_ones_is_no_mask(name, xp, put, drawn, rng):
    problem = make(name, rng, put, **{**drawn, "mask": None})
    h, last, grads = problem.run()
    h1, last1, grads1 = problem.run(m=xp.ones_like(h[0]))
    assert_same_bits((h1, last1, grads1), (h, last, grads))


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
@given(drawn=sizes_and_masks(), rng=seeds)
def test_one_mask_for_the_batch_scales_the_rows_of_u(name, put, drawn, rng):
    """The mask acts before the product with U and nowhere else."""
    row = rng.uniform(-1, 2, drawn["H"])
    problem = make(name, rng, put, **{**drawn, "mask": np.tile(row, (drawn["B"], 1))})
    h, last, grads = problem.run()
    scale = put(row[:, None])
    scaled = replace(problem.params, U=scale * problem.params.U)
    h1, last1, grads1 = problem.run(params=scaled, m=None)
    assert_close((h1, last1, grads1.x, grads1.state), (h, last, grads.x, grads.state))
    assert_close(scale * grads1.params.U, grads.params.U)


@every_cell
@given(drawn=sizes_and_masks(), rng=seeds, extra=st.integers(1, 3))
def test_padding_at_the_end_changes_nothing(name, xp, put, drawn, rng, extra):
    problem = make(name, rng, put, **drawn)
    T, B = drawn["T"], drawn["B"]
    valid = np.ones((T, B), dtype=bool) if drawn["valid"] is None else drawn["valid"]
    padded = replace(
        problem,
        args={
            **problem.args,
            "x": xp.concatenate([problem.args["x"], put(rng.standard_normal((extra, B, drawn["I"])))]),
        },
        valid=put(np.concatenate([valid, np.zeros((extra, B), dtype=bool)])),
        dh=xp.concatenate([problem.dh, xp.zeros_like(problem.dh[:1]).repeat(extra, axis=0)]),
    )
    h, last, grads = problem.run()
    h1, last1, grads1 = padded.run()
    short = replace(grads1, x=grads1.x[:T], hhat=grads1.hhat[:T])
    assert_close((h1[:T], last1, short), (h, last, grads))


@every_cell
@given(drawn=sizes_and_masks(paddings=("end", "front", "anywhere")), rng=seeds)
def test_padding_may_hold_any_numbers(name, xp, put, drawn, rng):
    problem = make(name, rng, put, **drawn)
    noise = put(100 * rng.standard_normal(problem.args["x"].shape))
    x = xp.where(problem.valid[..., None], problem.args["x"], noise)
    h, last, grads = problem.run()
    h1, last1, grads1 = problem.run(x=x)
    assert_close((h1, last1, grads1), (h, last, grads))


@every_cell
@given(drawn=sizes_and_masks(), rng=seeds, factor=st.sampled_from([-2.0, 0.5]))
def test_gradients_are_linear_in_the_cotangents(name, put, drawn, rng, factor):
    problem = make(name, rng, put, **drawn)
    scaled = replace(problem, dh=factor * problem.dh, dstate=tree_map(lambda d: factor * d, problem.dstate))
    assert_close(scaled.run()[2], tree_map(lambda g: factor * g, problem.run()[2]))


@every_cell
@given(drawn=sizes_and_masks(longest=5), rng=seeds, data=st.data())
def test_a_sequence_may_be_cut_anywhere(name, xp, put, drawn, rng, data):
    problem = make(name, rng, put, **drawn)
    cut = data.draw(st.integers(1, max(1, drawn["T"] - 1)))
    h, last, _ = problem.forward()
    state, parts = problem.args.get("state"), []
    for steps in (slice(0, cut), slice(cut, None)):
        x = problem.args["x"][steps]
        if x.shape[0]:
            part, state, _ = problem.forward(x=x, state=state, valid=tree_map(lambda v, s=steps: v[s], problem.valid))
            parts.append(part)
    assert_close((xp.concatenate(parts), state), (h, last))
