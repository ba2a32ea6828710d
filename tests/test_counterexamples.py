"""Statements that are not theorems: each network still breaks the one it was made for, with the same numbers."""

import numpy as np
import pytest

from minadv import counterexamples, gradcheck
from tests.support.compare import assert_same_bits

PUBLISHED = {
    "kl": ("0.47508", "0.34607"),
    "skl": ("31.25", "1.1098"),
    "greedy": ("0.0086303", "0.00024461"),
    "ball": ("0.007503", "0.0045865"),
}
"""Both sides of each claim."""
SHARE = 0.3
"""Of the networks whose greedy mask lies below EL."""


def test_a_quarter_of_fd_exceeds_el_for_kl():
    broken = counterexamples.kl_counterexample(a=200)
    assert broken.fails
    assert broken.lower == pytest.approx(0.475, abs=5e-4)
    assert broken.upper == pytest.approx(0.346, abs=5e-4)


def test_and_by_any_factor():
    """EL levels off at ½ log 2 while ¼ FD grows in proportion to a."""
    found = [counterexamples.kl_counterexample(a) for a in 200 * 2.0 ** np.arange(8)]
    ratios = [broken.lower / broken.upper for broken in found]
    assert found[-1].upper == pytest.approx(np.log(2) / 2)
    assert (np.diff(ratios) > 0).all()
    assert ratios[-1] > 100
    assert ratios[-1] / ratios[-2] == pytest.approx(2, rel=0.02)


def test_for_small_a_the_inequality_still_holds():
    assert not counterexamples.kl_counterexample(a=1.0).fails


def test_a_quarter_of_fd_exceeds_el_for_the_symmetrised_kl_by_any_factor():
    """¼ FD is a/32; EL is about (log a + 2)/8."""
    for a in 1000 * 4.0 ** np.arange(5):
        broken = counterexamples.skl_counterexample(a)
        assert broken.fails
        assert broken.lower == pytest.approx(a / 32)
        assert broken.upper == pytest.approx((np.log(a) + 2) / 8, rel=0.02)
    assert broken.lower > 1000 * broken.upper


def test_for_small_a_the_inequality_holds_for_the_symmetrised_kl_too():
    assert not counterexamples.skl_counterexample(a=7.0).fails


@pytest.mark.parametrize("distance", ["js", "kl"])
def test_a_greedy_mask_can_lie_below_el(distance):
    worst, share = counterexamples.greedy_counterexample(100, distance=distance)
    assert worst.fails
    assert 0.25 <= share <= 0.35


def test_masks_outside_the_ball_can_be_further_away():
    broken = counterexamples.ball_counterexample()
    assert broken.fails
    assert broken.lower > 1.2 * broken.upper


def test_the_tiny_network_reads_on_from_a_state(rng):
    model, params, batch = counterexamples.tiny_network(rng, 4)
    whole, _, _ = model.body(params, batch, masks={})
    _, half, _ = model.body(params, counterexamples.Sequences(batch.x[:3]), masks={})
    assert_same_bits(model.body(params, counterexamples.Sequences(batch.x[3:]), masks={}, state=half)[0], whole)


def test_the_tiny_network_has_gradients_of_its_weights_unless_none_are_wanted(rng):
    model, params, batch = counterexamples.tiny_network(rng, 4)

    def features(cell):
        return model.body({"cell": cell}, batch, masks={})[0]

    def backward(args, dfeatures):
        _, _, cache = model.body(args, batch, masks={})
        return {"cell": model.body_backward(args, cache, dfeatures).params}

    gradcheck.check(features, backward, {"cell": params["cell"]}, rng=rng).raise_if_failed()
    last, _, cache = model.body(params, batch, masks={})
    assert model.body_backward(params, cache, last, weights=False).params is None


def test_what_is_equal_does_not_fail():
    assert not counterexamples.Broken("x <= x", 1.0, 1.0).fails


def test_the_demonstrations_say_what_they_did_when_they_were_published():
    """Numbers that stand in the documentation: another constant in the file would show here."""
    found = {
        "kl": counterexamples.kl_counterexample(),
        "skl": counterexamples.skl_counterexample(),
        "greedy": counterexamples.greedy_counterexample()[0],
        "ball": counterexamples.ball_counterexample(),
    }
    told = {name: (f"{broken.lower:.5g}", f"{broken.upper:.5g}") for name, broken in found.items()}
    assert told == PUBLISHED
    assert counterexamples.greedy_counterexample()[1] == pytest.approx(SHARE)
