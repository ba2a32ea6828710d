"""The schedules as spec and paper write them; the average of weights in closed form."""

import math
from typing import Any

import numpy as np
import pytest

from minadv.base.trees import leaves
from minadv.training.ema import EMA
from minadv.training.schedules import Constant, ExponentialDecay, RampDown, RampUp
from tests.support.compare import assert_close, assert_same_bits


def test_ramp_up() -> None:
    for epoch in range(50):
        assert RampUp()(epoch) == pytest.approx(math.exp(-5 * (1 - epoch / 50) ** 2), rel=1e-15)
    assert RampUp()(0) == pytest.approx(0.006737947)
    assert RampUp()(50) == RampUp()(249) == RampUp(0)(0) == 1
    assert RampUp(10)(5) == pytest.approx(math.exp(-1.25))


def test_ramp_down() -> None:
    assert RampDown()(0) == RampDown()(200) == 1
    for epoch in range(200, 251):
        assert RampDown()(epoch) == pytest.approx(math.exp(-((0.5 * (epoch - 200)) ** 2) / 50), rel=1e-14)
    assert RampDown(10, 4)(10) == RampDown()(250) == pytest.approx(math.exp(-12.5))
    assert RampDown(10, 0)(10) == RampDown(10, 0)(11) == 1
    assert RampDown(10, 1)(9.5) == pytest.approx(math.exp(-12.5 / 4))
    assert RampDown(10, 10)(5) == pytest.approx(math.exp(-12.5 / 4))


def test_decay_and_constant() -> None:
    expected = 1.0
    for step in range(100):
        assert ExponentialDecay(0.9998)(step) == pytest.approx(expected, rel=1e-13)
        expected *= 0.9998
    assert Constant()(7) == 1
    assert Constant(0.3)(0) == 0.3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(math.nan), "value is nan"),
        (lambda: RampUp(-1), "length is -1, expected zero or a positive number of epochs"),
        (lambda: RampDown(0), "epochs is 0"),
        (lambda: RampDown(10, 11), "length is 11, expected between 0 and epochs = 10"),
        (lambda: ExponentialDecay(0), r"rate is 0, expected a number in \(0, 1\]"),
        (lambda: EMA(1.0), r"decay is 1.0, expected a number in \[0, 1\)"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("warm", [False, True])
def test_average_of_weights(warm: bool, rng: Any, put: Any) -> None:
    weights = [{"W": rng.standard_normal((2, 3)), "b": rng.standard_normal(2)} for _ in range(40)]
    ema = EMA(0.8, warm=warm)
    state, expected = ema.init(put(weights[0])), weights[0]
    for n, now in enumerate(weights[1:]):
        d = min(0.8, (1 + n) / (10 + n)) if warm else 0.8
        expected = {name: d * expected[name] + (1 - d) * now[name] for name in now}
        state = ema.update(state, put(now))
    assert_close(state.average, expected, 1e-14)
    assert state.updates == 39


def test_average_keeps_dtype_and_arguments(put: Any) -> None:
    ema, params = EMA(0.9), put({"W": np.ones(3, np.float32)})
    later = put({"W": np.zeros(3, np.float32)})
    state = ema.update(ema.init(params), later)
    assert {a.dtype for name, a in leaves(state.average)} == {np.dtype(np.float32)}
    assert_same_bits(params, {"W": np.ones(3, np.float32)})
    assert_close(state.average, {"W": np.full(3, 0.9, np.float32)}, 1e-6)


def test_without_a_word_the_average_is_over_a_thousand_updates(put: Any) -> None:
    state = EMA().update(EMA().init(put({"W": np.ones(3)})), put({"W": np.zeros(3)}))
    assert_close(state.average, {"W": np.full(3, 1 - 1 / 1000)}, 1e-14)
