r"""The scale of arrays of one's own: every input with the mean 0 and the deviation 1 of the training examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minadv.backend import Array


@dataclass(frozen=True)
class Scaling:
    """The mean and the deviation of each input."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, x: Array) -> Array:
        """Arrays ``(N, T, I)`` in these units, float64."""
        scaled: Array = (x.astype(np.float64) - np.array(self.mean)) / np.array(self.deviation)
        return scaled
