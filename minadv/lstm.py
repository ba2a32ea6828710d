r"""The LSTM with a time-invariant mask on its recurrent connection (Eq. 1 for a gated cell).

.. math:: (i, f, g, o)_t = (\sigma, \sigma, \tanh, \sigma)(x_t W + \hat h_{t-1} U + b), \qquad
          c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

The masked copy :math:`\hat h_{t-1} = m \odot h_{t-1}` enters all four gates; the cell :math:`c` is never masked. The
columns of W, U and b are four blocks in the order i, f, g, o. Indices and sizes are those of `rnn`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minadv import gates
from minadv.backend import Array
from minadv.checks import backward_inputs, forward_inputs
from minadv.initial import blocks, glorot, orthogonal
from minadv.workspace import Slot, Workspace, take_slot


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
    a: Array  # (T, B, 4H), the gates after their activation
    tanh_c: Array  # (T, B, H)
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    slot: Slot
    ticket: int


@dataclass(frozen=True)
class Grads:
    """Gradients of the loss with respect to everything forward took, and to every masked state."""

    params: Params | None
    x: Array  # (T, B, I)
    state: State
    m: Array | None  # (B, H)
    hhat: Array  # (T, B, H)


def init(
    rng: np.random.Generator,
    n_in: int,
    n_hidden: int,
    *,
    dtype: npt.DTypeLike = np.float32,
    forget_bias: float = 1.0,
) -> Params:
    """Glorot-uniform W and orthogonal U by block, zero b but for the forget gate; drawn on the host."""
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
    work: Workspace | None = None,
) -> tuple[Array, State, Cache]:
    r"""Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which h and c are
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache.

    Cost: T products of (B, H) by (H, 4H), one of (TB, I) by (I, 4H). Keeps about 7 TBH numbers for backward.
    """
    xp, T, B, H = forward_inputs(params, x, state, m, valid, blocks=4)
    slot = take_slot(work)
    h, c = slot.take("h", (T + 1, B, H), x), slot.take("c", (T + 1, B, H), x)  # (T+1, B, H)
    h[0] = 0 if state is None else state.h
    c[0] = 0 if state is None else state.c
    a, tanh_c = slot.take("a", (T, B, 4 * H), x), slot.take("tanh_c", (T, B, H), x)
    hhat, hU = slot.take("hhat", (B, H), x), slot.take("hU", (B, 4 * H), x)
    half = gates.lstm_half(H, x)  # (4H,)

    xp.matmul(x.reshape(T * B, -1), params.W, out=a.reshape(T * B, 4 * H))  # x_t W for every t at once
    a += params.b  # until step t, a[t - 1] holds its share of the pre-activation
    for t in range(1, T + 1):
        if m is None:
            hhat = h[t - 1]
        else:
            xp.multiply(h[t - 1], m, out=hhat)
        a[t - 1] += xp.matmul(hhat, params.U, out=hU)
        gates.lstm_step(a[t - 1], c[t - 1], half, c=c[t], tanh_c=tanh_c[t - 1], h=h[t])  # Eq. 1
        if valid is not None:
            h[t] = xp.where(valid[t - 1, :, None], h[t], h[t - 1])
            c[t] = xp.where(valid[t - 1, :, None], c[t], c[t - 1])
    cache = Cache(x, h, c, a, tanh_c, m, valid, slot, slot.ticket)
    return h[1:], State(h[T].copy(), c[T].copy()), cache


def backward(
    params: Params,
    cache: Cache,
    dh: Array | None,
    *,
    dstate: State | None = None,
    weights: bool = True,
) -> Grads:
    r"""Backpropagation through time.

    ``dh (T, B, H)``: gradient of the loss with respect to the returned ``h`` (None: zero); ``dstate``: to the returned
    state. ``weights=False`` leaves out the gradients of W, U and b, which the influence map does not need.

    .. math:: dc_t \mathrel{+}= dh_t \odot o_t \odot (1 - \tanh^2 c_t), \quad
              (di, df, dg, do)_t = (dc_t g_t,\; dc_t c_{t-1},\; dc_t i_t,\; dh_t \tanh c_t), \quad
              dc_{t-1} = dc_t \odot f_t

    .. math:: dz_t = (i(1-i)\,di,\; f(1-f)\,df,\; (1-g^2)\,dg,\; o(1-o)\,do)_t, \quad
              d\hat h_{t-1} = dz_t U^\top, \quad dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1}, \quad
              dm = \sum_u d\hat h_u \odot h_u

    Cost: as forward, and again for the weights.
    """
    xp, T, B, H = backward_inputs(params, cache, dh, dstate)
    x, h, c, m, valid, slot = cache.x, cache.h, cache.c, cache.m, cache.valid, cache.slot
    half = gates.lstm_half(H, x)  # (4H,)
    dz = slot.take("dz", (T, B, 4 * H), x)  # (T, B, 4H)
    dhhat = slot.give("dhhat", (T, B, H), x)  # (T, B, H)
    dm = None if m is None else xp.zeros_like(m)  # (B, H)
    dh_t = (
        xp.zeros((B, H), x.dtype) if dstate is None else dstate.h.copy()
    )  # what the later steps hand back, then dh[t - 1] added
    dc_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.c.copy()

    for t in range(T, 0, -1):
        if t % 16 == 0:
            gates.flush_vanished(dh_t, dc_t)
        if dh is not None:
            dh_t += dh[t - 1]
        carried = None if valid is None else xp.where(valid[t - 1, :, None], 0, dh_t)  # past the cell, over padding
        carried_c = None if valid is None else xp.where(valid[t - 1, :, None], 0, dc_t)
        if carried is not None:
            dh_t -= carried
            dc_t -= carried_c
        gates.lstm_step_backward(cache.a[t - 1], c[t - 1], cache.tanh_c[t - 1], half, dh_t, dc=dc_t, dz=dz[t - 1])
        xp.matmul(dz[t - 1], params.U.T, out=dhhat[t - 1])
        if dm is None:
            dh_t[...] = dhhat[t - 1]
        else:
            dm += dhhat[t - 1] * h[t - 1]  # Eq. 6
            xp.multiply(dhhat[t - 1], m, out=dh_t)
        if carried is not None:
            dh_t += carried
            dc_t += carried_c

    flat_dz = dz.reshape(T * B, 4 * H)
    dx = (flat_dz @ params.W.T).reshape(x.shape)
    dparams = None
    if weights:
        hhat = h[:-1] if m is None else xp.multiply(h[:-1], m, out=slot.take("hhats", (T, B, H), x))
        dparams = Params(
            W=x.reshape(T * B, -1).T @ flat_dz,
            U=hhat.reshape(T * B, H).T @ flat_dz,
            b=flat_dz.sum(axis=0),
        )
    return Grads(dparams, dx, State(dh_t, dc_t), dm, dhhat)
