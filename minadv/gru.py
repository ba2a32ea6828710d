r"""The GRU with a time-invariant mask on its recurrent connection (Eq. 1 for a gated cell).

.. math:: r_t, z_t = \sigma(x_t W_{r,z} + \hat h_{t-1} U_{r,z} + b_{r,z}), \qquad \hat h_t = m \odot h_t
.. math:: n_t = \tanh(x_t W_n + b_n + r_t \odot q_t), \quad q_t = \hat h_{t-1} U_n + \mathrm{bn}, \qquad
          h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}

The masked copy enters r, z and n; the leak :math:`z_t \odot h_{t-1}` stays clean, as the cell of an LSTM does
(``leak="masked"`` takes the masked copy there too). The columns of W, U and b are three blocks in the order r, z, n,
:math:`b_n` among them; ``bn`` is another bias, the recurrent one inside the reset. Indices and sizes are those of
`minadv.rnn`: read that file first and this one beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from minadv.backend import Array, namespace
from minadv.base.checks import backward_inputs, expect_choice, forward_inputs
from minadv.base.initial import blocks, glorot, orthogonal
from minadv.influence import influence_map


@dataclass(frozen=True)
class Params:
    W: Array  # (I, 3H)
    U: Array  # (H, 3H)
    b: Array  # (3H,)
    bn: Array  # (H,)


@dataclass(frozen=True)
class State:
    h: Array  # (B, H)


@dataclass(frozen=True)
class Cache:
    """What backward needs of a forward pass."""

    x: Array  # (T, B, I)
    h: Array  # (T+1, B, H)
    a: Array  # (T, B, 3H), r, z and n after their activation
    q: Array  # (T, B, H), what r multiplies
    m: Array  # (B, H)
    valid: Array  # (T, B, 1)
    leak: Literal["clean", "masked"]


@dataclass(frozen=True)
class Grads:
    """Gradients of the loss with respect to everything that forward took, and to every masked state."""

    params: Params | None  # None if weights=False; the others are None only where `minadv.fast` was told so
    x: Array | None  # (T, B, I)
    state: State
    m: Array | None  # (B, H)
    hhat: Array | None  # (T, B, H), hhat[u] belongs to the masked copy of h_u, u = 0, ..., T - 1


def init(rng: np.random.Generator, n_in: int, n_hidden: int, *, dtype: npt.DTypeLike = np.float32) -> Params:
    """Glorot-uniform W and orthogonal U by block, zero biases; drawn by NumPy, on the CPU."""
    W = blocks([glorot(rng, n_in, n_hidden, dtype) for _ in range(3)])
    U = blocks([orthogonal(rng, n_hidden, dtype) for _ in range(3)])
    return Params(W, U, np.zeros(3 * n_hidden, dtype), np.zeros(n_hidden, dtype))


def forward(
    params: Params,
    x: Array,
    *,
    state: State | None = None,
    m: Array | None = None,
    valid: Array | None = None,
    leak: Literal["clean", "masked"] = "clean",
) -> tuple[Array, State, Cache]:
    """Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which the state is
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache.

    Cost: T products of (B, H) by (H, 3H) and of (B, I) by (I, 3H). Keeps about 5 TBH numbers for backward.
    """
    expect_choice("leak", leak, ("clean", "masked"))
    xp, T, B, H = forward_inputs(params, x, state, m, valid, blocks=3)
    m = xp.ones((B, H), x.dtype) if m is None else m
    valid = xp.ones((T, B, 1), bool) if valid is None else valid[:, :, None]
    h = xp.empty((T + 1, B, H), x.dtype)  # (T+1, B, H)
    h[0] = 0 if state is None else state.h
    a, q = (xp.empty((T, B, k * H), x.dtype) for k in (3, 1))  # (T, B, 3H) and (T, B, H)
    for t in range(1, T + 1):
        hhat = m * h[t - 1]  # (B, H)
        x_r, x_z, x_n = xp.split(x[t - 1] @ params.W + params.b, 3, axis=1)  # (B, H) each
        h_r, h_z, h_n = xp.split(hhat @ params.U, 3, axis=1)
        r, z = sigma(x_r + h_r), sigma(x_z + h_z)  # (B, H) each
        q[t - 1] = h_n + params.bn
        n = xp.tanh(x_n + r * q[t - 1])
        h_t = (1 - z) * n + z * (h[t - 1] if leak == "clean" else hhat)  # Eq. 1
        a[t - 1] = xp.concatenate([r, z, n], axis=1)
        h[t] = xp.where(valid[t - 1], h_t, h[t - 1])
    return h[1:], State(h[T].copy()), Cache(x, h, a, q, m, valid, leak)


def backward(
    params: Params, cache: Cache, dh: Array | None, *, dstate: State | None = None, weights: bool = True
) -> Grads:
    r"""Backpropagation through time.

    ``dh (T, B, H)`` and ``dstate``: gradients of the loss with respect to the returned ``h`` and state (None: zero).
    ``weights=False`` leaves out the gradients of W, U, b and bn, which the influence map does not need.

    .. math:: dn_t = (1 - z_t)\,dh_t, \quad dz_t = (h_{t-1} - n_t)\,dh_t, \quad
              dr_t = q_t\,(1 - n_t^2)\,dn_t

    .. math:: d(xW)_t = (r(1-r)\,dr,\; z(1-z)\,dz,\; (1-n^2)\,dn)_t, \quad
              d(\hat hU)_t = (r(1-r)\,dr,\; z(1-z)\,dz,\; r\,(1-n^2)\,dn)_t

    .. math:: d\hat h_{t-1} = d(\hat hU)_t\, U^\top, \quad
              dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1} + z_t \odot dh_t, \quad dm = \sum_u d\hat h_u \odot h_u

    With ``leak="masked"``, :math:`\hat h_{t-1}` stands for :math:`h_{t-1}` in :math:`dz_t`, and the share
    :math:`z_t \odot dh_t` goes to :math:`\hat h_{t-1}`. Cost: that of forward, and the same again for the weights.
    """
    xp, T, B, H = backward_inputs(params, cache, dh, dstate)
    x, h, m, valid, clean = cache.x, cache.h, cache.m, cache.valid, cache.leak == "clean"
    dxW, dhU, dhhat = (xp.empty((T, B, k * H), x.dtype) for k in (3, 3, 1))  # (T, B, 3H) twice and (T, B, H)
    dh_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.h  # (B, H), what the steps after t hand back
    for t in range(T, 0, -1):
        dh_t = dh_t if dh is None else dh_t + dh[t - 1]
        carried = xp.where(valid[t - 1], 0, dh_t)  # over padding the gradient goes past the cell
        dh_t = dh_t - carried
        r, z, n = xp.split(cache.a[t - 1], 3, axis=1)
        dn, dz, dleak = (1 - z) * dh_t, ((h[t - 1] if clean else m * h[t - 1]) - n) * dh_t, z * dh_t
        dpre_n = (1 - n**2) * dn
        dr = cache.q[t - 1] * dpre_n
        dxW[t - 1] = xp.concatenate([r * (1 - r) * dr, z * (1 - z) * dz, dpre_n], axis=1)
        dhU[t - 1] = xp.concatenate([r * (1 - r) * dr, z * (1 - z) * dz, r * dpre_n], axis=1)
        dhhat[t - 1] = dhU[t - 1] @ params.U.T + (0 if clean else dleak)  # of the masked copy of h_{t-1}
        dh_t = m * dhhat[t - 1] + (dleak if clean else 0) + carried
    dm = influence_map(h[:-1], dhhat)  # Eq. 6
    dx = dxW @ params.W.T  # (T, B, I)
    dparams = None
    if weights:
        flat_x, flat_hhat, flat_dxW, flat_dhU = (v.reshape(T * B, -1) for v in (x, m * h[:-1], dxW, dhU))
        dW, dU, db = flat_x.T @ flat_dxW, flat_hhat.T @ flat_dhU, flat_dxW.sum(axis=0)
        dparams = Params(W=dW, U=dU, b=db, bn=flat_dhU[:, 2 * H :].sum(axis=0))
    return Grads(dparams, dx, State(dh_t), dm, dhhat)


def sigma(z: Array) -> Array:
    r""":math:`1/(1 + e^{-z})`, written with tanh so that nothing overflows."""
    return 0.5 + 0.5 * namespace(z).tanh(0.5 * z)  # type: ignore[no-any-return]
