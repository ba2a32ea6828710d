"""AT and VAT: the perturbation has the norm asked for, lies where it should, and does what it is for."""

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.distances import by_name
from minadv.perturbations import AT, VAT, to_norm
from tests.support.cells import RAGGED
from tests.support.compare import assert_close, assert_zero
from tests.support.networks import Watched, network

LENGTHS = RAGGED.sum(axis=0)  # 4, 3, 1


def norms(dx):
    return np.sqrt((to_host(dx) ** 2).sum(axis=(0, 2)))


def run(regularizer, net, seed=0, **options):
    watched = Watched(net[0])
    return regularizer(watched, *net[1:], rng=np.random.default_rng(seed), **options), watched


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("norm", [5.0, 0.3])
def test_at_has_its_norm_over_the_whole_sequence_and_none_on_padding(cell, norm, rng, put):
    net = network(rng, put, cell=cell, valid=RAGGED)
    term, watched = run(AT(norm=norm), net)
    assert_close(norms(term.dx), np.full(3, norm))
    assert_zero(term.dx[put(~RAGGED)])
    assert watched.forward[-1]["dx"] is term.dx


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("norm", [5.0, 0.3])
def test_vat_has_its_norms_and_only_its_start_spares_the_last_step(cell, norm, rng, put):
    net = network(rng, put, cell=cell, valid=RAGGED)
    term, watched = run(VAT(norm=norm, xi=0.1), net)
    start = watched.forward[1]["dx"]
    assert_close(norms(start), np.array([0.1, 0.1, 0]))  # an example of one step has nowhere to start
    assert_close(norms(term.dx), np.array([norm, norm, 0]))
    for b, length in enumerate(LENGTHS):
        assert_zero(start[length - 1 :, b])
        if length < 4:
            assert_zero(term.dx[length:, b])
        if length > 1:
            assert float(abs(start[: length - 1, b]).min()) > 0
            assert float(abs(term.dx[:length, b]).min()) > 0


def test_without_padding_only_the_last_step_is_spared(rng, put):
    _, watched = run(VAT(), network(rng, put))
    start = watched.forward[1]["dx"]
    assert_zero(start[-1])
    assert float(abs(start[:-1]).min()) > 0


def test_at_climbs_the_likelihood_at_the_rate_of_its_gradient(rng, put):
    model, params, batch = network(rng, put)
    term, _ = run(AT(norm=1e-4), (model, params, batch), likelihood=1.0)
    features, _, cache = model.body(params, batch, masks={}, noise=None)
    head = model.head(params, features, batch.targets)
    slope = norms(model.body_backward(params, cache, head.dfeatures, inputs=True).inputs)
    assert_close((term.value - term.nll) / 1e-4, slope, 1e-3)


def test_vat_finds_a_worse_direction_than_chance(rng, put):
    """The best of many random perturbations of the same small norm hardly does better; their mean does much worse."""
    model, params, batch = network(rng, put, B=20, T=3)
    term, _ = run(VAT(norm=0.05), (model, params, batch))
    plain, _, _ = model.body(params, batch, masks={}, noise=None)

    def kl(dx):
        moved, _, _ = model.body(params, batch, masks={}, noise=None, dx=dx)
        return to_host(model.compare(params, plain, moved, None, by_name("kl")).d)

    chance = np.mean([kl(to_norm(put(rng.standard_normal((3, 20, 2))), 0.05)) for _ in range(20)], axis=0)
    assert_close(kl(term.dx), term.value)
    assert np.mean(to_host(term.value)) > 2 * np.mean(chance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_to_norm(dtype, size, rng, put):
    direction = (size * rng.standard_normal((3, 4, 2))).astype(dtype)
    direction[:, 1] = 0
    scaled = to_norm(put(direction), 5.0)
    assert scaled.dtype == dtype
    assert_close(norms(scaled), np.array([5, 0, 5, 5]), 1e-6)
    cosine = (to_host(scaled)[:, 0] * direction[:, 0]).sum() / np.linalg.norm(direction[:, 0].astype(float)) / 5
    assert cosine == pytest.approx(1, rel=1e-5)
