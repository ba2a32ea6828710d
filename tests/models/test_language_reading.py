"""Perplexity of models whose answer is known, the state carried over a file, and the next word's distribution."""

import itertools
import math

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.trees import tree_map
from minadv.fast import reusing
from minadv.fast.workspace import Workspace
from minadv.models.language.model import LanguageModel, TokenBatch
from minadv.models.language.reading import Reading, next_word_probabilities, read
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_models import DROPOUTS, PENALTIES, language


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("V", [7, 10_000])
@pytest.mark.parametrize("window", [3, 70])
def test_a_uniform_model_has_the_vocabulary_as_its_perplexity(V, dtype, window, rng, put):
    """To the last bit of the loss: the sum is rounded once, the mean once more."""
    model = LanguageModel(V, 3, (4, 3))
    params = put(tree_map(np.zeros_like, model.init(rng, dtype=dtype)))
    found = read(model, params, put(rng.integers(0, V, 200)), window=window)
    assert found.n == 199
    assert abs(found.loss - math.log(V)) <= math.ulp(math.log(V))
    assert found.perplexity == pytest.approx(V, rel=3e-15)


def test_the_sum_is_rounded_once():
    """Small numbers that are lost beside a large one when they are added one by one."""
    words = np.array([1.0] + [2.0**-60] * 2**10)
    assert Reading(words, ()).nll == 1 + 2.0**-50 > words.cumsum()[-1]


@pytest.mark.parametrize("tied", [True, False])
def test_a_unigram_model_has_the_perplexity_of_its_entropy(tied, rng, put):
    V = 50
    p = rng.dirichlet(np.full(V, 0.3)) * 0.9 + 0.1 / V
    tokens = rng.choice(V, 3000, p=p)
    model = LanguageModel(V, 3, (4, 3), tied=tied)
    params = tree_map(np.zeros_like, model.init(rng, dtype=np.float64))
    found = read(model, put(type(params)(params.E, params.cells, params.P, np.log(p) + 5.0)), put(tokens))
    counts = np.bincount(tokens[1:], minlength=V)
    assert found.perplexity == pytest.approx(np.exp(-(counts * np.log(p)).sum() / 2999), rel=1e-12)
    assert found.loss == pytest.approx(-(p * np.log(p)).sum(), rel=0.1)


def test_it_is_the_mean_over_single_steps(rng, put):
    """Word by word from the next word's distribution, with the state handed on by hand."""
    net = language(rng, put, **DROPOUTS, **PENALTIES)
    tokens = rng.integers(0, 7, (9, 2))
    found = read(net.model, net.params, put(tokens), window=3)
    state, total = None, 0.0
    for now, after in itertools.pairwise(tokens):
        p, state = next_word_probabilities(net.model, net.params, state, put(now))
        assert_close(p.sum(axis=1), np.ones(2))
        total -= np.log(to_host(p)[np.arange(2), after]).sum()
    assert (found.n, found.nll) == (16, pytest.approx(total, rel=1e-12))
    assert_close(found.state, state)


@pytest.mark.parametrize("window", [1, 2, 7, 19, 20, 1000])
def test_the_window_does_not_matter(window, rng, put):
    net = language(rng, put)
    tokens = put(rng.integers(0, 7, 20))
    whole, found = (read(net.model, net.params, tokens, window=w) for w in (19, window))
    assert found.nll == pytest.approx(whole.nll, rel=1e-13)
    assert_close(found.state, whole.state)


def test_the_state_goes_on_from_one_reading_to_the_next(rng, put):
    net = language(rng, put)
    tokens = put(rng.integers(0, 7, 20))
    whole = read(net.model, net.params, tokens)
    first = read(net.model, net.params, tokens[:9])
    second = read(net.model, net.params, tokens[8:], state=first.state)
    assert first.nll + second.nll == pytest.approx(whole.nll, rel=1e-13)
    assert read(net.model, net.params, tokens[8:]).nll != pytest.approx(second.nll, rel=1e-6)


def test_streams_side_by_side_are_read_apart(rng, put):
    net = language(rng, put)
    tokens = rng.integers(0, 7, (12, 3))
    alone = [read(net.model, net.params, put(tokens[:, b])) for b in range(3)]
    together = read(net.model, net.params, put(tokens))
    assert together.n == 33
    assert together.nll == pytest.approx(sum(r.nll for r in alone), rel=1e-13)


def test_noise_and_penalties_are_no_part_of_it(rng, put):
    net = language(rng, put)
    noisy = language(np.random.default_rng(0), put, **DROPOUTS, **PENALTIES).model
    tokens = put(rng.integers(0, 7, 20))
    expected = read(net.model, net.params, tokens).nll
    assert read(noisy, net.params, tokens).nll == pytest.approx(expected, rel=1e-13)


def test_an_enormous_perplexity_is_infinite():
    assert Reading(np.array([1e6]), ()).perplexity == float("inf")


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_next_word_at_a_temperature(temperature, rng, put):
    net = language(rng, put)
    token = net.batch.tokens[0]
    p, state = next_word_probabilities(net.model, net.params, net.state, token, temperature=temperature)
    features, after, _ = net.model.body(net.params, TokenBatch(token[None]), masks={}, noise=None, state=net.state)
    powers = np.exp(to_host(net.model.logits(net.params, features))[0] / temperature)
    assert_close(p, powers / powers.sum(axis=1, keepdims=True))
    assert_same_bits(state, after)


def test_a_workspace_changes_nothing_in_generation(rng, put):
    net = language(rng, put)
    work = Workspace()
    state = plain_state = None
    model = reusing(net.model, work)
    with model.scope():
        for token in net.batch.tokens:
            p, state = next_word_probabilities(model, net.params, state, token)
            plain, plain_state = next_word_probabilities(net.model, net.params, plain_state, token)
            assert_same_bits((p, state), (plain, plain_state))
    assert len(work) == 3  # one slot a layer, however many words


def test_bad_input(rng, put):
    net = language(rng, put)
    tokens = put(np.array([1, 2, 7]))
    with pytest.raises(ValueError, match=r"tokens holds 7, expected integers from 0 to 6"):
        read(net.model, net.params, tokens)
    with pytest.raises(ValueError, match=r"tokens has shape \(1,\), expected \(N \+ 1,\) or \(N \+ 1, B\)"):
        read(net.model, net.params, tokens[:1])
    with pytest.raises(ValueError, match=r"window is 0, expected at least 1 step"):
        read(net.model, net.params, tokens[:2], window=0)
    with pytest.raises(ValueError, match=r"temperature is 0, expected a positive number"):
        next_word_probabilities(net.model, net.params, None, tokens[:2], temperature=0)
    with pytest.raises(ValueError, match=r"token has shape \(1, 2\), expected \(B,\)"):
        next_word_probabilities(net.model, net.params, None, tokens[None, :2])
