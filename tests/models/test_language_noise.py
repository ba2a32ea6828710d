"""The noise of a language model: what is drawn for whom, how it is scaled, and what two passes share."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.shared_draws import Share
from minadv.base.trees import tree_map
from minadv.models.language.model import LanguageModel, TokenBatch
from minadv.models.language.noise import drop
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_models import DROPOUTS, language

RATES = {"words": 0.3, "inputs": 0.4, "outputs": (0.3, 0.3, 0.4), "U": 0.5}


def batch_of(put, B):
    return put(TokenBatch(np.zeros((2, B), int)))


def test_shapes_and_rates(rng, put):
    model = LanguageModel(2000, 60, (50, 70, 60), **DROPOUTS)
    noise = model.noise(rng, batch_of(put, 40))
    assert (noise.words.shape, noise.inputs.shape) == ((2000,), (40, 60))
    assert [keep.shape for keep in noise.outputs] == [(40, 50), (40, 70), (40, 60)]
    assert [keep.shape for keep in noise.U] == [(50, 200), (70, 280), (60, 240)]
    kept = to_host(noise)
    for keep, p in [
        (kept.words, 0.3),
        (kept.inputs, 0.4),
        *zip(kept.outputs, RATES["outputs"], strict=True),
        *((keep, 0.5) for keep in kept.U),
    ]:
        assert keep.dtype == bool
        assert keep.mean() == pytest.approx(1 - p, abs=4 * np.sqrt(p * (1 - p) / keep.size))


def test_no_dropout_no_noise(rng, put):
    assert LanguageModel(5, 3, (3,)).noise(rng, batch_of(put, 2)) is None
    some = LanguageModel(5, 3, (3,), dropconnect=0.5).noise(rng, batch_of(put, 2))
    assert (some.words, some.inputs, some.outputs) == (None, None, (None,))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dropout_is_scaled_and_keeps_its_dtype(dtype, put):
    a, keep = put((np.array([[1, 2], [3, 4]], dtype), np.array([True, False])))
    dropped = drop(a, keep, 0.75)
    assert_same_bits(dropped, np.array([[4, 0], [12, 0]], dtype))
    assert drop(a, None, 0.75) is a


def test_dropped_weights_are_back_after_the_pass(rng, put):
    """DropConnect drops of a copy: weights set to zero in place would stay so, and all be zero after enough steps."""
    net = language(rng, put, dropconnect=0.5)
    before = to_host(tree_map(lambda a: a.copy(), net.params))
    features, _, cache = net.model.body(net.params, net.batch, masks={}, noise=net.noise)
    net.model.body_backward(net.params, cache, features)
    assert_same_bits(net.params, before)


def test_workers_that_share_a_batch_see_its_masks(put):
    """A worker keeps its examples' rows of what one process draws, and the whole of what the batch has in common."""
    model = LanguageModel(9, 3, (4, 3), **DROPOUTS)
    whole = to_host(model.noise(np.random.default_rng(1), batch_of(put, 5)))
    for rows in (slice(0, 2), slice(2, 5)):
        share = Share(np.random.default_rng(1), rows.start, rows.stop, 5)
        part = model.noise(share, batch_of(put, rows.stop - rows.start))
        assert_same_bits((part.words, part.U), (whole.words, whole.U))
        assert_same_bits(part.inputs, whole.inputs[rows])
        assert_same_bits(part.outputs, tuple(keep[rows] for keep in whole.outputs))


@pytest.mark.parametrize("part", ["words", "inputs", "outputs", "U"])
def test_a_part_is_drawn_anew(part, rng, put):
    model, batch = LanguageModel(90, 30, (40, 30), **DROPOUTS), batch_of(put, 5)
    noise = model.noise(rng, batch)
    again = model.redraw(rng, batch, noise, (part,))
    for name in ("words", "inputs", "outputs", "U"):
        old, new = getattr(noise, name), getattr(again, name)
        if name != part:
            assert new is old
            continue
        for a, b in zip(old, new, strict=True) if isinstance(old, tuple) else [(old, new)]:
            assert a.shape == b.shape
            assert bool((a != b).any())
    assert model.redraw(rng, batch, None, (part,)) is None


def test_unknown_parts(rng, put):
    model, batch = LanguageModel(9, 3, (3,), **DROPOUTS), batch_of(put, 5)
    with pytest.raises(ValueError, match=r"parts has \['embedding'\], expected some of words, inputs, outputs, U"):
        model.redraw(rng, batch, model.noise(rng, batch), ("embedding",))


def test_a_dropped_word_is_dropped_everywhere_and_an_entry_at_every_step(rng, put):
    """With an input all ones, what reaches the cells shows the masks: words over all streams, entries over all time."""
    net = language(rng, put, T=30, B=4, V=6, word_dropout=0.5, input_dropout=0.5)
    seen = to_host(net.model._drop_inputs(put(np.ones((30, 4, 3))), net.batch, net.noise))
    words, inputs = to_host(net.noise.words), to_host(net.noise.inputs)
    tokens = to_host(net.batch.tokens)
    assert_close(seen, 4.0 * words[tokens][..., None] * inputs)
    assert set(np.unique(seen)) == {0.0, 4.0}


def test_the_output_does_not_see_the_dropped_words(rng, put):
    """Word dropout is on the input side only: tied weights are whole in the softmax."""
    net = language(rng, put, word_dropout=0.9)
    features, _, _ = net.model.body(net.params, net.batch, masks={}, noise=net.noise)
    z = to_host(features) @ to_host(net.params.E).T + to_host(net.params.b)
    log_p = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    nll = -np.take_along_axis(log_p, to_host(net.batch.targets)[..., None], axis=-1)[..., 0]
    assert_close(net.model.head(net.params, features, net.batch.targets).nll, nll.mean(axis=0))
    whole, _, _ = net.model.body(net.params, net.batch, masks={}, noise=replace(net.noise, words=None))
    assert float(abs(whole - features).max()) > 1e-3  # and the words were dropped
