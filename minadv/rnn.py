r"""The simple recurrent network with a time-invariant mask on its recurrent connection (Eq. 1).

.. math:: h_t = \tanh(x_t W + \hat h_{t-1} U + b), \qquad \hat h_t = m \odot h_t

Indices: arrays that hold a state for every step have T + 1 rows, so that ``h[t]`` is :math:`h_t` of the paper and
``h[0]`` the initial state; arrays that hold one row a step have T, so that ``x[t - 1]`` is :math:`x_t`, and
``dhhat[u]`` belongs to :math:`\hat h_u`, the masked copy of the state that entered step ``u + 1``.

Sizes: ``T`` steps, ``B`` examples, ``I`` inputs, ``H`` units. `lstm` and `gru` have the same seven names, and
`gru` nothing else: reading it beside this file shows what a gate changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.checks import backward_inputs, forward_inputs
from minadv.base.initial import glorot, orthogonal
from minadv.fast import elementwise
from minadv.fast.workspace import Slot, Workspace, take_slot


@dataclass(frozen=True)
class Params:
    W: Array  # (I, H)
    U: Array  # (H, H)
    b: Array  # (H,)


@dataclass(frozen=True)
class State:
    h: Array  # (B, H)


@dataclass(frozen=True)
class Cache:
    """What backward needs of a forward pass."""

    x: Array  # (T, B, I)
    h: Array  # (T+1, B, H)
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


def init(rng: np.random.Generator, n_in: int, n_hidden: int, *, dtype: npt.DTypeLike = np.float32) -> Params:
    """Glorot-uniform W, orthogonal U, zero b; drawn on the host."""
    W = glorot(rng, n_in, n_hidden, dtype)
    U = orthogonal(rng, n_hidden, dtype)
    return Params(W, U, np.zeros(n_hidden, dtype))


def forward(
    params: Params,
    x: Array,
    *,
    state: State | None = None,
    m: Array | None = None,
    valid: Array | None = None,
    states: bool = True,
    work: Workspace | None = None,
) -> tuple[Array, State, Cache]:
    r"""Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which the state is
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache.
    ``states=False`` says that ``h`` is not needed, which makes no difference here.

    Cost: T products of (B, H) by (H, H), one of (TB, I) by (I, H). Keeps (T+1) B H numbers for backward.
    """
    xp, T, B, H = forward_inputs(params, x, state, m, valid, blocks=1)
    slot = take_slot(work)
    h = slot.take("h", (T + 1, B, H), x)  # (T+1, B, H)
    h[0] = 0 if state is None else state.h
    hhat, hU = slot.take("hhat", (B, H), x), slot.take("hU", (B, H), x)  # (B, H)

    xp.matmul(x.reshape(T * B, -1), params.W, out=h[1:].reshape(T * B, H))  # x_t W for every t at once
    h[1:] += params.b  # until step t, h[t] holds its share of the pre-activation
    for t in range(1, T + 1):
        if m is None:
            hhat = h[t - 1]
        else:
            xp.multiply(h[t - 1], m, out=hhat)
        h[t] += xp.matmul(hhat, params.U, out=hU)
        elementwise.rnn_step(h[t], h=h[t])  # Eq. 1
        if valid is not None:
            h[t] = xp.where(valid[t - 1, :, None], h[t], h[t - 1])
    return h[1:], State(h[T].copy()), Cache(x, h, m, valid, slot, slot.ticket)


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

    .. math:: dz_t = (1 - h_t^2) \odot dh_t, \quad d\hat h_{t-1} = dz_t U^\top, \quad
              dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1}, \quad dm = \sum_u d\hat h_u \odot h_u

    Cost: as forward, and again for the weights.
    """
    xp, T, B, H = backward_inputs(params, cache, cache.h.shape[2], dh, dstate)
    x, h, m, valid, slot = cache.x, cache.h, cache.m, cache.valid, cache.slot
    dz = slot.take("dz", (T, B, H), x)  # (T, B, H)
    dhhat = (slot.give if hhat else slot.take)("dhhat", (T, B, H), x)  # (T, B, H)
    dm = None if m is None else xp.zeros_like(m)  # (B, H)
    dh_t = (
        xp.zeros((B, H), x.dtype) if dstate is None else dstate.h.copy()
    )  # what the later steps hand back, then dh[t - 1] added

    for t in range(T, 0, -1):
        if t % 16 == 0:
            elementwise.flush_vanished(dh_t)
        if dh is not None:
            dh_t += dh[t - 1]
        carried = None if valid is None else xp.where(valid[t - 1, :, None], 0, dh_t)  # past the cell, over padding
        if carried is not None:
            dh_t -= carried
        elementwise.rnn_step_backward(h[t], dh_t, dz=dz[t - 1])
        xp.matmul(dz[t - 1], params.U.T, out=dhhat[t - 1])
        if dm is None:
            dh_t[...] = dhhat[t - 1]
        else:
            dm += dhhat[t - 1] * h[t - 1]  # Eq. 6
            xp.multiply(dhhat[t - 1], m, out=dh_t)
        if carried is not None:
            dh_t += carried

    flat_dz = dz.reshape(T * B, H)
    dx = (flat_dz @ params.W.T).reshape(x.shape) if inputs else None
    dparams = None
    if weights:
        hhats = h[:-1] if m is None else xp.multiply(h[:-1], m, out=slot.take("hhats", (T, B, H), x))
        dparams = Params(
            W=x.reshape(T * B, -1).T @ flat_dz,
            U=hhats.reshape(T * B, H).T @ flat_dz,
            b=flat_dz.sum(axis=0),
        )
    return Grads(dparams, dx, State(dh_t), dm, dhhat if hhat else None)
