r"""The searches for the adversarial mask: small frozen records of their own options, over one objective.

`Greedy` is the paper's (Eq. 7, 8). minadv's own are stronger: `Reselect`, `minadv.relax.Relax` for about the price of
the paper's with K = 2, and `minadv.memory.Memory` for training. `Exact` tries every mask, for small networks; `Random`
is the baseline. `minadv.adversary.find_adversary` runs any of them, and `by_name` makes one from the names and options
of the command line.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minadv import masks
from minadv.backend import Array, namespace
from minadv.base.checks import expect_choice
from minadv.base.numbers import Extra, Few, Many, Size
from minadv.base.schema import expect_fields
from minadv.base.shared_draws import Rng
from minadv.flip import flip
from minadv.memory import Memory as Memory
from minadv.objective import Masks, Objective, Visit, best
from minadv.objective import Search as Search
from minadv.relax import Relax as Relax


class SmallBudgetWarning(UserWarning):
    """With a budget of one flip and a random start, the mask is almost random."""


@dataclass(frozen=True)
class Greedy(Search):
    r"""The paper's search: K times, the influence map at the current mask, then a flip within a growing budget (Eq. 8).

    It starts one random flip away from the base mask (``start="flip"``, counted against the budget), or at the base
    mask itself (``"base"``, where another noise must differ between the passes). The budget after step k = 0, 1, ... is
    :math:`\lceil (k+1) b / K \rceil`. ``keep="best"`` scores the last mask too and returns the best one visited,
    example by example; ``"last"`` returns the last one, unscored, as the paper trains.

    ``rule`` is that of `minadv.flip.flip`, with ``allow_unflip`` for ``"strict"``, ``norm`` for ``"paper"`` and
    ``variant`` for ``"authors"``. Passes: K + 1 forward (K where the last mask is not scored), K backward.
    """

    K: Few = 1
    rule: Literal["strict", "paper", "authors"] = "strict"
    norm: Literal["count", "l2"] | None = None
    variant: Literal["smnist", "text"] | None = None
    allow_unflip: bool | None = None
    start: Literal["flip", "base"] = "flip"
    keep: Literal["best", "last"] = "best"
    name = "greedy"

    def __post_init__(self) -> None:
        expect_fields(self)
        for option, owner in (("norm", "paper"), ("variant", "authors"), ("allow_unflip", "strict")):
            value = getattr(self, option)
            if value is not None and self.rule != owner:
                raise ValueError(f'{option} is {value!r}, which rule="{owner}" takes, and rule is "{self.rule}"')

    def first(self, eps0: Masks, budgets: Mapping[str, int], rng: Rng | None) -> Masks:
        if self.start == "flip" and 1 in budgets.values():
            warnings.warn(
                "a budget of 1 is spent by the random start itself, so that the mask is almost random: "
                "raise delta, or use search=Reselect() (--search reselect)",
                SmallBudgetWarning,
                stacklevel=3,
            )
        return first_mask(self, eps0, rng)

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        assert first is not None
        visits: list[Visit] = []
        eps = first.eps
        for k in range(self.K):
            visits.append(first if k == 0 else objective.influence(eps))
            eps = self._flipped(visits[-1], objective.eps0, self._budgets(objective.budgets, k))  # Eq. 8
        visits.append(Visit(eps, objective.score(eps) if self.keep == "best" else None))
        return tuple(visits)

    def result(self, visits: Sequence[Visit]) -> Visit:
        return visits[-1] if self.keep == "last" else best(visits)

    def _flipped(self, visit: Visit, eps0: Masks, budgets: Mapping[str, int]) -> Masks:
        """Flip each site within its own budget; a unit is ranked among those of its own site."""
        assert visit.im is not None
        fields = {"allow_unflip": self.allow_unflip, "norm": self.norm, "variant": self.variant}
        options: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        return {n: flip(e, visit.im[n], eps0[n], budgets[n], rule=self.rule, **options) for n, e in visit.eps.items()}

    def _budgets(self, budgets: Mapping[str, int], k: int) -> dict[str, int]:
        """What step k may spend: cumulative, except that the released code's rule counts each step anew."""
        if self.rule == "authors":
            rest = {n: b - (self.K - 1) * (b // self.K) for n, b in budgets.items()}
            return {n: b // self.K if k < self.K - 1 else rest[n] for n, b in budgets.items()}
        return {n: math.ceil((k + 1) * b / self.K) for n, b in budgets.items()}


@dataclass(frozen=True)
class Reselect(Search):
    r"""minadv's own search: two-sided, and then re-selecting. It takes K influence maps.

    Near eps0 the distance is quadratic, :math:`D \approx \frac12 d^\top F d`, so that the map at one random flip tells
    the other units' influence only up to one common sign. **Two-sided**: flip the b units with the largest gains, or
    the b with the largest negated gains; run both masks and keep the better, example by example. **Re-selection**: take
    the map at that full mask, choose all b units afresh from eps0, and repeat. **Swaps**: at the best mask, try the
    ``swaps`` strongest outsiders in the place of each flipped unit. ``start`` is as in `Greedy`.

    Where the logits are linear in the mask (the site ``readout``) and the distance is convex in the perturbed logits
    (``kl``, ``logit2``), re-selection is a conditional-gradient step on a convex function, ConGradU of Luss and
    Teboulle (SIAM Review 55, 2013): it never decreases D, and a maximiser is a fixed point up to ties. For other
    distances it can lose (docs/theorems.md), so the best mask visited is kept.

    Passes: K + 3 forward (3 for K = 1), K backward; swaps add 1 + b * swaps forward and 1 backward.
    """

    K: Few = 2
    swaps: Extra = 0
    start: Literal["flip", "base"] = "flip"
    name = "reselect"

    def __post_init__(self) -> None:
        expect_fields(self)

    def first(self, eps0: Masks, budgets: Mapping[str, int], rng: Rng | None) -> Masks:
        return first_mask(self, eps0, rng)

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        assert first is not None and first.im is not None
        sides = [objective.select(first.im, sign) for sign in (1, -1)]
        scored = [Visit(eps, d) for eps, d in zip(sides, objective.scores(sides), strict=True)]
        visits = [first, *scored]
        if self.K > 1:
            eps = best(scored).eps
            for _ in range(self.K - 1):
                visits.append(objective.influence(eps))
                eps = objective.select(visits[-1].im or {})
            visits.append(Visit(eps, objective.score(eps)))
        if self.swaps:
            top = objective.influence(best(visits).eps)
            visits.append(top)
            visits += [Visit(eps, objective.score(eps)) for eps in _swapped(objective, top, self.swaps)]
        return tuple(visits)


def _swapped(objective: Objective, top: Visit, swaps: int) -> Iterator[Masks]:
    """Masks in which one flipped unit, weakest first, gives its place to one of the strongest outsiders."""
    assert top.im is not None
    for name, mask in top.eps.items():
        xp = namespace(mask)
        eps0 = objective.eps0[name]
        flipped = mask != eps0
        gain = (1 - 2 * eps0) * top.im[name]  # (B, H), what flipping each unit of eps0 gains
        weakest = xp.argsort(xp.where(flipped, gain, np.inf), axis=1, kind="stable")
        strongest = xp.argsort(xp.where(flipped, np.inf, -gain), axis=1, kind="stable")
        rows = xp.arange(mask.shape[0])
        for j in range(objective.budgets[name]):
            for q in range(min(swaps, mask.shape[1] - objective.budgets[name])):
                candidate = mask.copy()
                out, into = weakest[:, j], strongest[:, q]
                candidate[rows, out] = eps0[rows, out]  # changes nothing where fewer than j + 1 units are flipped
                candidate[rows, into] = 1 - eps0[rows, into]
                yield {**top.eps, name: candidate}


@dataclass(frozen=True)
class Exact(Search):
    """Every mask within the budget, for small networks. Passes: one forward for each of at most ``max_masks`` masks."""

    max_masks: Size = 200_000
    name = "exact"

    def __post_init__(self) -> None:
        expect_fields(self)

    def expect_budgets(self, budgets: Mapping[str, int], units: Mapping[str, int]) -> None:
        n = math.prod(ball_size(units[name], budget) for name, budget in budgets.items())
        if n > self.max_masks:
            raise ValueError(
                f"an exact search would run {n:,} masks, more than max_masks = {self.max_masks:,}: "
                "lower the budget, raise max_masks (--max-masks), or use search=Reselect() (--search reselect)"
            )

    def first(self, eps0: Masks, budgets: Mapping[str, int], rng: Rng | None) -> None:
        if rng is not None:
            _draw_unused_flip(eps0, rng)

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        names = list(objective.eps0)
        balls = [list(_ball(objective.eps0[n].shape[1], objective.budgets[n])) for n in names]
        top: Visit | None = None
        for units in itertools.product(*balls):
            eps = {n: _flipped(objective.eps0[n], u) for n, u in zip(names, units, strict=True)}
            visit = Visit(eps, objective.score(eps))
            top = visit if top is None else best([top, visit])
        assert top is not None
        return (top,)


def _draw_unused_flip(eps0: Masks, rng: Rng) -> None:
    """Draw the random start that version 0.1 drew for every search: a seed then finds the same masks as it did."""
    for eps in eps0.values():
        masks.one_flip(rng, eps)


def ball_size(H: int, budget: int) -> int:
    """The number of masks within ``budget`` flips of a mask of ``H`` units; more than 64 flips are not counted."""
    return sum(math.comb(H, k) for k in range(min(budget, 64) + 1))  # past 64 the number is beyond all use


def _ball(H: int, budget: int) -> Iterator[tuple[int, ...]]:
    """The sets of at most ``budget`` units, smaller sets first."""
    return itertools.chain.from_iterable(itertools.combinations(range(H), k) for k in range(budget + 1))


def _flipped(eps0: Array, units: tuple[int, ...]) -> Array:
    eps = eps0.copy()
    columns = list(units)
    eps[:, columns] = 1 - eps[:, columns]
    return eps


@dataclass(frozen=True)
class Random(Search):
    """The best of ``tries`` random masks at the full budget: the baseline. Passes: one forward each."""

    tries: Many = 1
    name = "random"

    def __post_init__(self) -> None:
        expect_fields(self)

    def first(self, eps0: Masks, budgets: Mapping[str, int], rng: Rng | None) -> None:
        if rng is None:
            raise ValueError("rng is None, and a random search draws its masks: give a numpy.random.Generator")
        _draw_unused_flip(eps0, rng)

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        assert rng is not None
        visits = []
        for _ in range(self.tries):
            eps = {n: masks.random_flips(rng, e, objective.budgets[n]) for n, e in objective.eps0.items()}
            visits.append(Visit(eps, objective.score(eps)))
        return tuple(visits)


SEARCHES: dict[str, type[Search]] = {kind.name: kind for kind in (Greedy, Reselect, Relax, Memory, Exact, Random)}
"""The searches by their names on the command line and in configurations."""

FORMER = {"adv_steps": "K", "init": "start"}
"""Option names of the command line, and of runs before version 0.2, with the fields that they set."""


def by_name(name: str, **options: Any) -> Search:
    """The search of this name; options that are None, and those that only other searches have, are left out.

    Options have the names of the records' fields or of `FORMER`.
    """
    expect_choice("search", name, SEARCHES)
    kind = SEARCHES[name]
    named = {FORMER.get(option, option): value for option, value in options.items() if value is not None}
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known = {field.name for one in SEARCHES.values() for field in dataclasses.fields(one)}  # type: ignore[arg-type]
    for option in named:
        expect_choice("the option of a search", option, sorted(known))
    return kind(**{option: value for option, value in named.items() if option in fields})


def first_mask(search: Any, eps0: Masks, rng: Rng | None) -> Masks:
    """The base mask, or, for ``start="flip"``, one random flip of each example away from it."""
    if search.start == "base":
        return eps0
    if rng is None:
        raise ValueError(f'rng is None, and {search} draws its start: give a numpy.random.Generator, or start="base"')
    return {name: masks.one_flip(rng, eps) for name, eps in eps0.items()}
