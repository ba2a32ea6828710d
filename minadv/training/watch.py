r"""How strong the adversary of training is, along training: its D, over that of a search that spends far more passes.

A search that keeps up with its network has a share near 1. One that falls behind regularises less than its budget
says, whatever the weight of the regularizer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minadv.regularizers import AdD, Sum
from minadv.searches import Relax
from minadv.terms import Regularizer
from minadv.training.memory import Table, handed
from minadv.training.parallel.workers import Part

STRONG = Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4)
"""The search that is compared with: 12 forward and 5 backward passes."""

EXAMPLES = 32
"""About how many examples of a batch are looked at."""


def adversary(task: Any, params: Any, carry: Any, step: int) -> dict[str, float]:
    """The mean D that the task's own search finds in a part of the step's batch, and its share of the strong D.

    The strong D is the mean that `STRONG` finds for the same examples, or the own one where that is larger.
    """
    regularizer = task.regularizer
    count = max(1, task.load.examples * regularizer.group // EXAMPLES)
    given = {"weight": 1.0, "part": Part(0, count, STRONG.group)}  # the same examples for both searches
    own, _ = task.term(params, step, carry=handed(task, carry, step), **given)
    stronger = replace(task, regularizer=with_search(regularizer, STRONG))
    strong, _ = stronger.term(params, step, carry=None if isinstance(carry, Table) else carry, **given)
    found, best = float(own.trace.d.mean()), float(strong.trace.d.mean())
    return {"d": found, "strong": max(found, best), "share": found / max(found, best) if max(found, best) else 1.0}


def expect_adversary(regularizer: Any) -> None:
    """Raise ValueError unless a regularizer has an adversary to watch."""
    if not any(isinstance(part, AdD) for part in getattr(regularizer, "parts", (regularizer,))):
        raise ValueError(f"watch_adversary: {regularizer} has no adversary, expected AdD (--method add, last, add+vat)")


def with_search(regularizer: Regularizer, search: Any) -> Regularizer:
    """The regularizer with another search."""
    if isinstance(regularizer, Sum):
        return replace(regularizer, parts=tuple(with_search(part, search) for part in regularizer.parts))
    return replace(regularizer, search=search) if isinstance(regularizer, AdD) else regularizer
