r"""Differences between methods over seeds: paired, with bootstrap intervals, and corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

from minadv.backend import Array
from minadv.base.streams import stream

DRAWS = 10_000


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, one a seed; its 95 % interval by bootstrap, and p of a paired t-test."""

    mean: float
    low: float
    high: float
    p: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Difference:
    """How much larger ``one`` is than ``other``; both are by seed and must have the same seeds."""
    if set(one) != set(other) or len(one) < 2:
        raise ValueError(f"seeds are {sorted(one)} and {sorted(other)}, expected the same, two at least")
    d = np.array([one[seed] - other[seed] for seed in sorted(one)])
    low, high = interval(d)
    rounding = 64 * np.finfo(float).eps * max(abs(value) for by_seed in (one, other) for value in by_seed.values())
    if np.ptp(d) > rounding:
        p = float(stats.ttest_1samp(d, 0).pvalue)
    else:  # equal differences have no t; by their signs alone, 2 of 2^n are as far from zero
        p = 2.0 ** (1 - len(d)) if abs(d).max() > rounding else 1.0
    return Difference(float(d.mean()), float(low), float(high), p, len(d))


def interval(d: Array, draws: int = DRAWS) -> Array:
    """The 95 % interval of the mean of differences ``(..., n)`` by bootstrap: its ends ``(2, ...)``."""
    n = d.shape[-1]
    drawn = np.zeros((draws, n))  # how often each draw has each difference
    np.add.at(drawn, (np.arange(draws)[:, None], stream(0, "bootstrap").integers(n, size=(draws, n))), 1)
    ends: Array = np.quantile(d @ drawn.T / n, [0.025, 0.975], axis=-1)
    return ends


@cache
def coverage(n: int, trials: int = 8000, draws: int = 2000) -> float:
    """How often the interval of n normal differences has their true mean in it, by simulation; it says 0.95."""
    low, high = interval(stream(0, "coverage").normal(size=(trials, n)), draws)
    return float(((low <= 0) & (high >= 0)).mean())


def detectable(n: int, comparisons: int) -> tuple[float, float]:
    """How large a mean of n differences, in their standard deviations, a t-test at 5 % tells from zero.

    By Holm's method: the first, which is the largest of so many, and the last, when all others are told from zero.
    """
    first, last = (stats.t.ppf(1 - 0.025 / m, n - 1) / n**0.5 for m in (comparisons, 1))
    return float(first), float(last)


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's step-down method, in the order given."""
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, dtype=float)[order] * (len(p) - np.arange(len(p)))
    found = np.empty(len(p))
    found[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return [float(value) for value in found]
