"""The head, the comparison and the logits of a model of one's own: each mistake is found, and named."""

from dataclasses import replace

import pytest

from minadv.modelcheck import check_model
from tests.support.foreign_model import Leaky, example
from tests.support.mistaken import expect_found, raises, scaled, wrong


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
    "logits of two axes": (
        logits(lambda found: found[0]),
        "the logits",
        r"logits returned shape \(3, 2\), expected \(N, B, C\) with \(N, B\) = \(1, 3\)",
    ),
    "logits of four axes": (logits(lambda found: found[..., None]), "the logits", r"shape \(1, 3, 2, 1\), expected"),
    "logits by example": (logits(lambda found: found.swapaxes(0, 1)), "the logits", r"shape \(3, 1, 2\), expected"),
    "one logit": (logits(lambda found: found.sum()), "the logits", r"logits returned shape \(\), expected"),
    "no logits": (logits(lambda found: None), "the logits", "logits returned a NoneType, expected"),
    "a distance to itself": (
        wrong("compare", lambda found, *_, **__: replace(found, d=found.d + 1)),
        "compare with itself",
        "the distance of a pass to itself is 1, expected 0",
    ),
    "an error": (wrong("head", raises), "the head's gradients", "KeyError: 'V'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found(name, rng):
    expect_found(rng, *MISTAKES[name])


def test_a_head_may_have_a_penalty(rng):
    _, params, songs = example(rng, lambda tree: tree)
    report = check_model(penalized(1)(2, 4), songs, params)
    assert report, str(report)
