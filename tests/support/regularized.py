"""Every regularizer with its loss written out from the passes it ran: what was drawn or searched is held fixed.

A `Case` says which passes the likelihood and the value come from: pass 0 is the first that the regularizer ran, -1 the
last. `run_again` runs those passes at other parameters with the masks, noise and perturbations of then, through the
protocol alone, so that a central difference of it is what the regularizer's gradient must be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minadv import gradcheck
from minadv.base.trees import tree_map
from minadv.distances import by_name
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain, RDrop, Regularizer, Sum, Term
from minadv.searches import Greedy, Reselect
from tests.support.networks import Watched

WEIGHT, LIKELIHOOD = 0.7, 1.3


@dataclass(frozen=True)
class Passes:
    """The passes of a term, run again at some parameters."""

    model: Any
    params: Any
    batch: Any
    given: list[dict[str, Any]]  # what each pass was given
    stopped: list[Any]  # the logits of each pass at the parameters of then

    def nll(self, n: int) -> Any:
        return self.model.head(self.params, self._features(n), self.batch.targets).nll

    def d(self, n0: int, n1: int, name: str = "js", lam: Any = None, stop: bool = False) -> Any:
        logits0 = self.stopped[n0] if stop else self.model.logits(self.params, self._features(n0))
        d = by_name(name)(logits0, self.model.logits(self.params, self._features(n1)))[0]  # (N, B)
        return d[-1] if lam is None else (d.T * lam.T).T.sum(axis=0)

    def _features(self, n: int) -> Any:
        return self.model.body(self.params, self.batch, **self.given[n])[0]


@dataclass(frozen=True)
class Case:
    regularizer: Regularizer
    value: Callable[[Passes], Any]
    nll: Callable[[Passes], Any] = lambda at: at.nll(0)
    net: dict[str, Any] = field(default_factory=dict)  # options of the network


def nothing(at: Passes) -> Any:
    return 0 * at.nll(0)


def first_to_last(at: Passes) -> Any:
    return at.d(0, -1)


def mean_of_both(at: Passes) -> Any:
    return (at.nll(0) + at.nll(-1)) / 2


def symmetrised_kl(at: Passes) -> Any:
    return (at.d(0, -1, "kl") + at.d(-1, 0, "kl")) / 2


def random_cases() -> dict[str, Case]:
    noisy = {"input_dropout": 0.5, "I": 4}
    independent = EL(p=0.4, share_noise=False, stop_base=True)
    return {
        "plain": Case(Plain(), nothing),
        "VD": Case(VD(p=0.4), nothing),
        "EL": Case(EL(p=0.4), first_to_last, lambda at: at.nll(-1)),
        "EL, independent noise, stop": Case(
            independent, lambda at: at.d(0, -1, stop=True), lambda at: at.nll(-1), noisy
        ),
        "FD": Case(
            FD(p=0.4, distance="logit2"),
            lambda at: at.d(0, -1, "logit2"),
            mean_of_both,
        ),
        "Pi": Case(Pi(p=0.4, distance="l2"), lambda at: at.d(0, -1, "l2")),
        "RDrop": Case(RDrop(p=0.4), symmetrised_kl, mean_of_both),
        "RDrop, independent noise": Case(RDrop(p=0.4, share_noise=False), symmetrised_kl, mean_of_both, noisy),
    }


def adversarial_cases(lam: Any) -> dict[str, Case]:
    """``lam``: (4,), for a network with features of every step."""
    steps = {"steps": "all"}
    noisy = {"input_dropout": 0.5, "I": 4}
    return {
        "AdD": Case(AdD(budgets=2), first_to_last),
        "AdD, stop": Case(AdD(budgets=2, stop_base=True), lambda at: at.d(0, -1, stop=True)),
        "AdD, rkl kept": Case(AdD(budgets=2, distance="rkl", scale="kept"), lambda at: at.d(0, -1, "rkl")),
        "AdD, inverted K=2": Case(AdD(budgets=2, scale="inverted", p=0.3, search=Greedy(K=2)), first_to_last),
        "AdD, all steps": Case(
            AdD(budgets=2, distance="kl", lam=lam, stop_base=True),
            lambda at: at.d(0, -1, "kl", lam, stop=True),
            net=steps,
        ),
        "AdD, reselect all steps": Case(
            AdD(budgets=2, search=Reselect(swaps=1), lam=lam, distance="l2"),
            lambda at: at.d(0, -1, "l2", lam),
            net=steps,
        ),
        "AdD, last state": Case(AdD(budgets=2, sites=("readout",)), first_to_last),
        "AdD, masked readout": Case(AdD(budgets=2), first_to_last, net={"readout": "masked"}),
        "AdD, independent noise": Case(
            AdD(budgets=2, search=Greedy(start="base", keep="last"), share_noise=False), first_to_last, net=noisy
        ),
    }


def input_cases(lam: Any) -> dict[str, Case]:
    add_vat = Sum((AdD(budgets=2), VAT(norm=0.8)), weights=(1.0, 0.5))
    return {
        "AT": Case(AT(norm=0.8), lambda at: at.nll(-1)),
        "VAT": Case(VAT(norm=0.8), lambda at: at.d(0, -1, "kl", stop=True)),
        "VAT, all steps": Case(
            VAT(norm=0.8, lam=lam), lambda at: at.d(0, -1, "kl", lam, stop=True), net={"steps": "all"}
        ),
        "AdD + VAT": Case(add_vat, lambda at: at.d(0, 2) + 0.5 * at.d(3, -1, "kl", stop=True)),
    }


def every_case(lam: Any) -> dict[str, Case]:
    return {**random_cases(), **adversarial_cases(lam), **input_cases(lam)}


def run(
    case: Case, model: Any, params: Any, batch: Any, rng: np.random.Generator
) -> tuple[Term, Callable[[Any], Passes]]:
    """The term with the weights above, and its passes as a function of the parameters."""
    watched = Watched(model)
    term = case.regularizer(watched, params, batch, rng=rng, weight=WEIGHT, likelihood=LIKELIHOOD)
    given = watched.forward
    stopped = [model.logits(params, model.body(params, batch, **each)[0]) for each in given]
    return term, lambda changed: Passes(model, changed, batch, given, stopped)


def check(
    case: Case, term: Term, again: Callable[[Any], Passes], params: Any, rng: Any, **options: Any
) -> gradcheck.Report:
    """Compare the term's gradients with central differences of the loss written out."""

    def loss(params: Any) -> Any:
        at = again(params)
        return (LIKELIHOOD * case.nll(at) + WEIGHT * case.value(at)).mean()

    def backward(args: dict[str, Any], dloss: Any) -> dict[str, Any]:
        return {"params": tree_map(lambda g: dloss * g, term.grads)}

    report = gradcheck.check(loss, backward, {"params": params}, rng=rng, **options)
    report.raise_if_failed()
    return report
