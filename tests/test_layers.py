"""The small layers: values, stability, and an embedding gradient that has the same bits every time."""

import numpy as np
import pytest

from minadv import layers
from minadv.backend import to_host
from tests.support.compare import assert_close, assert_same_bits


def test_affine(rng, put):
    x, W, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)
    assert_close(layers.affine(put(x), put(W), put(b)), np.einsum("tbi,io->tbo", x, W) + b)


def test_relu(put):
    assert layers.relu(put(np.array([-2.0, 0.0, 3.0]))).tolist() == [0, 0, 3]


def test_embedding_takes_rows(rng, put):
    E, tokens = rng.standard_normal((5, 3)), rng.integers(0, 5, (2, 4))
    assert_same_bits(layers.embedding(put(E), put(tokens)), E[tokens])


def test_repeated_tokens_add_up(put):
    tokens = put(np.array([[2, 0], [2, 2]]))
    dy = put(np.array([[[1.0], [10.0]], [[100.0], [1000.0]]]))
    dE = layers.embedding_backward(put(np.zeros((4, 1))), tokens, dy)
    assert dE.tolist() == [[10], [0], [1101], [0]]


def test_no_tokens_no_gradient(put):
    E = put(np.ones((4, 2)))
    dE = layers.embedding_backward(E, put(np.zeros((0, 3), dtype=int)), put(np.zeros((0, 3, 2))))
    assert_same_bits(dE, np.zeros((4, 2)))


def test_the_embedding_gradient_is_deterministic(rng, put):
    """Numbers of very different size, so that another order of the sum would show in the last bits."""
    tokens = rng.integers(0, 7, 400)
    dy = rng.standard_normal((400, 3)) * 10.0 ** rng.integers(-6, 6, (400, 1))
    E = put(np.zeros((7, 3)))
    first, again = (layers.embedding_backward(E, put(tokens), put(dy)) for _ in range(2))
    assert_same_bits(first, again)
    for v in range(7):
        assert_close(first[v], dy[tokens == v].sum(axis=0), 1e-9)


def test_a_token_does_not_feel_its_neighbours(rng, put):
    """Moving the other tokens about leaves the bits of this one's gradient as they are."""
    tokens = np.array([1, 0, 1, 2, 1, 0])
    dy = rng.standard_normal((6, 3))
    E = put(np.zeros((3, 3)))
    dE = layers.embedding_backward(E, put(tokens), put(dy))
    only = tokens == 1
    alone = layers.embedding_backward(E, put(tokens[only]), put(dy[only]))
    assert_same_bits(dE[1], alone[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_softmax_does_not_overflow(put, dtype):
    log_p = to_host(layers.log_softmax(put(np.array([[1e4, 0, -1e4], [-1e4, -1e4, -1e4]], dtype))))
    assert log_p.dtype == dtype
    np.testing.assert_allclose(log_p, [[0, -1e4, -2e4], [-np.log(3)] * 3], rtol=1e-6)


def test_cross_entropy(rng, put):
    logits, targets = rng.standard_normal((2, 3, 4)), rng.integers(0, 4, (2, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    nll, dlogits = layers.cross_entropy(put(logits), put(targets))
    assert_close(nll, -np.log(np.take_along_axis(p, targets[..., None], axis=-1))[..., 0])
    assert_close(dlogits, p - np.eye(4)[targets])


def test_cross_entropy_of_huge_logits(put):
    nll, dlogits = layers.cross_entropy(put(np.array([[1e4, -1e4]] * 2)), put(np.array([0, 1])))
    assert nll.tolist() == [0, 2e4]
    assert dlogits.tolist() == [[0, 0], [1, -1]]


def test_binary_is_two_classes(rng, xp, put):
    z, targets = put(3 * rng.standard_normal(10)), put(rng.integers(0, 2, 10))
    nll, dz = layers.binary_cross_entropy(z, targets)
    pair_nll, dpair = layers.cross_entropy(xp.stack([xp.zeros_like(z), z], axis=-1), targets)
    assert_close((nll, dz), (pair_nll, dpair[:, 1]))


def test_binary_cross_entropy_of_huge_logits(put):
    nll, dz = layers.binary_cross_entropy(put(np.array([1e4, 1e4, -1e4])), put(np.array([1, 0, 0])))
    assert (nll.tolist(), dz.tolist()) == ([0, 1e4, 0], [0, 1, 0])


def test_an_affine_layer_leaves_out_the_gradients_of_weights(rng, put):
    x, W, dy = (put(rng.standard_normal(shape)) for shape in ((5, 3, 2), (2, 4), (5, 3, 4)))
    dx, dW, db = layers.affine_backward(x, W, dy, weights=False)
    assert_same_bits(dx, layers.affine_backward(x, W, dy)[0])
    assert dW is None and db is None


def test_layers_keep_float32(rng, put):
    x, W, b = (put(rng.standard_normal(shape).astype(np.float32)) for shape in ((3, 2), (2, 4), (4,)))
    targets = put(np.array([0, 1, 1]))
    y = layers.affine(x, W, b)
    everything = [
        y,
        *layers.affine_backward(x, W, y),
        layers.relu_backward(y, layers.relu(y)),
        layers.embedding_backward(W, targets % 2, y),
        *layers.cross_entropy(y, targets),
        *layers.binary_cross_entropy(y[:, 0], targets),
    ]
    assert {a.dtype for a in everything} == {np.dtype(np.float32)}
