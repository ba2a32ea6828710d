r"""The LSTM with a time-invariant mask on its recurrent connection (Eq. 1 for a gated cell).

.. math:: (i, f, g, o)_t = (\sigma, \sigma, \tanh, \sigma)(x_t W + \hat h_{t-1} U + b), \qquad \hat h_t = m \odot h_t
.. math:: c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

The masked copy enters all four gates; the cell c is never masked. The columns of W, U and b are four blocks in the
order i, f, g, o. Indices and sizes are those of `minadv.rnn`: read that file first and this one beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minadv.backend import Array, namespace
from minadv.base.checks import backward_inputs, forward_inputs
from minadv.base.initial import blocks, glorot, orthogonal
from minadv.influence import influence_map


@dataclass(frozen=True)
class Params:
    W: Array  # (I, 4H)
    U: Array  # (H, 4H)
    b: Array  # (4H,)


@dataclass(frozen=True)
class State:
    h: Array  # (B, H)
    c: Array  # (B, H)


@dataclass(frozen=True)
class Cache:
    """What backward needs of a forward pass."""

    x: Array  # (T, B, I)
    h: Array  # (T+1, B, H)
    c: Array  # (T+1, B, H)
    a: Array  # (T, B, 4H), the gates i, f, g, o after their activation
    m: Array  # (B, H)
    valid: Array  # (T, B, 1)


@dataclass(frozen=True)
class Grads:
    """Gradients of the loss with respect to everything that forward took, and to every masked state."""

    params: Params | None  # None if weights=False; the others are None only where `minadv.fast` was told so
    x: Array | None  # (T, B, I)
    state: State
    m: Array | None  # (B, H)
    hhat: Array | None  # (T, B, H), hhat[u] belongs to the masked copy of h_u, u = 0, ..., T - 1


def init(
    rng: np.random.Generator, n_in: int, n_hidden: int, *, dtype: npt.DTypeLike = np.float32, forget_bias: float = 1.0
) -> Params:
    """Glorot-uniform W and orthogonal U by block, zero b but for the forget gate; drawn by NumPy, on the CPU."""
    W = blocks([glorot(rng, n_in, n_hidden, dtype) for _ in range(4)])
    U = blocks([orthogonal(rng, n_hidden, dtype) for _ in range(4)])
    b = np.zeros(4 * n_hidden, dtype)
    b[n_hidden : 2 * n_hidden] = forget_bias
    return Params(W, U, b)


def forward(
    params: Params,
    x: Array,
    *,
    state: State | None = None,
    m: Array | None = None,
    valid: Array | None = None,
) -> tuple[Array, State, Cache]:
    """Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which the state is
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache.

    Cost: T products of (B, H) by (H, 4H) and of (B, I) by (I, 4H). Keeps about 6 TBH numbers for backward.
    """
    xp, T, B, H = forward_inputs(params, x, state, m, valid, blocks=4)
    m = xp.ones((B, H), x.dtype) if m is None else m
    valid = xp.ones((T, B, 1), bool) if valid is None else valid[:, :, None]
    h, c = (xp.empty((T + 1, B, H), x.dtype) for _ in range(2))  # (T+1, B, H) each
    h[0], c[0] = (0, 0) if state is None else (state.h, state.c)
    a = xp.empty((T, B, 4 * H), x.dtype)  # (T, B, 4H)
    for t in range(1, T + 1):
        hhat = m * h[t - 1]  # (B, H)
        pre = x[t - 1] @ params.W + hhat @ params.U + params.b  # (B, 4H)
        pre_i, pre_f, pre_g, pre_o = xp.split(pre, 4, axis=1)
        i, f, g, o = sigma(pre_i), sigma(pre_f), xp.tanh(pre_g), sigma(pre_o)  # (B, H) each
        c_t = f * c[t - 1] + i * g  # Eq. 1
        h_t = o * xp.tanh(c_t)  # Eq. 1
        a[t - 1] = xp.concatenate([i, f, g, o], axis=1)
        c[t] = xp.where(valid[t - 1], c_t, c[t - 1])
        h[t] = xp.where(valid[t - 1], h_t, h[t - 1])
    return h[1:], State(h[T].copy(), c[T].copy()), Cache(x, h, c, a, m, valid)


def backward(
    params: Params, cache: Cache, dh: Array | None, *, dstate: State | None = None, weights: bool = True
) -> Grads:
    r"""Backpropagation through time.

    ``dh (T, B, H)`` and ``dstate``: gradients of the loss with respect to the returned ``h`` and state (None: zero).
    ``weights=False`` leaves out the gradients of W, U and b, which the influence map does not need.

    .. math:: dc_t \mathrel{+}= dh_t \odot o_t \odot (1 - \tanh^2 c_t), \quad
              (di, df, dg, do)_t = (dc_t g_t,\; dc_t c_{t-1},\; dc_t i_t,\; dh_t \tanh c_t), \quad
              dc_{t-1} = dc_t \odot f_t

    .. math:: dpre_t = (i(1-i)\,di,\; f(1-f)\,df,\; (1-g^2)\,dg,\; o(1-o)\,do)_t, \quad
              d\hat h_{t-1} = dpre_t\, U^\top, \quad dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1}, \quad
              dm = \sum_u d\hat h_u \odot h_u

    Cost: that of forward, and the same again for the weights.
    """
    xp, T, B, H = backward_inputs(params, cache, dh, dstate)
    x, h, c, m, valid = cache.x, cache.h, cache.c, cache.m, cache.valid
    dpre, dhhat = (xp.empty((T, B, k * H), x.dtype) for k in (4, 1))  # (T, B, 4H) and (T, B, H)
    dh_t, dc_t = xp.zeros((2, B, H), x.dtype) if dstate is None else (dstate.h, dstate.c)  # (B, H) each
    for t in range(T, 0, -1):
        dh_t = dh_t if dh is None else dh_t + dh[t - 1]
        carried_h, carried_c = (xp.where(valid[t - 1], 0, d) for d in (dh_t, dc_t))  # as in rnn
        dh_t, dc_t = dh_t - carried_h, dc_t - carried_c
        i, f, g, o = xp.split(cache.a[t - 1], 4, axis=1)
        tanh_c = xp.tanh(c[t])
        dc_t = dc_t + dh_t * o * (1 - tanh_c**2)
        di, df, dg, do = dc_t * g, dc_t * c[t - 1], dc_t * i, dh_t * tanh_c
        dpre[t - 1] = xp.concatenate([i * (1 - i) * di, f * (1 - f) * df, (1 - g**2) * dg, o * (1 - o) * do], axis=1)
        dhhat[t - 1] = dpre[t - 1] @ params.U.T  # of the masked copy of h_{t-1}
        dh_t = m * dhhat[t - 1] + carried_h
        dc_t = f * dc_t + carried_c
    dm = influence_map(h[:-1], dhhat)  # Eq. 6
    dx = dpre @ params.W.T  # (T, B, I)
    dparams = None
    if weights:
        flat_x, flat_hhat, flat_dpre = (v.reshape(T * B, -1) for v in (x, m * h[:-1], dpre))
        dparams = Params(W=flat_x.T @ flat_dpre, U=flat_hhat.T @ flat_dpre, b=flat_dpre.sum(axis=0))
    return Grads(dparams, dx, State(dh_t, dc_t), dm, dhhat)


def sigma(z: Array) -> Array:
    r""":math:`1/(1 + e^{-z})`, written with tanh so that nothing overflows."""
    return 0.5 + 0.5 * namespace(z).tanh(0.5 * z)  # type: ignore[no-any-return]
