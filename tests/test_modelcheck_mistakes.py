"""A body with a mistake: each is found, and named."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.modelcheck import check_model
from minadv.protocol import Site
from tests.support.foreign_model import Leaky, example
from tests.support.mistaken import expect_found, raises, scaled, wrong


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
    "noise that raises": (wrong("noise", raises), "noise", "KeyError: 'V'"),
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
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found(name, rng):
    expect_found(rng, *MISTAKES[name])


def test_features_that_fail_are_the_last_that_is_said_of_them(rng):
    _, params, songs = example(rng, lambda tree: tree)
    for name in ("features alone", "features of one example", "single precision"):
        report = check_model(MISTAKES[name][0](2, 4), songs, params)
        assert [finding.what for finding in report.findings if not finding.passed] == ["the body's features"]
        assert "_Looked" not in str(report)
