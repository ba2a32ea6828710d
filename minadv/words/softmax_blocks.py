r"""The softmax over a vocabulary by blocks of rows, so that the logits of a whole batch never stand in memory.

.. math:: z_r = f_r W^\top + b, \qquad p_r = \mathrm{softmax}(z_r)

for the rows ``f (..., F)`` of all steps and examples, ``W (V, F)`` (the embedding itself where the two are tied) and
``b (V,)``. Each function goes over the rows once: a block's logits are made, used for its values and its gradients, and
overwritten by the next block's. A row's weight :math:`w_r` (:math:`\lambda_t`, or 1/T) is a factor of its gradient, so
it is applied to features, which are short, and never to logits:

.. math:: df_r = w_r\, dz_r W, \qquad dW = \sum_r dz_r^\top (w_r f_r), \qquad db = \sum_r w_r\, dz_r

Sizes: ``R`` rows in all, ``V`` words, ``F`` features. The size of a block changes nothing but the rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv.backend import Array, is_host, namespace
from minadv.base.checks import expect_floating, expect_shape, shape_text
from minadv.distances import Distance

BLOCK = 2**22  # logits in a block: enough rows for the matrix products, few enough for the memory
LEAST = 128  # the fewest rows in a block, however large the vocabulary
TILE = 2**15  # logits that a distance is given at once on the host: its temporaries then stay in the caches


@dataclass(frozen=True)
class NLL:
    """What `nll` returns: the value of each row and the gradients of their weighted sum, None where not asked for."""

    values: Array  # (...), unweighted, in float64
    f: Array | None  # (..., F)
    W: Array | None  # (V, F)
    b: Array | None  # (V,)


@dataclass(frozen=True)
class Gap:
    """What `distance` returns: the value of each row and the gradients of their weighted sum, None where left out."""

    values: Array  # (...), unweighted
    f0: Array | None  # (..., F)
    f1: Array  # (..., F)
    W: Array | None  # (V, F)
    b: Array | None  # (V,)


def logits(f: Array, W: Array, b: Array) -> Array:
    r""":math:`f W^\top + b`, whole: ``(..., V)``. For a few rows, such as the next word's."""
    namespace(f=f, W=W, b=b)
    _expect_sizes("f", f, W, b)
    z: Array = f @ W.T
    z += b
    return z


def nll(
    f: Array, W: Array, b: Array, targets: Array, *, weight: Array, block: int | None = None, gradients: bool = True
) -> NLL:
    r"""Softmax cross-entropy :math:`-\log p_{r, y_r}` of every row, and its gradients, in one sweep.

    ``targets (...)`` are integers from 0 to V - 1, which the caller has checked; ``weight`` has the leading axes of
    ``f`` or can be broadcast to them; ``block`` is the number of rows in a block (None: chosen by V).

    .. math:: -\log p_y = \log \sum_j e^{z_j - \max z} - (z_y - \max z), \qquad dz = p - 1_y

    Cost: three products of (R, F) by (F, V), one without gradients; memory for one block of logits.
    """
    xp = namespace(f=f, W=W, b=b, targets=targets, weight=weight)
    _expect_sizes("f", f, W, b)
    expect_shape("targets", targets, f.shape[:-1], "one word for each row of f")
    flat, y, w = f.reshape(-1, f.shape[-1]), targets.reshape(-1), _flat_weight(xp, weight, f)
    R = flat.shape[0]
    values: Array = xp.empty(R, dtype=np.float64)
    df: Array | None = xp.empty_like(flat) if gradients else None
    total = _WeightSum()
    for rows, z in _logit_blocks(flat, W, b, block):
        z -= z.max(axis=1, keepdims=True)
        each = xp.arange(z.shape[0])
        z_y = z[each, y[rows]].astype(np.float64)
        xp.exp(z, out=z)
        sums = z.sum(axis=1)  # (rows,)
        values[rows] = xp.log(sums.astype(np.float64)) - z_y
        if df is not None:
            z /= sums[:, None]
            z[each, y[rows]] -= 1  # z now holds dz
            df[rows] = w[rows] * (z @ W)
            total.add(z, flat[rows], w[rows])
    values = values.reshape(targets.shape)
    return NLL(values, df.reshape(f.shape), total.W, total.b) if df is not None else NLL(values, None, None, None)


def distance(
    f0: Array,
    f1: Array,
    W: Array,
    b: Array,
    measure: Distance,
    *,
    weight: Array,
    block: int | None = None,
    stop_base: bool = False,
    weights: bool = True,
) -> Gap:
    r""":math:`D[p^0_r \,\|\, p_r]` of every pair of rows, and its gradients to both, in one sweep.

    ``f0``, ``f1 (..., F)``: the features of the base pass and of the perturbed one; ``measure`` is one of
    `minadv.distances`. ``weight`` and ``block`` are as in `nll`. ``stop_base`` leaves out the base's share of every
    gradient, ``weights=False`` the gradients of W and b.

    Cost: six products of (R, F) by (F, V), four with ``stop_base`` or without ``weights``, three with both; memory for
    two blocks of logits.
    """
    xp = namespace(f0=f0, f1=f1, W=W, b=b, weight=weight)
    _expect_sizes("f0", f0, W, b)
    expect_shape("f1", f1, f0.shape, "the shape of f0")
    expect_floating("f1", f1, f0, "f0")
    flat0, flat1, w = f0.reshape(-1, f0.shape[-1]), f1.reshape(-1, f1.shape[-1]), _flat_weight(xp, weight, f0)
    values: Array = xp.empty(flat0.shape[0], dtype=f0.dtype)
    df0: Array | None = None if stop_base else xp.empty_like(flat0)
    df1: Array = xp.empty_like(flat1)
    total = _WeightSum()
    pairs = zip(_logit_blocks(flat0, W, b, block), _logit_blocks(flat1, W, b, block), strict=True)
    for (rows, z0), (_, z1) in pairs:
        values[rows] = _replace_by_gradients(measure, z0, z1, base=not stop_base)
        df1[rows] = w[rows] * (z1 @ W)
        if weights:
            total.add(z1, flat1[rows], w[rows])
        if df0 is not None:
            df0[rows] = w[rows] * (z0 @ W)
            if weights:
                total.add(z0, flat0[rows], w[rows])
    return Gap(
        values.reshape(f0.shape[:-1]),
        None if df0 is None else df0.reshape(f0.shape),
        df1.reshape(f1.shape),
        total.W,
        total.b,
    )


def block_rows(V: int) -> int:
    """The rows of a block for a vocabulary of V words: 419 for the 10,000 of PTB."""
    return max(LEAST, BLOCK // V)


def _logit_blocks(f: Array, W: Array, b: Array, block: int | None) -> Iterator[tuple[slice, Array]]:
    """The rows of each block and their logits, in one buffer that the next block's overwrite."""
    if block is not None and block < 1:
        raise ValueError(f"block is {block}, expected at least 1 row, or None")
    R, V = f.shape[0], W.shape[0]
    size = min(R, block or block_rows(V))
    xp = namespace(f)
    buffer = xp.empty((size, V), dtype=f.dtype)
    for first in range(0, R, size):
        rows = slice(first, min(first + size, R))
        z: Array = xp.matmul(f[rows], W.T, out=buffer[: rows.stop - first])
        z += b
        yield rows, z


def _replace_by_gradients(measure: Distance, z0: Array, z1: Array, *, base: bool) -> Array:
    """The distances (rows,) of two blocks of logits; dz1 takes the place of z1 and, with ``base``, dz0 that of z0."""
    size = max(1, TILE // z0.shape[1]) if is_host(z0) else z0.shape[0]
    values = []
    for first in range(0, z0.shape[0], size):
        rows = slice(first, first + size)
        d, dz0, dz1 = measure(z0[rows], z1[rows])
        values.append(d)
        z1[rows] = dz1
        if base:
            z0[rows] = dz0
    return namespace(z0).concatenate(values)  # type: ignore[no-any-return]


class _WeightSum:
    r"""The sums over blocks :math:`dW = \sum_r dz_r^\top (w_r f_r)` and :math:`db = \sum_r w_r\, dz_r`."""

    def __init__(self) -> None:
        self.W: Array | None = None
        self.b: Array | None = None
        self._share: Array | None = None  # a block's product, in memory that the next block's overwrites

    def add(self, dz: Array, f: Array, w: Array) -> None:
        xp = namespace(dz)
        if self.W is None or self.b is None:
            self.W, self.b = dz.T @ (w * f), w[:, 0] @ dz
        else:
            self._share = xp.empty_like(self.W) if self._share is None else self._share
            self.W += xp.matmul(dz.T, w * f, out=self._share)
            self.b += w[:, 0] @ dz


def _flat_weight(xp: Any, weight: Array, f: Array) -> Array:
    """The weight of every row, (R, 1), in the dtype of the features."""
    try:
        full = xp.broadcast_to(weight, f.shape[:-1])
    except ValueError:
        raise ValueError(
            f"weight has shape {shape_text(weight.shape)}, expected one that fits the rows {shape_text(f.shape[:-1])}"
        ) from None
    return full.astype(f.dtype).reshape(-1, 1)  # type: ignore[no-any-return]


def _expect_sizes(name: str, f: Array, W: Array, b: Array) -> None:
    expect_shape("W", W, ("V", "F"))
    expect_floating(name, f)
    expect_floating("W", W, f, name)
    expect_floating("b", b, f, name)
    expect_shape("b", b, (W.shape[0],), f"W has V = {W.shape[0]} rows")
    if f.ndim == 0 or f.shape[-1] != W.shape[1] or f.size == 0:
        raise ValueError(f"{name} has shape {shape_text(f.shape)}, expected (..., {W.shape[1]}), as W has columns")
