"""A pass that is compiled as a whole is that of `lstm`, whose double precision is checked by finite differences."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from minadv import lstm
from minadv.base import machine
from minadv.base.trees import leaves, tree_map
from minadv.fast import choice, engine, packing
from minadv.fast.columns import Columns
from minadv.fast.engines import Inputs, Plain
from minadv.fast.remat import Recomputing
from minadv.fast.workspace import Slot, StaleCacheError, Workspace, scope
from tests.support import engines
from tests.support.cells import make, seeds, sizes_and_masks
from tests.support.compare import assert_close, assert_same_bits
from tests.support.engines import cast, readable, rounded

pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")

F32 = np.float32
SIZES = {
    "chunks, the last shorter": {"T": 71, "B": 33, "I": 1, "H": 9},
    "x by itself": {"T": 53, "B": 40, "I": 5, "H": 9},
    "one step": {"T": 1, "B": 3, "I": 2, "H": 4},
    "one example, one unit": {"T": 5, "B": 1, "I": 1, "H": 1},
    "chunks of one step": {"T": 3, "B": 1100, "I": 1, "H": 2},
}
CHUNKS = dict(zip(SIZES, (36, 27, 1, 5, 1), strict=True))  # steps of a chunk
PADDINGS = {
    "front": lambda rng, T, B: np.arange(T)[:, None] >= T - rng.integers(0, T + 1, B),
    "end": lambda rng, T, B: np.arange(T)[:, None] < rng.integers(0, T + 1, B),
    "anywhere": lambda rng, T, B: rng.random((T, B)) < 0.7,
    "of whole steps": lambda rng, T, B: np.repeat(rng.random((T, 1)) < 0.5, B, axis=1),
}


@pytest.fixture(scope="module")
def compiled():
    """The engine, imported only where Numba is installed."""
    from minadv.fast.numba_pass import Compiled

    return Compiled()


@pytest.fixture(autouse=True)
def numba_wanted(monkeypatch):
    monkeypatch.delenv(choice.COMPILED, raising=False)


@pytest.fixture(params=[False, True], ids=["whole products", "gate by gate"])
def products(request, monkeypatch):
    monkeypatch.setattr(packing, "_has_small_products", lambda: request.param)


def draw(rng, *, T, B, I, H, padding=None):
    """Parameters, a pass and cotangents in double precision, every number one that single precision has too."""
    drawn = {
        "params": lstm.init(rng, I, H, dtype=np.float64),
        "x": rng.standard_normal((T, B, I)),
        "m": rng.choice([0.0, 1.0, 1.25], (B, H)),
        "state": lstm.State(*(0.5 * rng.standard_normal((B, H)) for _ in "hc")),
        "dh": rng.standard_normal((T, B, H)),
        "dstate": lstm.State(*(rng.standard_normal((B, H)) for _ in "hc")),
    }
    valid = {} if padding is None else {"valid": PADDINGS[padding](rng, T, B)}
    return tree_map(lambda a: a.astype(F32).astype(np.float64), drawn) | valid


def inputs(given):
    return Inputs(given["x"], given.get("state"), given.get("m"), given.get("valid"))


def run(engine, given, dtype, **wanted):
    """Everything that comes out of a pass and the way back."""
    given = tree_map(lambda a: a if a.dtype == bool else a.astype(dtype), given)
    [(h, state, cache)] = engine.forward(given["params"], [inputs(given)])
    cotangents = [given.get("dh")], [given.get("dstate")]
    total, [grads] = engine.backward(given["params"], [cache], *cotangents, **wanted)
    return {"h": h, "state": state, "params": total, "grads": replace(grads, hhat=None)}, cache


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    "without", [(), ("m",), ("state",), ("dh",), ("dstate",)], ids=lambda w: f"no {w[0]}" if w else "all"
)
def test_every_output(name, without, compiled, rng):
    drawn = draw(rng, **SIZES[name])
    given = {name: value for name, value in drawn.items() if name not in without}
    found, cache = run(compiled, given, F32)
    exact, _ = run(Plain("lstm"), given, np.float64)
    assert_close(found, exact, 2e-5)
    assert CHUNKS[name] == cache.C


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("padding", PADDINGS)
def test_every_output_with_padding(name, padding, compiled, rng):
    given = draw(rng, **SIZES[name], padding=padding)
    found, _ = run(compiled, given, F32)
    exact, _ = run(Plain("lstm"), given, np.float64)
    assert_close(found, exact, 2e-5)
    again, _ = run(Recomputing(compiled, 7), given, F32)
    assert_close(again, exact, 2e-5)


@given(drawn=sizes_and_masks(longest=7), rng=seeds)
def test_any_sizes_masks_and_padding(compiled, drawn, rng):
    exact = rounded(make("lstm", rng, lambda tree: tree, **drawn))
    expected = readable(exact)
    largest = max(float(abs(a).max()) for _, a in leaves(expected))  # gradients of states add up over padding
    assert_close(engines.run(compiled, cast(exact, F32)), expected, 5e-5 * max(1.0, largest))


def test_over_padding_the_state_is_kept_to_the_bit_and_no_gradient_is_left(compiled, rng):
    """Example 0 is all padding, example 1 from step 40 on, example 2 up to step 50; a chunk has 36 steps."""
    given = single(rng, T=71, B=33, I=1, H=9)
    valid = np.ones((71, 33), bool)
    valid[:, 0] = valid[40:, 1] = valid[:50, 2] = False
    found, _ = run(compiled, {**given, "valid": valid}, F32)
    h, state, grads = found["h"], found["state"], found["grads"]
    assert_same_bits(h[:, 0], np.repeat(given["state"].h[None, 0], 71, axis=0))
    assert_same_bits(h[40:, 1], np.repeat(h[None, 39, 1], 31, axis=0))
    assert_same_bits(h[:50, 2], np.repeat(given["state"].h[None, 2], 50, axis=0))
    assert_same_bits((state.h[0], state.c[0]), (given["state"].h[0], given["state"].c[0]))
    assert not np.any(grads.x[~valid]) and np.all(grads.x[valid])
    assert not np.any(grads.m[0]) and np.all(grads.m[3:])
    assert_same_bits(grads.state.c[0], given["dstate"].c[0])
    assert_close(grads.state.h[0], given["dstate"].h[0] + given["dh"][:, 0].sum(axis=0), 1e-5)


def test_an_example_does_not_depend_on_the_padding_of_the_others(compiled, rng):
    """Not to the bit, though a step that is padding in every example is left out."""
    given = single(rng, T=71, B=33, I=1, H=9)
    seen = []
    for padding in PADDINGS:
        valid = PADDINGS[padding](rng, 71, 33)
        valid[:, 0] = np.arange(71) >= 30
        whole, _ = run(compiled, {**given, "valid": valid}, F32)
        grads = whole["grads"]
        one = (whole["h"][:, 0], whole["state"].h[0], whole["state"].c[0], grads.x[:, 0], grads.m[0])
        seen.append((*one, grads.state.h[0], grads.state.c[0]))
    for other in seen[1:]:
        assert_same_bits(other, seen[0])


@pytest.mark.parametrize(
    "wanted", [{"weights": False}, {"inputs": False}, {"masks": False}, {"weights": False, "inputs": False}]
)
def test_what_is_not_asked_for_is_not_made(wanted, compiled, rng):
    given = draw(rng, T=71, B=33, I=1, H=9)
    found, _ = run(compiled, given, F32, **wanted)
    exact, _ = run(Columns(), given, np.float64, **wanted)
    assert_close(found, exact, 2e-5)
    made = {"weights": found["params"], "inputs": found["grads"].x, "masks": found["grads"].m}
    assert {name: part is None for name, part in made.items()} == {name: name in wanted for name in made}


@pytest.mark.parametrize("padding", [None, *PADDINGS])
def test_a_cache_may_be_gone_back_through_more_than_once(padding, compiled, rng):
    given = single(rng, T=71, B=33, I=1, H=9, padding=padding)
    [(_, _, cache)] = compiled.forward(given["params"], [inputs(given)])

    def backward(sign):
        return compiled.backward(given["params"], [cache], [sign * given["dh"]], [given["dstate"]])

    first = backward(1)
    backward(-1)
    assert_same_bits(backward(1), first)


def single(rng, **sizes):
    return tree_map(lambda a: a if a.dtype == bool else a.astype(F32), draw(rng, **sizes))


def test_states_that_nobody_needs_are_not_kept(compiled, rng):
    given = single(rng, T=200, B=20, I=1, H=30)
    held = {}
    for keep_h in (True, False):
        work = Workspace()
        passes = [Inputs(given["x"], m=given["m"])]
        with scope(work):
            [(h, _, cache)] = compiled.forward(given["params"], passes, keep_h=keep_h, work=work)
        assert (h is None) == (not keep_h)
        held[keep_h] = work.nbytes
        assert cache.h.shape == cache.c.shape == (200 // cache.C + 1, 30, 20)
    TBH = 200 * 20 * 30 * 4  # bytes
    assert held[True] - held[False] == TBH
    assert 4 * TBH < held[False] < 4.2 * TBH


@pytest.mark.parametrize("padding", [None, *PADDINGS])
def test_same_bits_from_used_buffers(padding, compiled, rng):
    given, work = single(rng, T=71, B=33, I=1, H=9, padding=padding), Workspace()

    def step(work, x):
        with scope(work):
            [(h, state, cache)] = compiled.forward(given["params"], [inputs({**given, "x": x})], work=work)
            grads = compiled.backward(given["params"], [cache], [given["dh"]], [given["dstate"]])
            return tree_map(lambda a: a.copy(), (h, state, grads))

    step(work, 10 * given["x"])  # leaves other numbers behind
    held = work.nbytes
    assert_same_bits(step(work, given["x"]), step(None, given["x"]))
    assert work.nbytes == held


def test_a_stale_cache_raises(compiled, rng):
    given, work = single(rng, T=5, B=3, I=1, H=9), Workspace()
    with scope(work):
        [(_, _, cache)] = compiled.forward(given["params"], [Inputs(given["x"])], work=work)
    with scope(work):
        compiled.forward(given["params"], [Inputs(given["x"])], work=work)
    with pytest.raises(StaleCacheError):
        compiled.backward(given["params"], [cache], [given["dh"]], [None])


def test_two_passes_share_the_product_with_their_input(compiled, rng, monkeypatch):
    """And a third that comes later, in the same scope; a large product is made again, and the results are the same."""
    given, calls = single(rng, T=53, B=4, I=5, H=9), []
    real = packing.project
    monkeypatch.setattr(packing, "project", lambda *args, **out: calls.append(1) or real(*args, **out))
    passes = [Inputs(given["x"], m=given["m"], lasting=True), Inputs(given["x"], lasting=True)]

    def three():
        work = Workspace()
        with scope(work):
            done = compiled.forward(given["params"], passes, work=work)
            done += compiled.forward(given["params"], [Inputs(given["x"], m=given["m"])], work=work)
            return [h.copy() for h, _, _ in done]

    kept = three()
    assert len(calls) == 1
    monkeypatch.setattr(packing, "KEPT", 0)
    assert_same_bits(three(), kept)
    assert len(calls) == 4
    assert_same_bits(kept[0], kept[2])


def test_what_vanishes_is_set_to_zero(compiled, rng):
    """A gradient that shrinks to 0.6 of itself at every step would end among the subnormal numbers."""
    H, T = 3, 190
    zero = lstm.init(rng, 1, H)
    b = np.zeros(4 * H, F32)
    b[H : 2 * H] = np.log(0.6 / 0.4)
    params = replace(zero, W=0 * zero.W, U=0 * zero.U, b=b)
    [(_, _, cache)] = compiled.forward(params, [Inputs(np.zeros((T, 2, 1), F32))])
    ones = np.ones((2, H), F32)
    assert 0 < 0.6**T < np.finfo(F32).tiny
    total, [grads] = compiled.backward(params, [cache], [None], [lstm.State(0 * ones, ones)])
    assert not np.any(grads.state.c)
    assert np.any(total.b)


def test_what_is_no_number_stays_none(compiled, rng):
    """A NaN must reach whoever looks for it: in T = 17 steps the first is one in which what vanishes is looked for."""
    given = single(rng, T=17, B=2, I=1, H=3)
    [(_, _, cache)] = compiled.forward(given["params"], [Inputs(given["x"])])
    dstate = replace(given["dstate"], c=given["dstate"].c.copy())
    dstate.c[1, 2] = np.nan
    total, [grads] = compiled.backward(given["params"], [cache], [None], [dstate])
    assert np.isnan(grads.state.c[1, 2]) and np.isnan(total.U).any()


def test_threads_do_not_disturb_each_other(compiled, rng):
    given = single(rng, T=71, B=33, I=1, H=9)
    expected, _ = run(compiled, given, F32)
    with ThreadPoolExecutor(4) as pool:
        for found, _ in pool.map(lambda _: run(compiled, given, F32), range(40)):
            assert_same_bits(found, expected)


def test_where_it_is_taken(compiled, rng, monkeypatch):
    def chosen(H, dtype=F32, valid=None, asked=None):
        params = lstm.init(rng, 1, H, dtype=dtype)
        return engine("lstm", params, [Inputs(np.zeros((2, 1, 1), dtype), valid=valid)], asked=asked)

    padded = np.ones((2, 1), bool)
    assert chosen(4) == chosen(4, valid=padded) == chosen(4, asked="fast-1") == compiled
    assert chosen(4, np.float64) == chosen(4, np.float64, padded) == Columns()
    assert chosen(4, valid=padded, asked="fast-1") == Columns()  # as in runs from before engines had versions
    assert chosen(257) == Columns()  # 4 HH numbers of four bytes are more than a core's own cache
    monkeypatch.setenv(choice.COMPILED, "0")
    assert chosen(4) == Columns()
    monkeypatch.setenv(choice.ENGINE, "plain")
    assert chosen(4) == Plain("lstm")


COUNT = """
from minadv.fast import choice, threads

with threads.limit_threads(1):
    choice.by_numba()
    print(sorted(library["num_threads"] for library in threads.libraries()))
"""


def test_the_blas_that_comes_with_it_has_as_many_threads(monkeypatch):
    """Also where Numba finds everything compiled, and would look for its BLAS at the first product only."""
    pytest.importorskip("threadpoolctl")
    for name in machine.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        said = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True).stdout
        assert said in ("[1, 1]\n", "[1]\n")  # NumPy's and SciPy's, or one that they share


def test_arrays_that_are_read_only_or_lie_otherwise(compiled, rng):
    given = single(rng, T=53, B=4, I=5, H=9, padding="anywhere")
    expected, _ = run(compiled, given, F32)
    frozen = tree_map(lambda a: np.asfortranarray(a), given)
    tree_map(lambda a: a.setflags(write=False), frozen)
    [(h, state, cache)] = compiled.forward(frozen["params"], [inputs(frozen)])
    total, [grads] = compiled.backward(frozen["params"], [cache], [frozen["dh"]], [frozen["dstate"]])
    assert_close({"h": h, "state": state, "params": total, "grads": grads}, expected, 2e-5)
    once = np.broadcast_to(given["dh"][:1], given["dh"].shape)
    compiled.backward(given["params"], [cache], [once], [None])


def test_weights_are_packed_into_the_slots_buffers(rng):
    params, slot = single(rng, T=1, B=1, I=1, H=9)["params"], Slot()
    assert np.shares_memory(packing.pack(params, slot).UWb, packing.pack(params, slot).UWb)
