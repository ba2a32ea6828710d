"""Every regularizer and search on a language model, through the protocol alone, with gradients to every parameter."""

import numpy as np
import pytest

from minadv import fast, gradcheck
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.shared_draws import Share
from minadv.base.trees import leaves, tree_map
from minadv.distances import by_name
from minadv.influence import ZeroInfluenceWarning
from minadv.models.language.model import TokenBatch
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain, RDrop
from minadv.searches import Exact, Greedy, Memory, Random, Relax, Reselect
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_models import DROPOUTS, PENALTIES, language
from tests.support.networks import Watched
from tests.support.regularized import LIKELIHOOD, WEIGHT, Passes

BUDGETS = {"layer0": 2, "layer1": 1, "layer2": 2}
DELTAS = {"layer0": 0.5, "layer1": 0.5, "layer2": 0.7}
OFF = "ignore::minadv.searches.SmallBudgetWarning"


def mean_distance(at, name="js", first=0, last=-1, stop=False):
    return at.d(first, last, name, np.full(4, 0.25), stop=stop)


def nothing(at):
    return 0 * at.nll(0)


CASES = {  # the regularizer, its value, and the passes at which the likelihood is taken
    "plain": (Plain(), nothing, [0]),
    "VD": (VD(p=0.4), nothing, [0]),
    "VD, one layer": (VD(p=0.4, sites=("layer1",)), nothing, [0]),
    "EL": (EL(p=0.4), mean_distance, [-1]),
    "FD": (FD(p=0.4, distance="logit2"), lambda at: mean_distance(at, "logit2"), [0, -1]),
    "Pi": (Pi(p=0.4, share_noise=False), mean_distance, [0]),
    "RDrop": (RDrop(p=0.4, share_noise=False), lambda at: mean_distance(at, "skl"), [0, -1]),
    "AdD": (AdD(budgets=BUDGETS), mean_distance, [0]),
    "AdD, K=2, delta by layer": (
        AdD(delta=DELTAS, search=Greedy(K=2, keep="last"), distance="kl"),
        lambda at: mean_distance(at, "kl"),
        [0],
    ),
    "AdD, one layer, stop": (
        AdD(budgets=2, sites=("layer0",), stop_base=True),
        lambda at: mean_distance(at, stop=True),
        [0],
    ),
    "AdD, reselect": (AdD(budgets=BUDGETS, search=Reselect()), mean_distance, [0]),
    "AdD, relax": (AdD(budgets=BUDGETS, search=Relax(borrow=1, swaps=1)), mean_distance, [0]),
    "AdD, memory": (
        AdD(budgets=BUDGETS, search=Memory(), stop_base=True),
        lambda at: mean_distance(at, stop=True),
        [0],
    ),
    "AdD, exact": (AdD(budgets=1, search=Exact()), mean_distance, [0]),
    "AdD, random": (AdD(budgets=BUDGETS, search=Random(tries=3)), mean_distance, [0]),
    "AdD, independent noise": (
        AdD(budgets=BUDGETS, search=Greedy(start="base", keep="last"), share_noise=False),
        mean_distance,
        [0],
    ),
    "AT": (AT(norm=0.5), lambda at: at.nll(-1), [0]),
    "VAT": (VAT(norm=0.5), lambda at: mean_distance(at, "kl", stop=True), [0]),
}


def penalty(at, n):
    found = at.model.head(at.params, at._features(n), at.batch.targets).penalty
    return 0 if found is None else found


@pytest.mark.many_passes
@pytest.mark.filterwarnings(OFF)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", CASES)
def test_the_total_loss(name, tied, rng, xp, put):
    """With a carried state; AR and temporal AR are in the gradient and not in the NLL."""
    regularizer, value, takes_nll = CASES[name]
    penalties = {} if name == "AT" else PENALTIES  # AT's own term is the NLL at the perturbed input: tested apart
    net = language(rng, put, hidden=(4, 2, 3), tied=tied, **DROPOUTS, **penalties)
    watched = Watched(net.model)
    term = regularizer(watched, net.params, net.batch, rng=rng, weight=WEIGHT, likelihood=LIKELIHOOD, state=net.state)
    given = watched.forward
    assert all(each["state"] is net.state for each in given)
    stopped = [net.model.logits(net.params, net.model.body(net.params, net.batch, **each)[0]) for each in given]

    def at(params):
        return Passes(net.model, params, net.batch, given, stopped)

    def mean(f):
        return sum(f(n) for n in takes_nll) / len(takes_nll)

    def loss(params):
        here = at(params)
        likelihood = mean(lambda n: here.nll(n) + penalty(here, n))
        return (LIKELIHOOD * likelihood + WEIGHT * value_of(here)).mean()

    def value_of(here):
        return value(OnDevice(here, put))

    here = at(net.params)
    assert_close((term.nll, term.value), (mean(here.nll), value_of(here)), 1e-11)
    report = gradcheck.check(
        loss,
        lambda args, d: {"params": tree_map(lambda g: d * g, term.grads)},
        {"params": net.params},
        rng=rng,
        elementwise=0,
        directions=3 if xp is np else 1,
    )
    report.raise_if_failed()
    assert len(report.rows) == len(list(leaves(net.params)))
    assert all(float(abs(g).max()) > 1e-5 for _, g in leaves(term.grads))


class OnDevice:
    """Passes whose weights of the steps are moved to the backend under test."""

    def __init__(self, at, put):
        self._at, self._put = at, put

    def nll(self, n):
        return self._at.nll(n)

    def d(self, n0, n1, name, lam, stop=False):
        return self._at.d(n0, n1, name, self._put(lam), stop)


def test_adversarial_training_takes_the_penalty_with_the_likelihood(rng, put):
    """AT's gradient is that of the NLL and penalty, at the clean and at the perturbed input alike."""
    net = language(rng, put, **PENALTIES)
    watched = Watched(net.model)
    term = AT(norm=0.5)(watched, net.params, net.batch, rng=rng, weight=WEIGHT, likelihood=LIKELIHOOD)
    given = watched.forward

    def loss(params):
        at = Passes(net.model, params, net.batch, given, [])
        clean, moved = (at.nll(n) + penalty(at, n) for n in (0, -1))
        return (LIKELIHOOD * clean + WEIGHT * moved).mean()

    def backward(args, d):
        return {"params": tree_map(lambda g: d * g, term.grads)}

    gradcheck.check(loss, backward, {"params": net.params}, rng=rng, elementwise=0).raise_if_failed()


@pytest.mark.filterwarnings(OFF)
@pytest.mark.parametrize("search", [Greedy(), Reselect(K=1), Exact(), Random()], ids=lambda search: search.name)
def test_every_search_stays_within_each_layers_budget(search, rng, put):
    net = language(rng, put, T=5, **DROPOUTS)
    budgets = dict.fromkeys(BUDGETS, 1) if isinstance(search, Exact) else BUDGETS
    trace = find_adversary(
        net.model, net.params, net.batch, rng=rng, budgets=budgets, noise=net.noise, state=net.state, search=search
    )
    assert trace.budgets == budgets
    assert {name: eps.shape for name, eps in trace.eps.items()} == {
        "layer0": (3, 4),
        "layer1": (3, 2),
        "layer2": (3, 3),
    }
    for name, flips in trace.flips.items():
        assert int(flips.max()) <= budgets[name]
    f0, f1 = (
        net.model.body(net.params, net.batch, masks=masks, noise=net.noise, state=net.state)[0]
        for masks in ({}, trace.eps)
    )
    assert_close(trace.d, net.model.compare(net.params, f0, f1, None, by_name("js")).d)
    assert float(trace.d.min()) > 0


def test_a_budget_larger_than_a_layer(rng, put):
    net = language(rng, put)
    with pytest.raises(ValueError, match=r"budgets of layer1 is 3, expected a number of flips from 1 to H = 2"):
        AdD(budgets={"layer0": 3, "layer1": 3, "layer2": 3})(net.model, net.params, net.batch, rng=rng)


def test_new_words_are_a_remedy_for_a_zero_map(rng, put):
    """Only the words are drawn anew, as the paper runs it: the other noise is shared, and the map is not zero."""
    net = language(rng, put, V=40, **DROPOUTS)
    given = {"budgets": 2, "search": Greedy(start="base"), "sites": ("layer0",), "noise": net.noise}
    with pytest.warns(ZeroInfluenceWarning):
        find_adversary(net.model, net.params, net.batch, rng=rng, **given)
    other = net.model.redraw(rng, net.batch, net.noise, ("words",))
    trace = find_adversary(net.model, net.params, net.batch, rng=rng, adv_noise=other, **given)
    assert np.abs(to_host(trace.im["layer0"])).max() > 1e-6


@pytest.mark.many_passes
@pytest.mark.filterwarnings(OFF)
@pytest.mark.parametrize("name", CASES)
def test_buffers_change_nothing(name, rng, put):
    net = language(rng, put, **DROPOUTS, **PENALTIES)
    reusing = fast.reusing(net.model)
    given = {"weight": WEIGHT, "likelihood": LIKELIHOOD, "state": net.state}
    plain, first, again = (
        CASES[name][0](model, net.params, net.batch, rng=np.random.default_rng(3), **given)
        for model in (net.model, reusing, reusing)
    )
    assert len(reusing.buffers) > 0
    assert not reusing.buffers.taken
    for term in (first, again):
        assert_same_bits(
            (term.value, term.nll, term.grads, term.state), (plain.value, plain.nll, plain.grads, plain.state)
        )


@pytest.mark.filterwarnings(OFF)
@pytest.mark.parametrize("name", ["plain", "VD", "FD", "AdD", "AdD, independent noise", "VAT"])
def test_two_workers_take_the_mean_of_their_streams(name, rng, put):
    """Each with its streams and its share of the random numbers: together the term of the whole batch."""
    net = language(rng, put, B=4, **DROPOUTS, **PENALTIES)
    regularizer = CASES[name][0]
    given = {"weight": WEIGHT, "likelihood": LIKELIHOOD}
    whole = regularizer(net.model, net.params, net.batch, rng=np.random.default_rng(5), state=net.state, **given)
    terms = []
    for rows in (slice(0, 1), slice(1, 4)):
        share = Share(np.random.default_rng(5), rows.start, rows.stop, 4)
        part = TokenBatch(net.batch.tokens[:, rows], net.batch.targets[:, rows])
        state = tree_map(lambda a, rows=rows: a[rows], net.state)
        terms.append(regularizer(net.model, net.params, part, rng=share, state=state, **given))
    for name in ("value", "nll"):
        joined = np.concatenate([to_host(getattr(term, name)) for term in terms])
        assert_close(joined, getattr(whole, name), 1e-11)
    mean = tree_map(lambda a, b: (1 * a + 3 * b) / 4, terms[0].grads, terms[1].grads)
    assert_close(mean, whole.grads, 1e-11)
