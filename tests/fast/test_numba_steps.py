"""The compiled steps are those of `elementwise`, as exact as NumPy's own, and are chosen where they should be."""

import sys
from importlib import metadata

import numpy as np
import pytest

from minadv.base import notices
from minadv.base.trees import leaves, tree_map
from minadv.fast import choice, compiling, elementwise
from minadv.fast.columns import Columns
from minadv.fast.engines import Inputs
from tests.support.cells import GAPS, make
from tests.support.compare import assert_close

numba = pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")
from minadv.fast import numba_steps  # noqa: E402

F32 = np.float32
SHAPES = [(100, 1, 50), (7, 2, 3), (1, 1, 1)]  # many at a time, with some left over; too few for that


def ulps(found, expected):
    """How far numbers in single precision are from those expected, in units of their last place."""
    return np.abs(found.astype(float) - expected) / np.spacing(np.abs(expected).astype(F32)).astype(float)


@pytest.mark.parametrize(("name", "exact", "most"), [("_exp", np.exp, 87), ("_tanh", np.tanh, 20)], ids=["exp", "tanh"])
def test_exp_and_tanh_are_exact_to_the_last_places(name, exact, most):
    x = np.concatenate([np.linspace(-most, most, 4001), np.linspace(-1, 1, 4001), np.logspace(-30, 0, 501)]).astype(F32)
    function = getattr(numba_steps, name)
    found = np.array([function(value) for value in x], F32)
    assert ulps(found, exact(x.astype(float))).max() < 2


@pytest.fixture(params=SHAPES, ids=str)
def given(request, rng):
    """Pre-activations, some of them of saturated gates, and a cell, in single precision."""
    shape = request.param
    z, c_prev = (3 * rng.standard_normal((4, *shape))).astype(F32), rng.standard_normal(shape).astype(F32)
    z.reshape(-1)[::5] *= F32(1e4)
    return z, c_prev


def forward(steps, z, c_prev):
    a, c, h = np.empty_like(z), np.empty_like(c_prev), np.empty_like(c_prev)
    steps.lstm_step(z, c_prev, a=a, c=c, h=h)
    return a, c, h


def assert_as_exact(found, numpys, exact):
    """Not much further from double precision than NumPy's single precision is."""
    for one, other, true in zip(found, numpys, exact, strict=True):
        assert one.dtype == F32
        scale = np.abs(true).max() * np.finfo(F32).eps
        assert np.abs(one - true).max() <= 1.5 * np.abs(other - true).max() + scale


def test_forward(given):
    exact = forward(choice.BY_NUMPY, *(v.astype(float) for v in given))
    assert_as_exact(forward(numba_steps, *given), forward(choice.BY_NUMPY, *given), exact)


def test_forward_in_place(given):
    z, c = (v.copy() for v in given)
    h = np.empty_like(c)
    numba_steps.lstm_step(z, c, a=z, c=c, h=h)
    assert_close((z, c, h), forward(numba_steps, *given), 1e-6)


def backward(steps, a, c_prev, h, dh, dc_next):
    dc, dz, scratch = dc_next.copy(), np.empty_like(a), np.empty_like(h)
    steps.lstm_step_backward(a, c_prev, h, dh, dc=dc, dz=dz, scratch=scratch)
    return dc, dz


def test_backward(given, rng):
    a, _, h = forward(choice.BY_NUMPY, *given)
    dh, dc = (rng.standard_normal(h.shape).astype(F32) for _ in range(2))
    args = (a, given[1], h, dh, dc)
    exact = backward(choice.BY_NUMPY, *(v.astype(float) for v in args))
    assert_as_exact(backward(numba_steps, *args), backward(choice.BY_NUMPY, *args), exact)


@pytest.mark.parametrize(
    ("x", "exp"), [(88.0, np.exp(88.0)), (89.0, np.inf), (np.inf, np.inf), (-np.inf, np.exp(-87.0))]
)
def test_where_exp_ends(x, exp):
    assert_close(np.array(numba_steps._exp(F32(x))), np.array(exp, F32), 1e-6)
    assert numba_steps._tanh(F32(x)) == np.sign(x)


def test_saturated_gates_are_exact():
    z = np.array([-1e4, 1e4, -1e4, -1e4], F32).reshape(4, 1, 1, 1)
    a, _, _ = forward(numba_steps, z, np.zeros((1, 1, 1), F32))
    assert a.reshape(-1).tolist() == [1, 0, -1, 1]


@pytest.mark.parametrize("where", range(4))
def test_nan_is_not_hidden(where):
    z, c_prev = np.zeros((4, 9, 1, 1), F32), np.zeros((9, 1, 1), F32)
    z[where, 4] = np.nan
    a, _, h = forward(numba_steps, z, c_prev)
    assert np.isnan(a).sum() == 1 and np.isnan(a[where, 4]) and np.isnan(h).sum() == 1


@pytest.mark.parametrize("sizes", [{"I": 1, "H": 9}, {"I": 4, "H": 3}], ids=["x beside the state", "x by itself"])
def test_a_whole_pass_and_the_way_back(sizes, rng, monkeypatch):
    """With masks, padding and a first state, one pass alone and two together, against the definition."""
    monkeypatch.delenv(choice.COMPILED, raising=False)
    problem = make("lstm", rng, lambda tree: tree, valid=GAPS, **sizes)

    def run(dtype):
        args = tree_map(lambda v: v.astype(dtype), problem.args)
        dh, dstate = tree_map(lambda v: v.astype(dtype), (problem.dh, problem.dstate))
        one = Inputs(args["x"], args["state"], args["m"], problem.valid)
        found = []
        for passes in ([one], [one, Inputs(args["x"])]):
            results = Columns().forward(args["params"], passes)
            caches, n = [cache for _, _, cache in results], len(passes)
            grads = Columns().backward(args["params"], caches, [dh] * n, [dstate] * n)
            found.append(([h for h, _, _ in results], [state for _, state, _ in results], grads))
        return found

    calls = []
    counted = [
        lambda *args, step=step, **out: calls.append(step) or step(*args, **out)
        for step in (numba_steps.lstm_step, numba_steps.lstm_step_backward)
    ]
    monkeypatch.setattr(choice, "by_numba", lambda: (choice.Steps(*counted), ""))
    single = run(F32)
    assert [calls.count(step) for step in set(calls)] == [2 * len(problem.args["x"])] * 2
    assert {v.dtype for _, v in leaves(single)} == {np.dtype(F32)}
    assert_close(single, run(np.float64), 1e-5)


def test_double_precision_and_the_user_have_the_definition(monkeypatch):
    monkeypatch.delenv(choice.COMPILED, raising=False)
    single = np.zeros(1, F32)
    assert choice.lstm_steps(single).lstm_step is numba_steps.lstm_step
    assert choice.lstm_steps(np.zeros(1)) is choice.BY_NUMPY
    assert choice.why().startswith(f"Numba {numba.__version__}")
    assert choice.versions() == {"numba": numba.__version__}
    monkeypatch.setenv(choice.COMPILED, "0")
    assert choice.lstm_steps(single) is choice.BY_NUMPY
    assert choice.BY_NUMPY.lstm_step is elementwise.lstm_step
    assert choice.why() == "NumPy line by line, as MINADV_COMPILED=0 says"
    assert choice.versions() == {}


class Broken:
    """What a module is that cannot be imported."""

    def __getattr__(self, name):
        raise ImportError("Numba needs NumPy 2.5 or less")


@pytest.fixture
def afresh(monkeypatch):
    """Lets Numba be looked for again, now and after the test."""
    monkeypatch.delenv(choice.COMPILED, raising=False)
    for name in ("minadv.fast.numba_steps", "minadv.fast.numba_compile"):
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(name)
    choice.by_numba.cache_clear()
    yield
    choice.by_numba.cache_clear()


def test_a_numba_that_does_not_work(afresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", Broken())
    assert choice.lstm_steps(np.zeros(1, F32)) is choice.BY_NUMPY
    assert choice.why().endswith("is installed but does not work: Numba needs NumPy 2.5 or less")
    assert choice.versions() == {}


def test_without_numba(afresh, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(choice.metadata, "version", missing)
    assert choice.lstm_steps(np.zeros(1, F32)) is choice.BY_NUMPY
    assert 'pip install "minadv[fast]"' in choice.why()
    assert choice.versions() == {}


def test_a_cache_that_cannot_be_used(afresh, monkeypatch, capsys):
    """It is done without: the functions are compiled, which is said, and right."""
    monkeypatch.setattr(notices, "_said", set())
    njit, refused = numba.njit, []

    def without_cache(*args, cache=False, **options):
        if cache:
            refused.append(args)
            raise EOFError("Ran out of input")
        return njit(*args, **options)

    monkeypatch.setattr(numba, "njit", without_cache)
    steps = choice.lstm_steps(np.zeros(1, F32))
    assert len(refused) == 16 and steps is not choice.BY_NUMPY
    assert capsys.readouterr().err == f"minadv: {compiling.COMPILING}\n"
    assert choice.compiled_code() == (
        "16 functions of the LSTM, 16 of them compiled now, not kept: no folder can be written, so that every process "
        "compiles them"
    )
    given = np.zeros((4, 1, 1, 1), F32), np.ones((1, 1, 1), F32)
    assert_close(forward(steps, *given), forward(choice.BY_NUMPY, *given), 1e-6)
