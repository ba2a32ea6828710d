"""Bad input to a distance, a small layer or a conversion of weights: what was given and what was expected."""

import re

import numpy as np
import pytest

from minadv import distances, layers
from minadv.torch_layout import from_torch, to_torch
from tests.support.cells import make


def f(*shape):
    return np.zeros(shape)


def n(*values):
    return np.array(values)


TABLE = {
    "unknown distance": (
        lambda put: distances.by_name("euclid"),
        ValueError,
        "distance is 'euclid', expected one of 'js', 'kl', 'rkl', 'skl', 'l2', 'logit2'",
    ),
    "logits of two shapes": (
        lambda put: distances.js(put(f(2, 3)), put(f(2, 4))),
        ValueError,
        "logits0 has shape (2, 3) and logits1 (2, 4), expected the same (..., C)",
    ),
    "no classes": (lambda put: distances.kl(put(f(2, 0)), put(f(2, 0))), ValueError, "expected the same (..., C)"),
    "no axis of classes": (lambda put: distances.kl(put(f()), put(f())), ValueError, "expected the same (..., C)"),
    "l2 of two shapes": (
        lambda put: distances.l2(put(f(2, 3)), put(f(1, 3))),
        ValueError,
        "logits0 has shape (2, 3) and logits1 (1, 3), expected the same (..., C)",
    ),
    "logits of integers": (
        lambda put: distances.l2(put(n(1, 2)), put(n(1, 2))),
        TypeError,
        "logits0 has dtype int64, expected float32 or float64",
    ),
    "logits in two precisions": (
        lambda put: distances.logit2(put(f(3)), put(f(3).astype(np.float32))),
        TypeError,
        "logits1 has dtype float32 but logits0 has float64",
    ),
    "affine of another size": (
        lambda put: layers.affine(put(f(2, 3)), put(f(4, 5)), put(f(5))),
        ValueError,
        "x has shape (2, 3), expected (..., 4)",
    ),
    "affine with another bias": (
        lambda put: layers.affine(put(f(2, 4)), put(f(4, 5)), put(f(4))),
        ValueError,
        "b has shape (4,), expected (5,)",
    ),
    "affine of integers": (
        lambda put: layers.affine(put(n(1, 2)), put(f(2, 5)), put(f(5))),
        TypeError,
        "x has dtype int64, expected float32 or float64",
    ),
    "affine with weights in another precision": (
        lambda put: layers.affine(put(f(2, 4)), put(f(4, 5).astype(np.float32)), put(f(5))),
        TypeError,
        "W has dtype float32 but x has float64",
    ),
    "affine with a bias in another precision": (
        lambda put: layers.affine(put(f(2, 4)), put(f(4, 5)), put(f(5).astype(np.float32))),
        TypeError,
        "b has dtype float32 but x has float64",
    ),
    "affine with weights of three axes": (
        lambda put: layers.affine(put(f(2, 4)), put(f(4, 5, 6)), put(f(5))),
        ValueError,
        "W has shape (4, 5, 6), expected (I, O)",
    ),
    "affine of one number": (
        lambda put: layers.affine(put(f()), put(f(4, 5)), put(f(5))),
        ValueError,
        "expected (..., 4) for W of 4 rows",
    ),
    "an embedding of one axis": (
        lambda put: layers.embedding(put(f(4)), put(n(0))),
        ValueError,
        "E has shape (4,), expected (V, D)",
    ),
    "logits of classes that are integers": (
        lambda put: layers.cross_entropy(put(np.zeros((2, 3), int)), put(n(0, 1))),
        TypeError,
        "logits has dtype int64",
    ),
    "z of integers": (
        lambda put: layers.binary_cross_entropy(put(n(0, 1)), put(n(0, 1))),
        TypeError,
        "z has dtype int64",
    ),
    "targets of another shape than z": (
        lambda put: layers.binary_cross_entropy(put(f(2)), put(n(0, 1, 1))),
        ValueError,
        "targets has shape (3,), expected (2,)",
    ),
    "a token too large": (
        lambda put: layers.embedding(put(f(4, 2)), put(n(0, 4))),
        ValueError,
        "tokens holds 4, expected integers from 0 to 3",
    ),
    "a negative token": (lambda put: layers.embedding(put(f(4, 2)), put(n(-1))), ValueError, "tokens holds -1"),
    "tokens that are not integers": (
        lambda put: layers.embedding(put(f(4, 2)), put(f(3))),
        TypeError,
        "tokens has dtype float64, expected integers",
    ),
    "a class too large": (
        lambda put: layers.cross_entropy(put(f(2, 3)), put(n(0, 3))),
        ValueError,
        "targets holds 3, expected integers from 0 to 2",
    ),
    "targets of another shape": (
        lambda put: layers.cross_entropy(put(f(2, 3)), put(n(0, 1, 2))),
        ValueError,
        "targets has shape (3,), expected (2,)",
    ),
    "a third class of two": (
        lambda put: layers.binary_cross_entropy(put(f(2)), put(n(0, 2))),
        ValueError,
        "targets holds 2, expected integers from 0 to 1",
    ),
    "unknown cell": (
        lambda put: from_torch("lru", {}),
        ValueError,
        "cell is 'lru', expected one of 'rnn', 'lstm', 'gru'",
    ),
    "a state dict without a bias": (
        lambda put: from_torch("rnn", {"weight_ih_l0": put(f(3, 2))}),
        ValueError,
        "lacks weight_hh_l0, bias_ih_l0, bias_hh_l0; it has weight_ih_l0",
    ),
    "a state dict of another cell": (
        lambda put: from_torch("lstm", to_torch(make("gru", np.random.default_rng(0), put).params)),
        ValueError,
        "weight_hh_l0 has shape (9, 3), expected (12, 3) (4 blocks of H = 3 rows for lstm)",
    ),
}


@pytest.mark.parametrize(("bad", "error", "says"), list(TABLE.values()), ids=list(TABLE))
def test_it_says_what_was_given_and_expected(bad, error, says, put):
    with pytest.raises(error, match=re.escape(says)):
        bad(put)


def test_affine_takes_one_row(put):
    """Any leading axes, none at all too."""
    assert layers.affine(put(f(4)), put(f(4, 5)), put(f(5))).shape == (5,)
