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


def wrong(method, change):
    """A Leaky whose method's result is changed."""

    def changed(self, *args, **given):
        return change(getattr(Leaky, method)(self, *args, **given), self, *args, **given)

    return type("Wrong", (Leaky,), {method: changed})


def scaled(**factors):
    return lambda found, *_, **__: replace(
        found, **{n: tree_map(lambda a, f=f: f * a, getattr(found, n)) for n, f in factors.items()}
    )


class Random(Leaky):
    def body(self, params, batch, **given):
        f, state, cache = super().body(params, batch, **given)
        return f + np.random.default_rng().standard_normal(f.shape), state, cache


class Deaf(Leaky):
    """It forgets the mask that it is given."""

    def body(self, params, batch, *, masks, **given):
        return super().body(params, batch, masks={}, **given)


class Halved(Leaky):
    """What it takes for no mask is another network."""

    def body(self, params, batch, *, masks, **given):
        ones = np.ones((len(batch), self.n_units))
        return super().body(params, batch, masks=masks or {"z": ones / 2}, **given)


class Careless(Leaky):
    def body(self, params, batch, **given):
        params.A[...] *= 0.5
        return super().body(params, batch, **given)


class Twice(Leaky):
    def __init__(self, *given):
        super().__init__(*given)
        self.sites = (Site("z", 4), Site("z", 4))


class Unstopped(Leaky):
    """It goes to the base, whatever it is told."""

    def compare(self, *given, stop_base=False, **more):
        return super().compare(*given, **more)


class Unweighted(Leaky):
    def compare(self, params, features0, features1, lam, distance, **more):
        return super().compare(params, features0, features1, None, distance, **more)


class OneWeight(Leaky):
    """One weight for all examples, their mean."""

    def compare(self, params, features0, features1, lam, distance, **more):
        mean = None if lam is None else 0 * lam + lam.mean()
        return super().compare(params, features0, features1, mean, distance, **more)


def if_stopped(change):
    """A change to what compare returns where the base is stopped, and nowhere else."""

    def changed(found, *_, stop_base=False, weights=True, **__):
        return change(found, weights) if stop_base else found

    return wrong("compare", changed)


def raises(*_, **__):
    raise KeyError("V")


def logits(change):
    """A Leaky whose logits are changed; its head and its comparison have their own."""

    class Changed(Leaky):
        def logits(self, params, features):
            return change(super().logits(params, features))

        def head(self, *given):
            return Leaky(2, 4).head(*given)

        def compare(self, *given, **more):
            return Leaky(2, 4).compare(*given, **more)

    return Changed


def penalized(factor):
    """The squares of the features are a penalty of the head, whose gradient is multiplied by a factor."""

    def changed(found, self, params, features, *_):
        dfeatures = found.dfeatures + factor * 2 * features
        return replace(found, dfeatures=dfeatures, penalty=(features**2).sum(axis=(0, 2)))

    return wrong("head", changed)


def scale_w(grads, factor):
    return replace(grads, w=factor * grads.w)


def halved(found, lam):
    """The gradient of features1 is half of what it should be, but only if there are weights."""
    return found if lam is None else replace(found, dfeatures1=0.5 * found.dfeatures1)


MISTAKES = {
    "gradient of a weight": (
        wrong(
            "body_backward", lambda g, *_, **__: replace(g, params=g.params and replace(g.params, A=1.001 * g.params.A))
        ),
        "the body's gradients",
        r"FAIL params.A \|analytic\|",
    ),
    "gradient of the mask": (wrong("body_backward", scaled(masks=1.001)), "the body's gradients", "FAIL masks.z"),
    "gradient of the inputs": (wrong("body_backward", scaled(inputs=1.001)), "the body's gradients", "FAIL dx"),
    "no gradient of the mask": (
        wrong("body_backward", lambda g, *_, **__: replace(g, masks={})),
        "the body's gradients",
        "body_backward returned no gradient for the masks z",
    ),
    "another record": (
        wrong("body_backward", lambda g, *_, **__: (g.params, g.masks)),
        "the body's gradients",
        "body_backward returned a tuple, expected minadv.protocol.ModelGrads",
    ),
    "other gradients than weights": (
        wrong("body_backward", lambda g, *_, **__: replace(g, params={"A": 0})),
        "the body's gradients",
        "ValueError: trees differ: a dict, expected the structure of a Weights",
    ),
    "weights nobody asked for": (
        wrong("body_backward", lambda g, self, params, *_, **__: replace(g, params=params)),
        "what body_backward is not asked for",
        r"weights=False, masks=\('z',\) returned Weights",
    ),
    "gradient of the likelihood": (wrong("head", scaled(dfeatures=1.001)), "the head's gradients", "FAIL features"),
    "a likelihood in one number": (
        wrong("head", lambda found, *_, **__: replace(found, nll=found.nll.sum(keepdims=True))),
        "the head's gradients",
        r"nll has shape \(1,\), expected \(B,\) = \(3,\)",
    ),
    "a likelihood that is a tuple": (
        wrong("head", lambda found, *_, **__: (found.nll,)),
        "the head's gradients",
        "head returned a tuple, expected minadv.protocol.Likelihood",
    ),
    "gradient of the penalty": (penalized(1.001), "the head's gradients", "FAIL features"),
    "gradient of the distance": (
        wrong("compare", lambda found, *_, **__: replace(found, dfeatures1=1.001 * found.dfeatures1)),
        "the gradients of compare, kl",
        "FAIL features1",
    ),
    "a mean over examples": (
        wrong("compare", lambda found, *_, **__: replace(found, d=found.d.mean(keepdims=True))),
        "the gradients of compare, js",
        r"d has shape \(1,\), expected \(B,\) = \(3,\)",
    ),
    "a comparison that is a number": (
        wrong("compare", lambda found, *_, **__: found.d),
        "the gradients of compare, js",
        "compare returned a ndarray, expected minadv.protocol.Comparison",
    ),
    "one gradient for both features": (
        wrong("compare", lambda found, *_, **__: replace(found, dfeatures0=found.dfeatures1)),
        "the gradients of compare, js",
        "FAIL features0",
    ),
    "a base that is not stopped": (
        Unstopped,
        "compare with a stopped base",
        "stop_base=True, weights=False returned dfeatures0 or params, expected None for both",
    ),
    "another distance if the base is stopped": (
        if_stopped(lambda found, _: replace(found, d=2 * found.d)),
        "compare with a stopped base",
        "stop_base=True returns another d\n",
    ),
    "another gradient if the base is stopped": (
        if_stopped(lambda found, weights: replace(found, dfeatures1=(1 if weights else 1.001) * found.dfeatures1)),
        "compare with a stopped base",
        "stop_base=True, weights=False returns another dfeatures1",
    ),
    "weights that are reached through the base": (
        if_stopped(lambda found, weights: replace(found, params=scale_w(found.params, 1.001) if weights else None)),
        "compare with a stopped base",
        "stop_base=True returns a gradient of w that is not that through the second pass alone",
    ),
    "no use of lam": (Unweighted, "compare with weights lam", "d is not linear in lam: expected the sum over steps of"),
    "one lam for all": (OneWeight, "compare with weights lam", "a step that lam gives no weight has a gradient"),
    "gradients without lam": (
        wrong("compare", lambda found, self, params, f0, f1, lam, *_, **__: halved(found, lam)),
        "compare with weights lam",
        "FAIL features1",
    ),
    "gradient of the first state": (
        wrong("body_backward", scaled(state=1.001)),
        "the gradient of the first state",
        "FAIL state",
    ),
    "gradient of the state that a pass was given": (
        wrong(
            "body_backward",
            lambda g, self, params, cache, *_, **__: replace(g, state=1.001 * g.state if cache[2][0].any() else None),
        ),
        "the gradient of the first state",
        "FAIL state",
    ),
    "logits of two axes": (
        logits(lambda found: found[0]),
        "the logits",
        r"logits returned shape \(3, 2\), expected \(N, B, C\) with \(N, B\) = \(1, 3\)",
    ),
    "logits of four axes": (logits(lambda found: found[..., None]), "the logits", r"shape \(1, 3, 2, 1\), expected"),
    "logits by example": (logits(lambda found: found.swapaxes(0, 1)), "the logits", r"shape \(3, 1, 2\), expected"),
    "one logit": (logits(lambda found: found.sum()), "the logits", r"logits returned shape \(\), expected"),
    "no logits": (logits(lambda found: None), "the logits", "logits returned a NoneType, expected"),
    "noise that raises": (wrong("noise", raises), "noise", "KeyError: 'V'"),
    "a distance to itself": (
        wrong("compare", lambda found, *_, **__: replace(found, d=found.d + 1)),
        "compare with itself",
        "the distance of a pass to itself is 1, expected 0",
    ),
    "features of one example": (
        wrong("body", lambda found, *_, **__: (found[0][0], *found[1:])),
        "the body's features",
        r"they have shape \(3, 4\), expected \(N, B, F\) with B = 3",
    ),
    "features by example": (
        wrong("body", lambda found, *_, **__: (found[0].swapaxes(0, 1), *found[1:])),
        "the body's features",
        r"they have shape \(3, 1, 4\), expected \(N, B, F\) with B = 3",
    ),
    "no cache": (
        wrong("body", lambda found, *_, **__: found[:2]),
        "the body's features",
        "body returned a tuple, expected features, last state and cache",
    ),
    "features alone": (
        wrong("body", lambda found, *_, **__: found[0]),
        "the body's features",
        "body returned a ndarray, expected features, last state and cache",
    ),
    "single precision": (
        wrong("body", lambda found, *_, **__: (found[0].astype(np.float32), *found[1:])),
        "the body's features",
        "they have dtype float32 for inputs and weights in float64",
    ),
    "random numbers in body": (
        Random,
        "the body's features",
        "two calls with the same arguments return different numbers",
    ),
    "no use of the mask": (Deaf, "every mask has an effect", "the mask of z changes no feature: does body use masks"),
    "m is not 1 without a mask": (
        Halved,
        "a mask of ones is no mask",
        "with a mask of ones at every site the features differ",
    ),
    "weights changed in place": (Careless, "nothing was changed", "params was changed in place: A"),
    "two sites of one name": (Twice, "what it has", r"sites has one name twice: \['z', 'z'\]"),
    "an error": (wrong("head", raises), "the head's gradients", "KeyError: 'V'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found(name, rng):
    """On the host: what is found does not depend on where the arrays are."""
    kind, what, said = MISTAKES[name]
    _, params, songs = example(rng, lambda tree: tree)
    report = check_model(kind(2, 4), songs, params)
    assert not report
    assert not report[what].passed
    with pytest.raises(ModelError, match=rf"(?s)FAILED.*FAIL {what}: .*{said}"):
        report.raise_if_failed()


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


def test_features_that_fail_are_the_last_that_is_said_of_them(rng):
    _, params, songs = example(rng, lambda tree: tree)
    for name in ("features alone", "features of one example", "single precision"):
        report = check_model(MISTAKES[name][0](2, 4), songs, params)
        assert [finding.what for finding in report.findings if not finding.passed] == ["the body's features"]
        assert "_Looked" not in str(report)


def test_a_head_may_have_a_penalty(rng):
    _, params, songs = example(rng, lambda tree: tree)
    report = check_model(penalized(1)(2, 4), songs, params)
    assert report, str(report)


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
