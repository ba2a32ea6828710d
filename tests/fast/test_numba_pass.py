"""A pass that is compiled as a whole is that of `lstm`, whose double precision is checked by finite differences."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from minadv import lstm
from minadv.base.trees import tree_map
from minadv.fast import compiled, threads
from minadv.fast import packing as lstm_packing
from minadv.fast.workspace import Slot, StaleCacheError, Workspace, scope
from minadv.influence import influence_map
from tests.support.compare import assert_close, assert_same_bits

pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")

F32 = np.float32
SIZES = {
    "chunks, the last shorter": {"T": 71, "B": 33, "I": 1, "H": 9},
    "x by itself": {"T": 53, "B": 40, "I": 5, "H": 9},
    "one step": {"T": 1, "B": 3, "I": 2, "H": 4},
    "one example, one unit": {"T": 5, "B": 1, "I": 1, "H": 1},
    "chunks of one step": {"T": 3, "B": 1100, "I": 1, "H": 2},
}
EVERY = dict(zip(SIZES, (36, 27, 1, 5, 1), strict=True))  # steps of a chunk


@pytest.fixture(autouse=True)
def numba_wanted(monkeypatch):
    monkeypatch.delenv(compiled.VARIABLE, raising=False)


@pytest.fixture(params=[False, True], ids=["whole products", "gate by gate"])
def products(request, monkeypatch):
    monkeypatch.setattr(lstm_packing, "_has_small_products", lambda: request.param)


def draw(rng, *, T, B, I, H):
    """Parameters, a pass and cotangents in double precision, every number one that single precision has too."""
    drawn = {
        "params": lstm.init(rng, I, H, dtype=np.float64),
        "x": rng.standard_normal((T, B, I)),
        "m": rng.choice([0.0, 1.0, 1.25], (B, H)),
        "state": lstm.State(*(0.5 * rng.standard_normal((B, H)) for _ in "hc")),
        "dh": rng.standard_normal((T, B, H)),
        "dstate": lstm.State(*(rng.standard_normal((B, H)) for _ in "hc")),
    }
    return tree_map(lambda a: a.astype(F32).astype(np.float64), drawn)


def run(given, dtype, **wanted):
    """Everything that comes out of a pass and the way back."""
    given = tree_map(lambda a: a.astype(dtype), given)
    h, state, cache = lstm.forward(given["params"], given["x"], state=given.get("state"), m=given.get("m"))
    grads = lstm.backward(given["params"], cache, given.get("dh"), dstate=given.get("dstate"), **wanted)
    return {"h": h, "state": state, "grads": grads, "every h": cache.h}, cache


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    "without", [(), ("m",), ("state",), ("dh",), ("dstate",)], ids=lambda w: f"no {w[0]}" if w else "all"
)
def test_every_gradient(name, without, rng):
    drawn = draw(rng, **SIZES[name])
    given = {name: value for name, value in drawn.items() if name not in without}
    found, cache = run(given, F32)
    exact, _ = run(given, np.float64)
    assert_close(found, exact, 2e-5)
    assert cache.every == EVERY[name]


@pytest.mark.parametrize(
    "wanted", [{"weights": False}, {"inputs": False}, {"hhat": False}, {"weights": False, "inputs": False}]
)
def test_what_is_not_asked_for_is_not_made(wanted, rng):
    given = draw(rng, T=71, B=33, I=1, H=9)
    found, _ = run(given, F32, **wanted)
    exact, _ = run(given, np.float64, **wanted)
    assert_close(found, exact, 2e-5)
    for name, part in {"weights": "params", "inputs": "x", "hhat": "hhat"}.items():
        assert (getattr(found["grads"], part) is None) == (name in wanted)


def test_the_influence_map_is_the_sum_of_the_paper(rng):
    found, _ = run(draw(rng, T=71, B=33, I=1, H=9), F32)
    assert_close(found["grads"].m, influence_map(found["every h"][:-1], found["grads"].hhat), 1e-4)


def single(rng, **sizes):
    return tree_map(lambda a: a.astype(F32), draw(rng, **sizes))


def test_states_that_nobody_needs_are_not_kept(rng):
    given = single(rng, T=200, B=20, I=1, H=30)
    held = {}
    for states in (True, False):
        work = Workspace()
        h, _, cache = lstm.forward(given["params"], given["x"], m=given["m"], states=states, work=work)
        assert (h is None) == (not states)
        held[states] = work.nbytes
        assert cache.hs.shape == cache.c.shape == (200 // cache.every + 1, 30, 20)
    TBH = 200 * 20 * 30 * 4  # bytes
    assert held[True] - held[False] == TBH
    assert 4 * TBH < held[False] < 4.2 * TBH


def test_same_bits_from_used_buffers(rng):
    given, work = single(rng, T=71, B=33, I=1, H=9), Workspace()

    def step(work, x):
        with scope(work):
            h, state, cache = lstm.forward(given["params"], x, state=given["state"], m=given["m"], work=work)
            grads = lstm.backward(given["params"], cache, given["dh"], dstate=given["dstate"])
            return tree_map(lambda a: a.copy(), (h, state, grads))

    step(work, 10 * given["x"])  # leaves other numbers behind
    held = work.nbytes
    assert_same_bits(step(work, given["x"]), step(None, given["x"]))
    assert work.nbytes == held


def test_a_stale_cache_raises(rng):
    given, work = single(rng, T=5, B=3, I=1, H=9), Workspace()
    _, _, cache = lstm.forward(given["params"], given["x"], work=work)
    work.free(cache)
    lstm.forward(given["params"], given["x"], work=work)
    with pytest.raises(StaleCacheError):
        lstm.backward(given["params"], cache, given["dh"])


def test_two_passes_share_the_product_with_their_input(rng, monkeypatch):
    """And a third that comes later, in the same scope; a large product is made again, and the results are the same."""
    given, calls = single(rng, T=53, B=4, I=5, H=9), []
    real = lstm_packing.project
    monkeypatch.setattr(lstm_packing, "project", lambda *args, **out: calls.append(1) or real(*args, **out))
    passes = [lstm.Inputs(given["x"], None, given["m"], lasting=True), lstm.Inputs(given["x"], lasting=True)]

    def three():
        work = Workspace()
        with scope(work):
            done = lstm.forward_together(given["params"], passes, work=work)
            done.append(lstm.forward(given["params"], given["x"], m=given["m"], work=work))
            return [h.copy() for h, _, _ in done]

    kept = three()
    assert len(calls) == 1
    monkeypatch.setattr(lstm_packing, "KEPT", 0)
    assert_same_bits(three(), kept)
    assert len(calls) == 4
    assert_same_bits(kept[0], kept[2])


def test_together_with_a_pass_that_has_padding(rng):
    """Which is not compiled as a whole: the gradients add up all the same."""
    given = single(rng, T=40, B=3, I=1, H=9)
    params, x = given["params"], given["x"]
    valid = np.ones((40, 3), bool)
    valid[30:, 1] = False
    caches = [lstm.forward(params, x, m=given["m"])[2], lstm.forward(params, x, valid=valid)[2]]
    assert [cache.every for cache in caches] == [40, 1]
    dhs, dstates = [given["dh"]] * 2, [given["dstate"]] * 2
    total, each = lstm.backward_together(params, caches, dhs, dstates)
    alone = [lstm.backward(params, cache, dh, dstate=d) for cache, dh, d in zip(caches, dhs, dstates, strict=True)]
    assert_close(total, tree_map(lambda a, b: a + b, alone[0].params, alone[1].params), 1e-6)
    assert_same_bits([g.x for g in each], [g.x for g in alone])
    assert each[1].m is None and alone[1].m is None
    assert_same_bits(each[0].m, alone[0].m)


def test_what_vanishes_is_set_to_zero(rng):
    """A gradient that shrinks to 0.6 of itself at every step would end among the subnormal numbers."""
    H, T = 3, 190
    zero = lstm.init(rng, 1, H)
    b = np.zeros(4 * H, F32)
    b[H : 2 * H] = np.log(0.6 / 0.4)
    params = replace(zero, W=0 * zero.W, U=0 * zero.U, b=b)
    _, _, cache = lstm.forward(params, np.zeros((T, 2, 1), F32))
    ones = np.ones((2, H), F32)
    assert 0 < 0.6**T < np.finfo(F32).tiny
    grads = lstm.backward(params, cache, None, dstate=lstm.State(0 * ones, ones))
    assert not np.any(grads.state.c)
    assert np.any(grads.params.b)


def test_what_is_no_number_stays_none(rng):
    """A NaN must reach whoever looks for it: in T = 17 steps the first is one in which what vanishes is looked for."""
    given = single(rng, T=17, B=2, I=1, H=3)
    _, _, cache = lstm.forward(given["params"], given["x"])
    dstate = replace(given["dstate"], c=given["dstate"].c.copy())
    dstate.c[1, 2] = np.nan
    grads = lstm.backward(given["params"], cache, None, dstate=dstate)
    assert np.isnan(grads.state.c[1, 2]) and np.isnan(grads.params.U).any()


def test_threads_do_not_disturb_each_other(rng):
    given = single(rng, T=71, B=33, I=1, H=9)
    expected, _ = run(given, F32)
    with ThreadPoolExecutor(4) as pool:
        for found, _ in pool.map(lambda _: run(given, F32), range(40)):
            assert_same_bits(found, expected)


def test_where_it_is_taken(rng, monkeypatch):
    small = np.zeros((4, 16), F32)
    assert compiled.takes_whole_passes(small)
    assert not compiled.takes_whole_passes(small.astype(np.float64))
    H = 257  # 4 HH numbers of four bytes are more than a core's own cache
    assert not compiled.takes_whole_passes(np.zeros((H, 4 * H), F32))
    monkeypatch.setenv(compiled.VARIABLE, "0")
    assert not compiled.takes_whole_passes(small)


COUNT = """
from minadv.fast import compiled, threads

with threads.blas_threads(1):
    compiled.by_numba()
    print(sorted(library["num_threads"] for library in threads.blas()))
"""


def test_the_blas_that_comes_with_it_has_as_many_threads(monkeypatch):
    """Also where Numba finds everything compiled, and would look for its BLAS at the first product only."""
    pytest.importorskip("threadpoolctl")
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        said = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True).stdout
        assert said in ("[1, 1]\n", "[1]\n")  # NumPy's and SciPy's, or one that they share


def test_arrays_that_are_read_only_or_lie_otherwise(rng):
    given = single(rng, T=53, B=4, I=5, H=9)
    expected, _ = run(given, F32)
    frozen = tree_map(lambda a: np.asfortranarray(a), given)
    tree_map(lambda a: a.setflags(write=False), frozen)
    found = {}
    h, found["state"], cache = lstm.forward(frozen["params"], frozen["x"], state=frozen["state"], m=frozen["m"])
    grads = lstm.backward(frozen["params"], cache, frozen["dh"], dstate=frozen["dstate"])
    assert_close({"h": h, **found, "grads": grads, "every h": cache.h}, expected, 2e-5)
    once = np.broadcast_to(given["dh"][:1], given["dh"].shape)
    lstm.backward(given["params"], cache, once)


def test_weights_are_packed_into_the_slots_buffers(rng):
    params, slot = single(rng, T=1, B=1, I=1, H=9)["params"], Slot()
    assert np.shares_memory(lstm_packing.pack(params, slot).UWb, lstm_packing.pack(params, slot).UWb)
