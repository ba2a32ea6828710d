"""`Grads.hhat`: the derivative by the masked copy of the state at each step, and the sum that makes `Grads.m` of it."""

import numpy as np
import pytest
from hypothesis import given

from minadv.backend import to_host
from tests.support import textbook
from tests.support.cells import CELLS, GAPS, RAGGED, make, seeds, sizes_and_masks
from tests.support.compare import assert_close


def numeric_hhat(problem, step=1e-5):
    """Nudge the masked copy of one unit at one step of the textbook recurrence, and see the loss move."""
    dh, dstate = to_host(problem.dh), to_host(problem.dstate)

    def loss(nudge):
        h, state = textbook.run(problem, nudge)
        return np.sum(h * dh) + sum(np.sum(getattr(state, name) * d) for name, d in vars(dstate).items())

    slopes = np.zeros(dh.shape)
    for place in np.ndindex(dh.shape):
        nudge = np.zeros(dh.shape)
        nudge[place] = step
        slopes[place] = (loss(nudge) - loss(-nudge)) / (2 * step)
    return slopes


@pytest.mark.parametrize("valid", [None, RAGGED, GAPS], ids=["full", "ragged", "gaps"])
@pytest.mark.parametrize("mask", [None, "real"])
@pytest.mark.parametrize("name", CELLS)
def test_hhat_is_the_derivative_by_the_masked_copy(name, mask, valid, rng, put):
    problem = make(name, rng, put, H=2, mask=mask, valid=valid)
    _, _, grads = problem.run()
    numeric = numeric_hhat(problem)
    assert np.abs(numeric).max() > 0.01
    assert_close(grads.hhat, numeric, 1e-6 * np.abs(numeric).max())


@pytest.mark.parametrize("name", CELLS)
@given(drawn=sizes_and_masks(), rng=seeds)
def test_the_mask_gradient_is_the_sum_over_steps(name, xp, put, drawn, rng):
    problem = make(name, rng, put, **drawn)
    h, _, grads = problem.run()
    start = problem.args["state"].h if drawn["state"] else xp.zeros_like(h[0])
    h_prev = xp.concatenate([start[None], h[:-1]])  # (T, B, H), the state that entered each step
    assert_close(grads.m, (grads.hhat * h_prev).sum(axis=0))
