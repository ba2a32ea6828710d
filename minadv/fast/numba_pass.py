r"""A pass of a small LSTM and the way back, compiled by Numba: the loops of `minadv.fast.columns`, a chunk a call.

Where the weights are small a step's product takes some fifty microseconds, and all that Python does between two of them
counts; nor can two Python threads take turns at that pace. Here a chunk of steps is one call that holds no lock of
Python's, so that threads that share a batch (`minadv.training.parallel.threads`) really run side by side.

A compiled pass also keeps less. The cells and states of a chunk follow from its gates and from the state before it,

.. math:: c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

so that they are computed again on the way back, and a pass keeps 4 TBH numbers instead of 6 TBH.

Imported by `minadv.fast` only, and only where Numba is installed; `minadv.fast.numba_steps` has the compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import lstm
from minadv.backend import Array
from minadv.base.checks import forward_inputs, gradient_inputs
from minadv.fast import numba_steps
from minadv.fast.chunks import Chunks, chunk_length, split
from minadv.fast.engines import Inputs, OneByOne
from minadv.fast.packing import by_gate, input_products, packed, worth_keeping
from minadv.fast.workspace import Slot, Workspace, take_slot


@dataclass(frozen=True)
class Cache:
    """What the way back needs of a pass: its gates, and the states before each chunk of C steps and after the last."""

    x: Array  # (T, B, I)
    h: Array  # (chunks+1, H, B)
    c: Array  # (chunks+1, H, B)
    a: Array  # (T, 4, H, B), the gates i, f, g, o after their activation
    m: Array | None  # (B, H)
    valid: Array  # (T, B), or empty if nothing is padding
    C: int
    slot: Slot
    ticket: int


@dataclass(frozen=True)
class Compiled(OneByOne):
    """The engine: single precision on a processor."""

    name = "compiled"

    def forward(
        self, params: lstm.Params, passes: Sequence[Inputs], *, keep_h: bool = True, work: Workspace | None = None
    ) -> list[tuple[Any, Any, Any]]:
        """The product of W with an x that several passes share and later ones may reuse is made once a scope."""
        return [self._run(params, p, keep_h, worth_keeping(p, passes), work) for p in passes]

    def _run(
        self, params: lstm.Params, given: Inputs, keep_h: bool, keep_product: bool, work: Workspace | None
    ) -> tuple[Array | None, lstm.State, Cache]:
        x = given.x
        _, T, B, H = forward_inputs(params, x, given.state, given.m, given.valid, blocks=4)
        slot, weights, rows, C = take_slot(work), packed(params, work), _as_compiled(x), chunk_length(T, B, H)
        h, c = (slot.take(name, (-(-T // C) + 1, H, B), x) for name in ("h", "c"))
        h[0] = 0 if given.state is None else given.state.h.T
        c[0] = 0 if given.state is None else given.state.c.T
        a = slot.take("a", (T, 4, H, B), x)
        hs = slot.take("hs", (T if keep_h else 0, H, B), x)
        m, valid = _mask(slot, given.m, x, H), _padding(given.valid, B)
        kept = slot.take("kept", (2 if len(valid) else 0, H, B), x)  # the state before a step with padding
        entering = slot.take("entering", (weights.UWb.shape[1], B), x)  # the masked state, x_t if it is small, and 1
        entering[-1] = 1
        z, apart = slot.take("z", (4 * H, B), x), weights.W is not None
        if apart:
            xW = input_products(weights, x, out=a, keep=keep_product, work=work)
            if xW is not a:
                a[...] = xW
        UWb = weights.UWb.reshape(4 if by_gate(H, entering) else 1, -1, weights.UWb.shape[1])
        for k in range(len(h) - 1):
            steps = slice(k * C, (k + 1) * C)
            h[k + 1], c[k + 1] = h[k], c[k]
            numba_steps.forward_steps(
                *(UWb, rows[steps], valid[steps], apart, m, entering, z, a[steps]),
                *(c[k + 1], h[k + 1], kept, hs[steps]),
            )
        last, cache = (
            lstm.State(h[-1].T.copy(), c[-1].T.copy()),
            Cache(x, h, c, a, given.m, valid, C, slot, slot.ticket),
        )
        return hs.transpose(0, 2, 1) if keep_h else None, last, cache

    def run_backward(
        self,
        params: lstm.Params,
        cache: Cache,
        dh_out: Array | None,
        dstate: lstm.State | None,
        weights: bool,
        inputs: bool,
        masks: bool,
    ) -> lstm.Grads:
        x, slot, C = cache.x, cache.slot, cache.C
        slot.check(cache.ticket)
        _, _, B, H = gradient_inputs(params, x, cache.a.shape[2], dh_out, dstate)
        m = _mask(slot, cache.m, x, H)
        chunks = Chunks(params.W, [cache], weights=weights, inputs=inputs) if weights or inputs else None
        dzs, entered = np.empty((4, H, 0, B), x.dtype), np.empty((H + x.shape[2] + 1, 0, B), x.dtype)
        if chunks is not None:
            dzs = chunks.dzs.reshape(4, H, C, B)
            entered = entered if chunks.entered is None else chunks.entered.reshape(-1, C, B)
        cells = slot.take("cells", (C + 1, H, B), x)
        names = ("h_t", "dh", "dc", "h_before", "dhhat_t", "carried_h", "carried_c")
        h, dh, dc, *others = (slot.take(name, (H, B), x) for name in names)
        dz, dm = slot.take("dz", (4 * H, B), x), np.zeros(H * B, x.dtype)
        dh[...], dc[...] = (0, 0) if dstate is None else (dstate.h.T, dstate.c.T)
        dh_out = np.empty((0, B, H), x.dtype) if dh_out is None else _as_compiled(dh_out)
        U = params.U.reshape(H, 4, H).transpose(1, 0, 2) if by_gate(H, h) else params.U[None]
        U, x = _as_compiled(U, "C"), _as_compiled(x)
        h[...] = cache.h[-1]
        for k in range(len(cache.h) - 2, -1, -1):
            steps = slice(k * C, (k + 1) * C)
            cells[0] = cache.c[k]
            numba_steps.backward_steps(
                *(U, x[steps], cache.valid[steps], cache.a[steps], m, dh_out[steps]),
                *(cells, (cache.h[k], h, dh, dc, *others, dz), dm, dzs, entered),
            )
            if chunks is not None:
                chunks.multiply(k * C)
        return lstm.Grads(
            params=None if chunks is None else split(chunks.dparams, H),
            x=None if chunks is None or chunks.dx is None else chunks.dx[0],
            state=lstm.State(dh.T.copy(), dc.T.copy()),
            m=dm.reshape(H, B).T.copy() if masks else None,
            hhat=None,
        )


def _as_compiled(array: Array, *requirements: str) -> Array:
    """An array as the compiled functions take it: aligned and not read-only, or a copy that is."""
    wanted: Any = ["A", "W", *requirements]
    ready: Array = np.require(array, requirements=wanted)
    return ready


def _mask(slot: Slot, m: Array | None, x: Array, H: int) -> Array:
    """The mask with an example a column, flat (H * B,); ones where ``m`` is None."""
    columns = slot.take("m", (H, x.shape[1]), x)
    columns[...] = 1 if m is None else m.T
    return columns.reshape(-1)


def _padding(valid: Array | None, B: int) -> Array:
    """``valid (T, B)`` as the compiled functions take it; empty where nothing is padding."""
    return np.empty((0, B), bool) if valid is None else _as_compiled(valid, "C")
