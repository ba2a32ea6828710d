r"""The largest distance within a budget of flips, to which searches are compared: exact, or the best that is known.

`exact` enumerates all masks of a classifier, several distances at once. Where these are too many, `Climb` looks for
the best mask with thousands of passes: it climbs from the results of several searches, and from random masks, by
exchanges of one unit until no exchange of any example helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from minadv import bounds, distances, masks
from minadv.backend import Array
from minadv.base.shared_draws import Rng
from minadv.models.classifier import Batch, Classifier
from minadv.objective import Masks, Objective, Search, Visit, best
from minadv.searches import Random, Relax, Reselect

AT_ONCE = 32
"""Masks that are run together, as one batch of so many copies of the examples."""


def exact(
    model: Classifier,
    params: Any,
    batch: Batch,
    budgets: Mapping[str, int],
    *,
    scale: masks.Scale,
    names: Sequence[str],
) -> dict[str, Array]:
    """The largest distance of each of these names, (B,) each, as a search `Exact` for it finds: one enumeration."""
    base = bounds.base_output(model, params, batch)[-1]  # (B, C)
    found = {name: np.zeros(len(batch)) for name in names}
    balls = [bounds.ball(np.ones(model.n_hidden), budget).astype(base.dtype) for budget in budgets.values()]
    every = list(product(*(range(len(ball)) for ball in balls)))
    for n in range(0, len(every), AT_ONCE):
        rows = np.array(every[n : n + AT_ONCE])  # (M, sites): which masks
        copies = Batch(np.tile(batch.x, (1, len(rows), 1)), None)
        eps = (np.repeat(ball[rows[:, k]], len(batch), axis=0) for k, ball in enumerate(balls))
        given = {site: masks.scale(e, scale) for site, e in zip(budgets, eps, strict=True)}
        features, _, _ = model.body(params, copies, masks=given, noise=None)
        logits = model.logits(params, features)[-1].reshape(len(rows), *base.shape)
        for name, most in found.items():
            d = distances.by_name(name)(np.broadcast_to(base, logits.shape), logits)[0]  # (M, B)
            np.maximum(most, d.max(axis=0), out=most)
    return found


@dataclass(frozen=True)
class Climb(Search):
    """The best mask that hill climbing finds from the results of several searches.

    A step of the climb tries, for every example, all exchanges of a flipped unit for another one, at each site, and all
    removals of one; where the budget has room, all additions. Each example moves to the best of them, until none moves.
    """

    starts: tuple[Search, ...] = (
        Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4),
        Reselect(K=3, swaps=4),
        *(Random(),) * 2,
    )
    name = "climb"

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        tops = []
        for search in self.starts:
            start = search.first(objective.eps0, objective.budgets, rng)
            visits = search.run(objective, None if start is None else objective.influence(start), rng)
            tops.append(climbed(objective, search.result(visits)))
        return tuple(tops)


def climbed(objective: Objective, top: Visit) -> Visit:
    """The mask of each example after the climb from ``top``, and its distance."""
    while True:
        before = top.d
        assert before is not None
        tried = list(neighbours(objective, top.eps))
        for n in range(0, len(tried), AT_ONCE):
            some = tried[n : n + AT_ONCE]
            top = best([top, *map(Visit, some, objective.scores(some))])
        assert top.d is not None
        if bool((top.d == before).all()):
            return top


def neighbours(objective: Objective, eps: Masks) -> Iterator[Masks]:
    """Masks in which each example has one unit less, one in exchange for another, or, within the budget, one more."""
    for name, mask in eps.items():
        e, (B, H) = objective.eps0[name], mask.shape
        flipped = mask != e
        order = np.argsort(~flipped, axis=1, kind="stable")  # flipped units first
        rows = np.arange(B)
        for j in range(objective.budgets[name]):
            less = mask.copy()
            leaves = order[:, j]  # an example that flips no more than j units keeps them all
            less[rows, leaves] = e[rows, leaves]
            yield {**eps, name: less}
            for unit in range(H):
                other = less.copy()
                other[:, unit] = np.where(flipped[:, unit], mask[:, unit], 1 - e[:, unit])
                yield {**eps, name: np.where(flipped[:, unit, None], mask, other)}
