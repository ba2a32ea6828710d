r"""A pass of a small LSTM and the way back, compiled by Numba: the loops of `minadv.lstm`, a chunk of steps a call.

Where the weights are small a step's product takes some fifty microseconds, and all that Python does between two of them
counts; nor can two threads take turns at that pace. Here a chunk of steps is one call that holds no lock: threads that
share a batch (`minadv.training.threads_team`) really run side by side.

It also keeps less. The cells and states of a chunk follow from its gates and from the state before it,

.. math:: c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

so that on the way back they are made again, and of 6 TBH numbers 4 TBH remain.

`minadv.lstm` is the place to read what is computed. Imported by `compiled` only, and only where Numba is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minadv import gates, lstm
from minadv.backend import Array
from minadv.compiled_lstm import _NOTHING, _step_backward, _step_in_place, _tanh, compile_for
from minadv.lstm_chunks import Chunks, chunk_length
from minadv.lstm_packing import by_gate, input_products, packed
from minadv.workspace import Slot, Workspace, take_slot

FLAT, MATRIX, CUBE, GATES = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]", "float32[:, :, :, ::1]"
ANY = "float32[:, :, :]"  # however it lies in memory


@compile_for(FLAT, FLAT, FLAT)
def _times(a: Any, b: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = a[j] * b[j]


@compile_for(FLAT, FLAT)
def _plus(out: Any, a: Any) -> None:
    for j in range(out.size):
        out[j] += a[j]


@compile_for(FLAT, FLAT, FLAT, FLAT, FLAT)
def _next_cell(i: Any, f: Any, g: Any, c_prev: Any, c: Any) -> None:
    for j in range(c.size):
        c[j] = f[j] * c_prev[j] + i[j] * g[j]  # Eq. 1, as `lstm` has it


@compile_for(FLAT, FLAT, FLAT)
def _state(o: Any, c: Any, h: Any) -> None:
    for j in range(h.size):
        h[j] = o[j] * _tanh(c[j])


@compile_for(FLAT, FLAT, FLAT, FLAT, FLAT)
def _through_mask(dhhat: Any, h: Any, m: Any, dm: Any, dh: Any) -> None:
    for j in range(dh.size):
        dm[j] += dhhat[j] * h[j]  # Eq. 6
        dh[j] = dhhat[j] * m[j]


@compile_for(FLAT, "float32")
def _flush(gradient: Any, limit: Any) -> None:
    for j in range(gradient.size):
        gradient[j] = gradient[j] if abs(gradient[j]) > limit else np.float32(0)


@compile_for(CUBE, ANY, "boolean", FLAT, MATRIX, MATRIX, GATES, MATRIX, MATRIX, CUBE)
def _forward_steps(
    UWb: Any, x: Any, apart: Any, m: Any, entering: Any, z: Any, a: Any, c: Any, h: Any, hs: Any
) -> None:
    """The steps of ``x (C, B, I)``: gates into ``a (C, 4, H, B)``, c and h in place, every h into ``hs`` unless empty.

    ``UWb (G, 4H/G, K)`` is multiplied block by block. Where x W is apart, it is in ``a`` already.
    """
    (H, B), (G, rows, _) = h.shape, UWb.shape
    flat_h, masked = h.reshape(H * B), entering[:H].reshape(H * B)
    for t in range(a.shape[0]):
        _times(flat_h, m, masked)
        if not apart:
            for i in range(x.shape[2]):
                for b in range(B):
                    entering[H + i, b] = x[t, b, i]
        blocks = (z if apart else a[t].reshape(4 * H, B)).reshape(G, rows, B)
        for k in range(G):
            np.dot(UWb[k], entering, blocks[k])
        if apart:
            _plus(a[t].reshape(4 * H * B), z.reshape(4 * H * B))
        _step_in_place(a[t].reshape(4, H, 1, B), c.reshape(H, 1, B), h.reshape(H, 1, B))  # Eq. 1
        if hs.shape[0] > 0:
            hs[t] = h


@compile_for(
    *(CUBE, ANY, GATES, FLAT, ANY),
    *(CUBE, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, FLAT, GATES, CUBE, CUBE, "float32", "float32"),
)
def _backward_steps(
    U: Any,
    x: Any,
    a: Any,
    m: Any,
    dh_out: Any,
    cells: Any,
    h_start: Any,
    h: Any,
    h_before: Any,
    dh: Any,
    dc: Any,
    dz: Any,
    dhhat: Any,
    dm: Any,
    dzs: Any,
    entered: Any,
    dhhats: Any,
    nothing: Any,
    tiny: Any,
) -> None:
    """Back through the steps of a chunk; what is empty of ``dh_out``, ``dzs``, ``entered`` and ``dhhats`` is left out.

    ``cells (C+1, H, B)`` begins with the cell before the chunk, ``h`` is the state after it; dh, dc and dm in place.
    """
    (H, B), (G, _, width), size = h.shape, U.shape, a.shape[0]
    n = H * B
    for t in range(size):
        i, f, g = a[t, 0].reshape(n), a[t, 1].reshape(n), a[t, 2].reshape(n)
        _next_cell(i, f, g, cells[t].reshape(n), cells[t + 1].reshape(n))
    for t in range(size - 1, -1, -1):
        if t == 0:
            h_before[:] = h_start
        else:
            _state(a[t - 1, 3].reshape(n), cells[t].reshape(n), h_before.reshape(n))
        if t % 16 == 0:  # as `gates.flush_vanished`
            _flush(dh.reshape(n), tiny)
            _flush(dc.reshape(n), tiny)
        if dh_out.shape[0] > 0:
            for r in range(H):
                for b in range(B):
                    dh[r, b] += dh_out[t, b, r]
        shape = (H, 1, B)
        _step_backward(
            a[t].reshape(4, H, 1, B),
            *(cells[t].reshape(shape), h.reshape(shape), dh.reshape(shape), dc.reshape(shape)),
            *(dz.reshape(4, H, 1, B), nothing),
        )
        if dzs.shape[2] > 0:
            for k in range(4):
                for r in range(H):
                    for b in range(B):  # a copy of a slice would cost more than it copies
                        dzs[k, r, t, b] = dz[k * H + r, b]
        if entered.shape[1] > 0:
            for r in range(H):
                for b in range(B):
                    entered[r, t, b] = h_before[r, b] * m[r * B + b]
            for i in range(x.shape[2]):
                for b in range(B):
                    entered[H + i, t, b] = x[t, b, i]
        blocks = dz.reshape(G, width, B)
        np.dot(U[0], blocks[0], dhhat)
        for k in range(1, G):
            np.dot(U[k], blocks[k], h)  # h has been read
            _plus(dhhat.reshape(n), h.reshape(n))
        if dhhats.shape[0] > 0:
            dhhats[t] = dhhat
        _through_mask(dhhat.reshape(n), h_before.reshape(n), m, dm, dh.reshape(n))
        h[:] = h_before


def forward(
    params: lstm.Params, given: lstm.Inputs, *, states: bool, again: bool, work: Workspace | None
) -> tuple[Array | None, lstm.State, lstm.Cache]:
    """As `lstm.forward`; without ``states`` the first of what it returns is None, and no h is kept but a chunk's first.

    ``again``: a later pass will be given the same x.
    """
    x, H, slot = given.x, params.U.shape[0], take_slot(work)
    T, B, _ = x.shape
    weights = packed(params, work)
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
        _forward_steps(UWb, x[steps], apart, m, entering, z, a[steps], c[k + 1], h[k + 1], hs[steps])
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
    dzs = slot.take("dzs", (4, H, 0 if chunks is None else C, B), x)
    entered = slot.take("entered", (H + I + 1, C if weights else 0, B), x)
    cells = slot.take("cells", (C + 1, H, B), x)
    h, h_before, dh, dc, dhhat = (slot.take(name, (H, B), x) for name in ("h_t", "h_before", "dh", "dc", "dhhat_t"))
    dz, dm = slot.take("dz", (4 * H, B), x), np.zeros(H * B, x.dtype)
    dh[...], dc[...] = (0, 0) if dstate is None else (dstate.h.T, dstate.c.T)
    dhhats = slot.give("dhhat", (T if hhat else 0, H, B), x)
    none = np.empty((0, B, H), x.dtype)
    U = params.U[None]
    if by_gate(H, dhhat):
        U = np.ascontiguousarray(params.U.reshape(H, 4, H).transpose(1, 0, 2))
    h[...] = cache.hs[-1]
    for k in range(len(cache.hs) - 2, -1, -1):
        steps = slice(k * C, (k + 1) * C)
        cells[0] = cache.c[k]
        _backward_steps(
            *(U, x[steps], cache.a[steps], m, none if dh_out is None else dh_out[steps]),
            *(cells, cache.hs[k], h, h_before, dh, dc, dz, dhhat, dm, dzs, entered, dhhats[steps]),
            *(_NOTHING, np.float32(gates.vanished(x.dtype))),
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
    hs, c = np.empty((T + 1, H, B), cache.a.dtype), np.empty((H, B), cache.a.dtype)
    hs[0] = cache.hs[0]
    for t in range(T):
        before = cache.c[t // cache.every] if t % cache.every == 0 else c
        i, f, g, o = (gate.reshape(-1) for gate in cache.a[t])
        _next_cell(i, f, g, before.copy().reshape(-1), c.reshape(-1))
        _state(o, c.reshape(-1), hs[t + 1].reshape(-1))
    return hs


def _mask(slot: Slot, m: Array | None, x: Array, H: int) -> Array:
    """The mask as columns, flat (H * B,); ones where there is none."""
    beside = slot.take("m", (H, x.shape[1]), x)
    beside[...] = 1 if m is None else m.T
    return beside.reshape(-1)
