r"""The simple recurrent network with a time-invariant mask on its recurrent connection (Eq. 1).

.. math:: h_t = \tanh(x_t W + \hat h_{t-1} U + b), \qquad \hat h_t = m \odot h_t

Indices: arrays that hold a state for every step have T + 1 rows, so that ``h[t]`` is :math:`h_t` of the paper and
``h[0]`` the initial state; arrays that hold one row a step have T, so that ``x[t - 1]`` is :math:`x_t`, and
``dhhat[u]`` belongs to :math:`\hat h_u`, the masked copy of the state that entered step ``u + 1``. The ``h`` that
`forward` returns, and ``dh``, begin at :math:`h_1`: there ``h[t - 1]`` is :math:`h_t`.

Sizes: ``T`` steps, ``B`` examples, ``I`` inputs, ``H`` units. ``xp`` is the array module, NumPy or CuPy.

This file is the definition, and `minadv.lstm` and `minadv.gru` stand beside it with the same seven names in the same
order (and `sigma`, the logistic function): reading them line by line shows what a gate changes. Training runs the same
pass through `minadv.fast`, which computes the same numbers faster and is held to these files by ``tests/fast``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.checks import backward_inputs, forward_inputs
from minadv.base.initial import glorot, orthogonal
from minadv.influence import influence_map


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


def init(rng: np.random.Generator, n_in: int, n_hidden: int, *, dtype: npt.DTypeLike = np.float32) -> Params:
    """Glorot-uniform W, orthogonal U, zero b; drawn by NumPy, on the CPU."""
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
) -> tuple[Array, State, Cache]:
    """Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which the state is
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache.

    Cost: T products of (B, H) by (H, H) and of (B, I) by (I, H). Keeps (T+1) B H numbers for backward.
    """
    xp, T, B, H = forward_inputs(params, x, state, m, valid, blocks=1)
    m = xp.ones((B, H), x.dtype) if m is None else m
    valid = xp.ones((T, B, 1), bool) if valid is None else valid[:, :, None]
    h = xp.empty((T + 1, B, H), x.dtype)  # (T+1, B, H)
    h[0] = 0 if state is None else state.h
    for t in range(1, T + 1):
        hhat = m * h[t - 1]  # (B, H)
        h_t = xp.tanh(x[t - 1] @ params.W + hhat @ params.U + params.b)  # Eq. 1
        h[t] = xp.where(valid[t - 1], h_t, h[t - 1])
    return h[1:], State(h[T].copy()), Cache(x, h, m, valid)


def backward(
    params: Params, cache: Cache, dh: Array | None, *, dstate: State | None = None, weights: bool = True
) -> Grads:
    r"""Backpropagation through time.

    ``dh (T, B, H)`` and ``dstate``: gradients of the loss with respect to the returned ``h`` and state (None: zero).
    ``weights=False`` leaves out the gradients of W, U and b, which the influence map does not need.

    .. math:: dpre_t = (1 - h_t^2) \odot dh_t, \quad d\hat h_{t-1} = dpre_t\, U^\top, \quad
              dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1}, \quad dm = \sum_u d\hat h_u \odot h_u

    where :math:`pre_t = x_t W + \hat h_{t-1} U + b` is the pre-activation.

    Cost: that of forward, and the same again for the weights.
    """
    xp, T, B, H = backward_inputs(params, cache, dh, dstate)
    x, h, m, valid = cache.x, cache.h, cache.m, cache.valid
    dpre, dhhat = (xp.empty((T, B, H), x.dtype) for _ in range(2))  # (T, B, H) each
    dh_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.h  # (B, H), what the steps after t hand back
    for t in range(T, 0, -1):
        dh_t = dh_t if dh is None else dh_t + dh[t - 1]
        carried = xp.where(valid[t - 1], 0, dh_t)  # over padding the gradient goes past the cell
        dh_t = dh_t - carried
        dpre[t - 1] = (1 - h[t] ** 2) * dh_t
        dhhat[t - 1] = dpre[t - 1] @ params.U.T  # of the masked copy of h_{t-1}
        dh_t = m * dhhat[t - 1] + carried
    dm = influence_map(h[:-1], dhhat)  # Eq. 6
    dx = dpre @ params.W.T  # (T, B, I)
    dparams = None
    if weights:
        flat_x, flat_hhat, flat_dpre = (v.reshape(T * B, -1) for v in (x, m * h[:-1], dpre))
        dparams = Params(W=flat_x.T @ flat_dpre, U=flat_hhat.T @ flat_dpre, b=flat_dpre.sum(axis=0))
    return Grads(dparams, dx, State(dh_t), dm, dhhat)
