"""The language model of pre-training: likelihoods, candidates that come with the targets, and what is handed over."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax

from minadv import gradcheck
from minadv.backend import to_host
from minadv.base.shared_draws import Share
from minadv.base.trees import leaves, tree_map
from minadv.distances import by_name
from minadv.fast import reusing
from minadv.models.pretraining import LMBatch, Params, TextLM, pretrained
from minadv.models.text import TextClassifier
from minadv.regularizers import EL, VD, AdD, Plain
from minadv.words import embedding, sampled_softmax
from minadv.words.sampled_softmax import Sampled
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched
from tests.support.texts import classifier, fewer, language_model, zipf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_init(dtype, rng):
    model = TextLM(50, 5, 4, n_candidates=10)
    params = model.init(rng, dtype=dtype)
    assert (params.encoder.E.shape, params.V.shape, params.b.shape) == ((50, 5), (50, 4), (50,))
    assert {a.dtype for _, a in leaves(params)} == {np.dtype(dtype)}


def test_the_likelihood_is_the_mean_over_the_steps_of_a_stream(rng, put):
    model, params, batch = language_model(rng, put)
    features, _, _ = model.body(params, batch, masks={}, noise=None)
    assert features.shape == (4, 3, 4)
    logits = to_host(features) @ to_host(params.V).T + to_host(params.b)
    assert_close(model.logits(params, features), logits)
    t, b = np.indices((4, 3))
    nll = -log_softmax(logits, axis=-1)[t, b, to_host(batch.targets)]
    assert_close(model.nll(params, features, batch.targets), nll)
    assert_close(model.head(params, features, batch.targets).nll, nll.mean(axis=0))
    everything = Sampled(batch.targets, put(rng.permutation(7)))
    assert_close(model.head(params, features, everything).nll, nll.mean(axis=0))


def test_a_state_is_carried_from_batch_to_batch(rng, put):
    model, params, batch = language_model(rng, put, T=6)
    noise = model.noise(rng, batch)
    whole, last, _ = model.body(params, batch, masks={}, noise=noise)
    state, parts = None, []
    for s in (slice(0, 2), slice(2, 6)):
        part, state, _ = model.body(params, LMBatch(batch.tokens[s]), masks={}, noise=noise, state=state)
        parts.append(part)
    assert_close((parts[0], parts[1], state), (whole[:2], whole[2:], last))


def candidates(model, rng, batch):
    """With a batch's candidates; at least one of them is a true word, so that hits are removed."""
    drawn = model.with_candidates(rng, batch)
    assert np.isin(to_host(drawn.targets.words), to_host(drawn.targets.candidates)).any()
    return drawn


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("likelihood", ["sampled", "full"])
def test_the_whole_model(cell, likelihood, rng, xp, put):
    """The NLL of each stream by every parameter and mask, by the perturbation, and by the state that is carried in."""
    model, params, batch = language_model(rng, put, cell=cell, n_layers=2, H=2, n_candidates=4)
    if likelihood == "sampled":
        batch = candidates(model, rng, batch)
    noise, dx = model.noise(rng, batch), put(rng.standard_normal((4, 3, 3)))
    masks = {name: put(rng.uniform(0.5, 1.5, (3, 2))) for name in ("layer0", "layer1", "readout")}
    _, last, _ = model.body(params, batch, masks={}, noise=noise)
    state = tree_map(lambda a: a + 0.1, last)

    def forward(params, masks, dx, state):
        features, _, _ = model.body(params, batch, masks=masks, noise=noise, dx=dx, state=state)
        return model.head(params, features, batch.targets).nll.sum()

    def backward(args, d):
        features, _, cache = model.body(
            args["params"], batch, masks=args["masks"], noise=noise, dx=args["dx"], state=args["state"]
        )
        head = model.head(params, features, batch.targets)
        back = model.body_backward(params, cache, head.dfeatures, inputs=True, masks=tuple(args["masks"]))
        grads = Params(back.params.encoder, head.params.V, head.params.b)
        return tree_map(lambda g: d * g, {"params": grads, "masks": back.masks, "dx": back.inputs, "state": back.state})

    args = {"params": params, "masks": masks, "dx": dx, "state": state}
    report = gradcheck.check(forward, backward, args, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all(row.analytic > 1e-5 for row in report.rows), str(report)


@pytest.mark.parametrize("lam", [None, "steps and examples"])
@pytest.mark.parametrize("distance", ["js", "kl"])
def test_the_gradients_of_the_comparison(lam, distance, rng, xp, put):
    model, params, _ = language_model(rng, put)
    lam = None if lam is None else put(rng.uniform(0.1, 1, (4, 3)))
    f0, f1 = put(rng.standard_normal((2, 4, 3, 4)))

    def forward(params, f0, f1):
        return model.compare(params, f0, f1, lam, by_name(distance)).d.sum()

    def backward(args, dd):
        result = model.compare(args["params"], args["f0"], args["f1"], lam, by_name(distance))
        grads = {"params": result.params, "f0": result.dfeatures0, "f1": result.dfeatures1}
        return tree_map(lambda g: dd * g, grads)

    head = Params(None, params.V, params.b)
    report = gradcheck.check(forward, backward, {"params": head, "f0": f0, "f1": f1}, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all(row.analytic > 1e-4 for row in report.rows)
    if lam is None:
        even = model.compare(params, f0, f1, put(np.full(4, 0.25)), by_name(distance))
        assert_close(model.compare(params, f0, f1, None, by_name(distance)).d, even.d)


def test_candidates_come_with_the_targets_once_a_step(rng, put):
    """Every pass of a regularizer is scored against the same ones; they are the batch's, whoever has which streams."""
    model, params, batch = language_model(rng, put, V=30, n_candidates=8)
    drawn = model.with_candidates(np.random.default_rng(2), batch)
    assert drawn.targets.candidates.shape == (8,)
    assert_same_bits((drawn.tokens, drawn.targets.words), (batch.tokens, batch.targets))
    tries = sampled_softmax.draw(np.random.default_rng(2), zipf(30), 8).tries
    assert_close(drawn.targets.log_q, np.log1p(-((1 - zipf(30)[to_host(batch.targets)]) ** tries)), 1e-9)

    watched = Watched(model)
    term = AdD(budgets=2)(watched, params, drawn, rng=rng, likelihood=1.0)
    noise = watched.forward[0]["noise"]
    features, _, _ = model.body(params, batch, masks={}, noise=noise)
    assert_close(term.nll, model.head(params, features, drawn.targets).nll)

    part = LMBatch(batch.tokens[:, 1:], batch.targets[:, 1:])
    worker = model.with_candidates(Share(np.random.default_rng(2), 1, 3, 3), part)
    assert_same_bits(worker.targets.candidates, drawn.targets.candidates)
    assert_same_bits(worker.targets.log_q, drawn.targets.log_q[:, 1:])


@pytest.mark.parametrize("method", [Plain(), VD(), EL(), AdD(budgets=2)], ids=lambda method: type(method).__name__)
def test_regularizers_and_workspaces(method, rng, put):
    model, params, batch = language_model(rng, put)
    batch = model.with_candidates(rng, batch)

    expected, term = (
        method(one, params, batch, rng=np.random.default_rng(1), likelihood=1.0) for one in (model, reusing(model))
    )
    assert_same_bits((term.value, term.nll, term.grads, term.state), tuple(vars(expected)[n] for n in NAMES))
    assert all(float(abs(g).max()) > 0 for _, g in leaves(term.grads))


NAMES = ("value", "nll", "grads", "state")


def test_the_moments_are_taken_once_a_step(rng, put, monkeypatch):
    model, params, batch = language_model(rng, put)
    calls, taken = [], embedding.moments
    monkeypatch.setattr(embedding, "moments", lambda *args: calls.append(1) or taken(*args))
    model = reusing(model)
    AdD(budgets=2)(model, params, batch, rng=rng)
    assert len(calls) == 1
    with model.scope():
        model.body(params, batch, masks={}, noise=None)
    assert len(calls) == 2  # another scope, in which the parameters may be others


def test_a_classifier_takes_over_embeddings_and_cells(rng, put):
    lm, params, _ = language_model(rng, put, n_layers=2)
    model, before, texts = classifier(rng, put, n_layers=2)
    after = pretrained(params, before)
    assert_same_bits(after.encoder, params.encoder)
    assert_same_bits(replace(after, encoder=None), replace(before, encoder=None))
    noise = model.noise(rng, texts)
    states, _, _ = lm.body(params, LMBatch(texts.tokens), masks={}, noise=noise)
    assert_close(model.body(after, texts, masks={}, noise=noise)[0][0], states[-1])


def test_what_does_not_fit_is_not_taken_over(rng, put):
    _, params, _ = language_model(rng, put)
    with pytest.raises(ValueError, match=r"the language model's E has shape \(7, 3\), expected \(8, 3\)"):
        pretrained(params, classifier(rng, put, V=8)[1])
    with pytest.raises(ValueError, match=r"the language model's cells\.0\.W has shape \(3, 16\), expected \(3, 20\)"):
        pretrained(params, classifier(rng, put, H=5)[1])
    with pytest.raises(ValueError, match="expected the same cells in both"):
        pretrained(params, classifier(rng, put, n_layers=2)[1])
    single = tree_map(lambda a: a.astype(np.float32), classifier(rng, put)[1])
    with pytest.raises(TypeError, match="the language model's E has dtype float64, the classifier's float32"):
        pretrained(params, single)


def test_it_learns_which_word_follows_which(rng, xp, put):
    """A text in which each word has one follower: learning by candidates halves the NLL of all words."""
    if xp is not np:
        pytest.skip("a training run: the gradients above are enough on CuPy")
    follower = np.roll(np.arange(19), 1)
    stream = [0]
    for _ in range(60):
        stream.append(int(follower[stream[-1]]))
    text = put(np.stack([np.roll(stream, -k)[:20] for k in range(8)], axis=1))  # (20, 8)
    model = TextLM(20, 8, 12, n_candidates=6, frequencies=put(np.append(np.full(19, 1 / 19), 0)), embedding_dropout=0.1)
    params = put(model.init(rng, dtype=np.float64))
    batch = LMBatch(text[:-1], text[1:])

    def nll():
        features, _, _ = model.body(params, batch, masks={}, noise=None)
        return float(model.nll(params, features, batch.targets).mean())

    first = nll()
    for _ in range(40):
        term = Plain()(model, params, model.with_candidates(rng, batch), rng=rng, likelihood=1.0)
        params = tree_map(lambda p, g: p - 3.0 * g, params, term.grads)
    assert first > 2.5
    assert nll() < 0.5 * first


def test_bad_input(rng, put):
    model, params, batch = language_model(rng, put)
    with pytest.raises(ValueError, match="n_candidates is 7, expected 1 to 6, fewer than n_words"):
        TextLM(7, 3, 4, n_candidates=7)
    with pytest.raises(ValueError, match="the targets are None or have candidates already"):
        model.with_candidates(rng, model.with_candidates(rng, batch))
    with pytest.raises(ValueError, match="the targets are None or have candidates already"):
        model.with_candidates(rng, LMBatch(batch.tokens))
    with pytest.raises(ValueError, match=r"targets has shape \(3, 3\), expected \(4, 3\)"):
        LMBatch(batch.tokens, batch.targets[1:])
    with pytest.raises(TypeError, match="tokens has dtype float64, expected integers"):
        LMBatch(batch.tokens.astype(np.float64))
    with pytest.raises(ValueError, match="tokens holds 7, expected integers from 0 to 6"):
        model.body(params, LMBatch(put(np.array([[7]]))), masks={}, noise=None)
    with pytest.raises(ValueError, match="targets holds 7, expected integers from 0 to 6"):
        model.head(params, put(np.zeros((1, 1, 4))), put(np.array([[7]])))
    with pytest.raises(ValueError, match="targets is None"):
        model.head(params, put(np.zeros((1, 1, 4))), None)
    rare = put(np.full((4, 3), 6))  # the word that the text does not hold
    with pytest.raises(ValueError, match="the target 6 has the probability 0"):
        model.with_candidates(rng, LMBatch(batch.tokens, rare))


def test_the_two_have_the_same_settings():
    """What a classifier shares with the language model is set by the same names, with the same defaults."""
    lm, texts = TextLM(2000, 3, 4), TextClassifier(2000, 3, 4)
    names = [name for name in vars(lm) if name != "n_candidates"]
    assert {n: getattr(lm, n) for n in names} == {n: getattr(texts, n) for n in names}
