r"""What models do alike to compare two passes: the weights of the steps, and the distance from two heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.base.trees import tree_add, tree_map
from minadv.distances import Distance
from minadv.protocol import Comparison


def step_weights(lam: Array | None, default: float | None, like: Array) -> Array:
    r""":math:`\lambda` as ``(N, 1)`` or ``(N, B)`` for features ``(N, B, F)``.

    If ``lam`` is None every step has the weight ``default``, or, if that is None too, the last step 1 and the others 0.
    """
    xp = namespace(lam=lam, features=like)
    N, B, _ = like.shape
    if lam is None:
        weights: Array = xp.full((N, 1), default or 0, dtype=like.dtype)
        if default is None:
            weights[-1] = 1
        return weights
    expect_shape("lam", lam, (N,) if lam.ndim == 1 else (N, B), f"features of N = {N} steps, B = {B}")
    return (lam[:, None] if lam.ndim == 1 else lam).astype(like.dtype)


def compare_heads(
    model: Any,
    head: Any,
    features0: Array,
    features1: Array,
    weight: Array,
    distance: Distance,
    stop_base: bool,
    weights: bool,
) -> Comparison:
    """The comparison of two passes in double precision: single precision would round away small differences.

    ``head`` are the parameters that ``predict`` and ``predict_backward`` use; ``weight`` is lambda, (N, B or 1).
    """
    wide = tree_map(lambda a: a.astype(np.float64), head)
    logits0, record0 = model.predict(wide, features0.astype(np.float64))
    logits1, record1 = model.predict(wide, features1.astype(np.float64))
    d, dlogits0, dlogits1 = distance(logits0, logits1)
    value, weight = (weight * d).sum(axis=0), weight[..., None]  # Eq. 4, the sum over t
    df1, grads = model.predict_backward(wide, record1, weight * dlogits1, weights=weights)
    df0 = None
    if not stop_base:
        df0, more = model.predict_backward(wide, record0, weight * dlogits0, weights=weights)
        grads = tree_add(grads, more)
    exact = Comparison(value, df0, df1, grads if weights else None)
    return tree_map(lambda a: a.astype(features0.dtype), exact)
