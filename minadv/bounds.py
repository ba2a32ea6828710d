r"""The theory by exact enumeration: Remark 1, Proposition 1, its sharpening, and where it stops.

All masks of a small network (or all within a ball around the base) are run, and every expectation and every maximum is
computed over them exactly. With masks :math:`\epsilon^k` of probability :math:`w_k`,

.. math:: FD = \sum_{kl} w_k w_l D[p(\epsilon^k) \| p(\epsilon^l)], \quad
          EL = \sum_k w_k D[p^0 \| p(\epsilon^k)], \quad AdD = \max_k D[p^0 \| p(\epsilon^k)]

**Proposition 1** states ¼ FD ≤ EL ≤ AdD. The right half holds for every D. The left half is sharper, and says what is
lost, for a distance of the form :math:`D(p, q) = \|\phi(p) - \phi(q)\|^2`:

.. math:: \tfrac12 FD = tr\,Cov\,\phi, \qquad EL = \tfrac12 FD + \|\phi(p^0) - E\,\phi(p(\epsilon))\|^2

Squared L2 and ``logit2`` are of that form, and so is Jensen-Shannon (`bias_js`). KL is not, and for it even ¼ FD ≤ EL
fails: see `kl_counterexample`. Nor is the symmetrised KL of R-Drop: there EL - ½ FD has a closed form of either sign
(`bias_skl`), and ¼ FD ≤ EL fails by any factor (`skl_counterexample`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import distances, layers, masks
from minadv.backend import Array, namespace, same_place, to_host
from minadv.base.checks import expect_shape
from minadv.base.trees import any_array


@dataclass(frozen=True)
class Chain:
    """Prop. 1 in numbers, one entry an example; ``bias`` is EL - ½ FD."""

    fd: Array
    el: Array
    add: Array

    @property
    def bias(self) -> Array:
        return self.el - self.fd / 2


@dataclass(frozen=True)
class Remark1:
    """The three terms of Eq. 5 and the expected squared distance that they add up to, one entry an example."""

    variance: Array
    covariance: Array
    mean_gap: Array
    expected: Array

    @property
    def total(self) -> Array:
        total: Array = self.variance - 2 * self.covariance + self.mean_gap
        return total


def all_masks(n_hidden: int) -> Array:
    """Every binary mask, ``(2**H, H)``, the one that drops all units first."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=n_hidden)))


def ball(eps0: Array, budget: int) -> Array:
    """Every mask within ``budget`` flips of one mask ``eps0 (H,)``, that mask first."""
    H = len(eps0)
    rows = []
    for k in range(budget + 1):
        for units in itertools.combinations(range(H), k):
            eps = np.array(eps0, dtype=float)
            eps[list(units)] = 1 - eps[list(units)]
            rows.append(eps)
    return np.array(rows)


def bernoulli_weights(eps: Array, p: float) -> Array:
    """The probability of each row of ``eps (n, H)`` if units are dropped with probability p and only these occur."""
    masks.expect_probability(p)
    dropped = (eps == 0).sum(axis=1)
    w = p**dropped * (1 - p) ** (eps.shape[1] - dropped)
    return w / w.sum()  # type: ignore[no-any-return]


def outputs(
    model: Any,
    params: Any,
    batch: Any,
    eps: Array,
    *,
    scale: masks.Scale = "none",
    p: float | None = None,
    site: str = "layer0",
    noise: Any = None,
) -> Array:
    """The logits under each of the masks ``eps (n, H)``, the same for every example: ``(n, N, B, C)`` on the host."""
    like = any_array(params)
    rows = []
    for row in eps:
        mask = same_place(np.broadcast_to(row, (len(batch), row.size)).astype(like.dtype), like)
        m = masks.scale(mask, scale, p=p)
        features, _, _ = model.body(params, batch, masks={site: m}, noise=noise)
        rows.append(to_host(model.logits(params, features)))
    return np.stack(rows)


def base_output(model: Any, params: Any, batch: Any, *, noise: Any = None) -> Array:
    """The logits of the full network, m = 1: ``(N, B, C)`` on the host."""
    features, _, _ = model.body(params, batch, masks={}, noise=noise)
    return to_host(model.logits(params, features))


def chain(logits0: Array, logits: Array, w: Array, *, distance: str = "js", lam: Array | None = None) -> Chain:
    """FD, EL and AdD over given masks: ``logits0 (N, B, C)``, ``logits (n, N, B, C)``, probabilities ``w (n,)``.

    ``lam``, (N,) or (N, B), weighs the steps (default: the last only). Cost: n² distances.
    """
    if namespace(logits0=logits0, logits=logits, w=w, lam=lam) is not np:
        raise TypeError("the bounds are computed on the host: move the logits there with minadv.to_host")
    expect_shape("logits", logits, (len(w), *logits0.shape), "one row for each mask of w")
    if not np.isclose(w.sum(), 1) or (w < 0).any():
        raise ValueError(f"w sums to {w.sum()} with a least entry of {w.min()}, expected probabilities")
    measure = distances.by_name(distance)
    N, B, _ = logits0.shape
    weights = (np.arange(N) == N - 1).astype(logits0.dtype) if lam is None else lam
    expect_shape("lam", weights, (N,) if weights.ndim == 1 else (N, B), f"logits of N = {N} steps, B = {B}")
    by_example = np.broadcast_to(weights if weights.ndim == 2 else weights[:, None], (N, B))

    def d(a: Array, b: Array) -> Array:
        value: Array = np.einsum("...nb,nb->...b", measure(a, b)[0], by_example)
        return value

    to_base = d(np.broadcast_to(logits0, logits.shape), logits)  # (n, B)
    fd = sum(
        w[k] * np.einsum("l,lb->b", w, d(np.broadcast_to(row, logits.shape), logits)) for k, row in enumerate(logits)
    )
    return Chain(fd=np.asarray(fd), el=w @ to_base, add=to_base[w > 0].max(axis=0))  # Prop. 1


def remark1(p_base: Array, p_adv: Array, w: Array) -> Remark1:
    r"""The three terms of Remark 1 (Eq. 5), for squared L2 and any coupled pair of predictions.

    ``p_base (n, B, C)`` and ``p_adv (n, B, C)`` are the probabilities under each base mask and under the adversarial
    mask that belongs to it; ``w (n,)`` the probability of each base mask.
    """
    mean_base, mean_adv = np.einsum("n,nbc->bc", w, p_base), np.einsum("n,nbc->bc", w, p_adv)
    off_base, off_adv = p_base - mean_base, p_adv - mean_adv
    gap = p_base - p_adv
    return Remark1(
        variance=np.einsum("n,nbc->b", w, off_base**2 + off_adv**2),  # Eq. 5 (1)
        covariance=np.einsum("n,nbc->b", w, off_base * off_adv),  # Eq. 5 (2)
        mean_gap=((mean_base - mean_adv) ** 2).sum(axis=-1),  # Eq. 5 (3)
        expected=np.einsum("n,nbc->b", w, gap**2),
    )


def bias_l2(logits0: Array, logits: Array, w: Array) -> Array:
    r""":math:`\|p^0 - E\,p(\epsilon)\|^2`, what EL adds to ½ FD for squared L2; one step: ``(B, C)``, ``(n, B, C)``."""
    p0, p = np.exp(layers.log_softmax(logits0)), np.exp(layers.log_softmax(logits))
    return ((p0 - np.einsum("n,nbc->bc", w, p)) ** 2).sum(axis=-1)  # type: ignore[no-any-return]


def bias_js(logits0: Array, logits: Array, w: Array) -> Array:
    r"""What EL adds to ½ FD for Jensen-Shannon; shapes as in `bias_l2`. Cost: n² logarithms.

    :math:`JS(p,q) = \frac14 \sum_i \int_0^\infty (e^{-s p_i} - e^{-s q_i})^2\, ds/s^2` is a squared norm, in which

    .. math:: \|\phi(p^0) - E\phi\|^2 = \tfrac14 \sum_i \sum_{kl} a_k a_l\, (x_k + x_l) \log (x_k + x_l)

    with :math:`x = (p^0_i, p_i(\epsilon^1), \dots)` and :math:`a = (1, -w_1, \dots)`, because
    :math:`\int_0^\infty \sum_j c_j e^{-s y_j}\, ds/s^2 = \sum_j c_j y_j \log y_j` where :math:`\sum c = \sum c y = 0`.
    """
    p0, p = np.exp(layers.log_softmax(logits0)), np.exp(layers.log_softmax(logits))
    x = np.concatenate([p0[None], p])  # (n+1, B, C)
    a = np.concatenate([[1.0], -w])
    y = x[:, None] + x[None]
    y_log_y = y * np.log(np.where(y > 0, y, 1))
    return np.einsum("k,l,klbc->b", a, a, y_log_y) / 4  # type: ignore[no-any-return]


def bias_skl(logits0: Array, logits: Array, w: Array) -> Array:
    r"""What EL adds to ½ FD for the symmetrised KL, of either sign; shapes as in `bias_l2`.

    .. math:: EL - \tfrac12 FD = \tfrac12 \sum_i \big(p^0_i - E\,p_i(\epsilon)\big)
              \big(\log p^0_i - E \log p_i(\epsilon)\big)

    Both sides are :math:`-\tfrac14 \sum_i \sum_{kl} a_k a_l (x_k - x_l)(\log x_k - \log x_l)`, with
    :math:`x = (p^0_i, p_i(\epsilon^1), \dots)` and :math:`a = (1, -w_1, \dots)`, whose sum is zero. For two classes it
    is :math:`\tfrac12 (p^0 - E\,p)(z^0 - E\,z)`, z the log-odds: negative where the base lies between the mean
    prediction and the prediction of the mean log-odds.
    """
    log_p0, log_p = layers.log_softmax(logits0), layers.log_softmax(logits)
    gap = np.exp(log_p0) - np.einsum("n,nbc->bc", w, np.exp(log_p))
    return (gap * (log_p0 - np.einsum("n,nbc->bc", w, log_p))).sum(axis=-1) / 2  # type: ignore[no-any-return]
