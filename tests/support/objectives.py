"""An objective to ask questions of, and a classifier whose readout is linear in its mask with any coefficients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minadv import rnn
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.models import Batch, Classifier
from minadv.models.classifier import Params
from minadv.objective import Objective, Visit
from minadv.searches import Search

READOUT = "readout"


@dataclass(frozen=True)
class _Peek(Search):
    """A search that keeps the objective that it is given, and looks at the base mask only."""

    seen: list[Objective] = field(default_factory=list)
    name = "peek"

    def run(self, objective: Objective, first: Visit | None, rng: Any) -> tuple[Visit, ...]:
        self.seen.append(objective)
        return (Visit(objective.eps0, objective.score(objective.eps0)),)


def objective(net: Sequence[Any], **attack: Any) -> Objective:
    """What `find_adversary` hands to a search of this network, with its base pass run."""
    peek = _Peek()
    find_adversary(*net, search=peek, **attack)
    return peek.seen[0]


def linear_readout(put: Callable[[Any], Any], weights: Any, bias: Any) -> tuple[Classifier, Any, Batch]:
    """One example whose logits are ``bias + m @ weights`` for the mask m of the readout: ``(H, C)`` and ``(C,)``.

    The cell makes the state ½ of its one input, and the softmax reads it with twice the weights.
    """
    weights, bias = np.asarray(weights, float), np.asarray(bias, float)
    H, C = weights.shape
    cell = rnn.Params(np.eye(H), np.zeros((H, H)), np.zeros(H))
    batch = Batch(np.full((1, 1, H), np.arctanh(0.5)), np.zeros(1, dtype=int), None)
    return Classifier(H, H, C, cell="rnn"), put(Params((cell,), 2 * weights, bias)), put(batch)


def dropping(put: Callable[[Any], Any], H: int, units: Sequence[int]) -> dict[str, Any]:
    """The mask of one example's readout that drops these units."""
    eps = np.ones((1, H))
    eps[:, list(units)] = 0
    return {READOUT: put(eps)}


def dropped(eps: dict[str, Any]) -> list[int]:
    """The units that the mask of one example's readout drops."""
    return np.flatnonzero(to_host(eps[READOUT])[0] == 0).tolist()
