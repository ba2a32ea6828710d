"""Every regularizer on the classifier of texts: gradients, perturbations and padding, shared and independent noise."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from minadv import fast
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import leaves
from minadv.distances import by_name
from minadv.influence import ZeroInfluenceWarning
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Plain, Sum
from minadv.searches import Greedy, Reselect
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.networks import Watched
from tests.support.regularized import check, every_case, run
from tests.support.texts import FRONT, classifier

CASES = [name for name, case in every_case(None).items() if not {"steps", "readout"} & set(case.net)]


@pytest.mark.parametrize("truncate", [None, 3])
@pytest.mark.parametrize("name", CASES)
def test_the_total_loss(name, truncate, rng, xp, put):
    """Likelihood plus regularizer, by every parameter, with dropout on the embeddings, padding and two layers.

    Truncated, the gradient leaves out a part of the slope on purpose; there the values alone are compared.
    """
    case = every_case(None)[name]
    model, params, batch = classifier(
        rng, put, H=3, D=4, n_layers=2, valid=FRONT, truncate=truncate, size=0.7, output="sigmoid", C=2
    )
    term, again = run(case, model, params, batch, rng)
    assert_close((term.nll, term.value), (case.nll(again(params)), case.value(again(params))))
    assert all(np.isfinite(to_host(g)).all() for _, g in leaves(term.grads))
    if truncate is None:
        report = check(case, term, again, params, rng, elementwise=0, **({} if xp is np else {"directions": 1}))
        assert len(report.rows) == len(list(leaves(params)))
        assert all(float(abs(g).max()) > 1e-6 for _, g in leaves(term.grads))


def norms(dx):
    return np.sqrt((to_host(dx) ** 2).sum(axis=(0, 2)))


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("truncate", [None, 3])
@pytest.mark.parametrize("norm", [5.0, 0.3])
def test_at_has_its_norm_and_none_on_padding(cell, truncate, norm, rng, put):
    model, params, batch = classifier(rng, put, cell=cell, valid=FRONT, truncate=truncate)
    watched = Watched(model)
    term = AT(norm=norm)(watched, params, batch, rng=rng)
    assert_close(norms(term.dx), np.full(3, norm))
    assert_zero(term.dx[put(~FRONT)])
    assert watched.forward[-1]["dx"] is term.dx


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("truncate", [None, 3])
@pytest.mark.parametrize("norm", [5.0, 0.3])
def test_vat_has_its_norms_and_none_on_padding(cell, truncate, norm, rng, put):
    """The start is zero on the last step of each text, which is the batch's; a text of one word has no start at all."""
    model, params, batch = classifier(rng, put, cell=cell, valid=FRONT, truncate=truncate)
    watched = Watched(model)
    term = VAT(norm=norm, xi=0.1)(watched, params, batch, rng=rng)
    start = watched.forward[1]["dx"]
    assert_close(norms(start), np.array([0.1, 0.1, 0]))
    assert_zero(start[-1])
    assert_close(norms(term.dx), np.array([norm, norm, 0]))
    assert_zero((start[put(~FRONT)], term.dx[put(~FRONT)]))
    assert float(abs(term.dx[-1, :2]).min()) > 0
    assert len({id(given["noise"]) for given in watched.forward}) == 1  # every pass has the same dropout


def test_at_climbs_the_likelihood_at_the_rate_of_its_gradient(rng, put):
    """Through the embeddings: the slope along the perturbation is the norm of the gradient."""
    model, params, batch = classifier(rng, put, valid=FRONT)
    noise = model.noise(rng, batch)
    term = AT(norm=1e-4)(model, params, batch, rng=rng, noise=noise, likelihood=1.0)
    features, _, cache = model.body(params, batch, masks={}, noise=noise)
    head = model.head(params, features, batch.targets)
    slope = norms(model.body_backward(params, cache, head.dfeatures, inputs=True).inputs)
    assert_close((term.value - term.nll) / 1e-4, slope, 1e-3)
    assert slope.min() > 1e-4


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("distance", ["js", "kl", "rkl", "skl", "l2"])
@pytest.mark.parametrize("truncate", [None, 2])
def test_shared_noise_and_no_perturbation_give_no_distance_at_all(distance, truncate, dtype, rng, put):
    """Exactly zero, not nearly, in both precisions; of independent noise it is not zero."""
    model, params, batch = classifier(rng, put, valid=FRONT, D=6, truncate=truncate, dtype=dtype)
    noise = model.noise(rng, batch)
    ones = {site.name: put(np.ones((3, 4), dtype)) for site in model.sites}
    plain, _, _ = model.body(params, batch, masks={}, noise=noise)
    again, _, _ = model.body(params, batch, masks=ones, noise=noise, dx=put(np.zeros((4, 3, 6), dtype)))
    assert plain.dtype == again.dtype == dtype
    result = model.compare(params, plain, again, None, by_name(distance))
    assert_zero((result.d, result.dfeatures0, result.dfeatures1))
    other, _, _ = model.body(params, batch, masks={}, noise=model.noise(rng, batch))
    assert float(model.compare(params, plain, other, None, by_name(distance)).d.max()) > 1e-6


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_vat_of_no_norm_is_exactly_zero(cell, dtype, rng, put):
    model, params, batch = classifier(rng, put, valid=FRONT, cell=cell, dtype=dtype)
    value = VAT(norm=0.0)(model, params, batch, rng=rng).value
    assert value.dtype == dtype
    assert_zero(value)
    assert float(VAT(norm=0.5)(model, params, batch, rng=rng).value.max()) > 0


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize(
    ("search", "options"),
    [
        (Greedy(keep="last"), {}),
        (Greedy(start="base", keep="last"), {"share_noise": False}),
        (Reselect(), {}),
        (Greedy(keep="last"), {"sites": ("readout",)}),
    ],
    ids=["flip", "base", "reselect", "readout"],
)
def test_the_influence_map_is_not_zero(K, search, options, rng, put):
    """From one random flip with shared noise, and from the base with independent noise; a zero map would warn."""
    model, params, batch = classifier(rng, put, valid=FRONT, D=8, H=6, truncate=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regularizer = AdD(budgets=2, search=replace(search, K=K), distance="kl", stop_base=True, **options)
        term = regularizer(model, params, batch, rng=rng)
    site = options.get("sites", ("layer0",))[0]
    assert float(abs(term.trace.im[site]).max()) > 1e-8
    assert int(term.trace.flips[site].max()) > 0


def test_from_the_base_with_shared_noise_the_map_is_zero_and_that_is_said(rng, put):
    """The released code's setting."""
    model, params, batch = classifier(rng, put, valid=FRONT)
    noise = model.noise(rng, batch)
    with pytest.warns(ZeroInfluenceWarning, match="the influence map is zero up to rounding"):
        find_adversary(model, params, batch, rng=rng, budgets=2, search=Greedy(start="base"), noise=noise)


ADD_VAT = Sum((AdD(budgets=2, search=Greedy(K=2, keep="last")), VAT()))
METHODS = [Plain(), VD(), EL(), FD(), AT(), VAT(), AdD(budgets=2), ADD_VAT]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_buffers_change_not_one_bit(method, rng, put):
    model, params, batch = classifier(rng, put, T=7, truncate=3)

    def step(model):
        term = method(model, params, batch, rng=np.random.default_rng(1), likelihood=1.0)
        return term.value, term.nll, term.grads, term.state, term.dx

    expected = step(model)
    reusing = fast.reusing(model)
    first, second = step(reusing), step(reusing)  # the second in the very buffers of the first
    assert_same_bits((first, second), (expected, expected))
    assert len(reusing.buffers) > 0
    assert not reusing.buffers.taken


@pytest.mark.parametrize(
    "method", [EL(p=0.5), FD(p=0.5), VAT(), AdD(budgets=2)], ids=lambda method: type(method).__name__
)
def test_unlabelled_texts(method, rng, put):
    model, params, batch = classifier(rng, put, valid=FRONT)
    term = method(model, params, replace(batch, targets=None), rng=rng)
    assert term.nll is None
    assert all(float(abs(g).max()) > 0 for _, g in leaves(term.grads))
    with pytest.raises(ValueError, match="targets is None"):
        AT()(model, params, replace(batch, targets=None), rng=rng)
