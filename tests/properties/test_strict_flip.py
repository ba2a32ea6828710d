"""What holds of the strict flip for any masks, maps and budgets, ties included."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minadv.backend import to_host
from minadv.flip import flip
from tests.support.cells import seeds

unflipping = pytest.mark.parametrize("allow_unflip", [True, False])
GAINS = st.one_of(st.sampled_from([-1.0, -0.0, 0.0, 1.0, 2.0]), st.floats(-3, 3))


@st.composite
def problems(draw, widest=9, from_eps0=False):
    """eps, im, eps0, budget, with eps within the budget of eps0."""
    B, H = draw(st.integers(1, 4)), draw(st.integers(1, widest))
    budget = draw(st.integers(0, H))
    eps0 = draw(arrays(float, (B, H), elements=st.sampled_from([0.0, 1.0])))
    eps = eps0.copy()
    for b in range(0 if from_eps0 else B):
        flipped = draw(st.lists(st.integers(0, H - 1), unique=True, max_size=budget))
        eps[b, flipped] = 1 - eps[b, flipped]
    return eps, draw(arrays(float, (B, H), elements=GAINS)), eps0, budget


def run(put, eps, im, eps0, budget, **options):
    return to_host(flip(put(eps), put(im), put(eps0), budget, **options))


def one_unit_at_a_time(eps, im, eps0, budget, allow_unflip):
    """The rule as a loop over the units of one example."""
    gain = (1 - 2 * eps) * im
    out, distance = eps.copy(), int((eps != eps0).sum())
    for i in sorted(range(eps.size), key=lambda i: (-gain[i], i)):
        if gain[i] > 0 and eps[i] == eps0[i] and distance < budget:
            out[i], distance = 1 - eps[i], distance + 1
        elif gain[i] > 0 and eps[i] != eps0[i] and allow_unflip:
            out[i], distance = eps0[i], distance - 1
    return out


@unflipping
@given(problem=problems())
def test_it_is_a_loop_over_the_units(put, allow_unflip, problem):
    eps, im, eps0, budget = problem
    rows = [one_unit_at_a_time(*row, budget, allow_unflip) for row in zip(eps, im, eps0, strict=True)]
    assert run(put, *problem, allow_unflip=allow_unflip).tolist() == np.array(rows).tolist()


@unflipping
@given(problem=problems())
def test_the_result_is_binary_within_the_budget_and_flips_only_positive_gains(put, allow_unflip, problem):
    eps, im, eps0, budget = problem
    out = run(put, *problem, allow_unflip=allow_unflip)
    assert np.isin(out, (0, 1)).all()
    assert ((out != eps0).sum(axis=1) <= budget).all()
    changed = out != eps
    assert (((1 - 2 * eps) * im)[changed] > 0).all()
    if not allow_unflip:
        assert (eps == eps0)[changed].all()


@given(problem=problems(from_eps0=True))
def test_no_budget_no_flip(put, problem):
    eps, im, eps0, _ = problem
    assert run(put, eps, im, eps0, 0).tolist() == eps0.tolist()


@given(problem=problems(), data=st.data())
def test_a_start_beyond_the_budget_raises(put, problem, data):
    eps, im, eps0, budget = problem
    b = data.draw(st.integers(0, len(eps) - 1))
    eps[b] = 1 - eps0[b]
    if budget == eps.shape[1]:
        budget -= 1
    with pytest.raises(ValueError, match=r"beyond the budget"):
        run(put, eps, im, eps0, budget)


@given(problem=problems(from_eps0=True))
def test_the_order_of_flips_is_the_order_of_gains(put, problem):
    """Each further place in the budget goes to the unit of the next largest positive gain, ties by lowest index."""
    eps, im, eps0, _ = problem
    B, H = eps.shape
    gain = (1 - 2 * eps) * im
    for b in range(B):
        wanted = [i for i in sorted(range(H), key=lambda i: (-gain[b, i], i)) if gain[b, i] > 0]
        for budget in range(H + 1):
            out = run(put, eps[b : b + 1], im[b : b + 1], eps0[b : b + 1], budget)
            assert sorted(wanted[:budget]) == np.flatnonzero(out[0] != eps0[b]).tolist()


@unflipping
@given(problem=problems(), rng=seeds)
def test_permuting_units_of_distinct_gains_permutes_the_result(put, allow_unflip, problem, rng):
    eps, im, eps0, budget = problem
    im = rng.permuted(np.tile(np.arange(1.0, im.shape[1] + 1), (len(im), 1)), axis=1) * np.where(im > 0, 1, -1)
    order = rng.permutation(im.shape[1])
    out = run(put, eps, im, eps0, budget, allow_unflip=allow_unflip)
    permuted = run(put, eps[:, order], im[:, order], eps0[:, order], budget, allow_unflip=allow_unflip)
    assert permuted.tolist() == out[:, order].tolist()


@unflipping
@given(problem=problems(), rng=seeds)
def test_permuting_or_splitting_the_batch_changes_nothing(put, allow_unflip, problem, rng):
    eps, im, eps0, budget = problem
    out = run(put, *problem, allow_unflip=allow_unflip)
    order = rng.permutation(len(eps))
    permuted = run(put, eps[order], im[order], eps0[order], budget, allow_unflip=allow_unflip)
    assert permuted.tolist() == out[order].tolist()
    for b in range(len(eps)):
        alone = run(put, eps[b : b + 1], im[b : b + 1], eps0[b : b + 1], budget, allow_unflip=allow_unflip)
        assert alone[0].tolist() == out[b].tolist()


@given(problem=problems(widest=6, from_eps0=True))
def test_from_eps0_it_maximises_a_linear_objective(put, problem):
    eps, im, eps0, budget = problem
    im = np.round(64 * im)  # whole numbers, so that sums are exact
    out = run(put, eps, im, eps0, budget)
    everything = np.array(list(itertools.product((0.0, 1.0), repeat=eps.shape[1])))
    for b, e0 in enumerate(eps0):
        near = everything[(everything != e0).sum(axis=1) <= budget]
        assert out[b] @ im[b] == (near @ im[b]).max()


@given(problem=problems())
def test_arguments_are_not_changed(put, problem):
    eps, im, eps0, budget = problem
    given = put(eps), put(im), put(eps0)
    before = [to_host(a).copy() for a in given]
    flip(*given, budget)
    assert [to_host(a).tolist() for a in given] == [a.tolist() for a in before]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", [3, 10**6], ids=["ties", "hardly a tie"])
@unflipping
def test_both_array_modules_and_the_loop_agree_on_a_large_batch(allow_unflip, values, dtype, rng, put):
    B, H, budget = 200, 37, 5
    eps0 = rng.integers(0, 2, (B, H)).astype(dtype)
    eps = np.where(
        rng.permuted(np.tile(np.arange(H), (B, 1)), axis=1) < rng.integers(0, budget + 1, (B, 1)), 1 - eps0, eps0
    )
    im = rng.integers(-values, values + 1, (B, H)).astype(dtype)
    rows = [one_unit_at_a_time(*row, budget, allow_unflip) for row in zip(eps, im, eps0, strict=True)]
    on_host = flip(eps, im, eps0, budget, allow_unflip=allow_unflip)
    np.testing.assert_array_equal(on_host, rows)  # not ==, whose explanation of a difference takes minutes
    np.testing.assert_array_equal(run(put, eps, im, eps0, budget, allow_unflip=allow_unflip), on_host)
