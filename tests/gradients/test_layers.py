"""The small layers against central differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv import gradcheck, layers
from tests.support.cells import seeds

leading = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
sizes = st.integers(1, 4)


def check(forward, backward, args, rng):
    report = gradcheck.check(forward, backward, args, rng=rng)
    report.raise_if_failed()
    return report


def affine_backward(args, dy):
    return dict(zip(("x", "W", "b"), layers.affine_backward(args["x"], args["W"], dy), strict=True))


@given(lead=leading, n_in=sizes, n_out=sizes, rng=seeds)
def test_affine(put, lead, n_in, n_out, rng):
    shapes = {"x": (*lead, n_in), "W": (n_in, n_out), "b": (n_out,)}
    args = put({name: rng.standard_normal(shape) for name, shape in shapes.items()})
    report = check(layers.affine, affine_backward, args, rng)
    assert all(row.analytic > 0 for row in report.rows)


@given(lead=leading, rng=seeds)
def test_relu_away_from_the_kink(put, lead, rng):
    x = rng.uniform(0.1, 1, lead) * rng.choice([-1, 1], lead)
    check(layers.relu, lambda args, dy: {"x": layers.relu_backward(args["x"], dy)}, {"x": put(x)}, rng)


@given(lead=leading, V=sizes, D=sizes, rng=seeds)
def test_embedding_with_repeated_tokens(put, lead, V, D, rng):
    tokens = put(rng.integers(0, V, lead))
    E = put(rng.standard_normal((V, D)))
    report = check(
        lambda E: layers.embedding(E, tokens),
        lambda args, dy: {"E": layers.embedding_backward(args["E"], tokens, dy)},
        {"E": E},
        rng,
    )
    assert report["E"].analytic > 0


@pytest.mark.parametrize("size", [1, 5])
@given(lead=leading, C=sizes, rng=seeds)
def test_cross_entropy(put, size, lead, C, rng):
    targets = put(rng.integers(0, C, lead))
    logits = put(size * rng.standard_normal((*lead, C)))
    report = check(
        lambda logits: layers.cross_entropy(logits, targets)[0],
        lambda args, d: {"logits": d[..., None] * layers.cross_entropy(args["logits"], targets)[1]},
        {"logits": logits},
        rng,
    )
    assert (report["logits"].analytic > 0) == (C > 1)


@given(lead=leading, rng=seeds)
def test_binary_cross_entropy(put, lead, rng):
    targets = put(rng.integers(0, 2, lead))
    z = put(rng.uniform(-3, 3, lead))
    report = check(
        lambda z: layers.binary_cross_entropy(z, targets)[0],
        lambda args, d: {"z": d * layers.binary_cross_entropy(args["z"], targets)[1]},
        {"z": z},
        rng,
    )
    assert report["z"].analytic > 0


def test_relu_has_no_slope_at_the_kink(xp, put):
    x = put(np.array([-1.0, 0.0, 2.0]))
    assert layers.relu_backward(x, xp.ones(3)).tolist() == [0, 0, 1]
