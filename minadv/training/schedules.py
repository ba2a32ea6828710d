r"""Schedules: factors of the learning rate or of a regularizer's weight, as functions of the epoch or the step.

A schedule is any function of one number; those here are frozen dataclasses, so that a configuration can hold and print
them. The epoch may be a fraction, for schedules that move within it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from minadv.base.numbers import Factor, Finite, Positive, Ramp
from minadv.base.schema import expect_fields

Schedule: TypeAlias = Callable[[float], float]


def expect_schedule(name: str, schedule: Schedule) -> None:
    """Raise ValueError for what cannot be called with one number; a function that does not tell may be right."""
    try:
        signature = inspect.signature(schedule)
    except ValueError:
        return
    try:
        signature.bind(None)  # one argument, whatever it is
    except TypeError as error:
        raise ValueError(f"{name} is {schedule!r}, expected a function of one number: {error}") from None


@dataclass(frozen=True)
class Constant:
    """The same value always."""

    value: Finite = 1.0

    def __post_init__(self) -> None:
        expect_fields(self)

    def __call__(self, at: float) -> float:
        return self.value


@dataclass(frozen=True)
class RampUp:
    r"""The weight of a regularizer over the first ``length`` epochs (Laine and Aila, 2017).

    .. math:: w(e) = \exp(-5 (1 - e/length)^2) \text{ before } length, \quad 1 \text{ from there on}

    It begins at :math:`e^{-5} = 0.0067`. A ``length`` of 0 is no ramp.
    """

    length: Ramp = 50.0

    def __post_init__(self) -> None:
        expect_fields(self)

    def __call__(self, epoch: float) -> float:
        if epoch >= self.length:
            return 1.0
        return math.exp(-5 * (1 - epoch / self.length) ** 2)


@dataclass(frozen=True)
class RampDown:
    r"""The learning rate over the last ``length`` of ``epochs`` epochs.

    .. math:: w(e) = \exp\left(-12.5 \left(\frac{e - (epochs - length)}{length}\right)^2\right), \quad 1 \text{ before}

    With the paper's 250 and 50 this is :math:`\exp(-(0.5 (e - 200))^2 / 50)`; written with ``length`` it keeps its
    shape in shorter runs, and ends at :math:`e^{-12.5}` in all of them. A ``length`` of 0 is no ramp.
    """

    epochs: Positive = 250.0
    length: Ramp = 50.0

    def __post_init__(self) -> None:
        expect_fields(self)
        if self.length > self.epochs:
            raise ValueError(f"length is {self.length}, expected between 0 and epochs = {self.epochs}")

    def __call__(self, epoch: float) -> float:
        if self.length == 0:
            return 1.0
        share = max(0, epoch - (self.epochs - self.length)) / self.length
        return math.exp(-12.5 * share**2)


@dataclass(frozen=True)
class ExponentialDecay:
    r"""A fixed factor a step: :math:`w(n) = rate^n`, as 0.9998 for the text classifier of the paper."""

    rate: Factor

    def __post_init__(self) -> None:
        expect_fields(self)

    def __call__(self, step: float) -> float:
        return math.pow(self.rate, step)
