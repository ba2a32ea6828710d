r"""The four searches for a mask that moves the prediction furthest, over one objective.

Each takes a `Problem` and returns the masks that it visited, in order; `best` puts together the best mask of each
example. `minadv.adversary.find_adversary` is the door to all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from minadv import masks
from minadv.backend import Array, namespace
from minadv.base.shared_draws import Rng
from minadv.distances import Distance
from minadv.fast.workspace import Workspace, scope
from minadv.flip import flip
from minadv.influence import warn_if_zero
from minadv.protocol import Comparison, Model, runs_together

Masks: TypeAlias = dict[str, Array]
"""One array (B, H) a site."""

Rule: TypeAlias = Literal["strict", "paper", "authors"]


@dataclass(frozen=True)
class Visit:
    """One mask that the search looked at: its distance to the base, and its influence map where one was taken."""

    eps: Masks
    d: Array | None  # (B,); None for a last mask that was not scored
    im: Masks | None = None


@dataclass(frozen=True)
class Probe:
    """A pass under the first mask of a search that was run before it, beside the base pass."""

    eps: Masks
    features: Array  # (N, B, F)
    cache: Any


@dataclass(frozen=True)
class Problem:
    """The objective: how far a mask's prediction is from the base's. Counts the passes it takes."""

    model: Model
    params: Any
    batch: Any
    eps0: Masks
    budgets: dict[str, int]
    base: Array  # (N, B, F), the base pass's features
    fixed: Masks  # masks of the sites that are not searched
    distance: Distance
    lam: Array | None
    scale: masks.Scale
    p: float | None
    noise: Any
    state: Any
    rule: Rule
    rule_options: dict[str, Any]
    work: Workspace | None = None
    probes: list[Probe] = field(default_factory=list)  # run already; each is used once, and then forgotten
    spent: list[int] = field(default_factory=lambda: [0, 0])

    def score(self, eps: Masks) -> Array:
        """The distance of each example, (B,): one forward pass."""
        with scope(self.work):
            features, _ = self._forward(eps)
            return self._compare(features).d

    def scores(self, several: Sequence[Masks]) -> list[Array]:
        """The distances under each of several masks: one forward pass each, side by side where the model can."""
        if not runs_together(self.model):
            return [self.score(eps) for eps in several]
        self.spent[0] += len(several)
        with scope(self.work):
            passes = self.model.bodies(
                self.params,
                self.batch,
                masks=[self._masks(eps) for eps in several],
                noises=[self.noise] * len(several),
                state=self.state,
                **self._reuse,
            )
            return [self._compare(features).d for features, _, _ in passes]

    def influence(self, eps: Masks) -> tuple[Array, Masks]:
        """The distance and the influence map with respect to eps (Eq. 6): one forward and one backward pass."""
        with scope(self.work):
            features, cache = self._forward(eps)
            comparison = self._compare(features)
            grads = self.model.body_backward(self.params, cache, comparison.dfeatures1, weights=False)
        if self.work is not None:
            self.work.release(cache)  # that of a probe was taken before this scope began
        self.spent[1] += 1
        im = {n: masks.scale_backward(e, grads.masks[n], self.scale, p=self.p) for n, e in eps.items()}  # Eq. 6
        return comparison.d, im

    def flip(self, eps: Masks, im: Masks, budgets: Mapping[str, int]) -> Masks:
        """Each site flipped within its own budget, ranked within itself."""
        return {
            n: flip(e, im[n], self.eps0[n], budgets[n], rule=self.rule, **self.rule_options) for n, e in eps.items()
        }

    def select(self, im: Masks, sign: int = 1) -> Masks:
        """The units of largest positive gain, chosen afresh from eps0."""
        return {n: flip(e, sign * im[n], e, self.budgets[n]) for n, e in self.eps0.items()}

    def _forward(self, eps: Masks) -> tuple[Array, Any]:
        self.spent[0] += 1
        if self.probes and eps is self.probes[-1].eps:
            probe = self.probes.pop()
            return probe.features, probe.cache
        features, _, cache = self.model.body(
            self.params, self.batch, masks=self._masks(eps), noise=self.noise, state=self.state, **self._reuse
        )
        return features, cache

    def _masks(self, eps: Masks) -> Masks:
        """What a pass is given: eps as the layers see it, and the masks of the sites that are not searched."""
        return {**self.fixed, **{n: masks.scale(e, self.scale, p=self.p) for n, e in eps.items()}}

    @property
    def _reuse(self) -> dict[str, Any]:
        return {} if self.work is None else {"work": self.work}

    def _compare(self, features: Array) -> Comparison:
        return self.model.compare(
            self.params, self.base, features, self.lam, self.distance, stop_base=True, weights=False
        )


def greedy(problem: Problem, start: Masks, K: int, *, score_last: bool) -> tuple[Visit, ...]:
    r"""The paper's search: K times, the influence map at the current mask, then a flip within a growing budget (Eq. 8).

    The budget after step k = 0, 1, ... is :math:`\lceil (k+1) b / K \rceil`. Passes: K + 1 forward (K where the last
    mask is not scored), K backward.
    """
    visits = []
    eps = start
    for k in range(K):
        d, im = problem.influence(eps)
        warn_if_zero(im, d)
        visits.append(Visit(eps, d, im))
        eps = problem.flip(eps, im, _step_budgets(problem, k, K))  # Eq. 8
    visits.append(Visit(eps, problem.score(eps) if score_last else None))
    return tuple(visits)


def _step_budgets(problem: Problem, k: int, K: int) -> dict[str, int]:
    """What step k of K may spend: cumulative, but for the released code's rule, whose steps each count anew."""
    if problem.rule == "authors":
        return {n: b // K if k < K - 1 else b - (K - 1) * (b // K) for n, b in problem.budgets.items()}
    return {n: math.ceil((k + 1) * b / K) for n, b in problem.budgets.items()}


def reselect(problem: Problem, start: Masks, K: int, swaps: int) -> tuple[Visit, ...]:
    r"""minadv's own search, two-sided and then re-selecting.

    Near eps0 the distance is quadratic, :math:`D \approx \frac12 d^\top F d`, so the map at one random flip tells the
    other units' influence only up to one common sign. **Two-sided**: of the b units with the largest gains and the b
    with the largest negated gains, run both and keep the better, example by example. **Re-selection**: take the map at
    that full mask, choose all b units afresh from eps0, and repeat. **Swaps**: at the best mask, try the strongest
    outsiders in the place of each flipped unit.

    Passes for K maps: K + 3 forward (3 for K = 1), K backward; swaps add 1 + b * swaps forward and 1 backward.
    """
    d, im = problem.influence(start)
    warn_if_zero(im, d)
    visits = [Visit(start, d, im)]
    sides = [problem.select(im, sign) for sign in (1, -1)]
    visits += [Visit(eps, d) for eps, d in zip(sides, problem.scores(sides), strict=True)]
    if K > 1:
        eps = best(visits[1:]).eps
        for _ in range(K - 1):
            d, im = problem.influence(eps)
            warn_if_zero(im, d)
            visits.append(Visit(eps, d, im))
            eps = problem.select(im)
        visits.append(Visit(eps, problem.score(eps)))
    if swaps:
        eps = best(visits).eps
        d, im = problem.influence(eps)
        visits.append(Visit(eps, d, im))
        visits += [Visit(swapped, problem.score(swapped)) for swapped in _swapped(problem, eps, im, swaps)]
    return tuple(visits)


def _swapped(problem: Problem, eps: Masks, im: Masks, swaps: int) -> Iterator[Masks]:
    """Masks in which one flipped unit, weakest first, gives its place to one of the strongest outsiders."""
    for name, mask in eps.items():
        xp = namespace(mask)
        eps0 = problem.eps0[name]
        flipped = mask != eps0
        gain = (1 - 2 * eps0) * im[name]  # of having a unit flipped
        weakest = xp.argsort(xp.where(flipped, gain, np.inf), axis=1, kind="stable")
        strongest = xp.argsort(xp.where(flipped, np.inf, -gain), axis=1, kind="stable")
        rows = xp.arange(mask.shape[0])
        for j in range(problem.budgets[name]):
            for q in range(min(swaps, mask.shape[1] - problem.budgets[name])):
                candidate = mask.copy()
                out, into = weakest[:, j], strongest[:, q]
                candidate[rows, out] = eps0[rows, out]  # as it was already, if fewer than j + 1 units are flipped
                candidate[rows, into] = 1 - eps0[rows, into]
                yield {**eps, name: candidate}


def random(problem: Problem, rng: Rng, tries: int) -> tuple[Visit, ...]:
    """Random masks at the full budget. Passes: one forward each."""
    visits = []
    for _ in range(tries):
        eps = {n: masks.random_flips(rng, e, problem.budgets[n]) for n, e in problem.eps0.items()}
        visits.append(Visit(eps, problem.score(eps)))
    return tuple(visits)


def exact(problem: Problem) -> tuple[Visit, ...]:
    """Every mask of the ball, the best kept as it goes. Passes: one forward for each mask."""
    names = list(problem.eps0)
    balls = [list(_ball(problem.eps0[n].shape[1], problem.budgets[n])) for n in names]
    top: Visit | None = None
    for units in itertools.product(*balls):
        eps = {n: _flipped(problem.eps0[n], u) for n, u in zip(names, units, strict=True)}
        visit = Visit(eps, problem.score(eps))
        top = visit if top is None else best([top, visit])
    assert top is not None
    return (top,)


def ball_size(H: int, budget: int) -> int:
    """The number of masks within ``budget`` flips of one of ``H`` units."""
    return sum(math.comb(H, k) for k in range(budget + 1))


def _ball(H: int, budget: int) -> Iterator[tuple[int, ...]]:
    """The sets of at most ``budget`` units, smaller sets first."""
    return itertools.chain.from_iterable(itertools.combinations(range(H), k) for k in range(budget + 1))


def _flipped(eps0: Array, units: tuple[int, ...]) -> Array:
    eps = eps0.copy()
    columns = list(units)
    eps[:, columns] = 1 - eps[:, columns]
    return eps


def best(visits: Sequence[Visit]) -> Visit:
    """The best of several masks, example by example; the earlier one on ties."""
    top = visits[0]
    assert top.d is not None
    xp = namespace(top.d)
    for visit in visits[1:]:
        assert top.d is not None and visit.d is not None
        better = visit.d > top.d  # (B,)
        eps = {n: xp.where(better[:, None], visit.eps[n], top.eps[n]) for n in top.eps}
        top = Visit(eps, xp.where(better, visit.d, top.d))
    return top
