"""How the LSTM multiplies: in pieces that add up to the whole and round less, gate by gate where that is faster."""

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.fast import packing as lstm_packing
from minadv.fast import threads
from minadv.fast.packing import by_gate, in_pieces, project
from tests.support.compare import assert_close


@pytest.mark.parametrize("K", [1, 2, 7, 8, 9, 16, 23, 40])
def test_pieces_add_up_to_the_whole(K, rng, put):
    left, right = put(rng.standard_normal((5, K))), put(rng.standard_normal((K, 3)))
    out = put(np.full((5, 3), np.nan))
    in_pieces(left, right, out=out, piece=8)
    assert_close(out, left @ right)


@pytest.mark.parametrize("B", [1, 7, 48, 49, 200])
@pytest.mark.parametrize("T", [1, 5, 30])
def test_products_with_the_inputs(T, B, rng, put):
    """By one step, by groups with a rest, all in one group."""
    W, x, out = rng.standard_normal((8, 70)), rng.standard_normal((T, B, 70)), put(np.full((T, 8, B), np.nan))
    project(put(W), put(x), out=out)
    assert_close(out, np.einsum("gi,tbi->tgb", W, x))


def test_no_sum_is_longer_than_a_piece(monkeypatch, rng, device):
    if device.name == "gpu":
        pytest.skip("a GPU is given the whole product")
    lengths, matmul = [], np.matmul
    monkeypatch.setattr(np, "matmul", lambda a, b, out: lengths.append(a.shape[1]) or matmul(a, b, out=out))
    in_pieces(np.ones((2, 129)), np.ones((129, 2)), out=np.empty((2, 2)), piece=64)
    assert lengths == [43, 43, 43]


def test_pieces_round_less(rng, device):
    if device.name == "gpu":
        pytest.skip("a GPU is given the whole product")
    left, right = (rng.standard_normal(shape).astype(np.float32) for shape in ((200, 1000), (1000, 50)))
    exact, out = left.astype(np.float64) @ right.astype(np.float64), np.empty((200, 50), np.float32)
    in_pieces(left, right, out=out, piece=64)
    assert np.linalg.norm(out - exact) < np.linalg.norm(left @ right - exact)


@pytest.mark.parametrize(
    ("libraries", "expected"),
    [([{"architecture": "SkylakeX"}], True), ([{"architecture": "Haswell"}], False), ([{}], False), ([], False)],
    ids=["with kernels for small products", "without", "another library", "threadpoolctl is missing"],
)
def test_gate_by_gate_where_blas_has_small_products(libraries, expected, monkeypatch, put):
    monkeypatch.setattr(threads, "libraries", lambda: libraries)
    lstm_packing._has_small_products.cache_clear()
    columns = put(np.empty((100, 1, 100)))
    assert by_gate(100, columns) == (expected and to_host(columns) is columns)
    assert not by_gate(101, columns)  # more than a million multiplications
    lstm_packing._has_small_products.cache_clear()
