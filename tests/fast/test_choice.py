"""Whatever makes the LSTM's steps, they are those of `elementwise`: on a GPU one kernel, on a processor perhaps Numba.

In double precision on a processor it is `elementwise` itself, and the comparison is for the sake of the other backend.
"""

import numpy as np
import pytest

from minadv.backend import is_device
from minadv.fast import choice, elementwise
from tests.support.compare import assert_close

TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13}


def forward(steps, z, c_prev, *, in_place):
    """Gates, cell and state; ``z`` and ``c_prev`` are left as they are."""
    a, c = (z.copy(), c_prev.copy()) if in_place else (0 * z, 0 * c_prev)
    h = 0 * c
    steps.lstm_step(a if in_place else z, c if in_place else c_prev, a=a, c=c, h=h)
    return a, c, h


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_step_and_the_way_back(dtype, in_place, rng, put, kernels, monkeypatch):
    monkeypatch.delenv(choice.COMPILED, raising=False)
    z, c_prev, dh, dc_next = 2 * rng.standard_normal((4, 7, 2, 3)), *rng.standard_normal((3, 7, 2, 3))
    z[3, :2] = np.array([-1e4, 1e4])[:, None, None]
    found = []
    for place, kind, make in (
        (put, dtype, choice.lstm_steps),
        (np.asarray, np.float64, lambda _: choice.BY_NUMPY),
    ):
        given = [place(v.astype(kind)) for v in (z, c_prev, dh, dc_next)]
        steps = make(given[0])
        with np.errstate(over="ignore"):
            a, c, h = forward(steps, *given[:2], in_place=in_place)
        dc, dz, scratch = given[3].copy(), 0 * a, 0 * c
        steps.lstm_step_backward(a, given[1], h, given[2], dc=dc, dz=dz, scratch=scratch)
        assert {v.dtype for v in (a, c, h, dc, dz)} == {np.dtype(kind)}
        found.append((a, c, h, dc, dz))
    assert_close(*found, TOLERANCE[dtype])


def test_who_makes_them(put, kernels, monkeypatch):
    monkeypatch.delenv(choice.COMPILED, raising=False)
    double = put(np.zeros(1))
    by_kernel = choice.lstm_steps(double).lstm_step is not elementwise.lstm_step
    assert by_kernel == is_device(double)
    monkeypatch.setenv(choice.COMPILED, "0")
    for dtype in TOLERANCE:
        assert choice.lstm_steps(double.astype(dtype)) == (elementwise.lstm_step, elementwise.lstm_step_backward)
