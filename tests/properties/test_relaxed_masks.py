"""The influence map of a mask of fractions is the gradient of the distance, for every scale, cell, site and weight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.backend import to_host
from minadv.distances import DISTANCES
from tests.support.cells import seeds
from tests.support.networks import network
from tests.support.objectives import objective

B, STEP = 3, 1e-5


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("site", ["layer0", "readout"])
@pytest.mark.parametrize("scale", ["none", "inverted", "kept"])
@pytest.mark.parametrize("steps", ["last", "all"])
@given(
    rng=seeds,
    H=st.integers(2, 4),  # the one unit of H = 1 is seen as 1 under the scale kept, whatever its fraction
    T=st.integers(2, 4),
    readout=st.sampled_from(["clean", "masked"]),
    distance=st.sampled_from(list(DISTANCES)),
)
def test_a_map_is_central_differences(cell, site, scale, steps, put, rng, H, T, readout, distance):
    net = network(rng, put, cell=cell, H=H, T=T, B=B, steps=steps, readout=readout)
    lam = put(rng.uniform(0, 1, (T, B))) if steps == "all" else None
    p = 0.25 if scale == "inverted" else None
    ask = objective(net, sites=(site,), budgets=1, distance=distance, scale=scale, p=p, lam=lam)
    eps = put(rng.uniform(0.1, 0.9, (B, H)))
    im = to_host(ask.influence({site: eps}).im[site])
    numeric = np.zeros((B, H))
    for i in range(H):
        nudge = put(STEP * np.eye(H)[i])
        above, below = (to_host(ask.score({site: eps + sign * nudge})) for sign in (1, -1))
        numeric[:, i] = (above - below) / (2 * STEP)
    assert np.abs(im - numeric).max() <= 1e-6 * max(np.abs(im).max(), np.abs(numeric).max(), 1e-3)


@pytest.mark.parametrize("site", ["layer0", "readout"])
@pytest.mark.parametrize("scale", ["none", "inverted", "kept"])
def test_the_map_is_not_nothing(site, scale, rng, put):
    ask = objective(network(rng, put), sites=(site,), budgets=1, scale=scale, p=0.25)
    im = ask.influence({site: put(rng.uniform(0.1, 0.9, (B, 4)))}).im[site]
    assert float(abs(im).max()) > 1e-4
