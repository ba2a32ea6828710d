"""The classifier of texts: what it computes, its gradients through every argument, truncation, and what it refuses."""

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
from minadv.fast.workspace import Workspace
from minadv.models import stack
from minadv.models.encoder import Noise
from minadv.models.text import Params, TextBatch, TextClassifier
from minadv.words import embedding
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.texts import FRONT, classifier, fewer, zipf

every_cell = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])


def real_masks(rng, put, n_layers=1, H=4, B=3):
    names = [*(f"layer{n}" for n in range(n_layers)), "readout"]
    return {name: put(rng.uniform(0.5, 1.5, (B, H))) for name in names}


@every_cell
@pytest.mark.parametrize("output", ["softmax", "sigmoid"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_init_and_sites(cell, output, dtype, rng):
    model = TextClassifier(11, 5, 4, cell=cell, n_layers=2, output=output)
    params = model.init(rng, dtype=dtype)
    shapes = {name: a.shape for name, a in leaves(params) if not name.startswith("encoder.cells")}
    C = 1 if output == "sigmoid" else 2
    assert shapes == {"encoder.E": (11, 5), "W1": (4, 30), "b1": (30,), "V": (30, C), "b": (C,)}
    assert [layer.W.shape[0] for layer in params.encoder.cells] == [5, 4]
    assert {a.dtype for _, a in leaves(params)} == {np.dtype(dtype)}
    assert not params.encoder.cells[0].b.any()  # the forget gate's too
    assert [(s.name, s.H, s.kind) for s in model.sites] == [
        *((f"layer{n}", 4, "recurrent") for n in range(2)),
        ("readout", 4, "readout"),
    ]
    assert model.n_inputs == 5


@every_cell
def test_it_is_embedding_dropout_perturbation_cells_relu_and_softmax(cell, rng, put):
    model, params, batch = classifier(rng, put, cell=cell, n_layers=2, valid=FRONT)
    noise, dx, m = model.noise(rng, batch), put(rng.standard_normal((4, 3, 3))), real_masks(rng, put, 2)
    features, state, _ = model.body(params, batch, masks=m, noise=noise, dx=dx)

    E, f = to_host(params.encoder.E), zipf(7)
    mean = f @ E
    Ebar = (E - mean) / np.sqrt(1e-6 + f @ (E - mean) ** 2)
    x = Ebar[to_host(batch.tokens)] * (2 * to_host(noise.keep)) + to_host(dx)
    module = stack.by_name(cell)
    one, two = params.encoder.cells
    for b, length in enumerate([4, 3, 1]):  # each text alone, without its padding

        def own(a, b=b):
            return a[b : b + 1]

        h, _, _ = module.forward(one, put(x[4 - length :, b : b + 1]), m=own(m["layer0"]))
        h, last, _ = module.forward(two, h, m=own(m["layer1"]))
        assert_close(state[1].h[b], last.h[0])
        assert_close(features[0, b], last.h[0] * m["readout"][b])
    r = np.maximum(to_host(features)[0] @ to_host(params.W1) + to_host(params.b1), 0)
    logits = r @ to_host(params.V) + to_host(params.b)
    assert_close(model.logits(params, features), logits[None])
    expected = -log_softmax(logits, axis=1)[np.arange(3), to_host(batch.targets)]
    assert_close(model.head(params, features, batch.targets).nll, expected)


def test_frequencies_are_equal_unless_given_and_used_unless_told_otherwise(rng, put):
    model, params, batch = classifier(rng, put, embedding_dropout=0.0)
    assert model.noise(rng, batch) is None

    def features(**options):
        return replace(model, **options).body(params, batch, masks={}, noise=None)[0]

    equal = features(frequencies=None)
    assert_close(equal, features(frequencies=put(np.full(7, 1 / 7))))
    plain = features(normalise=False)
    assert min(float(abs(a - b).max()) for a, b in ((equal, plain), (equal, features()), (plain, features()))) > 1e-3
    at = embedding.moments(params.encoder.E, model.frequencies)
    rows = embedding.lookup(params.encoder.E, put(np.arange(7)), at)
    normalised = replace(params, encoder=replace(params.encoder, E=rows))
    assert_close(replace(model, normalise=False).body(normalised, batch, masks={}, noise=None)[0], features())


def test_noise_is_one_inverted_mask_a_text_and_its_own_for_each_worker(rng, put):
    model, params, batch = classifier(rng, put, D=50, embedding_dropout=0.2)
    keep = to_host(model.noise(np.random.default_rng(5), batch).keep)
    assert keep.shape == (3, 50) and keep.dtype == bool
    assert 0.6 < keep.mean() < 0.95
    shares = [TextBatch(batch.tokens[:, a:b]) for a, b in ((0, 1), (1, 3))]
    parts = [
        to_host(model.noise(Share(np.random.default_rng(5), a, b, 3), part).keep)
        for part, (a, b) in zip(shares, ((0, 1), (1, 3)), strict=True)
    ]
    assert_same_bits(np.concatenate(parts), keep)
    everything = Noise(put(np.ones((3, 50), dtype=bool)))
    x = model.body(params, batch, masks={}, noise=everything)[2].piece.cells.caches[0].own.x
    bare = model.body(params, batch, masks={}, noise=None)[2].piece.cells.caches[0].own.x
    assert_close(x, 1.25 * bare)


@pytest.mark.parametrize("fill", [0, 5])
def test_what_stands_on_padding_does_not_matter(fill, rng, put):
    model, params, batch = classifier(rng, put, valid=FRONT)
    padded = replace(batch, tokens=put(np.where(FRONT, to_host(batch.tokens), fill)))
    noise = model.noise(rng, batch)

    def both(batch):
        features, _, cache = model.body(params, batch, masks=real, noise=noise)
        head = model.head(params, features, batch.targets)
        return features, model.body_backward(params, cache, head.dfeatures, inputs=True, masks=tuple(real))

    real = real_masks(rng, put)
    a, e = both(padded), both(batch)
    assert_close(a, e)
    assert_zero(a[1].inputs[put(~FRONT)])
    assert float(abs(a[1].inputs[put(FRONT)]).max()) > 1e-4


@every_cell
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("truncate", [None, 3, 1])
def test_the_gradients_of_the_body(cell, normalise, truncate, rng, xp, put):
    """By embeddings, cells, all masks at once and the perturbation; the state from before the truncation is held fixed.

    What is differentiated numerically is an untruncated model on the last steps, with that state handed to it.
    """
    options = {"cell": cell, "n_layers": 2, "H": 2, "V": 6, "normalise": normalise}
    model, params, batch = classifier(rng, put, valid=FRONT, truncate=truncate, **options)
    noise, masks, dx = model.noise(rng, batch), real_masks(rng, put, 2, 2), put(rng.standard_normal((4, 3, 3)))
    whole = replace(model, truncate=None)
    first = 0 if truncate is None else 4 - truncate
    last, state = TextBatch(batch.tokens[first:], None, batch.valid[first:]), None
    if first:  # not as a batch: a text may begin later
        _, state, _ = whole.run(
            params.encoder, batch.tokens[:first], steps="last", valid=batch.valid[:first], masks=masks, noise=noise,
            state=None, dx=dx[:first], at=whole.moments(params.encoder),
        )  # fmt: skip

    def forward(encoder, masks, dx):
        changed = replace(params, encoder=encoder)
        return whole.body(changed, last, masks=masks, noise=noise, dx=dx[first:], state=state)[0]

    def backward(args, dfeatures):
        features, _, cache = model.body(params, batch, masks=args["masks"], noise=noise, dx=args["dx"])
        assert_close(features, forward(**args))
        grads = model.body_backward(params, cache, dfeatures, inputs=True, masks=tuple(args["masks"]))
        return {"encoder": grads.params.encoder, "masks": grads.masks, "dx": grads.inputs}

    args = {"encoder": params.encoder, "masks": masks, "dx": dx}
    report = gradcheck.check(forward, backward, args, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all(row.analytic > 1e-4 for row in report.rows), str(report)


@pytest.mark.parametrize("truncate", [1, 2, 3, 4, 9])
def test_truncation_changes_no_value_and_keeps_little(truncate, rng, put):
    """In pieces of the truncated length; with a workspace, no more slots than one piece takes."""
    model, params, batch = classifier(rng, put, T=7, truncate=truncate)
    batch = replace(batch, valid=put(np.arange(7)[:, None] >= np.array([0, 3, 6])))
    noise, dx, m = model.noise(rng, batch), put(rng.standard_normal((7, 3, 3))), real_masks(rng, put)
    given = {"masks": m, "noise": noise, "dx": dx}
    whole, whole_state, _ = replace(model, truncate=None).body(params, batch, **given)
    work = Workspace()
    model = reusing(model, work)
    with model.scope():
        features, state, cache = model.body(params, batch, **given)
        assert_close((features, state), (whole, whole_state))
        assert len(work) == 1
        back = model.body_backward(params, cache, features, inputs=True)
    assert cache.piece.tokens.shape == (min(truncate, 7), 3)
    first = max(0, 7 - truncate)
    assert back.inputs.shape == (7, 3, 3)
    if first:
        assert_zero(back.inputs[:first])
        assert back.state is None
    assert float(abs(back.inputs[first:]).max()) > 1e-4


def test_the_carried_state_has_its_term_in_the_influence_map(rng, put):
    """One step is differentiated: the map is then that of u = 0 alone, the masked copy of the carried state."""
    model, params, batch = classifier(rng, put, truncate=1)
    features, _, cache = model.body(params, batch, masks={"layer0": put(np.ones((3, 4)))}, noise=None)
    back = model.body_backward(params, cache, features, weights=False, masks=("layer0",))
    assert float(abs(back.masks["layer0"]).min()) > 1e-6


@pytest.mark.parametrize("output", ["softmax", "sigmoid"])
@pytest.mark.parametrize("part", ["head", "js", "kl", "rkl", "skl", "l2", "logit2"])
def test_the_gradients_of_the_head(output, part, rng, xp, put):
    model, params, batch = classifier(rng, put, C=2, output=output, n_relu=6)
    f0, f1 = put(rng.standard_normal((2, 1, 3, 4)))
    lam = put(rng.uniform(0.5, 1.5, (1, 3)))
    cotangent = put(rng.standard_normal((1, 3)))  # as lam, so that each text has a weight of its own
    of_head = replace(params, encoder=None)

    def run(params, f0, f1):
        if part == "head":
            return model.head(params, f0, batch.targets)
        return model.compare(params, f0, f1, cotangent * lam, by_name(part))

    def forward(params, f0, f1):
        result = run(params, f0, f1)
        return (result.nll if part == "head" else result.d).sum()

    def backward(args, dd):
        result = run(**args)
        d0 = result.dfeatures if part == "head" else result.dfeatures0
        grads = {"params": result.params, "f0": d0} | ({} if part == "head" else {"f1": result.dfeatures1})
        return tree_map(lambda g: dd * g, grads)

    left_out = ("f1",) if part == "head" else ()
    args = {"params": of_head, "f0": f0, "f1": f1}
    report = gradcheck.check(forward, backward, args, rng=rng, left_out=left_out, **fewer(xp))
    report.raise_if_failed()
    assert all(report[name].analytic > 1e-4 for name in ("params.W1", "params.b1", "params.V", "f0"))


def test_the_sigmoid_is_the_softmax_of_zero_and_its_output(rng, put):
    model, params, batch = classifier(rng, put, C=2, output="sigmoid")
    features = put(rng.standard_normal((1, 3, 4)))
    z = to_host(model.logits(params, features))
    assert not z[..., 0].any() and z[..., 1].any()
    nll = np.logaddexp(0, z[0, :, 1]) - to_host(batch.targets) * z[0, :, 1]
    assert_close(model.head(params, features, batch.targets).nll, nll)
    two = replace(
        params,
        V=put(np.concatenate([0 * to_host(params.V), to_host(params.V)], axis=1)),
        b=put(np.concatenate([[0], to_host(params.b)])),
    )
    assert_close(replace(model, output="softmax").logits(two, features), z)


def test_a_stopped_base_is_a_constant(rng, put):
    model, params, _ = classifier(rng, put)
    f0, f1 = put(rng.standard_normal((2, 1, 3, 4)))
    stopped = model.compare(params, f0, f1, None, by_name("kl"), stop_base=True)
    free = model.compare(params, f0, f1, None, by_name("kl"))
    other = model.compare(params, f1, f0, None, by_name("rkl"), stop_base=True)  # the base's own share
    assert stopped.dfeatures0 is None
    assert_same_bits((stopped.d, stopped.dfeatures1), (free.d, free.dfeatures1))
    assert_close(free.params.W1 - stopped.params.W1, other.params.W1)
    assert model.compare(params, f0, f1, None, by_name("kl"), weights=False).params is None


def test_a_backward_pass_computes_what_it_is_asked_for(rng, put):
    model, params, batch = classifier(rng, put)
    features, _, cache = model.body(params, batch, masks={"layer0": put(np.ones((3, 4)))}, noise=None)
    full = model.body_backward(params, cache, features, inputs=True, masks=("layer0", "readout"))
    light = model.body_backward(params, cache, features, weights=False, masks=("layer0", "readout"))
    assert (light.params, light.inputs) == (None, None)
    assert_same_bits(light.masks, full.masks)
    assert set(full.masks) == {"layer0", "readout"}
    assert model.body_backward(params, cache, features).inputs is None
    assert full.params == Params(full.params.encoder, None, None, None, None)


@pytest.mark.parametrize("integers", [np.int32, np.int64])
def test_single_precision_stays(integers, rng, put):
    model, params, batch = classifier(rng, put, valid=FRONT, truncate=2)
    params = tree_map(lambda a: a.astype(np.float32), params)
    batch = replace(batch, tokens=batch.tokens.astype(integers))
    features, state, cache = model.body(params, batch, masks={}, noise=model.noise(rng, batch))
    head = model.head(params, features, batch.targets)
    back = model.body_backward(params, cache, head.dfeatures, inputs=True)
    found = leaves((features, state, head, back.params, back.inputs))
    assert {a.dtype for _, a in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "elman"}, r"cell is 'elman', expected one of"),
        ({"output": "tanh"}, r"output is 'tanh', expected one of 'softmax', 'sigmoid'"),
        ({"n_classes": 1}, r"n_classes is 1, expected a whole number of at least 2"),
        ({"n_classes": 3, "output": "sigmoid"}, r"n_classes is 3, expected 2, for the sigmoid"),
        ({"n_layers": 0}, r"n_layers is 0, expected a whole number of at least 1"),
        ({"n_words": 1}, r"n_words is 1, expected a whole number of at least 2"),
        ({"truncate": 0}, r"truncate is 0, expected a whole number of at least 1"),
        ({"n_relu": 0}, r"n_relu is 0, expected a whole number of at least 1"),
        ({"embedding_dropout": 1.0}, r"embedding_dropout is 1\.0, expected a probability"),
        ({"frequencies": zipf(6)}, r"frequencies has shape \(6,\), expected \(7,\) \(n_words is 7\)"),
        ({"frequencies": np.ones(7)}, r"frequencies have the sum 7 and the least is 1, expected shares of the text"),
        ({"frequencies": zipf(7) - 1e-9}, r"the least is -1e-09"),
    ],
)
def test_bad_configuration(options, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(**{"n_words": 7, "n_embedding": 3, "n_hidden": 4, **options})


def test_bad_batches(rng, put):
    tokens = put(rng.integers(0, 7, (4, 3)))
    with pytest.raises(ValueError, match="valid is False at the last step of text 1: expected padding in front"):
        TextBatch(tokens, None, put(FRONT[::-1].copy()))
    with pytest.raises(TypeError, match="tokens has dtype float64, expected integers"):
        TextBatch(tokens.astype(np.float64))
    with pytest.raises(ValueError, match=r"targets has shape \(4,\), expected \(3,\)"):
        TextBatch(tokens, put(np.zeros(4, int)))
    with pytest.raises(ValueError, match=r"tokens has shape \(4,\), expected \(T, B\)"):
        TextBatch(tokens[:, 0])
    with pytest.raises(ValueError, match=r"valid has shape \(3, 4\), expected \(4, 3\)"):
        TextBatch(tokens, None, put(np.ones((3, 4), bool)))


def test_bad_input(rng, put):
    model, params, batch = classifier(rng, put)
    given = {"masks": {}, "noise": None}
    for wrong in (7, -1):
        with pytest.raises(ValueError, match=rf"tokens holds {wrong}, expected integers from 0 to 6: is it encoded"):
            model.body(params, replace(batch, tokens=put(np.array([[wrong]])), targets=None), **given)
    with pytest.raises(ValueError, match=r"masks has 'layer1', expected sites among \['layer0', 'readout'\]"):
        model.body(params, batch, masks={"layer1": put(np.ones((3, 4)))}, noise=None)
    with pytest.raises(ValueError, match=r"dx has shape \(4, 3, 2\), expected \(4, 3, 3\)"):
        model.body(params, batch, **given, dx=put(np.zeros((4, 3, 2))))
    with pytest.raises(ValueError, match=r"noise.keep has shape \(2, 3\), expected \(3, 3\)"):
        model.body(params, batch, masks={}, noise=Noise(put(np.ones((2, 3), bool))))
    with pytest.raises(ValueError, match=r"E has shape \(7, 3\), expected \(8, 3\)"):
        TextClassifier(8, 3, 4).body(params, batch, **given)
    with pytest.raises(ValueError, match="targets is None"):
        model.head(params, put(np.zeros((1, 3, 4))), None)
    with pytest.raises(ValueError, match=r"lam has shape \(2,\), expected \(1,\)"):
        model.compare(params, *put(np.zeros((2, 1, 3, 4))), put(np.ones(2)), by_name("js"))
