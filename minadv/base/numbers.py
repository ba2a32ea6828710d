r"""Every number that a user can give has a type and a range, and both are its annotation.

::

    class Recipe:
        steps: Steps            # Annotated[int, Number(int, 1, 2**32 - 1)]
        patience: Few | None

A type checker sees ``int`` or ``float``. The command line makes its options of these types (`Number.read`), records
check their fields against them (`minadv.base.schema.expect_fields`), and so do the configurations of runs: one table
for the three. The upper ends keep a slip of the keyboard from running for years; a size that is allowed here may still
be more than a machine has, which `minadv.tasks.needs` says.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np


def as_python(value: Any) -> Any:
    """A number of NumPy as Python's; anything else as it is."""
    for kinds, python in ((np.bool_, bool), (np.integer, int), (np.floating, float)):
        if isinstance(value, kinds):
            return python(value)
    return value


@dataclass(frozen=True)
class Number:
    """A kind of number: whole or not, its least and its largest value, and what it is called in errors."""

    kind: type[int] | type[float]
    least: float
    most: float = sys.float_info.max
    about: str = ""

    def __str__(self) -> str:
        if self.about:
            return self.about
        what = "whole number" if self.kind is int else "number"
        if self.least < 0:
            return f"a {what}"
        return f"zero or a positive {what}" if self.least == 0 else f"a positive {what}"

    def wrong(self, value: Any) -> str | None:
        """What was expected in the place of a value; None if it fits."""
        kinds = (int, np.integer) if self.kind is int else (int, float, np.integer, np.floating)
        if isinstance(value, bool | np.bool_) or not isinstance(value, kinds):
            return self._needed()
        value = as_python(value)  # a number of 32 bits would overflow below
        if value > self.most and value != math.inf and self.most > 1:
            return f"at most {self.most:,}"
        if not self.least <= value <= self.most:
            return self._needed()
        return None

    def _needed(self) -> str:
        known = self.kind is int and math.isfinite(self.least)
        return f"a whole number of at least {self.least:,}" if known else str(self)

    def read(self, text: str) -> int | float:
        """The number that a text stands for; the ValueError for another text says what is expected."""
        try:
            value = self.kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {self}") from None
        expected = self.wrong(value)
        if expected is not None and expected.startswith("at most"):
            raise ValueError(f"{text!r} is too large, expected {expected}")
        if expected is not None:
            raise ValueError(f"{text!r} is not {self}")
        return value


Seed: TypeAlias = Annotated[int, Number(int, 0, 2**64 - 1)]
"""The seed of a run."""

Count: TypeAlias = Annotated[int, Number(int, 0, 10**9)]
"""How many of something there are, perhaps none."""

Size: TypeAlias = Annotated[int, Number(int, 1, 10**9)]
"""Units, words, examples, columns: what takes memory."""

Two: TypeAlias = Annotated[int, Number(int, 2, 10**9, "a whole number of at least 2")]
"""A size of at least two: classes, words of a vocabulary."""

Steps: TypeAlias = Annotated[int, Number(int, 1, 2**32 - 1)]
"""Steps of training: random streams have that many places (`minadv.base.streams.stream`)."""

Few: TypeAlias = Annotated[int, Number(int, 1, 1000)]
"""What is done one after the other in every step: layers, influence maps, workers."""

Extra: TypeAlias = Annotated[int, Number(int, 0, 1000)]
"""What a search may do beside what it does always, perhaps nothing: swaps, tries."""

Many: TypeAlias = Annotated[int, Number(int, 1, 10**6)]
"""What is done or remembered one by one over a run: evaluations, generated words."""

Finite: TypeAlias = Annotated[float, Number(float, -sys.float_info.max)]
"""Any number but infinity and NaN."""

ZeroOrMore: TypeAlias = Annotated[float, Number(float, 0)]
"""A decay, a limit that may be none."""

Weight: TypeAlias = Annotated[float, Number(float, 0, 10**6)]
"""The weight of a term in the loss."""

Positive: TypeAlias = Annotated[float, Number(float, math.ulp(0), about="a positive number")]
"""A norm, a factor."""

Rate: TypeAlias = Annotated[float, Number(float, math.ulp(0), 10**6, "a positive number")]
"""A learning rate."""

Epochs: TypeAlias = Annotated[float, Number(float, math.ulp(0), 10**9, "a positive number")]
"""A length of training, in passes over the data."""

Ramp: TypeAlias = Annotated[float, Number(float, 0, about="zero or a positive number of epochs")]
"""A part of a training's length, perhaps none of it."""

BELOW_ONE = math.nextafter(1, 0)
Probability: TypeAlias = Annotated[
    float, Number(float, 0, BELOW_ONE, "a probability from 0 up to, but not including, 1")
]
"""Of dropping a unit, a word, a weight."""

Delta: TypeAlias = Annotated[float, Number(float, 0, 1, "a share of the units from 0 to 1")]
"""The budget of an adversary."""

Decay: TypeAlias = Annotated[float, Number(float, 0, BELOW_ONE, "a number in [0, 1)")]
"""What is kept of an average at every step."""

Factor: TypeAlias = Annotated[float, Number(float, math.ulp(0), 1, "a number in (0, 1]")]
"""What multiplies something again and again, without raising it."""

Portion: TypeAlias = Annotated[float, Number(float, 0, 1, "a share from 0 to 1")]
"""A part of a whole, perhaps none or all of it."""

Share: TypeAlias = Annotated[float, Number(float, math.ulp(0), BELOW_ONE, "more than 0 and less than 1")]
"""A part of a whole."""


def number_of(kind: Any) -> Number:
    """The `Number` of one of the types above."""
    found: Number = kind.__metadata__[0]
    return found
