"""The regularizers: which passes they run, what those share, and how their terms add up.

Values and gradients are held to losses written out in `gradients/test_regularizers.py`.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.memory import Memory
from minadv.models import Batch
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain, RDrop, Regularizer, Sum
from minadv.searches import Exact, Greedy
from tests.support.cells import RAGGED
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.networks import Watched, network

EVERY = {
    "plain": Plain(),
    "VD": VD(p=0.4),
    "EL": EL(p=0.4),
    "FD": FD(p=0.4),
    "Pi": Pi(p=0.4),
    "RDrop": RDrop(p=0.4),
    "AdD": AdD(budgets=2),
    "AT": AT(),
    "VAT": VAT(),
    "AdD + VAT": Sum((AdD(budgets=2), VAT())),
}
every = pytest.mark.parametrize("name", EVERY)


def watch(regularizer, net, seed=0, **options):
    """The term and what its passes were given."""
    model, params, batch = net
    watched = Watched(model)
    return regularizer(watched, params, batch, rng=np.random.default_rng(seed), **options), watched


@every
def test_one_signature_one_answer(name, rng, put):
    model, params, batch = network(rng, put, valid=RAGGED)
    before = tree_map(lambda a: a.copy(), (params, batch))
    term, _ = watch(EVERY[name], (model, params, batch), weight=0.5, likelihood=1.0)
    assert term.value.shape == term.nll.shape == (3,)
    assert [path for path, _ in leaves(term.grads)] == [path for path, _ in leaves(params)]
    assert [g.shape for _, g in leaves(term.grads)] == [a.shape for _, a in leaves(params)]
    again, _ = watch(EVERY[name], (model, params, batch), weight=0.5, likelihood=1.0)
    assert_same_bits((again.value, again.nll, again.grads), (term.value, term.nll, term.grads))
    assert_same_bits((params, batch), before)


@every
def test_gradients_are_linear_in_both_weights(name, rng, put):
    net = network(rng, put)
    both, likelihood, term = (
        watch(EVERY[name], net, weight=w, likelihood=l)[0] for w, l in ((0.3, 2.0), (0.0, 1.0), (1.0, 0.0))
    )
    assert term.nll is None
    assert_close(both.grads, tree_map(lambda a, b: 2 * a + 0.3 * b, likelihood.grads, term.grads))
    assert_close((both.value, both.nll), (term.value, likelihood.nll))  # values are not weighted


@every
def test_unlabelled_examples(name, rng, put):
    model, params, batch = network(rng, put)
    net = model, params, replace(batch, targets=None)
    if name == "AT":
        with pytest.raises(ValueError, match=r"targets is None: the likelihood needs a batch with targets"):
            watch(EVERY[name], net)
        return
    term, _ = watch(EVERY[name], net)
    assert term.nll is None
    labelled, _ = watch(EVERY[name], (model, params, batch))
    assert_same_bits((term.value, term.grads), (labelled.value, labelled.grads))
    with pytest.raises(ValueError, match=r"targets is None"):
        watch(EVERY[name], net, likelihood=1.0)


@every
def test_float32(name, rng, put):
    model, *rest = network(rng, put)
    params, batch = tree_map(lambda a: a.astype(np.float32) if a.dtype == np.float64 else a, rest)
    term, _ = watch(EVERY[name], (model, params, batch), likelihood=1.0)
    assert {a.dtype for _, a in leaves((term.value, term.nll, term.grads, term.dx))} == {np.dtype(np.float32)}
    double, _ = watch(EVERY[name], (model, *rest), likelihood=1.0)
    assert_close((term.value, term.nll), (double.value, double.nll), 1e-3)


@every
def test_noise_and_state_enter_every_pass(name, rng, put):
    model, params, batch = network(rng, put, I=4, input_dropout=0.5)
    noise = model.noise(rng, batch)
    _, state, _ = model.body(params, batch, masks={}, noise=noise)
    _, watched = watch(EVERY[name], (model, params, batch), noise=noise, state=state, likelihood=1.0)
    assert all(given["noise"] is noise and given["state"] is state for given in watched.forward)
    drawn, watched = watch(EVERY[name], (model, params, batch))
    assert len({id(given["noise"]) for given in watched.forward}) == 1
    assert watched.forward[0]["noise"] is not None
    taken_at = -1 if name == "EL" else 0  # the pass of the likelihood hands its state on
    _, last, _ = model.body(params, batch, **watched.forward[taken_at])
    assert_same_bits(drawn.state, last)


@pytest.mark.parametrize(
    "regularizer", [EL(p=0.4), FD(p=0.4), Pi(p=0.4), RDrop(p=0.4), AdD(budgets=2)], ids=lambda r: type(r).__name__
)
def test_independent_noise_is_drawn_twice(regularizer, rng, put):
    net = network(rng, put, I=4, input_dropout=0.5)
    _, watched = watch(replace(regularizer, share_noise=False), net)
    first, *others = (given["noise"] for given in watched.forward)
    assert all(noise is others[0] for noise in others)
    assert first is not others[0]


@pytest.mark.parametrize(
    "regularizer", [EL(p=0.0), FD(p=0.0), RDrop(p=0.0), VAT(norm=0.0)], ids=["EL", "FD", "RDrop", "VAT"]
)
def test_with_shared_noise_no_perturbation_is_exactly_no_distance(regularizer, rng, put):
    net = network(rng, put, I=8, input_dropout=0.5, valid=RAGGED)
    assert_zero(watch(regularizer, net)[0].value)
    if not isinstance(regularizer, VAT):
        apart, _ = watch(replace(regularizer, share_noise=False), net)
        assert float(apart.value.max()) > 0


def test_random_masks_are_inverted_and_the_expected_mask_is_one(rng, put):
    net = network(rng, put, n_layers=2, B=40)
    _, one = watch(VD(p=0.2), net, likelihood=1.0)
    _, el = watch(EL(p=0.2), net)
    _, fd = watch(FD(p=0.2), net)
    assert el.forward[0]["masks"] == {}
    for given in (one.forward[0], el.forward[1], *fd.forward):
        assert set(given["masks"]) == {"layer0", "layer1"}
        for m in given["masks"].values():
            assert set(np.unique(to_host(m)).tolist()) == {0, 1.25}
    assert not np.array_equal(*(to_host(given["masks"]["layer0"]) for given in fd.forward))
    _, last = watch(VD(p=0.2, sites=("readout",)), net, likelihood=1.0)
    assert set(last.forward[0]["masks"]) == {"readout"}


def test_pi_is_fraternal_dropout_with_one_likelihood(rng, put):
    net = network(rng, put)
    fd, pi = (watch(kind(p=0.4), net, likelihood=1.0) for kind in (FD, Pi))
    assert_same_bits(fd[0].value, pi[0].value)
    assert_same_bits([given["masks"] for given in fd[1].forward], [given["masks"] for given in pi[1].forward])
    assert float(abs(fd[0].nll - pi[0].nll).max()) > 1e-6


def test_r_drop_is_fraternal_dropout_with_the_symmetrised_kl(rng, put):
    """Both masks are drawn, and differ; the likelihood is the mean of both passes."""
    net = network(rng, put, B=20)
    named, fd, one = (
        watch(regularizer, net, likelihood=1.0, weight=0.7)
        for regularizer in (RDrop(p=0.4), FD(p=0.4, distance="skl"), Pi(p=0.4, distance="skl"))
    )
    assert_same_bits((named[0].value, named[0].nll, named[0].grads), (fd[0].value, fd[0].nll, fd[0].grads))
    first, second = (to_host(given["masks"]["layer0"]) for given in named[1].forward)
    assert (first != second).any(axis=1).any()
    assert {*np.unique(first), *np.unique(second)} == {0, 1 / 0.6}
    assert float(abs(named[0].nll - one[0].nll).max()) > 1e-6


@pytest.mark.parametrize("scale", ["none", "kept"])
@pytest.mark.parametrize("sites", [None, ("readout",)], ids=["recurrent", "last state"])
def test_adversarial_dropout_compares_the_full_network_with_the_mask_found(scale, sites, rng, put):
    term, watched = watch(AdD(budgets=2, scale=scale, sites=sites), network(rng, put))
    assert watched.forward[0]["masks"] == {}
    assert set(term.trace.eps) == {"layer0" if sites is None else "readout"}
    m = {name: masks.scale(eps, scale) for name, eps in term.trace.eps.items()}
    assert_same_bits(watched.forward[-1]["masks"], m)
    assert_same_bits(term.trace.d, term.value)
    assert term.trace.base is None  # its memory may serve the next step


@pytest.mark.parametrize(
    "options",
    [
        {"distance": "rkl"},
        {"scale": "kept"},
        {"scale": "inverted", "p": 0.3},
        {"lam": np.array([0.7, 0.1, 0.1, 0.1])},
        {"sites": ("readout",)},
    ],
    ids=str,
)
def test_the_search_looks_for_the_distance_that_is_trained_on(options, rng, put):
    net, options = network(rng, put, steps="all"), put({"lam": np.full(4, 0.25), **options})
    term, _ = watch(AdD(budgets=2, **options), net)
    trace = find_adversary(*net, budgets=2, search=Greedy(keep="last"), rng=np.random.default_rng(0), **options)
    assert_same_bits((term.trace.eps, term.trace.im), (trace.eps, trace.im))
    assert_same_bits(term.trace.visits[0].d, trace.visits[0].d)


@pytest.mark.parametrize(
    ("options", "likelihood", "searched", "whole"),
    [
        ({}, 1.0, 1, 2),
        ({"search": Greedy(K=2, keep="last")}, 1.0, 2, 2),
        ({}, 0.0, 1, 2),
        ({"stop_base": True}, 1.0, 1, 2),
        ({"stop_base": True}, 0.0, 1, 1),
    ],
    ids=str,
)
def test_each_pass_is_gone_back_through_once(options, likelihood, searched, whole, rng, put):
    """The search asks for no weight gradients; a stopped base without a likelihood is not gone back through at all."""
    _, watched = watch(AdD(budgets=2, **options), network(rng, put), likelihood=likelihood)
    with_weights = [given.get("weights", True) for given in watched.backward]
    assert with_weights == [False] * searched + [True] * whole


def test_nothing_asked_nothing_back(rng, put):
    model, params, batch = network(rng, put)
    without_bias = replace(params, b=0 * params.b)
    term, watched = watch(Plain(), (model, without_bias, batch))
    assert_zero((term.value, term.grads))
    assert watched.backward == []


def test_a_sum_adds_and_takes_the_likelihood_once(rng, put):
    net = network(rng, put)
    parts = AdD(budgets=2), VAT(norm=0.5)
    total, _ = watch(Sum(parts, weights=(2.0, 0.5)), net, weight=0.3, likelihood=1.0)
    shared = np.random.default_rng(0)
    first = parts[0](*net, rng=shared, weight=0.6, likelihood=1.0)
    second = parts[1](*net, rng=shared, weight=0.15)
    assert_close(total.value, 2 * first.value + 0.5 * second.value)
    assert_close(total.grads, tree_map(lambda a, b: a + b, first.grads, second.grads))
    assert_close((total.nll, total.trace.eps, total.dx), (first.nll, first.trace.eps, second.dx))
    one, same = (watch(Sum(parts, weights), net)[0] for weights in (None, (1.0, 1.0)))
    assert_same_bits((one.value, one.grads), (same.value, same.grads))


def test_a_sum_carries_what_its_first_adversaries_found(rng, put):
    net = network(rng, put)
    found, _ = watch(Sum((VAT(norm=0.5), AdD(budgets=2), AdD(budgets=3), VAT(norm=2.0))), net)
    assert found.trace.budgets == {"layer0": 2}
    assert_same_bits(found.dx, watch(VAT(norm=0.5), net)[0].dx)


def test_of_several_adversaries_the_one_that_remembers_is_remembered(rng, put):
    net = network(rng, put)
    greedy, remembers = AdD(budgets=2, search=Greedy(keep="last")), AdD(budgets=2, search=Memory())
    for parts in ((greedy, remembers), (remembers, greedy)):
        once, _ = watch(Sum(parts), net)
        twice, _ = watch(Sum(parts), net, memory=once.trace.memory)
        assert to_host(twice.trace.memory.visits).tolist() == [2, 2, 2]


def test_bad_input(rng, put):
    with pytest.raises(ValueError, match=r"expected one weight for each part"):
        Sum(())
    with pytest.raises(ValueError, match=r"expected one weight for each part"):
        Sum((Plain(), Plain()), weights=(1.0,))
    with pytest.raises(ValueError, match=r"p is 1\.0, expected a probability"):
        watch(VD(p=1.0), network(rng, put))
    with pytest.raises(ValueError, match=r"distance is 'tv', expected one of"):
        watch(EL(distance="tv"), network(rng, put))
    with pytest.raises(NotImplementedError):
        watch(Regularizer(), network(rng, put))


def test_one_example(rng, put):
    model, params, batch = network(rng, put, B=1)
    assert isinstance(batch, Batch)
    for regularizer in EVERY.values():
        assert watch(regularizer, (model, params, batch), likelihood=1.0)[0].value.shape == (1,)


SHARE, FLIPS = "a share of the units from 0 to 1", "a whole number of at least 1"


@pytest.mark.parametrize(
    ("kind", "option", "says"),
    [
        *(
            (AdD, {"delta": value}, f"delta is .*, expected {SHARE} or a table")
            for value in (math.nan, -1, "x", object())
        ),
        (AdD, {"delta": {"layer0": 2}}, f"delta.layer0 is 2, expected {SHARE}"),
        (AdD, {"budgets": 1.5}, f"budgets is 1.5, expected {FLIPS} or a table of values by name, or None"),
        (AdD, {"budgets": {"layer0": "x"}}, f"budgets.layer0 is 'x', expected {FLIPS}"),
        (AdD, {"delta": {}}, "delta is {} and budgets is None: give one of the two, and no empty one"),
        (AdD, {"budgets": {}}, "delta is None and budgets is {}: give one of the two, and no empty one"),
        *((kind, {"sites": "x"}, "sites is 'x', expected a list, or None") for kind in (VD, EL, FD, AdD)),
        (VD, {"sites": (1,)}, r"sites\[0\] is 1, expected a text"),
        *((EL, {"lam": value}, "lam is .*, expected an array, or None") for value in ("x", math.nan, object())),
        (VD, {"scale": np.arange(3)}, r"scale is array\(\[0, 1, 2\]\), expected one of 'none', 'inverted', 'kept'"),
        (AdD, {"scale": "inverted"}, 'scale="inverted" needs the probability of dropping: give p'),
        (FD, {"distance": np.zeros((9, 2))}, r"distance is array\(.*\.\.\., expected one of 'js', 'kl'"),
    ],
)
def test_what_is_wrong_whatever_the_model_is_said_at_once(kind, option, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        kind(**option)


def test_a_sum_takes_a_tuple():
    with pytest.raises(TypeError, match=r"expected a tuple of regularizers: Sum\(\(AdD\(\), VAT\(\)\)\)"):
        Sum(AdD(), VAT())


@pytest.mark.parametrize(("H", "flips"), [(2, 2), (6, 3), (120, 3), (200, 6)])
def test_adversarial_dropout_flips_three_units_or_more_unless_told_otherwise(H, flips, rng, put):
    model, params, batch = network(rng, put, H=H, n_layers=2)
    assert AdD().expect_budgets(model) == {"layer0": flips, "layer1": flips}
    trace = watch(AdD(), (model, params, batch))[0].trace  # a budget of one would warn
    assert trace.budgets == {"layer0": flips, "layer1": flips}
    assert AdD(sites=("layer1",)).expect_budgets(model) == {"layer1": flips}
    assert AdD(budgets=1).expect_budgets(model) == {"layer0": 1, "layer1": 1}


def test_a_budget_that_is_too_much_for_the_search(rng, put):
    model, _, _ = network(rng, put, H=6)
    with pytest.raises(ValueError, match=r"an exact search would run 22 masks, more than max_masks = 21"):
        AdD(budgets=2, search=Exact(max_masks=21)).expect_budgets(model)


def test_a_tenth_of_the_units_is_dropped_unless_told_otherwise():
    assert [kind().p for kind in (VD, EL, FD, Pi)] == [0.1] * 4
