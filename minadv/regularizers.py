r"""The regularizers: small frozen records, all called alike, all with gradients to every parameter.

::

    term = AdD(delta=0.03)(model, params, batch, rng=rng, weight=1.0, likelihood=1.0)

gives ``term.value (B,)``, the regularizer of each example, and ``term.grads``, the gradients of

.. math:: \frac1B \sum_b \big(\text{likelihood} \cdot NLL_b + \text{weight} \cdot R_b\big)

With ``likelihood=0`` (the default) that is the regularizer alone, as on unlabelled text. Each docstring says at which
pass the likelihood is taken. ``noise`` (drawn from the model unless one is given) holds every random mask but the one
that the regularizer is about; both passes share it unless ``share_noise=False`` draws it twice.

Random masks are scaled by 1/(1-p) by default; the expected mask has m = 1. Which mask or perturbation was chosen is a
constant: nothing is differentiated through a draw or a search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minadv import distances, masks
from minadv.adversary import expect_search, find_adversary, find_budgets
from minadv.backend import Array, namespace
from minadv.base.numbers import Delta, Few, Probability, Size
from minadv.base.schema import expect_fields
from minadv.base.trees import tree_add
from minadv.perturbations import AT, VAT
from minadv.protocol import choose_sites
from minadv.searches import Greedy, Search
from minadv.terms import Regularizer, Setting, Tally, Term

__all__ = ["AT", "EL", "FD", "VAT", "VD", "AdD", "Pi", "Plain", "RDrop", "Regularizer", "Sum", "Term"]


@dataclass(frozen=True)
class Plain(Regularizer):
    """No regularizer: the likelihood of the full network. The value is zero."""

    passes = 1

    def term(self, on: Setting) -> Term:
        return _likelihood_only(on, {})


@dataclass(frozen=True)
class VD(Regularizer):
    """Variational dropout: the likelihood under one random mask, the same at every step. The value is zero."""

    p: Probability = 0.1
    scale: masks.Scale = "inverted"
    sites: tuple[str, ...] | None = None
    passes = 1

    def __post_init__(self) -> None:
        expect_fields(self)

    def term(self, on: Setting) -> Term:
        return _likelihood_only(on, on.random_masks(self.p, self.sites, self.scale))


@dataclass(frozen=True)
class EL(Regularizer):
    r"""Expectation-linearization (Eq. 2): :math:`E_\epsilon \sum_t \lambda_t D[p_t(E\epsilon) \,\|\, p_t(\epsilon)]`.

    ``samples`` is the number of Monte-Carlo masks. The likelihood is the mean under them, as in dropout training.
    """

    p: Probability = 0.1
    distance: str = "js"
    lam: Array | None = field(default=None, repr=False, compare=False)
    scale: masks.Scale = "inverted"
    samples: Few = 1
    stop_base: bool = False
    share_noise: bool = True
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        distances.by_name(self.distance)
        expect_fields(self)

    def term(self, on: Setting) -> Term:
        noise = on.second_noise(self.share_noise)
        random = [on.random_masks(self.p, self.sites, self.scale) for _ in range(self.samples)]
        base, *runs = on.run_together([{}, *random], noises=[on.noise] + [noise] * self.samples)
        tally = Tally(on)
        values, nlls = [], []
        for run in runs:
            nlls.append(tally.add_nll(run, on.likelihood / self.samples))
            weight = on.weight / self.samples
            values.append(tally.add_distance(base, run, weight, self.lam, self.distance, self.stop_base))  # Eq. 2
        nll = _mean([nll for nll in nlls if nll is not None]) if on.likelihood else None
        return Term(_mean(values), tally.grads(), nll=nll, state=runs[0].state)


@dataclass(frozen=True)
class FD(Regularizer):
    r"""Fraternal dropout (Eq. 3): :math:`E \sum_t \lambda_t D[p_t(\epsilon^1) \,\|\, p_t(\epsilon^2)]`.

    The likelihood is the mean over both passes (``double=False``: that of the first pass only, the Π-model).
    ``distance="logit2"`` is the form for language models.
    """

    p: Probability = 0.1
    distance: str = "js"
    lam: Array | None = field(default=None, repr=False, compare=False)
    scale: masks.Scale = "inverted"
    share_noise: bool = True
    sites: tuple[str, ...] | None = None
    double: bool = True

    def __post_init__(self) -> None:
        distances.by_name(self.distance)
        expect_fields(self)

    def term(self, on: Setting) -> Term:
        m1, m2 = (on.random_masks(self.p, self.sites, self.scale) for _ in range(2))
        one, two = on.run_together([m1, m2], noises=[on.noise, on.second_noise(self.share_noise)])
        tally = Tally(on)
        nll = tally.add_nll(one, on.likelihood / 2 if self.double else on.likelihood)
        if self.double and nll is not None:
            nll = (nll + tally.add_nll(two, on.likelihood / 2)) / 2
        value = tally.add_distance(one, two, on.weight, self.lam, self.distance, stop_base=False)  # Eq. 3
        return Term(value, tally.grads(), nll=nll, state=one.state)


@dataclass(frozen=True)
class Pi(FD):
    """The Π-model: fraternal dropout's distance (Eq. 3), with the likelihood of the first pass only."""

    double: bool = False


@dataclass(frozen=True)
class RDrop(FD):
    r"""R-Drop (Liang et al., 2021): fraternal dropout (Eq. 3) with the symmetrised KL, `minadv.distances.skl`.

    .. math:: \tfrac12 \big(NLL(\epsilon^1) + NLL(\epsilon^2)\big) \quad + \alpha \sum_t \lambda_t\,
              \tfrac12 \big(KL[p_t(\epsilon^1) \| p_t(\epsilon^2)] + KL[p_t(\epsilon^2) \| p_t(\epsilon^1)]\big)

    The weight of the call is :math:`\alpha`. What to look at when it is compared with other code, or taken from it:

    * The likelihood is the **mean** of both passes. Code that adds the two, as the formula of the R-Drop paper does,
      minimises the same with twice this weight: its :math:`\alpha` is :math:`2\,\text{weight}`.
    * The factor **½** of the two KL divergences is part of the distance. Some code adds them without it: its
      :math:`\alpha` is :math:`\text{weight}/2`.
    * A KL divergence is a **sum over the classes**; the loss is the mean over the examples, and the steps of an example
      are weighed by :math:`\lambda_t`, not added. PyTorch's ``kl_div`` with ``reduction="mean"`` divides by the number
      of classes as well (``"batchmean"`` does not), and ``"sum"`` does not divide by the number of examples: neither
      weight can be taken over as it is.
    * The two masks **differ**: dropout is active in both passes, and the gradient goes through both. With ``p=0`` and
      ``share_noise=True`` the passes are one and the same, and the value is zero. By default they differ in their
      recurrent masks alone; ``share_noise=False`` draws every dropout of the model twice, which is R-Drop as published.
    """

    distance: str = "skl"


@dataclass(frozen=True)
class AdD(Regularizer):
    r"""Adversarial dropout (Eq. 4): :math:`\sum_t \lambda_t D[p_t(\epsilon^0) \,\|\, p_t(\epsilon^{adv})]`.

    The base is the full network, and the likelihood is taken there. ``sites=("readout",)`` is adversarial dropout on
    the last hidden state. ``search`` is a record of `minadv.searches`; the default is the paper's, which trains on the
    last mask of its search without scoring it. The other options are those of `minadv.adversary.find_adversary`.
    """

    delta: Delta | Mapping[str, Delta] | None = None
    budgets: Size | Mapping[str, Size] | None = None  # instead of delta; neither: `minadv.masks.few_flips`
    search: Search = Greedy(keep="last")
    distance: str = "js"
    lam: Array | None = field(default=None, repr=False, compare=False)
    scale: masks.Scale = "none"
    p: Probability | None = None  # for scale="inverted"
    stop_base: bool = False
    share_noise: bool = True
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        expect_search(self.search)
        distances.by_name(self.distance)
        expect_fields(self)
        if {} in (self.delta, self.budgets) or None not in (self.delta, self.budgets):
            raise ValueError(
                f"delta is {self.delta} and budgets is {self.budgets}: give one of the two, and no empty one"
            )
        masks.expect_scale(self.scale, self.p)

    def expect_budgets(self, model: Any) -> dict[str, int]:
        """The number of flips of each site of a model; raises ValueError for an unknown site or a bad budget."""
        return find_budgets(model, search=self.search, sites=self.sites, delta=self.delta, budgets=self._budgets(model))

    def _budgets(self, model: Any) -> int | Mapping[str, int] | None:
        if self.delta is not None or self.budgets is not None:
            return self.budgets
        return {site.name: masks.few_flips(site.H) for site in choose_sites(model, self.sites)}

    @property
    def group(self) -> int:
        return self.search.group

    def remembers(self, model: Any) -> dict[str, int]:
        return {site.name: site.H for site in choose_sites(model, self.sites)} if self.search.remembers else {}

    def term(self, on: Setting) -> Term:
        noise = on.second_noise(self.share_noise)
        trace = find_adversary(
            on.model,
            on.params,
            on.batch,
            search=self.search,
            delta=self.delta,
            budgets=self._budgets(on.model),
            distance=self.distance,
            lam=self.lam,
            scale=self.scale,
            p=self.p,
            noise=on.noise,
            adv_noise=noise,
            sites=self.sites,
            state=on.state,
            memory=on.memory if self.search.remembers else None,
            rng=on.rng,
        )
        base = trace.base
        assert base is not None
        m = {name: masks.scale(eps, self.scale, p=self.p) for name, eps in trace.eps.items()}
        adversarial = on.run(m, noise=noise)
        tally = Tally(on)
        nll = tally.add_nll(base, on.likelihood)
        value = tally.add_distance(base, adversarial, on.weight, self.lam, self.distance, self.stop_base)  # Eq. 4
        return Term(value, tally.grads(), replace(trace, d=value, base=None), nll, base.state)


@dataclass(frozen=True)
class Sum(Regularizer):
    """Several regularizers, each on the otherwise unperturbed input; the first takes the likelihood.

    ``weights`` are relative to the weight of the whole (default 1 each). AdD + VAT is ``Sum((AdD(...), VAT(...)))``.
    """

    parts: tuple[Regularizer, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple | list) or not all(isinstance(part, Regularizer) for part in self.parts):
            raise TypeError(f"parts is {self.parts!r}, expected a tuple of regularizers: Sum((AdD(), VAT()))")
        expect_fields(self, only=("weights",))
        if not self.parts or (self.weights is not None and len(self.weights) != len(self.parts)):
            raise ValueError(f"parts is {self.parts} and weights {self.weights}, expected one weight for each part")

    @property
    def needs_targets(self) -> bool:
        return any(part.needs_targets for part in self.parts)

    @property
    def group(self) -> int:
        return max(part.group for part in self.parts)

    def remembers(self, model: Any) -> dict[str, int]:
        found = [sites for part in self.parts if (sites := part.remembers(model))]
        if len(found) > 1:
            raise ValueError(f"parts is {self.parts}, expected one adversary that remembers at most")
        return found[0] if found else {}

    def term(self, on: Setting) -> Term:
        weights = [float(w) for w in self.weights or (1.0,) * len(self.parts)]
        total = self.parts[0].term(replace(on, weight=on.weight * weights[0]))
        total = replace(total, value=weights[0] * total.value)
        for part, share in zip(self.parts[1:], weights[1:], strict=True):
            term = part.term(replace(on, weight=on.weight * share, likelihood=0.0))
            total = replace(
                total,
                value=total.value + share * term.value,
                grads=tree_add(total.grads, term.grads),
                trace=term.trace if total.trace is None or part.remembers(on.model) else total.trace,
                dx=term.dx if total.dx is None else total.dx,
            )
        return total


def _likelihood_only(on: Setting, m: Mapping[str, Array]) -> Term:
    """A term whose value is zero: the likelihood under the masks ``m``, and nothing else."""
    one = on.run(m)
    tally = Tally(on)
    nll = tally.add_nll(one, on.likelihood)
    nothing = namespace(one.features).zeros(len(on.batch), one.features.dtype)
    return Term(nothing, tally.grads(), nll=nll, state=one.state)


def _mean(values: list[Array]) -> Array:
    """The mean of arrays of one shape."""
    return sum(values[1:], values[0]) / len(values)
