"""A model that is not minadv's own is attacked and regularised through the protocol alone."""

import numpy as np
import pytest

from minadv import gradcheck
from minadv.adversary import find_adversary
from minadv.backend import namespace, to_host
from minadv.base.trees import leaves
from minadv.distances import by_name
from minadv.influence import ZeroInfluenceWarning
from minadv.regularizers import AdD
from minadv.searches import Exact, Greedy, Memory, Random, Relax, Reselect
from tests.support.compare import assert_close
from tests.support.foreign_model import Leaky, example
from tests.support.networks import Watched
from tests.support.regularized import check, every_case, run
from tests.support.searching import objective, replay

SEARCHES = [
    *(Greedy(K=2), Reselect(swaps=1), Exact(), Random(tries=3)),
    *(Relax(), Relax((4, 2), reselect=1, borrow=2, swaps=3), Memory(tries=2)),
]
CASES = {  # its only site is "z", its features are of one step, and its noise is a jitter
    name: case
    for name, case in every_case(None).items()
    if not {"steps", "readout"} & set(case.net) and name != "AdD, last state"
}


def test_its_own_gradients(rng, put):
    """If these were wrong, the tests below would say nothing about minadv."""
    model, params, songs = example(rng, put)
    m = put(rng.uniform(0.5, 1.5, (3, 4)))

    def forward(params, m):
        return model.body(params, songs, masks={"z": m}, noise=None)[0]

    def backward(args, dfeatures):
        _, _, cache = model.body(args["params"], songs, masks={"z": args["m"]}, noise=None)
        grads = model.body_backward(args["params"], cache, dfeatures, masks=("z",))
        zeros = {"w": 0 * params.w, "c": 0 * params.c}
        return {"params": type(params)(grads.params.A, grads.params.R, **zeros), "m": grads.masks["z"]}

    gradcheck.check(forward, backward, {"params": params, "m": m}, rng=rng).raise_if_failed()


@pytest.mark.parametrize("distance", ["js", "kl"])
@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_every_search(search, distance, rng, put):
    model, params, songs = example(rng, put, B=5, H=5)
    watched = Watched(model)
    trace = find_adversary(watched, params, songs, rng=rng, delta=0.4, search=search, distance=distance)
    assert len(watched.forward) == 1 + trace.passes.forward
    assert trace.budgets == {"z": 2}
    assert int(trace.flips["z"].max()) <= 2
    f0, f1 = (model.body(params, songs, masks=masks, noise=None)[0] for masks in ({}, trace.eps))
    assert_close(trace.d, model.compare(params, f0, f1, None, by_name(distance)).d)
    best = find_adversary(model, params, songs, rng=rng, budgets=2, search=Exact(), distance=distance).d
    assert (to_host(trace.d) <= to_host(best) + 1e-12).all()
    assert float(trace.d.min()) > 0


def test_a_state_enters_every_pass(rng, put):
    net, state = example(rng, put), put(rng.standard_normal((3, 4)))
    trace = find_adversary(*net, rng=rng, budgets=2, state=state)
    assert_close(trace.d, replay(net, trace.eps, state=state))


@pytest.mark.many_passes
@pytest.mark.parametrize("name", CASES)
def test_every_regularizer(name, rng, put):
    case = CASES[name]
    model, params, songs = example(rng, put, jitter=0.3 if "input_dropout" in case.net else 0.0)
    term, again = run(case, model, params, songs, rng)
    assert_close((term.nll, term.value), (case.nll(again(params)), case.value(again(params))))
    check(case, term, again, params, rng)
    assert all(float(abs(g).max()) > 1e-4 for _, g in leaves(term.grads))


def test_its_noise_is_the_second_remedy_for_a_zero_map(rng, put):
    net = example(rng, put, jitter=0.3)
    with pytest.warns(ZeroInfluenceWarning):
        AdD(budgets=2, search=Greedy(start="base", keep="last"))(*net, rng=rng)
    trace = AdD(budgets=2, search=Greedy(start="base", keep="last"), share_noise=False)(*net, rng=rng).trace
    assert np.abs(to_host(trace.im["z"])).min() > 0


def margin_of(model, params, songs, m, y=None):
    """The log-odds (B,) of the predicted class, or of the classes y, and those classes."""
    logits = to_host(model.logits(params, model.body(params, songs, masks={"z": m}, noise=None)[0]))[0]  # (B, 2)
    y = logits.argmax(axis=-1) if y is None else y
    rows = np.arange(len(y))
    return logits[rows, y] - logits[rows, 1 - y], y


def test_its_margin_by_way_of_compare(rng, put):
    """Leaky says nothing of margins: its compare with another distance is enough."""
    net = example(rng, put, B=5, H=5)
    found, p = objective(net, budgets=2).margin()
    ones = put(np.ones((5, 5)))
    z, y = margin_of(*net, ones)
    assert_close(p, 1 / (1 + np.exp(-z)))
    for j in range(5):
        up, down = ones.copy(), ones.copy()
        up[:, j] += 1e-6
        down[:, j] -= 1e-6
        assert_close(found["z"][:, j], (margin_of(*net, up, y)[0] - margin_of(*net, down, y)[0]) / 2e-6, 1e-7)


class Sure(Leaky):
    """It computes its margin itself, and remembers what it was asked; its own distance is not the one it is given."""

    asked = ()

    def margin(self, params, features, lam):
        self.asked = (*self.asked, (features.shape, lam))
        y = self.logits(params, features)[0, :, 0]
        xp = namespace(y)
        side = xp.where(y >= 0, 1.0, -1.0)
        return (side[:, None] * params.w)[None], 1 / (1 + xp.exp(-xp.abs(y)))


class Deaf(Leaky):
    """Its compare knows one distance only."""

    def compare(self, params, features0, features1, lam, distance, **given):
        return super().compare(params, features0, features1, lam, by_name("js"), **given)


@pytest.mark.parametrize("search", [Relax(), Relax((4, 2), reselect=1, borrow=2, swaps=3), Memory()], ids=repr)
def test_its_own_margin(search, rng, put):
    model, params, songs = example(rng, put, B=5, H=5)
    sure = Sure(2, 5)
    one, two = (find_adversary(each, params, songs, budgets=2, search=search) for each in (model, sure))
    assert_close(([v.eps for v in two.visits], two.d), ([v.eps for v in one.visits], one.d))
    assert sure.asked == (((1, 5, 5), None),)
    with pytest.raises(TypeError) as caught:
        find_adversary(Deaf(2, 5), params, songs, budgets=2, search=search)
    assert str(caught.value) == (
        "Deaf.compare does not compute the distance that it is given, and Deaf has no margin: "
        "write one of the two, or use a search that needs neither, such as Reselect()"
    )

    class Both(Sure, Deaf):
        """A margin of its own is enough."""

    three = find_adversary(Both(2, 5), params, songs, budgets=2, search=search)
    assert_close((three.eps, three.d), (one.eps, one.d))
