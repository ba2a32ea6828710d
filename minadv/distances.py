r"""Distances :math:`D[p^0 \,\|\, p]` between two predictions, from their logits, with the gradient to both.

Each takes ``logits0`` (the base network's) and ``logits1`` (the perturbed one's), both ``(..., C)``, and returns
``d (...)``, ``dlogits0`` and ``dlogits1``: the gradients of each row's own distance. All are zero, with zero gradients,
where the two are equal, and finite for logits of any finite size. A head with one logistic output z is the case of two
classes with the logits (z, 0).

With :math:`p = \mathrm{softmax}(a)` and :math:`s_j = \partial D/\partial p_j`, the gradient to the logits is
:math:`p_j\,(s_j - \sum_k p_k s_k)` (`_through_softmax`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from minadv.backend import Array, namespace
from minadv.base.checks import expect_choice, expect_floating, shape_text
from minadv.base.kernels import on_device

Distance: TypeAlias = Callable[[Array, Array], tuple[Array, Array, Array]]


@on_device
def js(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r"""Jensen-Shannon: :math:`\tfrac12 \mathrm{KL}(p^0\|\bar p) + \tfrac12 \mathrm{KL}(p\|\bar p)`.

    Here :math:`\bar p = \tfrac12 (p^0 + p)`. With :math:`r = \log p^0 - \log p`, the larger probability is
    :math:`1 + \tanh\tfrac{|r|}2` times :math:`\bar p`, and the smaller :math:`e^{-|r|}` times the larger.
    """
    xp = _check(logits0, logits1)
    (log_p0, p0), (log_p1, p1) = _softmax(logits0), _softmax(logits1)
    r = xp.subtract(log_p0, log_p1, out=log_p0)  # in place, as all below: for a vocabulary, memory is the bottleneck
    larger = xp.abs(r, out=log_p1)
    larger *= 0.5
    larger = _log1p(xp.tanh(larger, out=larger))  # exact to rounding near r = 0, for two nearly equal networks
    terms1 = xp.minimum(-r, 0)
    terms0 = xp.minimum(r, 0, out=r)
    for terms, p in ((terms0, p0), (terms1, p1)):
        terms += larger  # log(p / mean)
        terms *= p
        terms *= 0.5
    sum0, sum1 = terms0.sum(axis=-1, keepdims=True), terms1.sum(axis=-1, keepdims=True)
    d = (sum0 + sum1)[..., 0]
    for terms, p, total in ((terms0, p0, sum0), (terms1, p1, sum1)):
        p *= total
        terms -= p  # through the softmax, as at the top of this file, with terms = p s
    return xp.maximum(d, 0), terms0, terms1


@on_device
def kl(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r""":math:`\mathrm{KL}(p^0\|p) = \sum_j p^0_j (\log p^0_j - \log p_j)`, base to perturbed."""
    xp = _check(logits0, logits1)
    (log_p0, p0), (log_p1, p1) = _softmax(logits0), _softmax(logits1)
    r = log_p0 - log_p1
    gap = _gap(p0, p1, r)  # p1 - p0, whose sum is zero: each term p0 r + gap is at least zero
    near = xp.where(xp.abs(r) < 1, r, 0)
    terms = xp.where(xp.abs(r) < 1, p0 * (near + xp.expm1(-near)), p0 * r + gap)
    return xp.maximum(terms, 0).sum(axis=-1), _through_softmax(p0, r), gap


@on_device
def rkl(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r""":math:`\mathrm{KL}(p\|p^0)`, perturbed to base."""
    d, dlogits1, dlogits0 = kl(logits1, logits0)
    return d, dlogits0, dlogits1


@on_device
def skl(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r"""Symmetrised KL: :math:`\tfrac12 \mathrm{KL}(p^0\|p) + \tfrac12 \mathrm{KL}(p\|p^0)`, that of R-Drop.

    With :math:`r = \log p^0 - \log p` it is :math:`\tfrac12 \sum_j (p^0_j - p_j)\, r_j`, in which
    :math:`p^0_j - p_j = (p^0_j + p_j) \tanh\tfrac{r_j}2`: no term is negative.
    """
    xp = _check(logits0, logits1)
    (log_p0, p0), (log_p1, p1) = _softmax(logits0), _softmax(logits1)
    r = xp.subtract(log_p0, log_p1, out=log_p0)
    gap = xp.tanh(xp.multiply(r, 0.5, out=log_p1), out=log_p1)
    gap *= p0 + p1  # p0 - p1 without cancellation, and of the sign of r
    d = 0.5 * (gap * r).sum(axis=-1)
    dlogits0, dlogits1 = _through_softmax(p0, r), _through_softmax(p1, -r)  # each by the KL whose first argument it is
    dlogits0 += gap  # and by the other KL
    dlogits1 -= gap
    dlogits0 *= 0.5
    dlogits1 *= 0.5
    return d, dlogits0, dlogits1


@on_device
def l2(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r""":math:`\|p^0 - p\|_2^2`, the squared distance of the probabilities (the metric of Remark 1)."""
    _check(logits0, logits1)
    (log_p0, p0), (log_p1, p1) = _softmax(logits0), _softmax(logits1)
    gap = _gap(p1, p0, log_p1 - log_p0)  # p0 - p1
    return (gap * gap).sum(axis=-1), _through_softmax(p0, 2 * gap), _through_softmax(p1, -2 * gap)


@on_device
def logit2(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r""":math:`\tfrac1C \sum_j (a^0_j - a_j)^2`, the mean squared difference of the logits themselves."""
    _check(logits0, logits1)
    gap = logits0 - logits1
    dlogits0 = gap * (2 / gap.shape[-1])
    return (gap * gap).mean(axis=-1), dlogits0, -dlogits0


def surprise(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
    r""":math:`-\log p_y`, where y is the class that ``logits0`` predict: how little of it is left in ``logits1``.

    Not a distance, and not among `DISTANCES`: it is not zero where the two are equal, and nor is its gradient, which is
    what `minadv.relax` asks for. ``dlogits0`` is zero. Exact to rounding however sure the prediction is.
    """
    xp = _check(logits0, logits1)
    chosen = xp.arange(logits0.shape[-1]) == logits0.argmax(axis=-1)[..., None]
    gap = logits1 - xp.where(chosen, logits1, 0).sum(axis=-1, keepdims=True)  # zero at y
    top = gap.max(axis=-1, keepdims=True)
    others = xp.where(chosen, 0, xp.exp(gap - top))  # the odds of the other classes, times exp(-top)
    against = others.sum(axis=-1, keepdims=True)
    whole = xp.exp(-top) + against
    d = xp.where(top > 0, top + xp.log(whole), xp.log1p(against))[..., 0]  # top is at least zero, the gap of y
    p = others / whole
    return d, xp.zeros_like(logits0), xp.where(chosen, -p.sum(axis=-1, keepdims=True), p)


DISTANCES: dict[str, Distance] = {"js": js, "kl": kl, "rkl": rkl, "skl": skl, "l2": l2, "logit2": logit2}


def by_name(name: str) -> Distance:
    """The distance of this name."""
    expect_choice("distance", name, DISTANCES)
    return DISTANCES[name]


def _softmax(logits: Array) -> tuple[Array, Array]:
    """The logarithms of the probabilities, and the probabilities."""
    xp = namespace(logits)
    log_p: Array = logits - logits.max(axis=-1, keepdims=True)
    p: Array = xp.exp(log_p)
    sums = p.sum(axis=-1, keepdims=True)
    log_p -= xp.log(sums)
    p /= sums
    return log_p, p


def _log1p(x: Array) -> Array:
    r""":math:`\log(1 + x)` for x from 0 to 1: the log of the rounded sum, plus what rounding has lost. Overwrites x.

    NumPy's log1p is as exact, but in single precision several times slower than its log.
    """
    u = x + 1
    log: Array = namespace(x).log(u)
    x -= u - 1
    x /= u
    log += x
    return log


def _gap(p: Array, q: Array, r: Array) -> Array:
    r""":math:`q - p` without cancellation: :math:`p\,(e^{-r} - 1)` where :math:`r = \log p - \log q` is small."""
    xp = namespace(p)
    near = xp.abs(r) < 1
    gap: Array = xp.where(near, p * xp.expm1(-xp.where(near, r, 0)), q - p)
    return gap


def _through_softmax(p: Array, s: Array) -> Array:
    r""":math:`p_j (s_j - \sum_k p_k s_k)`."""
    dlogits: Array = p * (s - (p * s).sum(axis=-1, keepdims=True))
    return dlogits


def _check(logits0: Array, logits1: Array) -> Any:
    xp = namespace(logits0=logits0, logits1=logits1)
    expect_floating("logits0", logits0)
    expect_floating("logits1", logits1, logits0, "logits0")
    if logits0.shape != logits1.shape or logits0.ndim == 0 or logits0.shape[-1] == 0:
        raise ValueError(
            f"logits0 has shape {shape_text(logits0.shape)} and logits1 {shape_text(logits1.shape)}, "
            "expected the same (..., C)"
        )
    return xp
