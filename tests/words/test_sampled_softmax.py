"""Sampled softmax: what it is against the softmax of all words, how candidates are drawn, and what is refused."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import log_softmax

from minadv.backend import to_host
from minadv.base.shared_draws import Share
from minadv.words import sampled_softmax
from minadv.words.sampled_softmax import Candidates, Sampled, correct, draw, log_expected_count
from tests.support.compare import assert_close, assert_zero
from tests.support.texts import zipf


def network(rng, put, n_words=40, H=4, n=30):
    hidden, V, b = rng.standard_normal((n, H)), rng.standard_normal((n_words, H)), 0.3 * rng.standard_normal(n_words)
    words = rng.integers(0, n_words - 1, n)
    full = -log_softmax(hidden @ V.T + b, axis=1)[np.arange(n), words]
    return *put((hidden, V, b, words)), full


def test_with_every_word_a_candidate_and_no_correction_it_is_the_softmax(rng, put):
    hidden, V, b, words, full = network(rng, put)
    order = put(rng.permutation(40))
    nll, dhidden, dV, db = sampled_softmax.sampled_softmax(hidden, V, b, Sampled(words, order))
    assert_close(nll, full)
    p = np.exp(log_softmax(to_host(hidden) @ to_host(V).T + to_host(b), axis=1))
    p[np.arange(30), to_host(words)] -= 1
    assert_close((dhidden, dV, db), (p @ to_host(V), p.T @ to_host(hidden), p.sum(axis=0)))


def test_its_mean_over_draws_approaches_the_softmax_as_candidates_grow(rng, xp, put):
    """Word by word: few candidates make a rare word look likelier than it is, all of them hardly any word."""
    if xp is not np:
        pytest.skip("hundreds of passes: the tests of single passes are enough on CuPy")
    hidden, V, b, words, full = network(rng, put)
    p = 1 / np.arange(1, 41) / (1 / np.arange(1, 41)).sum()
    off = []
    for S in (2, 8, 20, 36, 40):
        draws = [correct(words, draw(rng, p, S), put(p)) for _ in range(100)]
        nll = np.mean([to_host(sampled_softmax.sampled_softmax(hidden, V, b, each)[0]) for each in draws], axis=0)
        off.append(float(np.abs(nll - full).mean()))
    assert all(more > 1.5 * less for more, less in pairwise(off)), off
    assert off[-1] < 0.02 * full.mean() < off[0], off


def test_with_the_correction_the_true_distribution_is_where_learning_stops(rng, xp, put):
    """One context, words that follow it with probability P, logits log P: the mean gradient is near zero.

    Without the correction it is not: the frequent candidates would be pushed down too often.
    """
    if xp is not np:
        pytest.skip("hundreds of passes: the tests of single passes are enough on CuPy")
    P = rng.dirichlet(np.ones(39))
    words, b, weight = put((np.arange(39), np.log(np.append(P, 1e-12)), P))
    nothing, V = put((np.zeros((39, 1)), np.zeros((40, 1))))
    draws = [correct(words, draw(rng, zipf(40), 10), put(zipf(40))) for _ in range(400)]
    plain = [replace(each, log_q=None, candidates_log_q=None) for each in draws]
    with_it, without = (
        np.mean(
            [to_host(sampled_softmax.sampled_softmax(nothing, V, b, each, weight=weight)[3]) for each in many], axis=0
        )
        for many in (draws, plain)
    )
    assert np.abs(without).max() > 0.05
    assert np.abs(with_it).max() < 0.2 * np.abs(without).max()


def test_a_candidate_that_is_the_true_word_is_left_out(rng, put):
    hidden, V, b, _, _ = network(rng, put, n=1)
    word, with_hit, without = put((np.array([3]), np.array([7, 3, 9]), np.array([7, 9])))
    a = sampled_softmax.sampled_softmax(hidden, V, b, Sampled(word, with_hit))
    e = sampled_softmax.sampled_softmax(hidden, V, b, Sampled(word, without))
    assert_close(a, e)
    nll, *gradients = sampled_softmax.sampled_softmax(hidden, V, b, Sampled(word, word))  # nothing is left to tell from
    assert_zero((nll, gradients))


def test_words_that_are_neither_have_no_gradient(rng, put):
    hidden, V, b, words, _ = network(rng, put)
    drawn = put(np.array([30, 31, 32]))
    _, _, dV, db = to_host(sampled_softmax.sampled_softmax(hidden, V, b, Sampled(words, drawn)))
    named = np.zeros(40, dtype=bool)
    named[[*to_host(words).tolist(), 30, 31, 32]] = True
    assert not dV[~named].any() and not db[~named].any()
    assert dV[named].all() and db[named].all()


def test_single_precision_stays_and_large_logits_are_fine(rng, put):
    hidden, V, b, words, _ = network(rng, put)
    targets = correct(words, draw(rng, zipf(40), 10), put(zipf(40)))
    arrays = (a.astype(np.float32) for a in (200 * hidden, V, b))
    single = sampled_softmax.sampled_softmax(*arrays, targets, weight=np.float64(0.5))
    assert {a.dtype for a in single} == {np.dtype(np.float32)}
    assert all(np.isfinite(to_host(a)).all() for a in single)


@pytest.mark.parametrize("n", [1, 5, 20, 39])
def test_candidates_are_the_first_different_words_of_a_stream_of_draws(n, rng):
    p = zipf(40)
    seed = int(rng.integers(2**32))
    found = draw(np.random.default_rng(seed), p, n)
    stream, seen, tries = np.random.default_rng(seed), [], 0
    cumulative = np.cumsum(p)
    while len(seen) < n:
        word = int(np.searchsorted(cumulative, stream.random() * cumulative[-1], side="right"))
        tries += 1
        if word not in seen:
            seen.append(word)
    assert found.words.tolist() == seen
    assert found.tries == tries


def test_a_word_is_a_candidate_as_often_as_the_correction_says(rng):
    p = zipf(30)
    count, expected = np.zeros(30), np.zeros(29)
    for _ in range(2000):
        found = draw(rng, p, 6)
        count[found.words] += 1
        expected += np.exp(log_expected_count(p[:-1], found.tries))
    assert count[-1] == 0  # its frequency is zero
    assert np.abs(count[:-1] - expected).max() < 0.05 * 2000
    assert count[:5].sum() > 3 * count[10:15].sum()


def test_workers_that_share_a_batch_have_the_same_candidates():
    one, two = (draw(Share(np.random.default_rng(3), first, first + 2, 4), zipf(40), 9) for first in (0, 2))
    assert one.words.tolist() == two.words.tolist()
    assert one.tries == two.tries


@pytest.mark.parametrize("tries", [1, 3, 1000])
def test_the_expected_count(tries, put):
    p = np.array([0.5, 0.1, 1e-3, 1e-12])
    log_q = to_host(log_expected_count(put(p), tries))
    assert_close(log_q[:3], np.log1p(-((1 - p[:3]) ** tries)), 1e-9)
    assert log_q[3] == pytest.approx(np.log(tries * 1e-12), rel=1e-9)


@pytest.mark.parametrize("n", [0, 40])
def test_too_few_or_too_many_candidates(n, rng):
    with pytest.raises(ValueError, match=rf"n is {n} candidates, expected 1 to 39, the number of words of positive"):
        draw(rng, zipf(40), n)


def test_words_too_rare_to_come_up(rng):
    with pytest.raises(ValueError, match=r"1 of n = 2 candidates had come up after [\d,]+ draws.*lower n"):
        draw(rng, np.array([1.0, 1e-300]), 2, max_tries=1000)


def test_bad_input(rng, put):
    hidden, V, b, words, _ = network(rng, put)
    chosen = Candidates(np.array([1, 2]), 3)
    with pytest.raises(ValueError, match=r"the target 39 has the probability 0\.0, expected a number between 0 and 1"):
        correct(put(np.array([0, 39])), chosen, put(zipf(40)))
    with pytest.raises(ValueError, match="words holds 40, expected integers from 0 to 39"):
        correct(put(np.array([0, 40])), chosen, put(zipf(40)))
    with pytest.raises(ValueError, match=r"targets\.candidates holds 40"):
        sampled_softmax.sampled_softmax(hidden, V, b, Sampled(words, put(np.array([40]))))
    with pytest.raises(ValueError, match=r"hidden has shape \(30, 4\), expected \(29, 4\)"):
        sampled_softmax.sampled_softmax(hidden, V, b, Sampled(words[1:], put(np.array([4]))))
    with pytest.raises(ValueError, match="one of log_q and candidates_log_q is None"):
        Sampled(words, put(np.array([4])), log_q=put(np.zeros(30)))
