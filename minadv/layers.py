r"""The small layers, as pairs of pure functions: a backward takes the same arguments and the output's gradient.

A layer here remembers nothing, so its arguments are its cache. All work on any leading axes.
"""

from __future__ import annotations

from minadv.backend import Array, namespace
from minadv.base.checks import expect_floating, expect_shape, shape_text
from minadv.base.kernels import on_device


def affine(x: Array, W: Array, b: Array) -> Array:
    r""":math:`y = x W + b` for ``x (..., I)``, ``W (I, O)``, ``b (O,)``."""
    namespace(x=x, W=W, b=b)
    expect_floating("x", x)
    expect_shape("W", W, ("I", "O"))
    expect_floating("W", W, x, "x")
    expect_floating("b", b, x, "x")
    expect_shape("b", b, (W.shape[1],), f"W has O = {W.shape[1]} outputs")
    if x.ndim == 0 or x.shape[-1] != W.shape[0]:
        raise ValueError(f"x has shape {shape_text(x.shape)}, expected (..., {W.shape[0]}) for W of {W.shape[0]} rows")
    y: Array = x @ W
    y += b
    return y


def affine_backward(x: Array, W: Array, dy: Array, *, weights: bool = True) -> tuple[Array, Array | None, Array | None]:
    r""":math:`dx = dy\,W^\top,\; dW = \sum x^\top dy,\; db = \sum dy`, the sums over all leading axes.

    Without ``weights`` dW and db are None.
    """
    if not weights:
        return dy @ W.T, None, None
    flat_x, flat_dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dy @ W.T, flat_x.T @ flat_dy, flat_dy.sum(axis=0)


def relu(x: Array) -> Array:
    r""":math:`y = \max(x, 0)`."""
    xp = namespace(x=x)
    y: Array = xp.maximum(x, 0)
    return y


def relu_backward(x: Array, dy: Array) -> Array:
    """The gradient where x is positive; zero elsewhere, at the kink too."""
    xp = namespace(x=x, dy=dy)
    dx: Array = xp.where(x > 0, dy, 0)
    return dx


def embedding(E: Array, tokens: Array, *, check: bool = True) -> Array:
    r"""Rows of ``E (V, D)`` for integer ``tokens (...)``: ``(..., D)``.

    ``check=False`` leaves out the range check, which on a GPU waits for the device, for tokens that are checked already
    (CuPy wraps an index that is out of range, silently).
    """
    namespace(E=E, tokens=tokens)
    expect_shape("E", E, ("V", "D"))
    if check:
        expect_range("tokens", tokens, E.shape[0])
    return E[tokens]


@on_device
def embedding_backward(E: Array, tokens: Array, dy: Array) -> Array:
    r"""The sum of ``dy`` over the places where each token stands: ``(V, D)``.

    The places are sorted by token first and those of a token are summed in order, so that repeated tokens give the same
    bits every time, on a GPU too, where scattered additions come in any order.
    """
    xp = namespace(E=E, tokens=tokens, dy=dy)
    flat = tokens.reshape(-1)
    dE: Array = xp.zeros_like(E)
    if flat.size == 0:
        return dE
    order = xp.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = xp.nonzero(xp.concatenate([xp.ones(1, dtype=bool), ordered[1:] != ordered[:-1]]))[0]
    dE[ordered[starts]] = xp.add.reduceat(dy.reshape(-1, E.shape[1])[order], starts, axis=0)
    return dE


def log_softmax(logits: Array) -> Array:
    r""":math:`z - \log \sum_j e^{z_j}` over the last axis, without overflow."""
    xp = namespace(logits=logits)
    shifted: Array = logits - logits.max(axis=-1, keepdims=True)
    shifted -= xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


@on_device
def cross_entropy(logits: Array, targets: Array, *, check: bool = True) -> tuple[Array, Array]:
    r"""Softmax cross-entropy: :math:`-\log p_y`, and its gradient :math:`p - 1_y` with respect to the logits.

    ``logits (..., C)``, integer ``targets (...)``; returns ``(...)`` and ``(..., C)``. ``check`` is as in `embedding`.
    """
    xp = namespace(logits=logits, targets=targets)
    expect_floating("logits", logits)
    expect_shape("targets", targets, logits.shape[:-1], "one class for each row of logits")
    if check:
        expect_range("targets", targets, logits.shape[-1])
    log_p = log_softmax(logits).reshape(-1, logits.shape[-1])
    rows, columns = xp.arange(log_p.shape[0]), targets.reshape(-1)
    nll = -log_p[rows, columns]
    dlogits = xp.exp(log_p)
    dlogits[rows, columns] -= 1
    return nll.reshape(targets.shape), dlogits.reshape(logits.shape)


def binary_cross_entropy(z: Array, targets: Array, *, check: bool = True) -> tuple[Array, Array]:
    r"""The sigmoid case, two classes with the logits (0, z): :math:`\log(1 + e^z) - y z` and :math:`\sigma(z) - y`.

    ``z (...)`` and ``targets (...)`` of 0 and 1; returns two arrays of that shape.
    """
    xp = namespace(z=z, targets=targets)
    expect_floating("z", z)
    expect_shape("targets", targets, z.shape, "one class for each z")
    if check:
        expect_range("targets", targets, 2)
    y = targets.astype(z.dtype)
    nll = xp.maximum(z, 0) - y * z + xp.log1p(xp.exp(-xp.abs(z)))
    return nll, 0.5 * xp.tanh(0.5 * z) + 0.5 - y


def expect_range(name: str, integers: Array, n: int) -> None:
    """Raise TypeError unless the array is of integers, ValueError unless all lie in [0, n)."""
    if integers.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {integers.dtype}, expected integers")
    if integers.size == 0:
        return
    low, high = int(integers.min()), int(integers.max())
    if low < 0 or high >= n:
        raise ValueError(f"{name} holds {low if low < 0 else high}, expected integers from 0 to {n - 1}")
