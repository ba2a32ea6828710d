r"""The LSTM with a time-invariant mask on its recurrent connection (Eq. 1 for a gated cell).

.. math:: (i, f, g, o)_t = (\sigma, \sigma, \tanh, \sigma)(x_t W + \hat h_{t-1} U + b), \qquad
          c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

The masked copy :math:`\hat h_{t-1} = m \odot h_{t-1}` enters all four gates; the cell :math:`c` is never masked. The
columns of W, U and b are four blocks in the order i, f, g, o. Indices and sizes are those of `rnn`.

Within a pass each gate is a block of its own, ``a[k, t] (B, H)``, in the order i, f, o, g: so every element-wise line
below works on contiguous memory, and the three logistic gates are one slice. `Packed` holds the weights in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv import gates
from minadv.backend import Array, namespace, to_host
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
class Packed:
    """The weights by gate, in the order i, f, o, g: what the passes multiply with."""

    step: Array  # (4, H+n+1, H): U above the first n rows of W above b, of the logistic gates the half
    W: Array | None  # (4, I, H), halved alike, where n = 0
    U_T: Array  # (4, H, H), the transposed blocks of U
    W_T: Array  # (4, H, I)


@dataclass(frozen=True)
class Cache:
    """What backward needs of a forward pass."""

    x: Array  # (T, B, I)
    h: Array  # (T+1, B, H)
    c: Array  # (T+1, B, H)
    a: Array  # (4, T, B, H), the gates i, f, o, g after their activation
    tanh_c: Array  # (T, B, H)
    packed: Packed
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    slot: Slot
    ticket: int


@dataclass(frozen=True)
class Grads:
    """Gradients of the loss with respect to everything forward took, and to every masked state."""

    params: Params | None
    x: Array | None  # (T, B, I)
    state: State
    m: Array | None  # (B, H)
    hhat: Array | None  # (T, B, H)


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
    packed = pack(params) if work is None else work.once(params, pack)
    h, c = slot.take("h", (T + 1, B, H), x), slot.take("c", (T + 1, B, H), x)  # (T+1, B, H)
    h[0] = 0 if state is None else state.h
    c[0] = 0 if state is None else state.c
    a, tanh_c = slot.take("a", (4, T, B, H), x), slot.take("tanh_c", (T, B, H), x)
    z = slot.take("z", (B, packed.step.shape[1]), x)  # (B, H+n+1): the masked state, x_t if it is small, and 1
    z[:, -1] = 1
    padded: Any = None if valid is None else to_host(~valid.all(axis=1))  # (T,), steps at which some example has ended
    if packed.W is not None:
        xp.matmul(x.reshape(T * B, -1), packed.W, out=a.reshape(4, T * B, H))  # x_t W for every t at once
        zU = slot.take("zU", (4, B, H), x)

    for t in range(1, T + 1):
        a_t = a[:, t - 1]  # (4, B, H)
        if m is None:
            z[:, :H] = h[t - 1]
        else:
            xp.multiply(h[t - 1], m, out=z[:, :H])
        if packed.W is None:
            z[:, H:-1] = x[t - 1]
            xp.matmul(z, packed.step, out=a_t)
        else:
            a_t += xp.matmul(z, packed.step, out=zU)
        gates.lstm_step(a_t, c[t - 1], c=c[t], tanh_c=tanh_c[t - 1], h=h[t])  # Eq. 1
        if valid is not None and padded is not None and padded[t - 1]:
            h[t] = xp.where(valid[t - 1, :, None], h[t], h[t - 1])
            c[t] = xp.where(valid[t - 1, :, None], c[t], c[t - 1])
    cache = Cache(x, h, c, a, tanh_c, packed, m, valid, slot, slot.ticket)
    return h[1:], State(h[T].copy(), c[T].copy()), cache


def backward(
    params: Params,
    cache: Cache,
    dh: Array | None,
    *,
    dstate: State | None = None,
    weights: bool = True,
    inputs: bool = True,
    hhat: bool = True,
) -> Grads:
    r"""Backpropagation through time.

    ``dh (T, B, H)``: gradient of the loss with respect to the returned ``h`` (None: zero); ``dstate``: to the returned
    state. ``weights=False`` leaves out the gradients of W, U and b, which the influence map does not need,
    ``inputs=False`` that of x, and ``hhat=False`` those of the masked states one by one.

    .. math:: dc_t \mathrel{+}= dh_t \odot o_t \odot (1 - \tanh^2 c_t), \quad
              (di, df, dg, do)_t = (dc_t g_t,\; dc_t c_{t-1},\; dc_t i_t,\; dh_t \tanh c_t), \quad
              dc_{t-1} = dc_t \odot f_t

    .. math:: dz_t = (i(1-i)\,di,\; f(1-f)\,df,\; (1-g^2)\,dg,\; o(1-o)\,do)_t, \quad
              d\hat h_{t-1} = dz_t U^\top, \quad dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1}, \quad
              dm = \sum_u d\hat h_u \odot h_u

    Cost: as forward, and again for the weights, whose products are made for a chunk of steps at a time.
    """
    xp, T, B, H = backward_inputs(params, cache, dh, dstate)
    x, h, c, m, valid, slot, packed = cache.x, cache.h, cache.c, cache.m, cache.valid, cache.slot, cache.packed
    I = x.shape[2]
    C = min(T, max(16, 2048 // B))  # steps in a chunk: enough rows for a fast product, few enough to stay in memory
    dz = slot.take("dz", (4, C, B, H), x)
    z = slot.take("zs", (C, B, H + I + 1), x)  # the masked states, x and 1 of a chunk
    z[:, :, -1] = 1
    shares, free = slot.take("shares", (4, B, H), x), slot.take("free", (B, H), x)
    dhhat = slot.give("dhhat", (T, B, H), x) if hhat else None
    dhhat_t = slot.take("dhhat_t", (B, H), x)
    dx = xp.empty_like(x) if inputs else None
    total = xp.empty((H + I + 1, 4, H), x.dtype) if weights else None  # the gradient of U above W above b, by gate
    dm = None if m is None else xp.zeros_like(m)  # (B, H)
    dh_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.h.copy()  # what the later steps hand back
    dc_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.c.copy()
    padded: Any = None if valid is None else to_host(~valid.all(axis=1))  # (T,)

    for t in range(T, 0, -1):
        n = (t - 1) % C  # the step's place in its chunk
        if t % 16 == 0:
            gates.flush_vanished(dh_t, dc_t)
        if dh is not None:
            dh_t += dh[t - 1]
        carried = carried_c = None  # past the cell, over padding
        if valid is not None and padded is not None and padded[t - 1]:
            carried = xp.where(valid[t - 1, :, None], 0, dh_t)
            carried_c = xp.where(valid[t - 1, :, None], 0, dc_t)
            dh_t -= carried
            dc_t -= carried_c
        gates.lstm_step_backward(
            cache.a[:, t - 1], c[t - 1], cache.tanh_c[t - 1], dh_t, dc=dc_t, dz=dz[:, n], free=free
        )
        if dhhat is not None:
            dhhat_t = dhhat[t - 1]
        xp.matmul(dz[:, n], packed.U_T, out=shares)
        xp.sum(shares, axis=0, out=dhhat_t)  # dz_t U^T, gate by gate
        if dm is None:
            dh_t[...] = dhhat_t
        else:
            dm += xp.multiply(dhhat_t, h[t - 1], out=free)  # Eq. 6
            xp.multiply(dhhat_t, m, out=dh_t)
        if carried is not None:
            dh_t += carried
            dc_t += carried_c
        if n == 0:  # the chunk of the steps t .. t + k - 1 is whole
            k = min(C, T - t + 1)
            rows = dz[:, :k].reshape(4, k * B, H)
            if dx is not None:
                dx[t - 1 : t - 1 + k] = xp.matmul(rows, packed.W_T).sum(axis=0).reshape(k, B, I)
            if total is not None:
                z[:k, :, :H] = h[t - 1 : t - 1 + k] if m is None else h[t - 1 : t - 1 + k] * m
                z[:k, :, H:-1] = x[t - 1 : t - 1 + k]
                z_T = z[:k].reshape(k * B, H + I + 1).T
                for gate, place in enumerate(ORDER):
                    if t - 1 + k == T:  # the first chunk on the way back
                        xp.matmul(z_T, rows[gate], out=total[:, place])
                    else:
                        total[:, place] += z_T @ rows[gate]
    dparams = None
    if total is not None:
        columns = total.reshape(H + I + 1, 4 * H)
        dparams = Params(W=columns[H:-1], U=columns[:H], b=columns[-1])
    return Grads(dparams, dx, State(dh_t, dc_t), dm, dhhat)


def pack(params: Params) -> Packed:
    """The weights by gate. Where x_t is small it goes beside the state, and W below U: one product, and no sum."""
    xp = namespace(params.U)
    H, I = params.U.shape[0], params.W.shape[0]
    half = xp.asarray([0.5, 0.5, 0.5, 1.0], dtype=params.U.dtype)[:, None, None]
    U, W, b = (_by_gate(w.reshape(-1, 4, H)) for w in (params.U, params.W, params.b))
    beside = 8 * I <= H
    step = xp.concatenate([U, W, b] if beside else [U, b], axis=1)
    step *= half
    return Packed(
        step=step,
        W=None if beside else W * half,
        U_T=_transposed(U),
        W_T=_transposed(W),
    )


ORDER = [0, 1, 3, 2]  # of i, f, g, o in i, f, o, g, and back


def _by_gate(w: Array) -> Array:
    """(rows, 4, H) in the order of the parameters, as (4, rows, H) in that of a pass."""
    return w.transpose(1, 0, 2)[ORDER]


def _transposed(w: Array) -> Array:
    """(4, rows, H) as contiguous (4, H, rows); a strip of 64 rows at a time fits the cache, which is much faster."""
    out: Array = namespace(w).empty((w.shape[0], w.shape[2], w.shape[1]), dtype=w.dtype)
    for first in range(0, w.shape[1], 64):
        out[:, :, first : first + 64] = w[:, first : first + 64].transpose(0, 2, 1)
    return out
