r"""Relax: a search without luck, which takes its influence map on the way to the mask instead of at its beginning.

Dropping a unit is not a small step. The map at the base mask is zero, the one at a random flip knows that flip's side
only, and no map at either knows how the units of the mask act together. `Relax` therefore looks in three places:

1. **The margin.** One backward pass through the base pass itself gives the gradient of the log-odds of the prediction,
   which is not zero there. An example is moved to the side, less sure or surer, that promises the larger distance.
2. **A relaxed mask.** The L b units that this ranks first are flipped by 1/L each, and the influence map is taken
   there: Eq. 6 holds for a fractional mask as for a binary one. The top b of that map are the mask.
3. **Neighbours of the mask**, each for one pass more: the set that the map ranks second, the mask of another example,
   and exchanges of one unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from minadv import masks
from minadv.backend import Array, namespace
from minadv.base.numbers import Extra, Few
from minadv.base.schema import expect_fields
from minadv.base.shared_draws import Rng
from minadv.flip import flip
from minadv.objective import Masks, Objective, Search, Visit, best

GROUP = 16
"""Examples that may borrow from each other: that many neighbours in the batch, counted from its first."""


@dataclass(frozen=True)
class Relax(Search):
    r"""The search of this file; it draws nothing, and finds the same mask whatever the seed.

    ``stages`` are the L of the relaxed masks, one map after the other. ``reselect`` is how often the map is taken again
    at the whole mask, and the top b chosen afresh from eps0. ``runner_up`` also tries the set that the last map ranks
    second. ``borrow`` tries the masks of that many other examples: of those among `GROUP` neighbours that have the same
    predicted class, the ones that were moved furthest. ``swaps`` takes the map at the best mask, and tries that many
    exchanges of one unit (or all that there are), the most promising first. ``keep="last"`` returns the mask of step 2
    unscored.

    Passes: 1 + S + reselect backward and S + reselect + 1 forward for S stages (one forward less with ``keep="last"``);
    one forward more for the runner-up and for each borrowed mask; swaps add 1 + swaps forward and 1 backward.
    """

    stages: tuple[Few, ...] = (2,)
    reselect: Extra = 0
    runner_up: bool = True
    borrow: Extra = 0
    swaps: Extra = 0
    keep: Literal["best", "last"] = "best"
    name = "relax"

    def __post_init__(self) -> None:
        if not isinstance(self.stages, tuple):
            raise ValueError(f"stages is {self.stages!r}, expected a tuple of whole numbers, such as (2,) or (4, 2)")
        expect_fields(self)
        scored = [f"{name}={getattr(self, name)}" for name in ("runner_up", "borrow", "swaps") if getattr(self, name)]
        if self.keep == "last" and scored:
            needed = "runner_up=False, borrow=0 and swaps=0"
            raise ValueError(f'keep="last" scores no mask, which {", ".join(scored)} would need: expected {needed}')

    @property
    def group(self) -> int:
        return GROUP if self.borrow else 1

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        visits: list[Visit] = []
        im = margin_map(objective)
        for L in self.stages:
            visits.append(replace(objective.influence(relaxed(objective, im, L)), relaxed=L > 1))
            im = visits[-1].im or {}
        eps = objective.select(im)
        for _ in range(self.reselect):
            visits.append(objective.influence(eps))
            im = visits[-1].im or {}
            eps = objective.select(im)
        if self.keep == "last":
            return (*visits, Visit(eps, None))
        tried = [eps, runner_up(objective, im)] if self.runner_up else [eps]
        visits += [Visit(eps, d) for eps, d in zip(tried, objective.scores(tried), strict=True)]
        if self.borrow:
            top = best(visits)
            visits += [Visit(eps, objective.score(eps)) for eps in borrowed(objective, top, self.borrow)]
        if self.swaps:
            visits.append(objective.influence(best(visits).eps))
            visits += [Visit(eps, objective.score(eps)) for eps in exchanged(objective, visits[-1], self.swaps)]
        return tuple(visits)

    def result(self, visits: Sequence[Visit]) -> Visit:
        return visits[-1] if self.keep == "last" else best(visits)


def margin_map(objective: Objective) -> Masks:
    r"""The gradient of the base pass's log-odds to eps, signed towards the side that promises the larger distance.

    The b units that raise the log-odds z most change them by about :math:`\Delta`, and so do the b that lower them.
    What a side promises is the distance of two predictions over two classes, of the log-odds z and
    :math:`z + \Delta`. Equal promises go to the side that is less sure.
    """
    dm, p = objective.margin()
    xp = namespace(p)
    im = {n: masks.scale_backward(e, dm[n], objective.scale, p=objective.p) for n, e in objective.eps0.items()}
    p = p.astype(np.float64)
    z = xp.log(p) - xp.log(xp.maximum(1 - p, xp.finfo(p.dtype).eps))
    promises = []
    for side in (-1, 1):
        m = objective.seen(objective.select(im, side))
        change = sum((dm[n] * (m[n] - objective.m0.get(n, 1))).sum(axis=1) for n in im)
        before, after = (xp.stack([odds, xp.zeros_like(z)], axis=-1) for odds in (z, z + change))
        promises.append(objective.distance(before, after)[0])
    surer = (promises[1] > promises[0])[:, None]  # (B, 1)
    return {n: xp.where(surer, g, -g) for n, g in im.items()}


def relaxed(objective: Objective, im: Masks, L: int) -> Masks:
    """eps0 with the L b units of largest gain, or as many as gain anything, flipped by 1/L each."""
    eps = {}
    for name, e in objective.eps0.items():
        units = min(L * objective.budgets[name], e.shape[1])
        eps[name] = e + (flip(e, im[name], e, units) - e) / L
    return eps


def runner_up(objective: Objective, im: Masks) -> Masks:
    """The mask that promises most after `Objective.select`'s, of those that flip a unit which it does not.

    At the site where that costs least, the unit of the next gain is flipped; where the budget is spent, the unit of the
    least gain gives up its place. The mask is that of `Objective.select` where every unit is flipped already.
    """
    tried, costs = {}, []
    selected = objective.select(im)
    for name, e in objective.eps0.items():
        xp, (B, H) = namespace(e), e.shape
        gain = (1 - 2 * e) * im[name]
        order = xp.argsort(-gain, axis=1, kind="stable")
        n, rows = (selected[name] != e).sum(axis=1), xp.arange(B)  # n units are flipped, the first of the order
        enters, leaves = order[rows, xp.minimum(n, H - 1)], order[rows, xp.maximum(n - 1, 0)]
        full, room = n == objective.budgets[name], n < H
        columns = xp.arange(H)
        flips = (columns == enters[:, None]) | ((columns == leaves[:, None]) & full[:, None])
        tried[name] = xp.where(flips & room[:, None], 1 - selected[name], selected[name])
        cost = xp.where(full, gain[rows, leaves], 0) - gain[rows, enters]
        costs.append(xp.where(room, cost, np.inf))
    cheapest = xp.stack(costs).argmin(axis=0)  # (B,), among the sites
    return {n: xp.where((cheapest == k)[:, None], tried[n], selected[n]) for k, n in enumerate(tried)}


def borrowed(objective: Objective, top: Visit, times: int) -> Iterator[Masks]:
    """The flips of other examples that were moved far, each with other flips than ``top`` and than those before it.

    A lender is one of the `GROUP` neighbours, of the same predicted class where the model has ``logits`` to tell; an
    example that finds none keeps its own mask.
    """
    assert top.d is not None
    xp, B = namespace(top.d), len(top.d)
    flips = {n: top.eps[n] != e for n, e in objective.eps0.items()}
    group = xp.arange(B) // GROUP
    may = group[:, None] == group  # (B, B): whether the one may borrow from the other
    predicted = objective.predicted()
    if predicted is not None:
        may &= predicted[:, None] == predicted
    same = _equal(flips)
    may &= ~same
    for _ in range(times):
        lender = xp.where(may, top.d, -np.inf).argmax(axis=1)  # (B,)
        found = may[xp.arange(B), lender][:, None]
        yield {
            n: xp.where(found & flips[n][lender], 1 - e, xp.where(found, e, top.eps[n]))
            for n, e in objective.eps0.items()
        }
        may &= ~same[lender]


def _equal(flips: Masks) -> Array:
    """(B, B): whether two examples flip the same units, at every site."""
    xp = namespace(*flips.values())
    joined = xp.concatenate([f.astype(np.float32) for f in flips.values()], axis=1)
    shared, n = joined @ joined.T, joined.sum(axis=1)  # whole numbers; (B, B, H) would be too much of a large batch
    return (shared == n) & (shared == n[:, None])  # type: ignore[no-any-return]


def exchanged(objective: Objective, top: Visit, times: int) -> Iterator[Masks]:
    """``top`` with a flipped unit in exchange for another: the exchanges that the map at ``top`` promises most of.

    Both units are of one site. An example that has fewer exchanges than ``times`` keeps its mask after its last one.
    """
    assert top.im is not None
    leaves, enters, promises = [], [], []  # of each exchange, (B,): two units, counted over all sites, and its worth
    before, ends = 0, []  # units of the sites before, and up to the end of each
    for name, e in objective.eps0.items():
        xp, flipped, rows = namespace(e), top.eps[name] != e, namespace(e).arange(len(e))
        gain = (1 - 2 * e) * top.im[name]
        weakest = xp.argsort(xp.where(flipped, gain, np.inf), axis=1, kind="stable")
        strongest = xp.argsort(xp.where(flipped, np.inf, -gain), axis=1, kind="stable")
        for j in range(min(times, objective.budgets[name], e.shape[1] - 1)):
            for q in range(min(times, e.shape[1])):
                out, into = weakest[:, j], strongest[:, q]
                possible = flipped[rows, out] & ~flipped[rows, into]
                promises.append(xp.where(possible, gain[rows, into] - gain[rows, out], -np.inf))
                leaves.append(before + out)
                enters.append(before + into)
        before += e.shape[1]
        ends.append(before)
    if not promises:
        return
    worth, out, into = xp.stack(promises), xp.stack(leaves), xp.stack(enters)
    order = xp.argsort(-worth, axis=0, kind="stable")  # (exchanges, B)
    units = xp.arange(before)
    for best_left in order[:times]:
        pair = (units == out[best_left, rows][:, None]) | (units == into[best_left, rows][:, None])
        moved = pair & (worth[best_left, rows] > -np.inf)[:, None]  # (B, units of all sites)
        parts = zip(top.eps.items(), xp.split(moved, ends[:-1], axis=1), strict=True)
        yield {n: xp.where(part, 1 - mask, mask) for (n, mask), part in parts}
