r"""A pass of a small LSTM and the way back, compiled by Numba: the loops of `minadv.lstm`, a chunk of steps a call.

Where the weights are small a step's product takes some fifty microseconds, and all that Python does between two of them
counts; nor can two threads take turns at that pace. Here a chunk of steps is one call that holds no lock: threads that
share a batch (`minadv.training.parallel.threads`) really run side by side.

It also keeps less. The cells and states of a chunk follow from its gates and from the state before it,

.. math:: c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

so that on the way back they are made again, and of 6 TBH numbers 4 TBH remain.

`minadv.lstm` is the place to read what is computed, `numba_steps` has the compiled loops. Imported by `compiled`
only, and only where Numba is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minadv import lstm
from minadv.backend import Array
from minadv.fast import elementwise, numba_steps
from minadv.fast.chunks import Chunks, chunk_length
from minadv.fast.packing import by_gate, input_products, packed
from minadv.fast.workspace import Slot, Workspace, take_slot


def forward(
    params: lstm.Params, given: lstm.Inputs, *, states: bool, again: bool, work: Workspace | None
) -> tuple[Array | None, lstm.State, lstm.Cache]:
    """As `lstm.forward`; without ``states`` the first of what it returns is None, and no h is kept but a chunk's first.

    ``again``: a later pass will be given the same x.
    """
    x, H, slot = given.x, params.U.shape[0], take_slot(work)
    T, B, _ = x.shape
    weights = packed(params, work)
    rows = _taken(x)
    C = chunk_length(T, B, H)
    h, c = (slot.take(name, (-(-T // C) + 1, H, B), x) for name in ("h", "c"))  # before each chunk, and after the last
    h[0] = 0 if given.state is None else given.state.h.T
    c[0] = 0 if given.state is None else given.state.c.T
    a = slot.take("a", (T, 4, H, B), x)
    hs = slot.take("hs", (T if states else 0, H, B), x)
    m = _mask(slot, given.m, x, H)
    entering = slot.take("entering", (weights.UWb.shape[1], B), x)  # the masked state, x_t if it is small, and 1
    entering[-1] = 1
    z, apart = slot.take("z", (4 * H, B), x), weights.W is not None
    if apart:
        xW = input_products(weights, x, out=a, again=again, work=work)
        if xW is not a:
            a[...] = xW
    UWb = weights.UWb.reshape(4 if by_gate(H, entering) else 1, -1, weights.UWb.shape[1])
    for k in range(len(h) - 1):
        steps = slice(k * C, (k + 1) * C)
        h[k + 1], c[k + 1] = h[k], c[k]
        numba_steps.forward_steps(UWb, rows[steps], apart, m, entering, z, a[steps], c[k + 1], h[k + 1], hs[steps])
    cache = lstm.Cache(x, h, c, a, given.m, None, None, slot, slot.ticket, every=C)
    return hs.transpose(0, 2, 1) if states else None, lstm.State(h[-1].T.copy(), c[-1].T.copy()), cache


def backward(
    params: lstm.Params,
    cache: lstm.Cache,
    dh_out: Array | None,
    dstate: lstm.State | None,
    *,
    weights: bool,
    inputs: bool,
    masks: bool,
    hhat: bool,
) -> tuple[lstm.Params | None, lstm.Grads]:
    """As `lstm.backward`, of a cache that `forward` made."""
    x, slot, H, C = cache.x, cache.slot, params.U.shape[0], cache.every
    T, B, I = x.shape
    m = _mask(slot, cache.m, x, H)
    chunks = Chunks(params.W, [cache], weights=weights, inputs=inputs) if weights or inputs else None
    dzs, entered = np.empty((4, H, 0, B), x.dtype), np.empty((H + I + 1, 0, B), x.dtype)
    if chunks is not None:
        dzs = chunks.dzs.reshape(4, H, C, B)
        entered = entered if chunks.entered is None else chunks.entered.reshape(-1, C, B)
    cells = slot.take("cells", (C + 1, H, B), x)
    h, h_before, dh, dc, dhhat = (slot.take(name, (H, B), x) for name in ("h_t", "h_before", "dh", "dc", "dhhat_t"))
    dz, dm = slot.take("dz", (4 * H, B), x), np.zeros(H * B, x.dtype)
    dh[...], dc[...] = (0, 0) if dstate is None else (dstate.h.T, dstate.c.T)
    dhhats = slot.give("dhhat", (T if hhat else 0, H, B), x)
    dh_out = np.empty((0, B, H), x.dtype) if dh_out is None else _taken(dh_out)
    U = params.U.reshape(H, 4, H).transpose(1, 0, 2) if by_gate(H, dhhat) else params.U[None]
    U = _taken(U, "C")
    x = _taken(x)
    h[...] = cache.hs[-1]
    for k in range(len(cache.hs) - 2, -1, -1):
        steps = slice(k * C, (k + 1) * C)
        cells[0] = cache.c[k]
        numba_steps.backward_steps(
            *(U, x[steps], cache.a[steps], m, dh_out[steps]),
            *(cells, cache.hs[k], h, h_before, dh, dc, dz, dhhat, dm, dzs, entered, dhhats[steps]),
            *(numba_steps.NOTHING, np.float32(elementwise.vanished(x.dtype))),
        )
        if chunks is not None:
            chunks.multiply(k * C)
    return None if chunks is None else lstm.split(chunks.dparams, H), lstm.Grads(
        params=None,
        x=None if chunks is None or chunks.dx is None else chunks.dx[0],
        state=lstm.State(dh.T.copy(), dc.T.copy()),
        m=None if cache.m is None or not masks else dm.reshape(H, B).T.copy(),
        hhat=dhhats.transpose(0, 2, 1) if hhat else None,
    )


def states(cache: lstm.Cache) -> Array:
    """Every state of a pass that `forward` made, (T+1, H, B): made again from the gates."""
    T, _, H, B = cache.a.shape
    hs, cells = np.empty((T + 1, H, B), cache.a.dtype), np.empty((cache.every + 1, H, B), cache.a.dtype)
    hs[0] = cache.hs[0]
    for k in range(len(cache.hs) - 1):
        cells[0] = cache.c[k]
        steps = slice(k * cache.every, (k + 1) * cache.every)
        numba_steps.states_again(cache.a[steps], cells, hs[1:][steps])
    return hs


def _taken(array: Array, *requirements: str) -> Array:
    """An array as the compiled functions take it: aligned and not read-only, or a copy that is."""
    wanted: Any = ["A", "W", *requirements]
    taken: Array = np.require(array, requirements=wanted)
    return taken


def _mask(slot: Slot, m: Array | None, x: Array, H: int) -> Array:
    """The mask as columns, flat (H * B,); ones where there is none."""
    beside = slot.take("m", (H, x.shape[1]), x)
    beside[...] = 1 if m is None else m.T
    return beside.reshape(-1)
