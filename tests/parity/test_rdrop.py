"""R-Drop under PyTorch's autograd, written as its users write it: value, likelihood and all gradients to 1e-10."""

import numpy as np
import pytest

from minadv.base.trees import tree_map
from minadv.regularizers import RDrop
from tests.parity.test_torch_cells import STEPS, with_grad
from tests.support.compare import assert_close
from tests.support.language_models import language
from tests.support.networks import Watched, network

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

TOL, ALPHA = 1e-10, 0.7


def kl_both_ways(a0, a1):
    """Half of the sum of the two divergences of each row, from `kl_div`, whose target is its first argument."""
    one, two = (
        F.kl_div(to.log_softmax(-1), of.softmax(-1), reduction="none").sum(-1) for of, to in ((a0, a1), (a1, a0))
    )
    return 0.5 * (one + two)


def grads_of(tree):
    return tree_map(lambda a: a.grad.numpy(), tree)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("share_noise", [True, False])
def test_a_classifier(cell, share_noise, rng, put):
    """Two layers, dropout on the inputs; the loss of both passes is averaged over the batch, the divergence alike."""
    model, params, batch = network(rng, put, cell=cell, n_layers=2, T=5, B=6, I=4, H=5, input_dropout=0.4)
    watched = Watched(model)
    term = RDrop(p=0.3, share_noise=share_noise)(watched, params, batch, rng=rng, weight=ALPHA, likelihood=1.0)

    theirs = tree_map(with_grad, params)
    logits = []
    for given in watched.forward:
        x = torch.tensor(batch.x * given["noise"].inputs)
        for n, layer in enumerate(theirs.cells):
            m = torch.tensor(given["masks"][f"layer{n}"])
            h = c = torch.zeros(6, 5, dtype=torch.float64)
            states = []
            for x_t in x:
                h, c = STEPS[cell](layer, x_t, h * m, h, c, "clean")
                states.append(h)
            x = torch.stack(states)
        logits.append(F.linear(h, theirs.V.T, theirs.b))
    y = torch.tensor(batch.targets)
    likelihood = 0.5 * sum(F.cross_entropy(a, y, reduction="none") for a in logits)
    divergence = kl_both_ways(*logits)
    (likelihood + ALPHA * divergence).mean().backward()
    assert_close((term.nll, term.value), (likelihood.detach().numpy(), divergence.detach().numpy()), TOL)
    assert_close(term.grads, grads_of(theirs), TOL)
    batchmean = sum(
        F.kl_div(to.log_softmax(-1), of.softmax(-1), reduction="batchmean") for of, to in (logits, logits[::-1])
    )
    assert float(term.value.mean()) == pytest.approx(batchmean.item() / 2)
    assert float(term.value.min()) > 1e-6


def test_a_language_model_by_blocks_of_its_vocabulary(rng, put):
    """A word's divergence is a sum over the vocabulary, a stream's the mean over its words, as is its likelihood."""
    net = language(rng, put, T=6, B=4, V=20, D=6, hidden=(6,), block=5)
    watched = Watched(net.model)
    term = RDrop(p=0.3)(watched, net.params, net.batch, rng=rng, weight=ALPHA, likelihood=1.0)

    theirs = tree_map(with_grad, net.params)
    x = F.embedding(torch.tensor(net.batch.tokens), theirs.E)
    logits = []
    for given in watched.forward:
        m = torch.tensor(given["masks"]["layer0"])
        h = c = torch.zeros(4, 6, dtype=torch.float64)
        states = []
        for x_t in x:
            h, c = STEPS["lstm"](theirs.cells[0], x_t, h * m, h, c, "clean")
            states.append(h)
        logits.append(F.linear(torch.stack(states), theirs.E, theirs.b))
    y = torch.tensor(net.batch.targets)
    likelihood = 0.5 * sum(
        F.cross_entropy(a.flatten(0, 1), y.flatten(), reduction="none").reshape(y.shape).mean(0) for a in logits
    )
    divergence = kl_both_ways(*logits).mean(0)
    (likelihood + ALPHA * divergence).mean().backward()
    assert_close((term.nll, term.value), (likelihood.detach().numpy(), divergence.detach().numpy()), TOL)
    assert_close(term.grads, grads_of(theirs), TOL)
    assert np.abs(term.grads.E).max() > 1e-6
