"""Regularizers as records: defaults, what makes two equal, what is printed, and what is refused when one is made."""

import inspect
import math
from contextlib import contextmanager

import numpy as np
import pytest

from minadv import gradcheck, masks
from minadv.adversary import find_adversary
from minadv.distances import by_name
from minadv.memory import Memory
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain, RDrop, Regularizer, Sum
from minadv.relax import Relax
from minadv.searches import Greedy, Search
from tests.support.networks import Watched, network
from tests.support.searching import bare

WITH_WEIGHTS_OF_STEPS = (EL, FD, RDrop, AdD, VAT)


@pytest.mark.parametrize("kind", WITH_WEIGHTS_OF_STEPS)
def test_weights_of_steps_are_neither_printed_nor_compared(kind):
    one, other = kind(lam=np.ones((4, 1))), kind(lam=np.zeros((4, 1)))
    assert one == other == kind()
    assert repr(one) == repr(kind()) and "lam" not in repr(one)


def test_defaults_are_the_papers():
    assert (AT().norm, VAT().norm, VAT().xi) == (5.0, 5.0, 0.1)
    assert (Plain().passes, VD().passes) == (1, 1)
    assert [kind().passes for kind in (EL, FD, Pi, RDrop, AdD, AT, VAT)] == [2] * 7
    assert Memory().fresh == 2
    given = {name: p.default for name, p in inspect.signature(gradcheck.check).parameters.items()}
    told = {name: given[name] for name in ("step", "tol", "floor", "elementwise", "directions")}
    assert told == {"step": 1e-5, "tol": 1e-6, "floor": 1e-3, "elementwise": 64, "directions": 3}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        *((lambda kind=kind: kind(p=1.5), r"p is 1\.5, expected a probability") for kind in (VD, EL, FD, Pi, RDrop)),
        *((lambda kind=kind: kind(p=1.5, scale="none"), r"p is 1\.5") for kind in (VD, EL, FD, Pi, RDrop, AdD)),
        *((lambda kind=kind: kind(scale="twice"), "scale is 'twice'") for kind in (VD, EL, FD, Pi, RDrop, AdD)),
        *((lambda kind=kind: kind(distance="tv"), "distance is 'tv'") for kind in (EL, FD, Pi, RDrop, AdD)),
        *((lambda kind=kind: kind(p="0.5"), "p is '0.5', expected a probability") for kind in (VD, EL, FD, Pi, RDrop)),
        *((lambda kind=kind: kind(norm="5"), "norm is '5', expected zero or a positive number") for kind in (AT, VAT)),
        (lambda: EL(samples=0), "samples is 0"),
        (lambda: AdD(delta=0.1, budgets=3), r"delta is 0\.1 and budgets is 3: give one of the two"),
        (lambda: AdD(search="greedy"), "search is 'greedy', expected a record"),
        *((lambda kind=kind, x=x: kind(norm=x), "norm is") for kind in (AT, VAT) for x in (-1.0, math.inf, math.nan)),
        (lambda: VAT(xi=math.inf), "xi is inf"),
        (lambda: Memory(fresh=-1), "fresh is -1"),
        *((lambda kind=kind: kind(p="x"), "p is 'x', expected a probability") for kind in (VD, EL, FD, Pi, RDrop, AdD)),
        *((lambda kind=kind, x=x: kind(norm=x), "norm is") for kind in (AT, VAT) for x in ("x", True, None, 10**400)),
        (lambda: VAT(xi=True), "xi is True, expected zero or a positive number"),
        (lambda: FD(double=1.5), "double is 1.5, expected one of True, False"),
        (lambda: Sum((AT(),), weights=("x",)), r"weights\[0\] is 'x', expected a finite number"),
    ],
)
def test_what_cannot_be_is_refused_when_the_record_is_made(make, said):
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_what_is_no_share_and_no_probability():
    for delta in (-0.1, 1.5, True, "x", None):
        with pytest.raises(ValueError, match=f"^delta is {delta!r}, expected a share of the units from 0 to 1$"):
            masks.budget(delta, 10)
    for p in (-0.1, 1.0, True, "x", None):
        with pytest.raises(ValueError, match=f"^p is {p!r}, expected a probability"):
            masks.expect_probability(p)


def test_a_norm_of_zero_is_one():
    assert (AT(norm=0.0).norm, VAT(norm=0.0, xi=0.0).xi) == (0.0, 0.0)


def test_who_needs_labels_and_who_remembers(rng, put):
    model = network(rng, put)[0]
    assert AT().needs_targets and Sum((AT(), VD())).needs_targets
    assert not any(r.needs_targets for r in (VD(), EL(), FD(), AdD(), VAT()))
    assert AdD().remembers(model) == {}
    assert AdD(search=Memory()).remembers(model) == {"layer0": 4}
    assert AdD(search=Memory(), sites=("readout",)).remembers(model) == {"readout": 4}


def test_how_many_neighbours_see_each_others_masks():
    lends = AdD(search=Relax(borrow=1)).group
    assert lends == 16  # another number would be another search
    assert [r.group for r in (VD(), VAT(), AdD(), AdD(search=Memory()), AdD(search=Relax()))] == [1] * 5
    assert (Sum((VD(), AdD())).group, Sum((VD(), AdD(search=Relax(borrow=1)), VAT())).group) == (1, lends)


def test_a_kind_without_its_one_method_says_so(rng, put):
    net = network(rng, put)
    with pytest.raises(NotImplementedError):
        find_adversary(*net, budgets=2, search=Search())
    with pytest.raises(NotImplementedError):
        Regularizer()(*net, rng=rng)


def test_an_objective_begins_with_no_pass_and_one_noise():
    assert bare({}, {}).spent == [0, 0]
    assert bare({}, {}).same_noise


def test_budgets_are_those_of_the_sites_and_the_search_asked_for(rng, put):
    model = network(rng, put)[0]
    assert AdD(delta=0.5, sites=("readout",)).expect_budgets(model) == {"readout": 2}
    assert AdD(budgets=3).expect_budgets(model) == {"layer0": 3}
    assert AdD(budgets=4).expect_budgets(model) == {"layer0": 4}


@pytest.mark.parametrize("regularizer", [AT(), VAT(), AdD(budgets=2), AdD(budgets=2, search=Greedy(K=2))])
def test_looking_for_the_worst_asks_for_no_gradients_of_weights(regularizer, rng, put):
    model, params, batch = network(rng, put)
    watched = Watched(model)
    regularizer(watched, params, batch, rng=rng)
    looking = [given for given in watched.backward if given.get("masks") or given.get("inputs")]
    assert looking and all(given["weights"] is False for given in looking)


class Comparing(Watched):
    """A model that remembers what its comparisons were asked for."""

    def __init__(self, model):
        super().__init__(model)
        self.asked = []

    def compare(self, *args, **given):
        self.asked.append(given)
        return self.model.compare(*args, **given)


def test_a_search_compares_without_gradients_of_weights_or_of_the_base(rng, put):
    model, params, batch = network(rng, put)
    watched = Comparing(model)
    for search in (Greedy(K=2), Relax()):
        find_adversary(watched, params, batch, budgets=2, search=search, rng=rng)
    assert len(watched.asked) == 3 + 4 and all(
        given == {"stop_base": True, "weights": False} for given in watched.asked
    )
    watched = Comparing(model)
    VAT()(watched, params, batch, rng=rng)
    assert watched.asked[0] == {"stop_base": True, "weights": False}
    assert watched.asked[-1]["stop_base"] is True


class Forgetting(Watched):
    """A model that remembers which passes it is asked to keep, and in how many scopes."""

    def __init__(self, model):
        super().__init__(model)
        self.scopes, self.kept = 0, []

    @contextmanager
    def scope(self):
        self.scopes += 1
        depth = self.scopes
        yield lambda cache: self.kept.append((depth, cache))
        self.scopes -= 1


def test_of_all_passes_of_a_search_the_base_pass_is_kept(rng, put):
    model, params, batch = network(rng, put)
    forgetting = Forgetting(model)
    cache = find_adversary(forgetting, params, batch, budgets=2, search=Greedy(K=2), rng=rng).base.cache
    assert forgetting.scopes == 0
    assert [(depth, kept is cache) for depth, kept in forgetting.kept] == [(2, True), (1, True)]


@pytest.mark.parametrize("regularizer", [AT(), VAT(), AdD(budgets=2), VD(), EL(), FD()])
def test_a_term_carries_the_state_and_the_likelihood(regularizer, rng, put):
    model, params, batch = network(rng, put)
    term = regularizer(model, params, batch, rng=rng, likelihood=1.0)
    assert term.state is not None and term.nll is not None and term.nll.shape == (3,)
    assert regularizer(model, params, batch, rng=rng, likelihood=0.0).nll is None


def test_fraternal_dropout_compares_the_first_mask_with_the_second(rng, put):
    """KL is not symmetric: the order of the two passes is part of what is computed."""
    model, params, batch = network(rng, put)
    term = FD(p=0.4, distance="kl")(Watched(model), params, batch, rng=np.random.default_rng(3))
    watched = Watched(model)
    FD(p=0.4, distance="kl")(watched, params, batch, rng=np.random.default_rng(3))
    m1, m2 = (given["masks"] for given in watched.forward)
    f1, f2 = (model.body(params, batch, masks=m, noise=None)[0] for m in (m1, m2))
    d = model.compare(params, f1, f2, None, by_name("kl")).d
    assert float(abs(term.value - d).max()) < 1e-12
