r"""The GRU with a time-invariant mask on its recurrent connection (Eq. 1 for a gated cell).

.. math:: r_t, z_t = \sigma(x_t W_{r,z} + \hat h_{t-1} U_{r,z} + b_{r,z}), \qquad
          n_t = \tanh(x_t W_n + b_n + r_t \odot (\hat h_{t-1} U_n + bn)), \qquad
          h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}

The masked copy :math:`\hat h_{t-1} = m \odot h_{t-1}` enters r, z and n; the leak :math:`z_t \odot h_{t-1}` stays
clean, as the cell of an LSTM does (``leak="masked"`` masks it too). The columns of W, U and b are three blocks in the
order r, z, n; ``bn`` is the recurrent bias inside the reset. Indices and sizes are those of `rnn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.checks import backward_inputs, expect_choice, forward_inputs
from minadv.base.initial import blocks, glorot, orthogonal
from minadv.fast import elementwise
from minadv.fast.workspace import Slot, Workspace, take_slot


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
    a: Array  # (T, B, 3H), r, z and n
    hn: Array  # (T, B, H), what r multiplies
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    leak: Literal["clean", "masked"]
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


def init(rng: np.random.Generator, n_in: int, n_hidden: int, *, dtype: npt.DTypeLike = np.float32) -> Params:
    """Glorot-uniform W and orthogonal U by block, zero biases; drawn on the host."""
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
    states: bool = True,
    work: Workspace | None = None,
    leak: Literal["clean", "masked"] = "clean",
) -> tuple[Array, State, Cache]:
    r"""Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which the state is
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache.
    ``states=False`` says that ``h`` is not needed, which makes no difference here.

    Cost: T products of (B, H) by (H, 3H), one of (TB, I) by (I, 3H). Keeps about 5 TBH numbers for backward.
    """
    expect_choice("leak", leak, ("clean", "masked"))
    xp, T, B, H = forward_inputs(params, x, state, m, valid, blocks=3)
    slot = take_slot(work)
    h = slot.take("h", (T + 1, B, H), x)  # (T+1, B, H)
    h[0] = 0 if state is None else state.h
    a, hn = slot.take("a", (T, B, 3 * H), x), slot.take("hn", (T, B, H), x)
    hhat, hU = slot.take("hhat", (B, H), x), slot.take("hU", (B, 3 * H), x)

    xp.matmul(x.reshape(T * B, -1), params.W, out=a.reshape(T * B, 3 * H))  # x_t W for every t at once
    a += params.b  # until step t, a[t - 1] holds its share of the pre-activation
    for t in range(1, T + 1):
        if m is None:
            hhat = h[t - 1]
        else:
            xp.multiply(h[t - 1], m, out=hhat)
        xp.matmul(hhat, params.U, out=hU)
        h_leak = h[t - 1] if leak == "clean" else hhat
        elementwise.gru_step(a[t - 1], hU, params.bn, h_leak, hn=hn[t - 1], h=h[t])  # Eq. 1
        if valid is not None:
            h[t] = xp.where(valid[t - 1, :, None], h[t], h[t - 1])
    return h[1:], State(h[T].copy()), Cache(x, h, a, hn, m, valid, leak, slot, slot.ticket)


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
    state. ``weights=False`` leaves out the gradients of W, U, b and bn, which the influence map does not need,
    ``inputs=False`` that of x, and ``hhat=False`` those of the masked states one by one.

    .. math:: dn_t = (1 - n^2)(1 - z)\,dh, \quad dr_t = r(1-r)\,hn\,dn, \quad dz_t = z(1-z)(h_{t-1} - n)\,dh, \quad
              dq_t = (dr_t, dz_t, r\,dn_t)

    .. math:: d\hat h_{t-1} = dq_t U^\top, \quad
              dh_{t-1} \mathrel{+}= z_t \odot dh_t + m \odot d\hat h_{t-1}, \quad dm = \sum_u d\hat h_u \odot h_u

    With ``leak="masked"`` the share :math:`z_t \odot dh_t` goes to :math:`\hat h_{t-1}` as well. Cost: as forward, and
    again for the weights.
    """
    xp, T, B, H = backward_inputs(params, cache, cache.h.shape[2], dh, dstate)
    x, h, m, valid, slot = cache.x, cache.h, cache.m, cache.valid, cache.slot
    masked_leak = cache.leak == "masked"
    dq, dn = slot.take("dq", (T, B, 3 * H), x), slot.take("dn", (T, B, H), x)
    dhhat = (slot.give if hhat else slot.take)("dhhat", (T, B, H), x)  # (T, B, H)
    dm = None if m is None else xp.zeros_like(m)  # (B, H)
    dh_t = (
        xp.zeros((B, H), x.dtype) if dstate is None else dstate.h.copy()
    )  # what the later steps hand back, then dh[t - 1] added
    dleak = xp.empty((B, H), x.dtype)

    for t in range(T, 0, -1):
        if t % 16 == 0:
            elementwise.flush_vanished(dh_t)
        if dh is not None:
            dh_t += dh[t - 1]
        carried = None if valid is None else xp.where(valid[t - 1, :, None], 0, dh_t)  # past the cell, over padding
        if carried is not None:
            dh_t -= carried
        h_leak = h[t - 1] if m is None or not masked_leak else h[t - 1] * m
        elementwise.gru_step_backward(
            cache.a[t - 1], cache.hn[t - 1], h_leak, dh_t, dq=dq[t - 1], dn=dn[t - 1], dh_leak=dleak
        )
        xp.matmul(dq[t - 1], params.U.T, out=dhhat[t - 1])
        if masked_leak:
            dhhat[t - 1] += dleak
            dleak[...] = 0
        if dm is None:
            dh_t[...] = dhhat[t - 1]
        else:
            dm += dhhat[t - 1] * h[t - 1]  # Eq. 6
            xp.multiply(dhhat[t - 1], m, out=dh_t)
        dh_t += dleak
        if carried is not None:
            dh_t += carried

    flat_rz, flat_n = dq.reshape(T * B, 3 * H)[:, : 2 * H], dn.reshape(T * B, H)
    dx = None
    if inputs:
        dx = (flat_rz @ params.W[:, : 2 * H].T + flat_n @ params.W[:, 2 * H :].T).reshape(x.shape)
    dparams = None
    if weights:
        flat_x, flat_dq = x.reshape(T * B, -1), dq.reshape(T * B, 3 * H)
        hhats = h[:-1] if m is None else xp.multiply(h[:-1], m, out=slot.take("hhats", (T, B, H), x))
        dparams = Params(
            W=xp.concatenate([flat_x.T @ flat_rz, flat_x.T @ flat_n], axis=1),
            U=hhats.reshape(T * B, H).T @ flat_dq,
            b=xp.concatenate([flat_rz.sum(axis=0), flat_n.sum(axis=0)]),
            bn=flat_dq[:, 2 * H :].sum(axis=0),
        )
    return Grads(dparams, dx, State(dh_t), dm, dhhat if hhat else None)
