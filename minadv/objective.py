r"""What the adversary maximises: how far the prediction under a mask is from that of the base pass (Eq. 4).

.. math:: D(\epsilon) = \sum_t \lambda_t D[p_t(\epsilon^0) \,\|\, p_t(\epsilon)], \qquad
          IM = \partial D / \partial \epsilon

over any model of `minadv.protocol`, with the influence map (Eq. 6) from one backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from minadv import distances, masks, protocol
from minadv.backend import Array, namespace
from minadv.base.errors import NotFiniteError
from minadv.base.readings import check
from minadv.base.shared_draws import Rng
from minadv.flip import flip
from minadv.influence import agree, warn_if_zero, zero_maps
from minadv.protocol import Comparison, Model, Pass

Masks: TypeAlias = dict[str, Array]
"""One array (B, H) a site."""


@dataclass(frozen=True)
class Visit:
    """One mask that the search looked at: its distance to the base, and its influence map where one was taken."""

    eps: Masks
    d: Array | None  # (B,); None for a last mask that was not scored
    im: Masks | None = None
    relaxed: bool = False  # whether eps flips units in part: such a mask is looked at, and never returned


@dataclass(frozen=True)
class Remembered:
    """What a search found for the examples of a batch when it last saw them: given to it, and returned by it."""

    flips: Masks  # boolean, (B, H) a site: the units in which the best mask differed from the base mask
    d: Array  # (B,), its distance then
    visits: Array  # (B,), whole numbers: how often the example was seen; 0 is never, and flips and d say nothing
    lent: Masks | None = None  # boolean, (P, H) a site: flips of other examples, which may be tried

    @staticmethod
    def nothing(eps0: Masks) -> Remembered:
        """The memory of examples that were never seen."""
        e = next(iter(eps0.values()))
        xp, B = namespace(e), len(e)
        return Remembered({n: xp.zeros(m.shape, bool) for n, m in eps0.items()}, xp.zeros(B), xp.zeros(B, int))


@dataclass(frozen=True)
class Objective:
    """How far the prediction under a mask is from that of the base pass. Counts the passes that it runs."""

    model: Model
    params: Any
    batch: Any
    eps0: Masks
    budgets: dict[str, int]
    fixed: Masks  # masks of the sites that are not searched
    distance: distances.Distance
    lam: Array | None
    scale: masks.Scale
    p: float | None
    adv_noise: Any  # of the perturbed passes
    state: Any  # the recurrent state that every pass starts from
    start: str | None = None  # of a search that has one: "flip" or "base"
    memory: Remembered | None = None  # what a search that remembers is given
    m0: Masks = field(default_factory=dict)  # masks of the base pass; a site without one has m = 1
    base: Pass | None = None  # the base pass, once it has been run
    same_noise: bool = True  # whether the base pass has the noise of the perturbed ones
    spent: list[int] = field(default_factory=lambda: [0, 0])  # forward and backward passes
    largest: list[Array] = field(default_factory=list)  # (B,), the largest distance in any pass; NaN if one was NaN
    zero: list[Array] = field(default_factory=list)  # (B,), of which examples an influence map was zero

    def begin(self, m0: Masks, noise: Any, start: Masks | None) -> tuple[Objective, Pass, Visit | None]:
        """Run the base pass, under masks m0 and its own noise, and beside it the pass at the start of a search, if any.

        Returns the objective with the base pass's features, the base pass, and the start with its influence map.
        """
        given, noises = [m0], [noise]
        if start is not None:  # the two passes do not wait for each other
            given.append(self.seen(start))
            noises.append(self.adv_noise)
        base, *probes = protocol.run_bodies(
            self.model, self.params, self.batch, masks=given, noises=noises, state=self.state
        )
        begun = replace(self, m0=m0, base=base, same_noise=noise is self.adv_noise, spent=[len(probes), 0])
        return begun, base, None if start is None else begun.influence_of(start, probes.pop())

    def score(self, eps: Masks) -> Array:
        """The distance of each example, (B,): one forward pass."""
        return self.scores([eps])[0]

    def scores(self, several: Sequence[Masks]) -> list[Array]:
        """The distances under each of several masks: one forward pass each, at once where the model can."""
        with protocol.scope(self.model):
            return [self._compare(run.features)[0].d for run in self._run(several)]

    def influence(self, eps: Masks) -> Visit:
        """The distance and the influence map with respect to eps (Eq. 6): one forward and one backward pass."""
        with protocol.scope(self.model):
            [run] = self._run([eps])
            return self.influence_of(eps, run)

    def influence_of(self, eps: Masks, run: Pass) -> Visit:
        """What `influence` returns, from a pass under eps that was run already: one backward pass."""
        comparison, same = self._compare(run.features)
        self.spent[1] += 1
        dm = self.model.body_backward(
            self.params, run.cache, comparison.dfeatures1, weights=False, masks=tuple(eps)
        ).masks
        im = {n: masks.scale_backward(e, dm[n], self.scale, p=self.p) for n, e in eps.items()}  # Eq. 6
        im, zero = zero_maps(im, same)
        self.zero[:] = [zero if not self.zero else self.zero[0] | zero]
        warn_if_zero(zero, lambda: self._why_zero(eps))
        return Visit(eps, comparison.d, im)

    def _why_zero(self, eps: Masks) -> str:
        """Why an influence map at eps is zero in every example, and what of the remedies is not set already."""
        others = [site.name for site in self.model.sites if site.kind != "recurrent"]
        valid = self.model.valid(self.batch) if hasattr(self.model, "valid") else None
        one_step = valid is not None and int(valid.sum(axis=0).max()) == 1
        if one_step and self.state is None and not set(others) & set(eps):  # the initial state is zero
            instead = f", or mask another site: sites={tuple(others)}" if others else ""
            return f"at T = 1 a recurrent mask has no effect, no state comes before: give longer sequences{instead}"
        if any(bool((e != self.eps0[n]).any()) for n, e in eps.items()):
            said = "the mask that was looked at changes no prediction"
            return f"{said}: the network is too sure of every example, or its recurrent weights do nothing"
        if self.start != "base":
            said = "the search has come back to the base mask itself, where the distance has no slope"
            return f"{said}: raise delta, or use search=Relax() (--search relax)"
        remedies = ['start from one random flip (start="flip", --init flip)']
        if self.same_noise:
            remedies.append(
                "let another noise differ between the passes "
                "(adv_noise, share_noise=False; --noise independent, --fresh)"
            )
        return f"at the base mask itself the distance has its minimum and no slope: {', or '.join(remedies)}"

    def margin(self) -> tuple[Masks, Array]:
        """How sure the base pass is: the gradient of its log-odds to m, and p (B,). One backward pass, no forward."""
        assert self.base is not None
        dfeatures, p = protocol.margin(self.model, self.params, self.base.features, self.lam)
        self.spent[1] += 1
        grads = self.model.body_backward(self.params, self.base.cache, dfeatures, weights=False, masks=tuple(self.eps0))
        return grads.masks, p

    def predicted(self) -> Array | None:
        """The class that the base pass predicts at its last step, (B,); None if the model has no ``logits``."""
        if not hasattr(self.model, "logits"):
            return None
        assert self.base is not None
        classes: Array = self.model.logits(self.params, self.base.features[-1:])[0].argmax(axis=-1)
        return classes

    def select(self, im: Masks, sign: int = 1) -> Masks:
        """The units of largest positive gain, chosen afresh from eps0; ``sign=-1``: by the negated map."""
        return {n: flip(e, sign * im[n], e, self.budgets[n]) for n, e in self.eps0.items()}

    def seen(self, eps: Masks) -> Masks:
        """The masks m of a pass: eps as the layers see it, and the masks of the sites that are not searched."""
        return {**self.fixed, **{n: masks.scale(e, self.scale, p=self.p) for n, e in eps.items()}}

    def _run(self, several: Sequence[Masks]) -> list[Pass]:
        self.spent[0] += len(several)
        ms, noises = [self.seen(eps) for eps in several], [self.adv_noise] * len(several)
        return protocol.run_bodies(self.model, self.params, self.batch, masks=ms, noises=noises, state=self.state)

    def _compare(self, features: Array) -> tuple[Comparison, Array]:
        """The comparison with the base pass, and in which examples the two agree: their distance is exactly zero."""
        assert self.base is not None
        found = self.model.compare(
            self.params, self.base.features, features, self.lam, self.distance, stop_base=True, weights=False
        )
        self.largest[:] = [namespace(found.d).maximum(largest, found.d) for largest in self.largest] or [found.d]
        same, d = agree(self.base.features, features, found.d)
        return replace(found, d=d), same

    def expect_numbers(self) -> None:
        """Raise NotFiniteError, which names the first example, if a distance was NaN in any of the passes."""
        if not self.largest:
            return
        nan = self.largest[0] != self.largest[0]

        def name_it() -> None:
            example = int(nan.argmax())
            raise NotFiniteError(f"the distance is NaN for example {example}: are its input and the parameters finite?")

        check(nan, name_it)


def best(visits: Sequence[Visit]) -> Visit:
    """The best of several masks, example by example; the earlier one on ties, and never a relaxed one."""
    top, *others = [visit for visit in visits if not visit.relaxed]
    assert top.d is not None
    xp = namespace(top.d)
    for visit in others:
        assert top.d is not None and visit.d is not None
        better = visit.d > top.d  # (B,)
        eps = {n: xp.where(better[:, None], visit.eps[n], top.eps[n]) for n in top.eps}
        top = Visit(eps, xp.where(better, visit.d, top.d))
    return top


class Search:
    """What a search is: a small frozen record of its own options, with these methods."""

    name: ClassVar[str]  # on the command line and in configurations
    remembers: ClassVar[bool] = False  # whether it starts from what it found for the same examples before

    @property
    def group(self) -> int:
        """How many neighbours of a batch, counted from its first example, may see each other's masks: 1 is none."""
        return 1

    def expect_budgets(self, budgets: Mapping[str, int], units: Mapping[str, int]) -> None:
        """Raise ValueError if ``budgets`` (flips by site) among ``units`` (H by site) are too much for this search."""

    def first(self, eps0: Masks, budgets: Mapping[str, int], rng: Rng | None) -> Masks | None:
        """The mask of the search's first influence map, which is run beside the base pass; None if it takes no map."""
        return None

    def run(self, objective: Objective, first: Visit | None, rng: Rng | None) -> tuple[Visit, ...]:
        """Every mask that the search looks at, in order, beginning with ``first`` if there is one."""
        raise NotImplementedError

    def result(self, visits: Sequence[Visit]) -> Visit:
        """The visit whose mask the search returns."""
        return best(visits)
