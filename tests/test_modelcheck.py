"""A model of one's own is held to the protocol in one call; each mistake is found, and named."""

from dataclasses import replace

import numpy as np
import pytest

import minadv
from minadv.base.findings import ModelError
from minadv.base.trees import tree_map
from minadv.modelcheck import check_model
from minadv.models import Classifier
from minadv.protocol import Site
from tests.support.cells import RAGGED
from tests.support.foreign_model import Leaky, example
from tests.support.mistaken import scaled, wrong
from tests.support.networks import network


@pytest.mark.many_passes
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cell": "gru", "n_layers": 2},
        {"readout": "masked", "steps": "all"},
        {"input_dropout": 0.5},
        {"cell": "rnn"},
    ],
    ids=str,
)
def test_our_own_models_pass(options, rng, put):
    model, params, batch = network(rng, put, **options)
    report = check_model(model, batch, params)
    assert report, str(report)
    assert str(report).startswith("Classifier and minadv.protocol: passed\n")
    assert report["what it has"].found == f"sites {', '.join(site.name for site in model.sites)}"
    assert report["several passes at once"].passed


def test_weights_are_drawn_and_single_precision_is_widened(rng, put):
    model, _, batch = network(rng, put, valid=RAGGED)
    single = replace(batch, x=batch.x.astype(np.float32))
    check_model(model, single).raise_if_failed()
    assert single.x.dtype == np.float32


def test_weights_of_single_precision_are_widened(rng, put):
    model, params, batch = network(rng, put)
    single = tree_map(lambda a: a.astype(np.float32), params)
    check_model(model, batch, single).raise_if_failed()
    assert single.V.dtype == np.float32


def test_weights_are_drawn_in_double_precision(rng):
    _, params, songs = example(rng, lambda tree: tree)
    dtypes = []

    class Drawn(Leaky):
        def init(self, rng, *, dtype=np.float32):
            dtypes.append(dtype)
            return params

    check_model(Drawn(2, 4), songs).raise_if_failed()
    assert dtypes == [np.float64]


def test_a_batch_may_be_of_any_class(rng):
    _, params, songs = example(rng, lambda tree: tree)

    class Opaque:
        notes, liked, targets = songs.notes, songs.liked, songs.targets

        def __len__(self):
            return len(songs)

    check_model(Leaky(2, 4), Opaque(), params).raise_if_failed()


def test_a_model_may_have_one_unit(rng):
    _, params, songs = example(rng, lambda tree: tree, H=1)
    check_model(Leaky(2, 1), songs, params).raise_if_failed()


def test_the_same_numbers_are_drawn_each_time(rng):
    _, params, songs = example(rng, lambda tree: tree)
    model = wrong("head", scaled(dfeatures=1.001))(2, 4)
    told = str(check_model(model, songs, params))
    assert told == str(check_model(model, songs, params, rng=np.random.default_rng(0)))
    assert told != str(check_model(model, songs, params, rng=np.random.default_rng(1)))


@pytest.mark.many_passes
@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_a_model_that_is_not_ours_passes(jitter, rng, put):
    model, params, songs = example(rng, put, jitter=jitter)
    report = check_model(model, songs, params)
    report.raise_if_failed()
    assert report["what it has"].found == "sites z; fit needs init too"
    assert report["the body's gradients"].found == "weights, masks, inputs"


class NoInputs(Leaky):
    """One that AT and VAT cannot perturb is a model nevertheless."""

    def __getattribute__(self, name):
        if name == "valid":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_inputs_need_not_be_perturbed(rng, put):
    _, params, songs = example(rng, put)
    report = check_model(NoInputs(2, 4), songs, params)
    assert report
    assert "AT and VAT cannot be used" in report["the body's gradients"].found


def test_what_a_model_lacks(rng):
    _, params, songs = example(rng, lambda tree: tree)

    class Sites:
        noise = body = body_backward = head = compare = lambda self: None

        def __init__(self, *sites):
            self.sites = sites

    for model, given, batch, said in (
        (object(), params, songs, "it lacks sites, noise, body, body_backward, head, compare"),
        (Leaky(2, 4), None, songs, r"it lacks init \(or give params\)"),
        (Sites(), params, songs, r"sites is \(\), expected records such as minadv.protocol.Site"),
        (Sites("layer0"), params, songs, r"sites is \('layer0',\), expected records such as minadv.protocol.Site"),
        (Sites(Site("layer0", 0)), params, songs, r"sites is \(Site\(.*\),\), expected records such as"),
        (Leaky(2, 4), params, [7], "the batch is a list, expected one with a len, its examples, and targets"),
        (Leaky(2, 4), params, 7, "the batch is a int, expected one with a len, its examples, and targets"),
    ):
        report = check_model(model, batch, given)
        assert [finding.what for finding in report.findings] == ["what it has"]
        with pytest.raises(ModelError, match=said):
            report.raise_if_failed()


def test_a_larger_model_costs_no_more_passes(rng):
    """Gradients of larger arrays are compared along a few directions."""
    passes = []

    class Counted(Leaky):
        def body(self, *given, **more):
            passes.append(self.n_units)
            return super().body(*given, **more)

    for H in (17, 70):
        _, params, songs = example(rng, lambda tree: tree, H=H)
        check_model(Counted(2, H), songs, params).raise_if_failed()
    assert passes.count(17) == passes.count(70)


def test_a_state_may_have_no_gradient(rng):
    _, params, songs = example(rng, lambda tree: tree)
    model = wrong("body_backward", lambda g, *_, **__: replace(g, state=None))(2, 4)
    report = check_model(model, songs, params)
    assert report, str(report)
    assert report["the gradient of the first state"].found == "body_backward returns none"


def test_initial_weights_that_fail(rng, put):
    class Broken(Classifier):
        def init(self, rng, *, dtype=np.float32):
            raise ZeroDivisionError("no units")

    report = check_model(Broken(2, 4, 3), network(rng, put)[2])
    assert report["init"].found == "ZeroDivisionError: no units"


def test_several_passes_at_once_must_be_the_same(rng, put):
    class Other(Classifier):
        def bodies(self, params, batch, *, masks, noises, **given):
            masks = masks if len(masks) == 1 else [{}] * len(masks)  # body is bodies of one pass
            return super().bodies(params, batch, masks=masks, noises=noises, **given)

    _, params, batch = network(rng, put)
    report = check_model(Other(2, 4, 3), batch, params)
    assert [finding.what for finding in report.findings if not finding.passed] == ["several passes at once"]
    assert report["several passes at once"].found == "bodies returns other features than body"


def test_a_sequence_of_one_step_is_said_to_have_no_recurrent_mask(rng, put):
    model, params, batch = network(rng, put, T=1)
    assert (
        "the mask of layer0 changes no feature" in check_model(model, batch, params)["every mask has an effect"].found
    )


def test_the_door():
    assert minadv.check_model is check_model
    with pytest.raises(TypeError, match="rng is 0, expected"):
        check_model(Leaky(2, 4), None, rng=0)
