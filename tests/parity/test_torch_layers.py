"""The small layers and the distances against PyTorch's functions, in float64: values and gradients to 1e-10."""

import numpy as np
import pytest

from minadv import layers
from minadv.distances import DISTANCES
from tests.support.compare import assert_close

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

TOL = 1e-10


def torch_gradients(f, *arrays, d):
    """The value of f and the gradients of sum(d * f) by each array."""
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = f(*tensors)
    (y * torch.tensor(d)).sum().backward()
    return y.detach().numpy(), *(t.grad.numpy() for t in tensors)


def test_affine(rng):
    x, W, b, dy = (rng.standard_normal(shape) for shape in ((2, 3, 4), (4, 5), (5,), (2, 3, 5)))
    expected = torch_gradients(lambda x, W, b: F.linear(x, W.T, b), x, W, b, d=dy)
    assert_close((layers.affine(x, W, b), *layers.affine_backward(x, W, dy)), expected, TOL)


def test_relu(rng):
    x, dy = rng.standard_normal((2, 3, 4))
    x[0, 0] = 0
    assert_close((layers.relu(x), layers.relu_backward(x, dy)), torch_gradients(F.relu, x, d=dy), TOL)


def test_embedding(rng):
    E, tokens, dy = rng.standard_normal((5, 3)), rng.integers(0, 5, (4, 6)), rng.standard_normal((4, 6, 3))
    expected = torch_gradients(lambda E: F.embedding(torch.tensor(tokens), E), E, d=dy)
    assert_close((layers.embedding(E, tokens), layers.embedding_backward(E, tokens, dy)), expected, TOL)


def test_cross_entropy(rng):
    logits, targets, d = 5 * rng.standard_normal((6, 4)), rng.integers(0, 4, 6), rng.standard_normal(6)
    nll, dlogits = layers.cross_entropy(logits, targets)
    expected = torch_gradients(lambda a: F.cross_entropy(a, torch.tensor(targets), reduction="none"), logits, d=d)
    assert_close((nll, d[:, None] * dlogits), expected, TOL)


def test_binary_cross_entropy(rng):
    z, targets, d = 5 * rng.standard_normal(6), rng.integers(0, 2, 6), rng.standard_normal(6)
    nll, dz = layers.binary_cross_entropy(z, targets)
    y = torch.tensor(targets).double()
    expected = torch_gradients(lambda z: F.binary_cross_entropy_with_logits(z, y, reduction="none"), z, d=d)
    assert_close((nll, d * dz), expected, TOL)


def js(a0, a1):
    mean = torch.log((a0.softmax(-1) + a1.softmax(-1)) / 2)
    halves = (F.kl_div(mean, a.log_softmax(-1), reduction="none", log_target=True).sum(-1) for a in (a0, a1))
    return 0.5 * sum(halves)


def kl(a0, a1):
    return F.kl_div(a1.log_softmax(-1), a0.log_softmax(-1), reduction="none", log_target=True).sum(-1)


TORCH = {
    "js": js,
    "kl": kl,
    "rkl": lambda a0, a1: kl(a1, a0),
    "skl": lambda a0, a1: (kl(a0, a1) + kl(a1, a0)) / 2,
    "l2": lambda a0, a1: ((a0.softmax(-1) - a1.softmax(-1)) ** 2).sum(-1),
    "logit2": lambda a0, a1: ((a0 - a1) ** 2).mean(-1),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances(name, rng):
    (a0, a1), dd = 3 * rng.standard_normal((2, 4, 3, 5)), rng.standard_normal((4, 3))
    d, d0, d1 = DISTANCES[name](a0, a1)
    expected = torch_gradients(TORCH[name], a0, a1, d=dd)
    assert_close((d, dd[..., np.newaxis] * d0, dd[..., np.newaxis] * d1), expected, TOL)
