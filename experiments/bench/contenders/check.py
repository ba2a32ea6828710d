r"""Whether a contender does the work that is timed: its results against the textbook version in float64.

The reference goes on with the masks that the contender went on with, so that one tie that is broken differently in
float32 does not hide what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from experiments.bench.contenders.problem import Outcome, Size, draw
from experiments.bench.contenders.textbook import Textbook
from minadv.backend import Array

TOLERANCES = {"loss": 1e-5, "map": 1e-3, "regret": 1e-3, "grads": 1e-4}
"""Errors that are accepted in float32: right results have a hundredth of them or less, a wrong term far more."""


def reference(size: Size, seed: int, K: int, used: Sequence[Array]) -> Outcome:
    """The textbook's results in float64, from the same float32 numbers, going on with these masks."""
    return Textbook(draw(size, seed, np.float64)).outcome(K, used)


def errors(found: Outcome, right: Outcome, budgets: Sequence[int]) -> dict[str, float]:
    """Relative errors of the loss, of the worst map and gradient, and the worst `regret` of a mask."""
    return {
        "loss": abs(found.loss - right.loss) / abs(right.loss),
        "map": max(relative(a, b) for a, b in zip(found.maps, right.maps, strict=True)),
        "regret": max(
            regret(own, best, im, budget)
            for own, best, im, budget in zip(found.flipped, right.flipped, right.maps, budgets, strict=True)
        ),
        "grads": max(relative(a, b) for a, b in zip(found.grads, right.grads, strict=True)),
    }


def relative(a: Array, b: Array) -> float:
    """The norm of a - b over the norm of b, the right one."""
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


def regret(own: Array, best: Array, im: Array, budget: int) -> float:
    """The gain, by the map, that the flips of ``own`` miss, as a share of the gain of ``best`` over the full mask.

    Infinite for a mask that is not binary or is beyond the budget.
    """
    binary = ((own == 0) | (own == 1)).all()
    if not binary or ((own == 0).sum(axis=1) > budget).any():
        return float("inf")
    gained = ((best - 1) * im).sum()
    lost = np.abs(((best - own.astype(np.float64)) * im).sum(axis=1)).sum()
    return float(lost / abs(gained))


class References:
    """The references of one problem, each made by ``make``, a function like `reference`, when it is first needed."""

    def __init__(self, size: Size, seed: int, make: Callable[[Size, int, int, Sequence[Array]], Outcome]) -> None:
        self.size, self.seed, self.make = size, seed, make
        self.known: dict[int, Outcome] = {}

    def masks(self, K: int) -> Sequence[Array] | None:
        """The masks that a contender should go on with, once there are any."""
        return self.known[K].used if K in self.known else None

    def errors(self, K: int, found: Outcome) -> dict[str, float]:
        right = self.known.get(K)
        if right is None or not all(np.array_equal(a, b) for a, b in zip(found.used, right.used, strict=True)):
            right = self.make(self.size, self.seed, K, found.used)
            self.known.setdefault(K, right)
        return errors(found, right, self.size.budgets(K))


def wrong(found: dict[str, float]) -> list[str]:
    """The errors that are beyond their tolerance, in words; NaN is beyond any."""
    return [
        f"{name} is off by {value:.1e}, expected at most {TOLERANCES[name]:.0e}"
        for name, value in found.items()
        if not value <= TOLERANCES[name]
    ]
