"""Bad input to a cell raises before anything is computed, and says what was given and what was expected."""

import re
from dataclasses import replace

import numpy as np
import pytest

from minadv import gru
from minadv.base.trees import tree_map
from tests.support.cells import CELLS, make

every_cell = pytest.mark.parametrize("name", CELLS)


def table(rows):
    return pytest.mark.parametrize(("bad", "error", "says"), list(rows.values()), ids=list(rows))


def cut(a):
    return a[..., :-1]


def with_params(name, change):
    return lambda p, xp: {"params": replace(p.params, **{name: change(getattr(p.params, name))})}


# The problem has T = 4, B = 3, I = 2, H = 3; each row changes one argument of forward.
FORWARD = {
    "x of rank 2": (lambda p, xp: {"x": p.args["x"][0]}, ValueError, "x has shape (3, 2), expected (T, B, 2)"),
    "x of rank 4": (lambda p, xp: {"x": p.args["x"][None]}, ValueError, "x has shape (1, 4, 3, 2), expected (T, B, 2)"),
    "x of another size": (
        lambda p, xp: {"x": cut(p.args["x"])},
        ValueError,
        "x has shape (4, 3, 1), expected (T, B, 2) (params.W takes I = 2 inputs)",
    ),
    "no steps": (lambda p, xp: {"x": p.args["x"][:0]}, ValueError, "x has shape (0, 3, 2), expected (T, B, 2)"),
    "x of integers": (
        lambda p, xp: {"x": p.args["x"].astype(int)},
        TypeError,
        "x has dtype int64, expected float32 or float64",
    ),
    "x of half precision": (
        lambda p, xp: {"x": p.args["x"].astype(np.float16)},
        TypeError,
        "x has dtype float16, expected float32 or float64",
    ),
    "x a list": (lambda p, xp: {"x": [1.0]}, TypeError, "x is a list, expected a NumPy or CuPy array"),
    "two precisions": (
        lambda p, xp: {"x": p.args["x"].astype(np.float32)},
        TypeError,
        "params.W has dtype float64 but x has float32",
    ),
    "W a list": (with_params("W", lambda W: W.tolist()), TypeError, "params.W is a list, expected a NumPy or CuPy"),
    "U not of blocks": (with_params("U", cut), ValueError, "params.U has shape (3, {cut}), expected (3, {full})"),
    "U a vector": (with_params("U", lambda U: U[0]), ValueError, "params.U has shape ({full},), expected (H, "),
    "W of another width": (with_params("W", cut), ValueError, "params.W has shape (2, {cut}), expected (I, {full})"),
    "b of another size": (with_params("b", cut), ValueError, "params.b has shape ({cut},), expected ({full},)"),
    "state of another batch": (
        lambda p, xp: {"state": tree_map(lambda a: a[:2], p.args["state"])},
        ValueError,
        "state.h has shape (2, 3), expected (3, 3) (x has B = 3, params.U has H = 3)",
    ),
    "state in two precisions": (
        lambda p, xp: {"state": tree_map(lambda a: a.astype(np.float32), p.args["state"])},
        TypeError,
        "state.h has dtype float32 but x has float64",
    ),
    "one mask for all": (
        lambda p, xp: {"m": p.args["m"][0]},
        ValueError,
        "m has shape (3,), expected (3, 3) (one mask",
    ),
    "a mask a step": (lambda p, xp: {"m": xp.ones((4, 3, 3))}, ValueError, "m has shape (4, 3, 3), expected (3, 3)"),
    "mask of another size": (lambda p, xp: {"m": xp.ones((3, 5))}, ValueError, "m has shape (3, 5), expected (3, 3)"),
    "mask of truths": (
        lambda p, xp: {"m": p.args["m"] > 0},
        TypeError,
        "m has dtype bool, expected float32 or float64",
    ),
    "valid of integers": (
        lambda p, xp: {"valid": xp.ones((4, 3), dtype=int)},
        TypeError,
        "valid has dtype int64, expected bool",
    ),
    "valid of another shape": (
        lambda p, xp: {"valid": xp.ones((3, 4), dtype=bool)},
        ValueError,
        "valid has shape (3, 4), expected (4, 3) (x has T = 4, B = 3)",
    ),
}


@every_cell
@table(FORWARD)
def test_forward(name, bad, error, says, rng, xp, put):
    problem = make(name, rng, put)
    full = problem.params.W.shape[1]
    with pytest.raises(error, match=re.escape(says.format(full=full, cut=full - 1))):
        problem.forward(**bad(problem, xp))


BACKWARD = {
    "dh of another length": (
        lambda p, xp: {"dh": p.dh[:2]},
        ValueError,
        "dh has shape (2, 3, 3), expected (4, 3, 3) (the shape of the h that forward returned)",
    ),
    "dh of integers": (lambda p, xp: {"dh": p.dh.astype(int)}, TypeError, "dh has dtype int64, expected float32"),
    "dh in two precisions": (
        lambda p, xp: {"dh": p.dh.astype(np.float32)},
        TypeError,
        "dh has dtype float32 but x has",
    ),
    "dh a list": (lambda p, xp: {"dh": [0.0]}, TypeError, "dh is a list, expected a NumPy or CuPy array"),
    "dstate of another batch": (
        lambda p, xp: {"dstate": tree_map(lambda a: a[:1], p.dstate)},
        ValueError,
        "dstate.h has shape (1, 3), expected (3, 3)",
    ),
    "a cache of another hidden size": (
        lambda p, xp: {"params": make_params(p, xp, 2, 5)},
        ValueError,
        "the cache is one of 3 units, but params.U has H = 5: was it made",
    ),
    "a cache of another input size": (
        lambda p, xp: {"params": make_params(p, xp, 7, 3)},
        ValueError,
        "(the cache's x has I = 2: was it made with these parameters?)",
    ),
}


def make_params(problem, xp, n_in, n_hidden):
    return tree_map(xp.asarray, problem.cell.init(np.random.default_rng(0), n_in, n_hidden, dtype=np.float64))


@every_cell
@table(BACKWARD)
def test_backward(name, bad, error, says, rng, xp, put):
    problem = make(name, rng, put)
    _, _, cache = problem.forward()
    given = {"params": problem.params, "dh": problem.dh, "dstate": problem.dstate, **bad(problem, xp)}
    with pytest.raises(error, match=re.escape(says)):
        problem.cell.backward(given["params"], cache, given["dh"], dstate=given["dstate"])


@every_cell
def test_host_and_device_together(name, rng, xp, put):
    if xp is np:
        pytest.skip("needs a device beside the host; tests/test_backend.py has it with a stand-in")
    problem = make(name, rng, put)
    with pytest.raises(TypeError, match=r"m on the host .* but params\.W, .*on the device"):
        problem.forward(m=problem.args["m"].get())
    _, _, cache = problem.forward()
    with pytest.raises(TypeError, match=r"dh on the host .* but params\.W, .*x on the device"):
        problem.cell.backward(problem.params, cache, problem.dh.get())


def test_unknown_leak():
    with pytest.raises(ValueError, match="leak is 'dirty', expected one of 'clean', 'masked'"):
        gru.forward(None, None, leak="dirty")
