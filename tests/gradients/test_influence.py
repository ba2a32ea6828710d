"""Eq. 6 four ways: the O(T) sum, the double sum as printed, `Grads.m` through the scale, and central differences."""

import numpy as np
import pytest

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.distances import by_name
from minadv.influence import influence_map, influence_map_double_sum
from minadv.models import Batch, stack
from tests.support.cells import RAGGED
from tests.support.compare import assert_close
from tests.support.networks import network

EPS0 = np.array([[1.0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1]])  # (B, H)
LAST, EVERY = "last", "all"
pytestmark = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])


def central_differences(model, params, batch, eps, f0, lam, distance, scale, xp, step=1e-5):
    """dD/deps (B, H), each unit of each example moved by itself: all of them as one large batch."""
    B, H = eps.shape
    moved = xp.concatenate([eps[None] + sign * step * xp.eye(H)[:, None] for sign in (1, -1)])  # (2H, B, H)
    m = masks.scale(moved.reshape(-1, H), scale, p=0.25)
    many = Batch(xp.tile(batch.x, (1, 2 * H, 1)), None, None if batch.valid is None else xp.tile(batch.valid, 2 * H))
    f1, _, _ = model.body(params, many, masks={"layer0": m}, noise=None)
    many_lam = xp.tile(lam, 2 * H) if lam is not None and lam.ndim == 2 else lam
    d = model.compare(params, xp.tile(f0, (1, 2 * H, 1)), f1, many_lam, by_name(distance)).d.reshape(2, H, B)
    return (d[0] - d[1]).T / (2 * step)


def assert_near(actual, expected):
    """The criterion of `gradcheck`."""
    actual, expected = to_host(actual), to_host(expected)
    assert np.abs(actual - expected).max() <= 1e-6 * max(np.abs(actual).max(), np.abs(expected).max(), 1e-3)


@pytest.mark.parametrize("readout", ["clean", "masked"])
@pytest.mark.parametrize("scale", ["none", "inverted", "kept"])
@pytest.mark.parametrize(
    ("distance", "valid"),
    [("js", None), ("kl", None), ("rkl", None), ("skl", None), ("l2", None), ("js", RAGGED)],
    ids=["js", "kl", "rkl", "skl", "l2", "js, ragged"],
)
@pytest.mark.parametrize("steps", [LAST, EVERY])
def test_four_ways_to_the_influence_map(cell, readout, scale, distance, valid, steps, rng, xp, put):
    model, params, batch = network(rng, put, cell=cell, readout=readout, steps=steps, valid=valid)
    lam = None if steps == LAST else put(rng.uniform(0.2, 1, 4 if valid is None else (4, 3)))
    options = {"distance": distance, "lam": lam, "scale": scale, "p": 0.25}
    trace = find_adversary(model, params, batch, rng=rng, budgets=2, eps0=put(EPS0), **options)
    eps, im = trace.start["layer0"], trace.im["layer0"]
    m0, m = masks.scale(put(EPS0), scale, p=0.25), masks.scale(eps, scale, p=0.25)

    f0, _, _ = model.body(params, batch, masks={"layer0": m0}, noise=None)
    f1, _, _ = model.body(params, batch, masks={"layer0": m}, noise=None)
    df = model.compare(params, f0, f1, lam, by_name(distance)).dfeatures1

    module, layer = stack.by_name(cell), params.cells[0]
    _, _, cache = module.forward(layer, batch.x, m=m, valid=batch.valid)
    dread = xp.zeros_like(cache.h[1:])  # (T, B, H); the state at T is that of the last valid step
    dread[-len(df) :] = df
    masked = readout == "masked"
    dh = m * dread if masked else dread
    grads = module.backward(layer, cache, dh, weights=False)
    own = (dread * cache.h[1:]).sum(axis=0) if masked else 0  # u = t
    once = influence_map(cache.h[:-1], grads.hhat) + own
    double = influence_map_double_sum(module, layer, cache, dh, dread if masked else None)

    assert_close(once, double, 1e-10)
    assert_close(grads.m + own, double, 1e-10)
    assert_close(im, masks.scale_backward(eps, double, scale, p=0.25), 1e-10)
    assert_near(im, central_differences(model, params, batch, eps, f0, lam, distance, scale, xp))
    assert float(abs(im).max()) > 1e-6


def test_a_masked_readout_needs_its_own_term(cell, rng, xp, put):
    """Without u = t, the map of a masked readout is wrong by about its own size."""
    model, params, batch = network(rng, put, cell=cell, readout="masked")
    trace = find_adversary(model, params, batch, rng=rng, budgets=2)
    m = trace.start["layer0"]
    f1, _, cache = model.body(params, batch, masks={"layer0": m}, noise=None)
    f0, _, _ = model.body(params, batch, masks={}, noise=None)
    own = (model.compare(params, f0, f1, None, by_name("js")).dfeatures1 * cache.h).sum(axis=0)
    im = trace.im["layer0"]
    assert float(abs(own).max()) > 0.3 * float(abs(im).max())
    assert_near(im, central_differences(model, params, batch, m, f0, None, "js", "none", xp))


@pytest.mark.parametrize("scale", ["none", "kept"])
@pytest.mark.parametrize("site", ["layer0", "layer1", "readout"])
def test_the_map_of_each_site_of_two_layers(cell, site, scale, rng, put):
    """All sites masked at once, one map each."""
    model, params, batch = network(rng, put, cell=cell, n_layers=2, valid=RAGGED)
    sites = tuple(s.name for s in model.sites)
    trace = find_adversary(model, params, batch, rng=rng, budgets=2, scale=scale, sites=sites)
    f0, _, _ = model.body(params, batch, masks={}, noise=None)

    def d(eps):
        m = {name: masks.scale(e, scale) for name, e in {**trace.start, site: eps}.items()}
        f1, _, _ = model.body(params, batch, masks=m, noise=None)
        return to_host(model.compare(params, f0, f1, None, by_name("js")).d)

    step, numeric = 1e-5, np.zeros((3, 4))
    for i in range(4):
        nudge = put(step * np.eye(4)[i])
        numeric[:, i] = (d(trace.start[site] + nudge) - d(trace.start[site] - nudge)) / (2 * step)
    assert_near(trace.im[site], numeric)
    assert np.abs(numeric).max() > 1e-6


def test_a_carried_state_is_masked_too(cell, rng, xp, put):
    """The sum starts at u = 0: the initial state enters the first step through the mask."""
    model, params, batch = network(rng, put, cell=cell)
    module = stack.by_name(cell)
    _, state, _ = model.body(params, batch, masks={}, noise=None)
    trace = find_adversary(model, params, batch, rng=rng, budgets=2, state=state)
    eps = trace.start["layer0"]
    f0, _, _ = model.body(params, batch, masks={}, noise=None, state=state)
    f1, _, _ = model.body(params, batch, masks={"layer0": eps}, noise=None, state=state)
    h, _, cache = module.forward(params.cells[0], batch.x, m=eps, state=state[0])
    dh = xp.zeros_like(h)
    dh[-1] = model.compare(params, f0, f1, None, by_name("js")).dfeatures1[0]
    hhat = module.backward(params.cells[0], cache, dh, weights=False).hhat
    assert_close(trace.im["layer0"], influence_map(xp.concatenate([state[0].h[None], h[:-1]]), hhat))
    assert float(abs(hhat[0] * state[0].h).max()) > 1e-8
