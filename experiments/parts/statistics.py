r"""Differences between methods over seeds: paired, with bootstrap intervals, and corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

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
    means = d[stream(0, "bootstrap").integers(len(d), size=(DRAWS, len(d)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    p = 1.0 if not d.any() else 0.0 if not d.std() else float(stats.ttest_1samp(d, 0).pvalue)
    return Difference(float(d.mean()), float(low), float(high), p, len(d))


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's step-down method, in the order given."""
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, dtype=float)[order] * (len(p) - np.arange(len(p)))
    found = np.empty(len(p))
    found[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return [float(value) for value in found]
