"""What the normalised embeddings are, and what is refused."""

import sys

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.words import embedding
from tests.support.compare import assert_close, assert_same_bits
from tests.support.texts import zipf


@pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 1e-4), (np.float64, 1e-5)])
def test_mean_zero_and_variance_one_over_the_running_text(dtype, tol, rng, put):
    E, f = put(((2 + 3 * rng.standard_normal((50, 4))).astype(dtype), zipf(50).astype(dtype)))
    at = embedding.moments(E, f)
    rows = to_host(embedding.lookup(E, put(np.arange(50)), at))
    assert rows.dtype == dtype
    assert_close(to_host(f) @ rows, np.zeros(4), tol)
    assert_close(to_host(f) @ rows**2, np.ones(4), tol)


def test_only_frequencies_count(rng, put):
    """A text of which these are the frequencies has the same moments, word by word."""
    counts = np.array([5, 1, 3, 0])
    E = rng.standard_normal((4, 3))
    at = embedding.moments(put(E), put(counts / 9))
    text = E[np.repeat(np.arange(4), counts)]
    assert_close(at.mean, text.mean(axis=0))
    assert_close(at.scale, 1 / np.sqrt(text.var(axis=0) + 1e-6))


def test_without_moments_it_is_a_lookup_and_the_matrix_stays(rng, put):
    E, tokens = put(rng.standard_normal((5, 3))), put(rng.integers(0, 5, (4, 2)))
    before = E.copy()
    assert_same_bits(embedding.lookup(E, tokens), E[tokens])
    embedding.lookup(E, tokens, embedding.moments(E, put(zipf(5))))
    assert_same_bits(E, before)


def test_bad_input(rng, put):
    E = put(rng.standard_normal((5, 3)))
    with pytest.raises(ValueError, match=r"frequencies has shape \(4,\), expected \(5,\) \(E has a row for each of 5"):
        embedding.moments(E, put(zipf(4)))
    with pytest.raises(TypeError, match="frequencies has dtype float32 but E has float64"):
        embedding.moments(E, put(zipf(5).astype(np.float32)))
    with pytest.raises(ValueError, match="tokens holds 5, expected integers from 0 to 4"):
        embedding.lookup(E, put(np.array([0, 5])))


@pytest.mark.parametrize("weighted", [False, True])
def test_without_scipy_the_sums_are_the_same(weighted, rng, monkeypatch):
    """A browser has NumPy alone."""
    words, rows = rng.integers(0, 7, 40), rng.standard_normal((40, 3)).astype(np.float32)
    weights = rng.standard_normal(40).astype(np.float32) if weighted else None
    expected = embedding.sum_by_word(words, rows, 9, weights)
    monkeypatch.setattr(embedding, "_has_scipy", lambda: False)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)  # importing it is an error now
    found = embedding.sum_by_word(words, rows, 9, weights)
    assert_close(found, expected, 1e-6)
