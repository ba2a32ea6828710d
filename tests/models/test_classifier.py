"""The sequence classifier: what it computes, its gradients through every argument, and what it refuses."""

import numpy as np
import pytest
from scipy.special import log_softmax

from minadv import gradcheck
from minadv.backend import to_host
from minadv.distances import by_name
from minadv.models import Batch, Classifier, stack
from tests.support.cells import RAGGED
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.networks import network

every_cell = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])


def fewer(xp):
    """One random direction a gradient on CuPy, which is slow without a GPU; every entry on NumPy."""
    return {} if xp is np else {"elementwise": 0, "directions": 1}


@every_cell
@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_init_and_sites(cell, n_layers, dtype, rng):
    model = Classifier(5, 4, 3, cell=cell, n_layers=n_layers)
    params = model.init(rng, dtype=dtype)
    assert [layer.W.shape[0] for layer in params.cells] == [5] + [4] * (n_layers - 1)
    assert (params.V.shape, params.b.shape) == ((4, 3), (3,))
    assert {params.V.dtype, params.b.dtype, params.cells[0].U.dtype} == {np.dtype(dtype)}
    assert [(s.name, s.H, s.kind) for s in model.sites] == [
        *((f"layer{n}", 4, "recurrent") for n in range(n_layers)),
        ("readout", 4, "readout"),
    ]


@every_cell
def test_it_is_the_cells_one_after_the_other_and_a_softmax_of_the_last_valid_state(cell, rng, put):
    model, params, batch = network(rng, put, cell=cell, n_layers=2, valid=RAGGED)
    m = {name: put(rng.uniform(0, 2, (3, 4))) for name in ("layer0", "layer1", "readout")}
    features, state, _ = model.body(params, batch, masks=m, noise=None)
    module = stack.by_name(cell)
    h, first, _ = module.forward(params.cells[0], batch.x, m=m["layer0"], valid=batch.valid)
    h, second, _ = module.forward(params.cells[1], h, m=m["layer1"], valid=batch.valid)
    assert_close(state, (first, second))
    for b, length in enumerate([4, 3, 1]):
        assert_close(features[0, b], (h * m["readout"])[length - 1, b])
    logits = to_host(features)[0] @ to_host(params.V) + to_host(params.b)
    expected = -log_softmax(logits, axis=1)[np.arange(3), to_host(batch.targets)]
    assert_close(model.head(params, features, batch.targets).nll, expected)


@every_cell
def test_features_of_every_step_end_in_those_of_the_last(cell, rng, put):
    last, params, batch = network(rng, put, cell=cell, valid=RAGGED, readout="masked")
    every = Classifier(2, 4, 3, cell=cell, readout="masked", steps="all")
    masks = {"layer0": put(rng.uniform(0, 2, (3, 4)))}
    one, many = (model.body(params, batch, masks=masks, noise=None)[0] for model in (last, every))
    assert (one.shape, many.shape) == ((1, 3, 4), (4, 3, 4))
    assert_same_bits(many[-1:], one)
    assert_same_bits(every.head(params, many, batch.targets).nll, last.head(params, one, batch.targets).nll)


def test_noise_is_one_inverted_mask_a_sequence(rng, put):
    model, params, batch = network(rng, put, I=50, input_dropout=0.2)
    noise = model.noise(rng, batch)
    assert noise.inputs.shape == (3, 50)
    assert set(np.unique(to_host(noise.inputs)).tolist()) == {0, 1.25}
    dropped = Batch(batch.x * noise.inputs, batch.targets)
    assert_same_bits(
        model.body(params, batch, masks={}, noise=noise)[0], model.body(params, dropped, masks={}, noise=None)[0]
    )
    assert Classifier(50, 4, 3).noise(rng, batch) is None


def test_the_perturbation_is_added_after_the_noise(rng, put):
    model, params, batch = network(rng, put, I=6, input_dropout=0.5)
    noise, dx = model.noise(rng, batch), put(rng.standard_normal((4, 3, 6)))
    moved = Batch(batch.x * noise.inputs + dx)
    assert_same_bits(
        model.body(params, batch, masks={}, noise=noise, dx=dx)[0], model.body(params, moved, masks={}, noise=None)[0]
    )


@every_cell
@pytest.mark.parametrize("readout", ["clean", "masked"])
@pytest.mark.parametrize("steps", ["last", "all"])
def test_the_gradients_of_the_body(cell, readout, steps, rng, xp, put):
    """By the cells' parameters, all three masks at once, and the perturbation of the inputs."""
    options = {"cell": cell, "readout": readout, "steps": steps, "n_layers": 2, "input_dropout": 0.5}
    model, params, batch = network(rng, put, H=2, valid=RAGGED, **options)
    noise = model.noise(rng, batch)
    masks = {name: put(rng.uniform(0.5, 1.5, (3, 2))) for name in ("layer0", "layer1", "readout")}

    def forward(layers, masks, dx):
        changed = type(params)(layers, params.V, params.b)
        return model.body(changed, batch, masks=masks, noise=noise, dx=dx)[0]

    def backward(args, dfeatures):
        _, _, cache = model.body(params, batch, masks=args["masks"], noise=noise, dx=args["dx"])
        grads = model.body_backward(params, cache, dfeatures, inputs=True, masks=tuple(masks))
        return {"layers": grads.params.cells, "masks": grads.masks, "dx": grads.inputs}

    args = {"layers": params.cells, "masks": masks, "dx": put(rng.standard_normal((4, 3, 2)))}
    report = gradcheck.check(forward, backward, args, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all(row.analytic > 1e-4 for row in report.rows), str(report)


@every_cell
@pytest.mark.parametrize("readout", ["clean", "masked"])
def test_a_backward_pass_computes_what_it_is_asked_for(cell, readout, rng, put):
    model, params, batch = network(rng, put, cell=cell, readout=readout, n_layers=2)
    features, _, cache = model.body(params, batch, masks={"layer0": put(np.ones((3, 4)))}, noise=None)
    names = tuple(site.name for site in model.sites)
    full = model.body_backward(params, cache, features, inputs=True, masks=names)
    light = model.body_backward(params, cache, features, weights=False)
    assert (light.params, light.inputs, light.masks) == (None, None, {})
    assert set(full.masks) == set(names)
    for name in names:
        one = model.body_backward(params, cache, features, weights=False, masks=(name,))
        assert set(one.masks) == {name}
        assert_close(one.masks[name], full.masks[name])


@every_cell
@pytest.mark.parametrize("readout", ["clean", "masked"])
@pytest.mark.parametrize("steps", ["last", "all"])
def test_a_mask_has_a_gradient_whether_or_not_it_was_given(cell, readout, steps, rng, put):
    """Without one m = 1, and the gradient is that at a mask of ones."""
    model, params, batch = network(rng, put, cell=cell, readout=readout, steps=steps, n_layers=2, valid=RAGGED)
    names = tuple(site.name for site in model.sites)
    ones = {name: put(np.ones((3, 4))) for name in names}
    found = []
    for given in ({}, ones):
        features, _, cache = model.body(params, batch, masks=given, noise=None)
        found.append(model.body_backward(params, cache, features, weights=False, masks=names).masks)
    assert_close(*found)
    assert all(float(abs(dm).max()) > 1e-6 for dm in found[0].values())


def test_whoever_overrides_one_pass_overrides_several():
    """The searches and regularizers run several passes at once: a pass of one's own must not be left out there."""
    with pytest.raises(TypeError, match=r"Other overrides body, expected that it overrides bodies as well"):
        type("Other", (Classifier,), {"body": lambda self: None})
    with pytest.raises(TypeError, match=r"Other overrides body_backward, .* overrides bodies_backward as well"):
        type("Other", (Classifier,), {"body_backward": lambda self: None})
    type("Other", (Classifier,), {"body": lambda self: None, "bodies": lambda self: None})


@pytest.mark.parametrize("lam", [None, "steps", "steps and examples"])
@pytest.mark.parametrize("distance", ["js", "kl", "rkl", "skl", "l2", "logit2"])
def test_the_gradients_of_the_comparison(lam, distance, rng, xp, put):
    model, params, _ = network(rng, put, steps="all", H=3)
    if lam is not None:
        lam = put(rng.uniform(0.1, 1, 4 if lam == "steps" else (4, 3)))
    f0, f1 = put(rng.standard_normal((2, 4, 3, 3)))

    def forward(params, f0, f1):
        return model.compare(params, f0, f1, lam, by_name(distance)).d.sum()

    def backward(args, dd):
        result = model.compare(args["params"], args["f0"], args["f1"], lam, by_name(distance))
        head = type(params)(tuple(0 * c.U for c in params.cells), dd * result.params.V, dd * result.params.b)
        return {"params": head, "f0": dd * result.dfeatures0, "f1": dd * result.dfeatures1}

    head_only = type(params)(tuple(c.U for c in params.cells), params.V, params.b)
    report = gradcheck.check(forward, backward, {"params": head_only, "f0": f0, "f1": f1}, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all(report[name].analytic > 1e-3 for name in ("params.V", "f0", "f1"))


def test_without_lam_only_the_last_step_counts(rng, put):
    model, params, _ = network(rng, put, steps="all")
    f0, f1 = put(rng.standard_normal((2, 4, 3, 4)))
    result = model.compare(params, f0, f1, None, by_name("js"))
    assert_zero(result.dfeatures1[:-1])
    assert_same_bits(result.d, model.compare(params, f0, f1, put(np.array([0.0, 0, 0, 1])), by_name("js")).d)


def test_a_stopped_base_is_a_constant(rng, put):
    """Neither its features nor the head's weights, as they act on it, have a gradient."""
    model, params, _ = network(rng, put)
    f0, f1 = put(rng.standard_normal((2, 1, 3, 4)))
    stopped = model.compare(params, f0, f1, None, by_name("kl"), stop_base=True)
    free = model.compare(params, f0, f1, None, by_name("kl"))
    other = model.compare(params, f1, f0, None, by_name("rkl"), stop_base=True)  # the base's own share
    assert stopped.dfeatures0 is None
    assert_same_bits((stopped.d, stopped.dfeatures1), (free.d, free.dfeatures1))
    assert_close(free.params.V - stopped.params.V, other.params.V)
    assert model.compare(params, f0, f1, None, by_name("kl"), weights=False).params is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "elman"}, r"cell is 'elman', expected one of 'rnn', 'lstm', 'gru'"),
        ({"readout": "dropped"}, r"readout is 'dropped', expected one of 'clean', 'masked'"),
        ({"steps": "first"}, r"steps is 'first', expected one of 'last', 'all'"),
        ({"n_layers": 0}, r"n_layers is 0, expected a whole number of at least 1"),
        ({"n_classes": 1}, r"n_classes is 1, expected a whole number of at least 2"),
        ({"input_dropout": 1.0}, r"input_dropout is 1\.0, expected a probability"),
    ],
)
def test_bad_configuration(options, message):
    with pytest.raises(ValueError, match=message):
        Classifier(**{"n_in": 2, "n_hidden": 3, "n_classes": 2, **options})


def test_bad_input(rng, put):
    model, params, batch = network(rng, put)
    ones = put(np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"masks has \['layer1'\], expected sites among \['layer0', 'readout'\]"):
        model.body(params, batch, masks={"layer1": ones}, noise=None)
    with pytest.raises(ValueError, match=r"masks\['readout'\] has shape \(3, 2\), expected \(3, 4\)"):
        model.body(params, batch, masks={"readout": ones[:, :2]}, noise=None)
    f = ones[None]
    with pytest.raises(ValueError, match=r"lam has shape \(2,\), expected \(1,\)"):
        model.compare(params, f, f, put(np.ones(2)), by_name("js"))
    with pytest.raises(ValueError, match=r"lam has shape \(1, 2\), expected \(1, 3\)"):
        model.compare(params, f, f, put(np.ones((1, 2))), by_name("js"))
    with pytest.raises(ValueError, match=r"targets is None"):
        model.head(params, f, None)


def test_batches_are_time_first(rng, put):
    x, y = put((rng.standard_normal((6, 4, 2)), rng.integers(0, 3, 6)))  # (B, T, I) with six labels
    with pytest.raises(ValueError, match=r"targets has shape \(6,\), expected \(4,\) \(x has B = 4 examples"):
        Batch(x, y)
    with pytest.raises(ValueError, match=r"x has shape \(6, 4\), expected \(T, B, I\)"):
        Batch(x[..., 0])
    with pytest.raises(ValueError, match=r"valid has shape \(4, 6\), expected \(6, 4\)"):
        Batch(x, valid=put(np.ones((4, 6), dtype=bool)))


def test_parameters_of_another_depth(rng, put):
    _, params, batch = network(rng, put, n_layers=2)
    with pytest.raises(ValueError, match=r"params has 2 layers, expected n_layers = 1"):
        Classifier(2, 4, 3).body(params, batch, masks={}, noise=None)
