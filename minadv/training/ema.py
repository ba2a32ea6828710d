r"""The exponential moving average of the weights: a smoother copy to evaluate with.

.. math:: \bar\theta \leftarrow d\,\bar\theta + (1 - d)\,\theta

Gradients are taken at :math:`\theta`, evaluations made with :math:`\bar\theta`; training does not see the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minadv.base.numbers import Decay
from minadv.base.schema import expect_fields
from minadv.base.trees import tree_map


@dataclass(frozen=True)
class EMAState:
    """The average, a tree like the parameters, and the number of updates that made it."""

    average: Any
    updates: int


@dataclass(frozen=True)
class EMA:
    r"""An average over about the last :math:`1 / (1 - d)` updates, begun at the initial weights.

    With ``warm`` the :math:`n`-th update (:math:`n` from 0) uses :math:`\min(d, (1 + n)/(10 + n))`, which forgets the
    initial weights within a few updates, as TensorFlow does when it is told the number of updates.
    """

    decay: Decay = 0.999
    warm: bool = False

    def __post_init__(self) -> None:
        expect_fields(self)

    def init(self, params: Any) -> EMAState:
        """The weights themselves."""
        return EMAState(params, 0)

    def update(self, state: EMAState, params: Any) -> EMAState:
        """The average after one more training step."""
        n = state.updates
        decay = min(self.decay, (1 + n) / (10 + n)) if self.warm else self.decay
        return EMAState(tree_map(lambda a, p: a + (1 - decay) * (p - a), state.average, params), n + 1)
