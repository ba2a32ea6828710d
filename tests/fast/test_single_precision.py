"""Single precision stays single, whatever kind of number the options are, and is accurate where networks are close."""

import numpy as np
import pytest

from minadv import distances
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.regularizers import AT, VAT, VD, AdD, Sum
from tests.support.networks import network

HALF, ONE = np.float64(0.5), np.float64(1.0)
GIVEN = {
    "VD": (VD(p=HALF), {}),
    "weight": (AdD(budgets=2), {"weight": HALF}),
    "likelihood": (AdD(budgets=2), {"likelihood": HALF}),
    "scale": (AdD(budgets=2, scale="inverted", p=HALF), {}),
    "AT": (AT(norm=ONE), {}),
    "VAT": (VAT(norm=ONE, xi=HALF), {}),
    "Sum": (Sum((AdD(budgets=2), VAT()), weights=(HALF, ONE)), {}),
}


def single(rng, put, **options):
    model, params, batch = network(rng, put, **options)
    to32 = lambda a: a.astype(np.float32) if a.dtype == np.float64 else a  # noqa: E731
    return model, tree_map(to32, params), tree_map(to32, batch)


@pytest.mark.parametrize("name", GIVEN)
def test_numpy_numbers_as_options_do_not_widen(name, rng, put):
    regularizer, options = GIVEN[name]
    term = regularizer(*single(rng, put), rng=rng, **{"likelihood": 1.0, **options})
    assert {a.dtype for _, a in leaves((term.grads, term.value, term.nll))} == {np.dtype(np.float32)}


def test_weights_over_time_take_the_precision_of_the_features(rng, put):
    net = single(rng, put, steps="all")
    trace = find_adversary(*net, rng=rng, budgets=2, lam=put(np.full(4, 0.25)))
    assert trace.d.dtype == np.float32
    with pytest.raises(ValueError, match=r"lam has shape \(3,\), expected \(4,\)"):
        find_adversary(*net, rng=rng, budgets=2, lam=put(np.full(3, 0.25)))


@pytest.mark.parametrize("name", ["js", "kl", "rkl", "skl", "l2"])
@pytest.mark.parametrize("size", [1e-1, 1e-3])
def test_close_predictions(name, size, rng, put):
    logits0 = rng.standard_normal((50, 10)).astype(np.float32)
    logits1 = (logits0 + size * rng.standard_normal((50, 10))).astype(np.float32)
    d, _, dlogits1 = to_host(distances.by_name(name)(put(logits0), put(logits1)))
    exact, _, dexact = distances.by_name(name)(logits0.astype(np.float64), logits1.astype(np.float64))
    assert np.abs(d / exact - 1).max() < {1e-1: 1e-4, 1e-3: 1e-2}[size]
    assert np.abs(dlogits1 - dexact).max() < 1e-3 * np.abs(dexact).max()
