r"""Whether the state in a checkpoint is one that training can have written: numbers in their ranges, weights finite.

A checksum says that a file is as it was written, not that whoever wrote it told the truth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minadv.base.numbers import Number

UP_TO_STEP = ("best_step", "stale", "optimizer.steps", "optimizer.averaged", "ema.updates", "tally.2")
"""Scalars of a `minadv.training.loop.State` that are no more than its step."""


def expect_state(step: int, leaves: dict[str, Any]) -> None:
    """Raise ValueError, which names the first leaf that the state at a step cannot have."""
    expect_numbers(step, leaves)
    for name, value in leaves.items():
        if isinstance(value, np.ndarray) and not np.isfinite(value).all():
            raise ValueError(f"its {name} is not finite")


def expect_numbers(step: int, leaves: dict[str, Any]) -> None:
    """As `expect_state`, but weights may be NaN: whoever evaluates them says so."""
    for name, value in leaves.items():
        wrong = _wrong(name, value, step)
        if wrong is not None:
            raise ValueError(f"its {name} {wrong}")


def _wrong(name: str, value: Any, step: int) -> str | None:
    if isinstance(value, np.ndarray):
        return "is negative" if "mean_square" in name and (value < 0).any() else None
    if name == "step":
        return None if value == step else f"is {value}, expected {step}"
    if name in UP_TO_STEP:
        expected = Number(int, 0, step).wrong(value)
        return None if expected is None else f"is {value}, expected a whole number from 0 to {step:,}"
    if isinstance(value, float) and math.isnan(value):
        return "is nan, expected a number"
    return f"is {value}, expected zero or more" if isinstance(value, int) and value < 0 else None
