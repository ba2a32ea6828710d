"""Every argument of every cell against central differences, with a random cotangent on all steps and the last state."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from minadv import gradcheck
from tests.support.cells import CELLS, GAPS, RAGGED, make, seeds, sizes_and_masks

BOTH = ("h", "state")
HALF = 2.0 * np.array([[1, 0], [0, 1], [1, 1]])  # (3, 2), a binary mask with its scale
SETTINGS = {"plain": (None, None), "binary mask, ragged": (HALF, RAGGED), "real mask, gaps": ("real", GAPS)}


def check(problem: Any, rng: Any, outputs: tuple[str, ...] = BOTH) -> gradcheck.Report:
    """Differentiate the chosen outputs by all of the problem's arguments."""

    def forward(**args: Any) -> dict[str, Any]:
        h, state, _ = problem.forward(**args)
        return {name: value for name, value in zip(BOTH, (h, state), strict=True) if name in outputs}

    def backward(args: dict[str, Any], cotangent: dict[str, Any]) -> dict[str, Any]:
        _, _, cache = problem.forward(**args)
        grads = problem.cell.backward(args["params"], cache, cotangent.get("h"), dstate=cotangent.get("state"))
        return {name: getattr(grads, name) for name in args}

    report = gradcheck.check(forward, backward, problem.args, rng=rng)
    report.raise_if_failed()
    return report


@pytest.mark.parametrize(("mask", "valid"), SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", CELLS)
def test_every_gradient_is_right_and_not_zero(name, mask, valid, rng, put):
    problem = make(name, rng, put, H=2, mask=mask, valid=valid)
    report = check(problem, rng)
    assert {row.name for row in report.rows} >= {"params.W", "params.U", "params.b", "x", "state.h"}
    assert all(row.analytic > 1e-3 for row in report.rows), str(report)


@pytest.mark.parametrize("outputs", [("h",), ("state",)], ids=["dh alone", "dstate alone"])
@pytest.mark.parametrize("name", CELLS)
def test_each_cotangent_by_itself(name, outputs, rng, put):
    report = check(make(name, rng, put, T=3, B=2, H=2), rng, outputs)
    assert all(row.analytic > 1e-3 for row in report.rows), str(report)


@pytest.mark.parametrize("name", CELLS)
@given(drawn=sizes_and_masks(), rng=seeds)
def test_any_sizes_masks_and_lengths(name, put, drawn, rng):
    check(make(name, rng, put, **drawn), rng)


@pytest.mark.parametrize("name", CELLS)
def test_a_larger_network_along_random_directions(name, rng, put):
    report = check(make(name, rng, put, T=6, B=4, I=5, H=9, valid=rng.random((6, 4)) < 0.8), rng)
    assert report["params.U"].how == "3 random directions"
