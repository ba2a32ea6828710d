"""The softmax by blocks: its gradients against central differences, and the same numbers whatever the blocks."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import gradcheck, layers
from minadv.backend import to_host
from minadv.distances import DISTANCES, by_name
from minadv.words import softmax_blocks
from tests.support.cells import seeds
from tests.support.compare import assert_close, assert_same_bits, assert_zero

every_distance = pytest.mark.parametrize("name", DISTANCES)
blocks = st.sampled_from([None, 1, 2, 3, 100])
sizes = st.integers(1, 4)


def problem(rng, put, T=3, B=2, F=3, V=5):
    """Features of two passes, output weights, targets, and a weight for every row."""
    f0, f1 = rng.standard_normal((2, T, B, F))
    W, b = rng.standard_normal((V, F)), rng.standard_normal(V)
    return put({"f0": f0, "f1": f1, "W": W, "b": b, "y": rng.integers(0, V, (T, B)), "w": rng.uniform(0.1, 2, (T, B))})


@given(T=sizes, B=sizes, F=sizes, V=st.integers(2, 6), block=blocks, rng=seeds)
def test_nll(put, T, B, F, V, block, rng):
    """A cotangent of the values is a weight of the rows."""
    at = problem(rng, put, T, B, F, V)

    def forward(f, W, b):
        return softmax_blocks.nll(f, W, b, at["y"], weight=at["w"], block=block, gradients=False).values

    def backward(args, d):
        back = softmax_blocks.nll(**args, targets=at["y"], weight=d, block=block)
        return {"f": back.f, "W": back.W, "b": back.b}

    report = gradcheck.check(forward, backward, {"f": at["f0"], "W": at["W"], "b": at["b"]}, rng=rng)
    report.raise_if_failed()
    assert all(row.analytic > 0 for row in report.rows)


@every_distance
@given(T=sizes, B=sizes, F=sizes, V=st.integers(2, 6), block=blocks, rng=seeds)
def test_distance(put, name, T, B, F, V, block, rng):
    at = problem(rng, put, T, B, F, V)
    measure = by_name(name)

    def forward(f0, f1, W, b):
        return softmax_blocks.distance(f0, f1, W, b, measure, weight=at["w"], block=block).values

    def backward(args, d):
        back = softmax_blocks.distance(**args, measure=measure, weight=d, block=block)
        return {"f0": back.f0, "f1": back.f1, "W": back.W, "b": back.b}

    args = {name: at[name] for name in ("f0", "f1", "W", "b")}
    # the bias has no part in logit2: what differences find there is the rounding of values up to a hundred
    report = gradcheck.check(forward, backward, args, rng=rng, floor=1e-2)
    report.raise_if_failed()
    assert all(report[name].analytic > 0 for name in ("f0", "f1", "W"))


def test_nll_is_the_cross_entropy_of_the_logits(rng, put):
    at = problem(rng, put, T=5, B=3)
    found = softmax_blocks.nll(at["f0"], at["W"], at["b"], at["y"], weight=at["w"], block=4)
    z = softmax_blocks.logits(at["f0"], at["W"], at["b"])
    values, dz = layers.cross_entropy(z, at["y"])
    dz = at["w"][..., None] * dz
    df, dW, db = layers.affine_backward(at["f0"], at["W"].T, dz)
    assert_close((found.values, found.f, found.W, found.b), (values, df, dW.T, db))


@every_distance
def test_distance_is_that_of_the_logits(name, rng, put):
    at = problem(rng, put, T=5, B=3)
    found = softmax_blocks.distance(at["f0"], at["f1"], at["W"], at["b"], by_name(name), weight=at["w"], block=4)
    z0, z1 = (softmax_blocks.logits(at[f], at["W"], at["b"]) for f in ("f0", "f1"))
    values, dz0, dz1 = by_name(name)(z0, z1)
    df0, dW0, db0 = layers.affine_backward(at["f0"], at["W"].T, at["w"][..., None] * dz0)
    df1, dW1, db1 = layers.affine_backward(at["f1"], at["W"].T, at["w"][..., None] * dz1)
    expected = (values, df0, df1, (dW0 + dW1).T, db0 + db1)
    assert_close((found.values, found.f0, found.f1, found.W, found.b), expected)


@pytest.mark.parametrize("block", [1, 2, 7, 14, 15, 16, 1000, None])
def test_blocks_of_any_size(block, rng, put):
    at = problem(rng, put, T=5, B=3)
    given = (at["W"], at["b"])
    whole = softmax_blocks.nll(at["f0"], *given, at["y"], weight=at["w"], block=15)
    assert_close(softmax_blocks.nll(at["f0"], *given, at["y"], weight=at["w"], block=block), whole)
    for name in DISTANCES:
        pair = (at["f0"], at["f1"], *given, by_name(name))
        whole = softmax_blocks.distance(*pair, weight=at["w"], block=15)
        assert_close(softmax_blocks.distance(*pair, weight=at["w"], block=block), whole)


@every_distance
@pytest.mark.parametrize("tile", [1, 10, 35])
def test_a_distance_is_taken_a_few_rows_at_a_time(name, tile, rng, put, monkeypatch):
    at = problem(rng, put, T=5, B=3)
    pair = (at["f0"], at["f1"], at["W"], at["b"], by_name(name))
    whole = softmax_blocks.distance(*pair, weight=at["w"])
    monkeypatch.setattr(softmax_blocks, "TILE", tile)
    assert_same_bits(softmax_blocks.distance(*pair, weight=at["w"]), whole)


@every_distance
def test_what_is_left_out(name, rng, put):
    """Neither features nor weights have a gradient through a stopped base; without weights nothing else changes."""
    at = problem(rng, put)
    pair = (at["f0"], at["f1"], at["W"], at["b"])
    full, stopped, light, lightest = (
        softmax_blocks.distance(*pair, by_name(name), weight=at["w"], stop_base=stop, weights=weights)
        for stop, weights in ((False, True), (True, True), (False, False), (True, False))
    )
    assert_same_bits([x.values for x in (stopped, light, lightest)], [full.values] * 3)
    assert_same_bits([x.f1 for x in (stopped, light, lightest)], [full.f1] * 3)
    assert_same_bits(light.f0, full.f0)
    assert (stopped.f0, light.W, light.b, lightest.f0, lightest.W, lightest.b) == (None,) * 6
    turned = {"kl": "rkl", "rkl": "kl"}.get(name, name)
    base = softmax_blocks.distance(
        at["f1"], at["f0"], at["W"], at["b"], by_name(turned), weight=at["w"], stop_base=True
    )
    assert_close((full.W - stopped.W, full.b - stopped.b), (base.W, base.b), 1e-11)


def test_without_gradients_the_values_are_the_same(rng, put):
    at = problem(rng, put)
    given = (at["f0"], at["W"], at["b"], at["y"])
    light = softmax_blocks.nll(*given, weight=at["w"], gradients=False)
    assert_same_bits(light.values, softmax_blocks.nll(*given, weight=at["w"]).values)
    assert (light.f, light.W, light.b) == (None, None, None)


def test_equal_passes_are_at_no_distance(rng, put):
    at = problem(rng, put)
    for name in DISTANCES:
        found = softmax_blocks.distance(at["f0"], at["f0"], at["W"], at["b"], by_name(name), weight=at["w"])
        assert_zero(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_logits_have_the_entropy_of_the_vocabulary(dtype, xp):
    """To the last bit of float64, whatever the precision of the features."""
    f, W, b = xp.ones((3, 2, 4), dtype), xp.zeros((10_000, 4), dtype), xp.zeros(10_000, dtype)
    found = softmax_blocks.nll(f, W, b, xp.zeros((3, 2), int), weight=xp.ones((1, 1), dtype))
    assert_same_bits(found.values, np.full((3, 2), np.log(10_000.0)))
    assert {found.f.dtype, found.W.dtype, found.b.dtype} == {np.dtype(dtype)}


def test_large_logits(xp, put):
    W = put(np.array([[1000.0], [-1000.0], [999.0]], np.float32))
    f, b, y = xp.ones((1, 1, 1), np.float32), xp.zeros(3, np.float32), put(np.array([[1]]))
    found = softmax_blocks.nll(f, W, b, y, weight=xp.ones((1, 1), np.float32))
    assert float(found.values[0, 0]) == pytest.approx(2000 + np.log1p(np.exp(-1)), rel=1e-6)
    assert bool(xp.isfinite(found.W).all())


def test_no_more_than_a_block_of_logits_stands_in_memory(xp):
    if xp is not np:
        pytest.skip("tracemalloc sees the host only")
    R, V = 3000, 1000
    f, W, b, y = np.ones((R, 1, 4)), np.ones((V, 4)), np.zeros(V), np.zeros((R, 1), int)
    tracemalloc.start()
    try:
        softmax_blocks.nll(f, W, b, y, weight=np.ones((1, 1)), block=10)
        alone = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        softmax_blocks.distance(f, f, W, b, by_name("js"), weight=np.ones((1, 1)), block=10)
        pair = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    logits = R * V * 8
    assert alone < logits / 20
    assert pair < logits / 5  # a distance has temporaries of its own


def test_the_rows_of_a_block():
    assert softmax_blocks.block_rows(10_000) == 419
    assert softmax_blocks.block_rows(33_278) == 128
    assert softmax_blocks.block_rows(33_278) * 33_278 * 4 < 2**24 + 2**21  # bytes


def test_bad_input(rng, put):
    at = problem(rng, put)
    f, W, b, y, w = (at[name] for name in ("f0", "W", "b", "y", "w"))
    with pytest.raises(ValueError, match=r"f has shape \(3, 2, 2\), expected \(\.\.\., 3\)"):
        softmax_blocks.nll(f[..., :2], W, b, y, weight=w)
    with pytest.raises(ValueError, match=r"b has shape \(4,\), expected \(5,\) \(W has V = 5 rows\)"):
        softmax_blocks.nll(f, W, b[:4], y, weight=w)
    with pytest.raises(ValueError, match=r"targets has shape \(2, 2\), expected \(3, 2\)"):
        softmax_blocks.nll(f, W, b, y[:2], weight=w)
    with pytest.raises(ValueError, match=r"weight has shape \(4, 1\), expected one that fits the rows \(3, 2\)"):
        softmax_blocks.nll(f, W, b, y, weight=put(np.ones((4, 1))))
    with pytest.raises(ValueError, match=r"block is 0, expected at least 1 row, or None"):
        softmax_blocks.nll(f, W, b, y, weight=w, block=0)
    with pytest.raises(ValueError, match=r"f1 has shape \(2, 2, 3\), expected \(3, 2, 3\)"):
        softmax_blocks.distance(f, f[:2], W, b, by_name("js"), weight=w)
    with pytest.raises(TypeError, match=r"W has dtype float32 but f has float64"):
        softmax_blocks.nll(f, W.astype(np.float32), b, y, weight=w)


def test_the_arguments_are_left_alone(rng, put):
    at = problem(rng, put)
    before = to_host({name: value.copy() for name, value in at.items()})
    softmax_blocks.nll(at["f0"], at["W"], at["b"], at["y"], weight=at["w"])
    softmax_blocks.distance(at["f0"], at["f1"], at["W"], at["b"], by_name("js"), weight=at["w"])
    assert_same_bits(at, before)
