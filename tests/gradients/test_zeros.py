"""Gradients that theory says are exactly zero."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.base.trees import tree_map
from tests.support.cells import CELLS, GAPS, RAGGED, make
from tests.support.compare import assert_close, assert_zero

every_cell = pytest.mark.parametrize("name", CELLS)


@every_cell
@pytest.mark.parametrize("valid", [RAGGED, GAPS], ids=["ragged", "gaps"])
def test_padding_has_no_gradient(name, valid, rng, put):
    _, _, grads = make(name, rng, put, valid=valid).run()
    padding = put(~valid)
    assert_zero(grads.x[padding])
    assert_zero(grads.hhat[padding])


@every_cell
def test_an_example_of_padding_alone_passes_its_gradient_on(name, rng, put):
    valid = np.array([[1, 0, 1]] * 4, dtype=bool)
    problem = make(name, rng, put, valid=valid)
    _, _, grads = problem.run()
    assert_zero([grads.x[:, 1], grads.hhat[:, 1], grads.m[1]])
    assert_close(grads.state.h[1], problem.dstate.h[1] + problem.dh[:, 1].sum(axis=0))
    if hasattr(grads.state, "c"):
        assert_close(grads.state.c[1], problem.dstate.c[1], 0)


@every_cell
def test_one_step_from_a_zero_state_does_not_see_mask_or_recurrent_weights(name, rng, put):
    _, _, grads = make(name, rng, put, T=1, state=False).run()
    assert_zero([grads.m, grads.params.U])


@every_cell
def test_a_unit_masked_everywhere_sends_nothing(name, rng, put):
    m = rng.uniform(0.5, 1.5, (3, 3))
    m[:, 1] = 0
    problem = make(name, rng, put, mask=m)
    _, _, grads = problem.run()
    assert_zero(grads.params.U[1])
    clean_leak = name == "gru"
    if not clean_leak:  # the initial state of that unit goes nowhere else
        assert_zero(grads.state.h[:, 1])
    assert float(abs(grads.m[:, 1]).min()) > 0  # but switching it on would matter


@every_cell
def test_nothing_flows_back_from_the_future(name, rng, put):
    problem = make(name, rng, put)
    _, _, cache = problem.forward()
    dh = problem.dh.copy()
    dh[2:] = 0
    grads = problem.cell.backward(problem.params, cache, dh)
    assert_zero([grads.x[2:], grads.hhat[2:]])
    assert float(abs(grads.x[:2]).min()) > 0


@every_cell
def test_an_example_without_a_loss_has_no_gradient(name, rng, put):
    problem = make(name, rng, put)

    def without_example_1(d):
        d = d.copy()
        d[..., 1, :] = 0
        return d

    problem = replace(problem, dh=without_example_1(problem.dh), dstate=tree_map(without_example_1, problem.dstate))
    _, _, grads = problem.run()
    assert_zero([grads.x[:, 1], grads.hhat[:, 1], grads.m[1], tree_map(lambda d: d[1], grads.state)])


@every_cell
def test_no_loss_no_gradient(name, rng, put):
    problem = make(name, rng, put)
    _, _, cache = problem.forward()
    assert_zero(problem.cell.backward(problem.params, cache, None))
