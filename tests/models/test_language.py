"""The language model: what it computes, its sizes, its carried state, and what it refuses."""

import numpy as np
import pytest
from scipy.special import log_softmax

from minadv import lstm
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.distances import by_name
from minadv.fast import reusing
from minadv.models.language.model import LanguageModel, TokenBatch
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.language_models import DROPOUTS, PENALTIES, language


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_init_and_sites(tied, dtype, rng):
    model = LanguageModel(50, 8, (16, 4, 8 if tied else 6), tied=tied)
    params = model.init(rng, dtype=dtype)
    assert params.E.shape == (50, 8)
    assert [(c.W.shape, c.U.shape) for c in params.cells] == [
        ((8, 64), (16, 64)),
        ((16, 16), (4, 16)),
        ((4, 32), (8, 32)) if tied else ((4, 24), (6, 24)),
    ]
    assert params.P is None if tied else params.P.shape == (50, 6)
    assert {a.dtype for _, a in leaves(params)} == {np.dtype(dtype)}
    assert model.n_params == sum(a.size for _, a in leaves(params))
    assert [(s.name, s.H, s.kind) for s in model.sites] == [
        (f"layer{n}", H, "recurrent") for n, H in enumerate(model.hidden)
    ]
    assert_zero(params.b)
    assert 0.09 < np.abs(params.E).max() <= 0.1
    for cell, H in zip(params.cells, model.hidden, strict=True):
        for weight in (cell.W, cell.U):
            assert 0.9 < np.abs(weight).max() * np.sqrt(H) < 1 + 1e-6
        assert np.abs(cell.b).max() * np.sqrt(H) < 2
        assert np.std(cell.b) * np.sqrt(H) == pytest.approx(np.sqrt(2 / 3), rel=0.5)


def test_the_papers_sizes():
    """Table 3 says 24M and 34M parameters."""
    ptb, wikitext2 = LanguageModel(10_000), LanguageModel(33_278)
    assert (ptb.n_params, wikitext2.n_params) == (24_210_800, 33_545_278)
    assert (round(ptb.n_params / 1e6), round(wikitext2.n_params / 1e6)) == (24, 34)
    assert [site.H for site in ptb.sites] == [1150, 1150, 400]


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_cells_one_after_the_other_with_dropout_around_them(tied, rng, put):
    net = language(rng, put, tied=tied, **DROPOUTS, **PENALTIES)
    model, params, noise, tokens = net.model, to_host(net.params), to_host(net.noise), to_host(net.batch.tokens)
    masks, state = to_host(net.masks), to_host(net.state)
    x = (params.E * noise.words[:, None] / 0.7)[tokens] * noise.inputs / 0.6
    states = []
    for n, (cell, p) in enumerate(zip(params.cells, (0.3, 0.3, 0.4), strict=True)):
        dropped = lstm.Params(cell.W, cell.U * noise.U[n] / 0.5, cell.b)
        h, last, _ = lstm.forward(dropped, x, state=state[n], m=masks[f"layer{n}"])
        x = h * noise.outputs[n] / (1 - p)
        states.append(last)
    features, out, _ = model.body(net.params, net.batch, masks=net.masks, noise=net.noise, state=net.state)
    assert_close(features, np.concatenate([x, h], axis=-1))
    assert_close(out, tuple(states))
    logits = x @ (params.E if tied else params.P).T + params.b
    assert_close(model.logits(net.params, features), logits)
    found = model.head(net.params, features, net.batch.targets)
    nll = -np.take_along_axis(log_softmax(logits, axis=-1), to_host(net.batch.targets)[..., None], axis=-1)[..., 0]
    assert_close(found.nll, nll.mean(axis=0))
    penalty = 0.7 * (x**2).mean(axis=(0, 2)) + 1.3 * ((h[1:] - h[:-1]) ** 2).mean(axis=(0, 2))
    assert_close(found.penalty, penalty)
    assert_close(model.nll(net.params, features, net.batch.targets), nll)


@pytest.mark.parametrize("given", [{}, {"alpha": 0.7}, {"beta": 1.3}])
def test_each_penalty_alone(given, rng, put):
    net = language(rng, put, **given)
    features, _, _ = net.model.body(net.params, net.batch, masks={}, noise=None)
    penalty = net.model.head(net.params, features, net.batch.targets).penalty
    h = to_host(features)[..., -3:]  # without dropout the two outputs are one
    if not given:
        assert penalty is None
    elif "alpha" in given:
        assert_close(penalty, 0.7 * (h**2).mean(axis=(0, 2)))
    else:
        assert_close(penalty, 1.3 * ((h[1:] - h[:-1]) ** 2).mean(axis=(0, 2)))


def test_a_single_step_has_no_temporal_penalty(rng, put):
    net = language(rng, put, T=1, beta=1.3)
    features, _, _ = net.model.body(net.params, net.batch, masks={}, noise=None)
    found = net.model.head(net.params, features, net.batch.targets)
    assert_zero((found.penalty, found.dfeatures[..., 3:]))


@pytest.mark.parametrize("distance", ["js", "kl", "rkl", "skl", "l2", "logit2"])
def test_every_step_counts_alike_unless_told_otherwise(distance, rng, put):
    net = language(rng, put, **DROPOUTS, **PENALTIES)
    f0, f1 = (net.model.body(net.params, net.batch, masks=masks, noise=net.noise)[0] for masks in ({}, net.masks))
    logits0, logits1 = (net.model.logits(net.params, f) for f in (f0, f1))
    d = to_host(by_name(distance)(logits0, logits1)[0])
    steps, both = rng.uniform(0.1, 1, 4), rng.uniform(0.1, 1, (4, 3))
    for lam, expected in ((None, d.mean(axis=0)), (steps, steps @ d), (both, (both * d).sum(axis=0))):
        found = net.model.compare(net.params, f0, f1, None if lam is None else put(lam), by_name(distance))
        assert_close(found.d, expected)
        assert_zero((found.dfeatures0[..., 3:], found.dfeatures1[..., 3:]))
    light = net.model.compare(net.params, f0, f1, None, by_name(distance), stop_base=True, weights=False)
    assert (light.dfeatures0, light.params) == (None, None)


@pytest.mark.parametrize("block", [1, 2, 5, 12, 100])
def test_blocks_of_any_size(block, rng, put):
    net = language(rng, put, **DROPOUTS, **PENALTIES)
    blocks = language(np.random.default_rng(0), put, **DROPOUTS, **PENALTIES, block=block).model
    f0, f1 = (net.model.body(net.params, net.batch, masks=masks, noise=net.noise)[0] for masks in ({}, net.masks))
    whole, apart = (model.head(net.params, f0, net.batch.targets) for model in (net.model, blocks))
    assert_close(apart, whole)
    whole, apart = (model.compare(net.params, f0, f1, None, by_name("js")) for model in (net.model, blocks))
    assert_close(apart, whole)


def test_the_state_is_carried_from_batch_to_batch(rng, put):
    """Two halves give the features and states of the whole, and without the state they do not."""
    net = language(rng, put, T=6, **DROPOUTS)
    given = {"masks": net.masks, "noise": net.noise}
    whole, last, _ = net.model.body(net.params, net.batch, state=net.state, **given)
    first, second = (TokenBatch(net.batch.tokens[at]) for at in (slice(0, 2), slice(2, 6)))
    f1, between, _ = net.model.body(net.params, first, state=net.state, **given)
    f2, end, _ = net.model.body(net.params, second, state=between, **given)
    assert_close((f1, f2, end), (whole[:2], whole[2:], last))
    forgotten, _, _ = net.model.body(net.params, second, **given)
    assert np.abs(to_host(forgotten - f2)).max() > 1e-3


def test_a_workspace_changes_nothing(rng, put):
    """The same bits from used buffers, and U is dropped once for the passes that share a mask."""
    net = language(rng, put, **DROPOUTS, **PENALTIES)

    def step(model, masks):
        given = {"masks": masks, "noise": net.noise, "state": net.state}
        features, state, cache = model.body(net.params, net.batch, **given)
        head = net.model.head(net.params, features, net.batch.targets)
        back = net.model.body_backward(net.params, cache, head.dfeatures)
        return tree_map(lambda a: a.copy(), (features, state, head, back)), cache.cells

    model = reusing(net.model)
    with model.scope():
        results, cells = zip(*[step(model, masks) for masks in ({}, net.masks, {})], strict=True)
    for result, masks in zip(results, ({}, net.masks, {}), strict=True):
        assert_same_bits(result, step(net.model, masks)[0])
    assert all(a is b for a, b in zip(cells[0], cells[1], strict=True))


def test_arguments_are_left_alone(rng, put):
    net = language(rng, put, **DROPOUTS, **PENALTIES)
    given = (net.params, net.state, net.masks, net.noise)
    before = to_host(tree_map(lambda a: a.copy(), given))
    features, _, cache = net.model.body(net.params, net.batch, masks=net.masks, noise=net.noise, state=net.state)
    head = net.model.head(net.params, features, net.batch.targets)
    net.model.body_backward(net.params, cache, head.dfeatures)
    net.model.compare(net.params, features, features, None, by_name("js"))
    assert_same_bits(given, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_words": 1}, r"n_words is 1, expected a whole number of at least 2"),
        ({"n_embed": 0}, r"n_embed is 0, expected a whole number of at least 1"),
        ({"hidden": ()}, r"hidden has 0 layers, expected 1 to 1,000"),
        ({"hidden": (4, 0, 3)}, r"hidden\[1\] is 0, expected a whole number of at least 1"),
        ({"hidden": (4, 4)}, r"the last layer has 4 units and n_embed is 3: tied weights need the two equal"),
        ({"dropconnect": 1.0}, r"dropconnect is 1\.0, expected a probability from 0 up to, but not including, 1"),
        ({"word_dropout": -0.1}, r"word_dropout is -0\.1, expected a probability"),
        ({"alpha": -1.0}, r"alpha is -1\.0, expected zero or a positive number"),
        ({"beta": float("nan")}, r"beta is nan, expected zero or a positive number"),
        ({"block": 0}, r"block is 0, expected a whole number of at least 1, or None"),
    ],
)
def test_bad_configuration(options, message):
    with pytest.raises(ValueError, match=message):
        LanguageModel(**{"n_words": 7, "n_embed": 3, "hidden": (4, 3), **options})


def test_bad_input(rng, put):
    net = language(rng, put, **DROPOUTS)
    model, params, batch = net.model, net.params, net.batch

    def body(params=params, batch=batch, masks=None, noise=None, state=None):
        return model.body(params, batch, masks=masks or {}, noise=noise, state=state)

    with pytest.raises(ValueError, match=r"masks has \['layer3'\], expected sites among \['layer0', 'layer1', 'layer"):
        body(masks={"layer3": net.masks["layer0"]})
    with pytest.raises(ValueError, match=r"masks\['layer1'\] has shape \(3, 4\), expected \(3, 2\)"):
        body(masks={"layer1": net.masks["layer0"]})
    with pytest.raises(ValueError, match=r"tokens holds 7, expected integers from 0 to 6"):
        body(batch=TokenBatch(batch.tokens * 0 + 7))
    with pytest.raises(ValueError, match=r"targets holds -1, expected integers from 0 to 6"):
        body(batch=TokenBatch(batch.tokens, batch.targets * 0 - 1))
    with pytest.raises(ValueError, match=r"state is a tuple, expected one lstm.State for each of 3 layers"):
        body(state=net.state[:2])
    other = language(rng, put, B=2, **DROPOUTS)
    with pytest.raises(ValueError, match=r"noise\.inputs has shape \(2, 3\), expected \(3, 3\)"):
        body(noise=other.noise)
    with pytest.raises(TypeError, match=r"noise is a dict, expected what the model's noise\(\) returns"):
        body(noise={})
    with pytest.raises(ValueError, match=r"params\.E has shape \(5, 3\), expected \(7, 3\) \(n_words = 7"):
        body(params=language(rng, put, V=5).params)
    with pytest.raises(ValueError, match=r"params\.cells\[0\]\.U has shape \(5, 20\), expected \(4, 16\)"):
        body(params=language(rng, put, hidden=(5, 2, 3)).params)
    with pytest.raises(ValueError, match=r"params has 1 layers, expected 3"):
        body(params=language(rng, put, hidden=(3,)).params)
    features = body()[0]
    with pytest.raises(ValueError, match=r"targets is None: the likelihood needs a batch with targets"):
        model.head(params, features, None)
    with pytest.raises(ValueError, match=r"features has shape \(4, 3, 2\), expected \(T, B, 3\)"):
        model.head(params, features[..., :2], batch.targets)
    with pytest.raises(ValueError, match=r"lam has shape \(3,\), expected \(4,\) \(features of N = 4 steps"):
        model.compare(params, features, features, put(np.ones(3)), by_name("js"))


def test_bad_batches(put):
    tokens = put(np.zeros((4, 3), int))
    assert len(TokenBatch(tokens)) == 3
    with pytest.raises(ValueError, match=r"tokens has shape \(4,\), expected \(T, B\) \(time first\)"):
        TokenBatch(tokens[:, 0])
    with pytest.raises(ValueError, match=r"targets has shape \(3, 3\), expected \(4, 3\)"):
        TokenBatch(tokens, tokens[1:])
    with pytest.raises(TypeError, match=r"tokens has dtype float64, expected integers"):
        TokenBatch(tokens * 1.0)


def test_checked_batches_are_not_checked_again(rng, put, monkeypatch):
    net = language(rng, put)
    monkeypatch.setattr("minadv.layers.expect_range", lambda *args: pytest.fail("checked"))
    checked = TokenBatch(net.batch.tokens, net.batch.targets, checked=True)
    net.model.body(net.params, checked, masks={}, noise=None)
