"""Embeddings normalised inside the graph, against central differences, and sums by word against sums one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import gradcheck, layers
from minadv.backend import to_host
from minadv.words import embedding
from tests.support.cells import seeds
from tests.support.compare import assert_close
from tests.support.texts import fewer, zipf

sizes = st.integers(1, 4)


def check(E, tokens, frequencies, rng, **options):
    def at(E):
        return None if frequencies is None else embedding.moments(E, frequencies)

    report = gradcheck.check(
        lambda E: embedding.lookup(E, tokens, at(E)),
        lambda args, dy: {"E": embedding.lookup_backward(args["E"], tokens, dy, at(args["E"]))},
        {"E": E},
        rng=rng,
        **options,
    )
    report.raise_if_failed()
    return report


@pytest.mark.parametrize("normalised", [False, True])
@given(T=sizes, B=sizes, V=st.integers(2, 6), D=sizes, rng=seeds)
def test_every_row_of_the_matrix(put, xp, normalised, T, B, V, D, rng):
    """No two words are near each other, nor any rare: finite differences are poor where a variance is next to zero."""
    E = rng.permuted(np.tile(np.arange(V)[:, None], D), axis=0) + rng.uniform(-0.3, 0.3, (V, D))
    f = rng.uniform(0.5, 1.5, V)
    check(put(E), put(rng.integers(0, V, (T, B))), put(f / f.sum()) if normalised else None, rng, **fewer(xp))


def test_a_mean_far_from_zero_and_a_small_variance(put, rng):
    E = put(5 + 0.3 * rng.standard_normal((6, 3)))
    assert check(E, put(rng.integers(0, 6, (4, 3))), put(zipf(6)), rng)["E"].analytic > 1e-2


def test_words_that_are_not_looked_up_have_a_gradient_if_they_have_a_frequency(put, rng):
    E, f, tokens, dy = rng.standard_normal((6, 3)), zipf(6), np.array([[1, 1], [3, 1]]), rng.standard_normal((2, 2, 3))
    E, f, tokens, dy = put((E, f, tokens, dy))
    dE = to_host(embedding.lookup_backward(E, tokens, dy, embedding.moments(E, f)))
    assert (np.abs(dE[[0, 2, 4]]) > 1e-4).all()
    assert not dE[5].any()  # neither looked up nor counted
    plain = to_host(embedding.lookup_backward(E, tokens, dy))
    assert not plain[[0, 2, 4, 5]].any() and plain[[1, 3]].all()


def test_what_the_normalisation_cannot_see_has_no_gradient(put, rng):
    """Shifting a dimension changes nothing; nor, to first order in tiny, does stretching it."""
    E, tokens, dy = put((rng.standard_normal((6, 3)), rng.integers(0, 6, (5, 4)), rng.standard_normal((5, 4, 3))))
    dE = to_host(embedding.lookup_backward(E, tokens, dy, embedding.moments(E, put(zipf(6)))))
    assert np.abs(dE.sum(axis=0)).max() < 1e-12
    assert np.abs((dE * to_host(E)).sum(axis=0)).max() < 1e-4 * np.abs(dE).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("integers", [np.int32, np.int64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_by_word(put, dtype, integers, weighted, rng):
    words = rng.integers(0, 5, 40).astype(integers)
    rows, weights = rng.standard_normal((40, 3)).astype(dtype), rng.standard_normal(40).astype(dtype)
    expected = np.zeros((7, 3), np.float64)
    np.add.at(expected, words, rows * (weights[:, None] if weighted else 1))
    total = embedding.sum_by_word(put(words), put(rows), 7, put(weights) if weighted else None)
    assert total.dtype == dtype
    assert_close(total, expected, 1e-12 if dtype == np.float64 else 1e-5)
    if not weighted:
        like = put(np.empty((7, 3), dtype))
        assert_close(
            total, layers.embedding_backward(like, put(words), put(rows)), 1e-12 if dtype == np.float64 else 1e-5
        )
