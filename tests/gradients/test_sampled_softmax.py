"""Sampled softmax against central differences, by every argument, with a random weight for each row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import gradcheck
from minadv.words import sampled_softmax
from minadv.words.sampled_softmax import Sampled
from tests.support.cells import seeds
from tests.support.texts import fewer

sizes = st.integers(1, 3)


def check(hidden, V, b, targets, rng, **options):
    def forward(hidden, V, b):
        return sampled_softmax.sampled_softmax(hidden, V, b, targets)[0]

    def backward(args, dnll):
        _, dhidden, dV, db = sampled_softmax.sampled_softmax(**args, targets=targets, weight=dnll)
        return {"hidden": dhidden, "V": dV, "b": db}

    report = gradcheck.check(forward, backward, {"hidden": hidden, "V": V, "b": b}, rng=rng, **options)
    report.raise_if_failed()
    return report


def problem(rng, put, T, B, n_words, H, S, corrected=True):
    words = rng.integers(0, n_words, (T, B))
    candidates = rng.permutation(n_words)[:S]
    log_q = np.log(rng.uniform(0.1, 1, n_words))
    counts = (log_q[words], log_q[candidates]) if corrected else (None, None)
    arrays = rng.standard_normal((T, B, H)), rng.standard_normal((n_words, H)), rng.standard_normal(n_words)
    return *put(arrays), put(Sampled(words, candidates, *counts))


@pytest.mark.parametrize("corrected", [False, True])
@given(T=sizes, B=sizes, n_words=st.integers(2, 6), H=sizes, share=st.floats(0, 1), rng=seeds)
def test_every_argument(put, xp, corrected, T, B, n_words, H, share, rng):
    S = 1 + round(share * (n_words - 1))
    check(*problem(rng, put, T, B, n_words, H, S, corrected), rng, **fewer(xp))


@pytest.mark.parametrize("block", [1, 12])
def test_blocks_of_rows(put, xp, block, rng, monkeypatch):
    """Of one row each, and of three with the last one smaller; every gradient is of moderate size."""
    args = problem(rng, put, 3, 3, 6, 2, 3)
    whole = sampled_softmax.sampled_softmax(*args)
    monkeypatch.setattr(sampled_softmax, "BLOCK", block)
    monkeypatch.setattr(sampled_softmax, "DEVICE_BLOCK", block)
    report = check(*args, rng, **fewer(xp))
    assert all(row.analytic > 1e-2 for row in report.rows)
    for a, e in zip(sampled_softmax.sampled_softmax(*args), whole, strict=True):
        assert float(abs(a - e).max()) < 1e-12
