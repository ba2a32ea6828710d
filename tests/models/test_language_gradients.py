"""The whole language model against central differences: every argument, with every dropout, mask and penalty on."""

from dataclasses import replace

import numpy as np
import pytest

from minadv import gradcheck
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_add, tree_map
from minadv.distances import by_name
from minadv.models.language.activation import activation_penalty, temporal_penalty
from minadv.models.language.model import LanguageModel, TokenBatch
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.language_models import DROPOUTS, PENALTIES, fewer, language

weights = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def zeros_for_none(grads, params):
    """Gradients with a zero where a part has none, for the checker."""
    return tree_add(tree_map(lambda a: 0 * a, params), grads)


def all_alive(report, but=""):
    """Whether no gradient is lost beside the largest."""
    largest = max(row.analytic for row in report.rows)
    return all(row.analytic > 1e-4 * largest for row in report.rows if row.name != but)


@weights
@pytest.mark.parametrize("penalties", [{}, PENALTIES], ids=["", "penalties"])
def test_the_body(tied, penalties, rng, xp, put):
    """By all parameters, the state that came in, all masks and the perturbation, from the features and the states."""
    net = language(rng, put, hidden=(3, 2, 3) if tied else (3, 2), tied=tied, **DROPOUTS, **penalties)
    model, batch, noise = net.model, net.batch, net.noise

    def forward(params, state, masks, dx):
        features, last, _ = model.body(params, batch, masks=masks, noise=noise, state=state, dx=dx)
        return features, last

    def backward(args, d):
        given = {"masks": args["masks"], "state": args["state"], "dx": args["dx"]}
        _, _, cache = model.body(args["params"], batch, noise=noise, **given)
        back = model.body_backward(args["params"], cache, d[0], inputs=True, masks=tuple(args["masks"]), dstate=d[1])
        params = zeros_for_none(back.params, args["params"])
        return {"params": params, "state": back.state, "masks": back.masks, "dx": back.inputs}

    dx = put(rng.standard_normal((4, 3, 3)))
    args = {"params": net.params, "state": net.state, "masks": net.masks, "dx": dx}
    report = gradcheck.check(forward, backward, args, rng=rng, **fewer(xp))
    report.raise_if_failed()
    nothing = {"params.b", "params.P"}  # the head's
    assert all((row.analytic > 1e-4) != (row.name in nothing) for row in report.rows), str(report)


@weights
@pytest.mark.parametrize("dropouts", [{}, DROPOUTS], ids=["", "dropouts"])
@pytest.mark.parametrize("block", [None, 5])
def test_the_training_loss(tied, dropouts, block, rng, xp, put):
    """NLL and penalties from words and carried state to the loss: tied weights have both their contributions."""
    hidden = (4, 2, 3) if tied else (4, 2)
    net = language(rng, put, V=9, hidden=hidden, tied=tied, block=block, **dropouts, **PENALTIES)
    model, batch = net.model, net.batch

    def run(params, state, masks):
        return model.body(params, batch, masks=masks, noise=net.noise, state=state)

    def forward(params, state, masks):
        found = model.head(params, run(params, state, masks)[0], batch.targets)
        return (found.nll + found.penalty).sum()

    def backward(args, d):
        features, _, cache = run(**args)
        head = model.head(args["params"], features, batch.targets)
        back = model.body_backward(args["params"], cache, head.dfeatures, masks=tuple(args["masks"]))
        found = {"params": tree_add(head.params, back.params), "state": back.state, "masks": back.masks}
        return tree_map(lambda a: d * a, found)

    args = {"params": net.params, "state": net.state, "masks": net.masks}
    report = gradcheck.check(forward, backward, args, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all_alive(report), str(report)


@pytest.mark.parametrize("name", ["js", "kl", "rkl", "skl", "l2", "logit2"])
def test_the_distance_of_two_passes(name, rng, xp, put):
    """Through both passes to every parameter and to the masks of the second; every step of a stream has a weight."""
    net = language(rng, put, T=3, B=2, size=1.5, block=4, **DROPOUTS, **PENALTIES)
    model, batch, lam = net.model, net.batch, put(rng.uniform(0.1, 1, (3, 2)))

    def run(params, masks):
        return model.body(params, batch, masks=masks, noise=net.noise, state=net.state)

    def forward(params, masks):
        return model.compare(params, run(params, {})[0], run(params, masks)[0], lam, by_name(name)).d.sum()

    def backward(args, d):
        (f0, _, cache0), (f1, _, cache1) = run(args["params"], {}), run(**args)
        found = model.compare(args["params"], f0, f1, lam, by_name(name))
        back0 = model.body_backward(args["params"], cache0, found.dfeatures0)
        back1 = model.body_backward(args["params"], cache1, found.dfeatures1, masks=tuple(args["masks"]))
        grads = tree_add(tree_add(found.params, back0.params), back1.params)
        return tree_map(lambda a: d * a, {"params": grads, "masks": back1.masks})

    report = gradcheck.check(forward, backward, {"params": net.params, "masks": net.masks}, rng=rng, **fewer(xp))
    report.raise_if_failed()
    assert all_alive(report, but="params.b" if name == "logit2" else ""), str(report)


def test_windows_chained_by_their_states_are_one_long_window(rng, put):
    """Backpropagation through two windows, the second handing its state's gradient to the first, is that of one."""
    net = language(rng, put, T=6, **DROPOUTS)
    model, given = net.model, {"masks": net.masks, "noise": net.noise}
    features, _, cache = model.body(net.params, net.batch, state=net.state, **given)
    d = put(rng.standard_normal(features.shape))
    names = tuple(net.masks)
    whole = model.body_backward(net.params, cache, d, masks=names)
    first, second = (TokenBatch(net.batch.tokens[at]) for at in (slice(0, 2), slice(2, 6)))
    _, between, cache1 = model.body(net.params, first, state=net.state, **given)
    _, _, cache2 = model.body(net.params, second, state=between, **given)
    back2 = model.body_backward(net.params, cache2, d[2:], masks=names)
    back1 = model.body_backward(net.params, cache1, d[:2], masks=names, dstate=back2.state)
    assert_close(tree_add(back1.params, back2.params), whole.params)
    assert_close((back1.state, tree_add(back1.masks, back2.masks)), (whole.state, whole.masks))
    truncated = model.body_backward(net.params, cache1, d[:2])
    assert np.abs(to_host(truncated.params.E - back1.params.E)).max() > 1e-3


def test_what_was_dropped_has_no_gradient(rng, put):
    """To the raw weights: nothing for a dropped entry of U; nothing from the lookup for a word that was dropped."""
    net = language(rng, put, V=30, T=8, **DROPOUTS)
    features, _, cache = net.model.body(net.params, net.batch, masks=net.masks, noise=net.noise, state=net.state)
    d = put(rng.standard_normal(features.shape))
    grads, noise = to_host(net.model.body_backward(net.params, cache, d).params), to_host(net.noise)
    for cell, keep in zip(grads.cells, noise.U, strict=True):
        assert_zero(cell.U[~keep])
        assert np.abs(cell.U[keep]).max() > 1e-4
    seen = np.isin(np.arange(30), to_host(net.batch.tokens))
    assert_zero(grads.E[~seen | ~noise.words])
    assert (np.abs(grads.E[seen & noise.words]).max(axis=0) > 1e-4).any()


def test_a_backward_pass_computes_what_it_is_asked_for(rng, put):
    net = language(rng, put, **DROPOUTS)
    given = {"masks": {"layer0": net.masks["layer0"], "layer2": net.masks["layer2"]}, "noise": net.noise}
    features, _, cache = net.model.body(net.params, net.batch, **given)
    names = ("layer0", "layer1")  # of a layer with a mask, and of one without, where m = 1
    full = net.model.body_backward(net.params, cache, features, inputs=True, masks=names)
    light = net.model.body_backward(net.params, cache, features, weights=False, masks=names)
    assert (light.params, light.inputs) == (None, None)
    assert_same_bits((light.masks, light.state), (full.masks, full.state))
    assert tuple(full.masks) == names
    assert net.model.body_backward(net.params, cache, features).masks == {}
    assert (full.params.P, full.params.b) == (None, None)


@pytest.mark.parametrize("penalty", [activation_penalty, temporal_penalty])
@pytest.mark.parametrize("T", [1, 2, 5])
def test_the_penalties(penalty, T, rng, put):
    h = put(rng.standard_normal((T, 3, 2)))
    report = gradcheck.check(
        lambda h: penalty(h, 0.7)[0].sum(),
        lambda args, d: {"h": d * penalty(args["h"], 0.7)[1]},
        {"h": h},
        rng=rng,
    )
    report.raise_if_failed()
    assert (report["h"].analytic > 1e-3) == (T > 1 or penalty is activation_penalty)


def test_single_precision_stays_single(rng, put):
    net = language(rng, put, **DROPOUTS, **PENALTIES)
    params, state, masks = tree_map(lambda a: a.astype(np.float32), (net.params, net.state, net.masks))
    model: LanguageModel = replace(net.model)
    features, last, cache = model.body(params, net.batch, masks=masks, noise=net.noise, state=state)
    head = model.head(params, features, net.batch.targets)
    back = model.body_backward(params, cache, head.dfeatures, inputs=True)
    found = model.compare(params, features, features, None, by_name("js"))
    for path, a in leaves((features, last, head, (back.params, back.masks, back.inputs, back.state), found)):
        assert a.dtype == np.float32, path
