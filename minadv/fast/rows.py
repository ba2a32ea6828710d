r"""The passes of `minadv.rnn` and `minadv.gru`, written in place: an example is a row, and a pass reuses its buffers.

One product multiplies the inputs of all steps; the element-wise steps are those of `minadv.fast.elementwise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from minadv import gru, rnn
from minadv.backend import Array, namespace
from minadv.base.checks import forward_inputs, gradient_inputs
from minadv.fast import elementwise
from minadv.fast.engines import Inputs, OneByOne
from minadv.fast.workspace import Slot, Workspace, take_slot


@dataclass(frozen=True)
class Cache:
    """What the way back needs of a pass: the states, and for the GRU its gates ``a`` and what r multiplies, ``q``."""

    given: Inputs
    h: Array  # (T+1, B, H)
    slot: Slot
    ticket: int
    a: Array | None = None  # (T, B, 3H)
    q: Array | None = None  # (T, B, H)


@dataclass(frozen=True)
class RnnRows(OneByOne):
    """The engine of the simple network."""

    name = "rows"

    def run(self, params: rnn.Params, given: Inputs, keep_h: bool, work: Workspace | None) -> tuple[Any, Any, Any]:
        x, m, valid = given.x, given.m, given.valid
        xp, T, B, H = forward_inputs(params, x, given.state, m, valid, blocks=1)
        slot = take_slot(work)
        h = slot.take("h", (T + 1, B, H), x)
        h[0] = 0 if given.state is None else given.state.h
        hhat, hU = slot.take("hhat", (B, H), x), slot.take("hU", (B, H), x)
        xp.matmul(x.reshape(T * B, -1), params.W, out=h[1:].reshape(T * B, H))
        h[1:] += params.b  # until step t, h[t] holds the input's share of the pre-activation
        for t in range(1, T + 1):
            masked = h[t - 1] if m is None else xp.multiply(h[t - 1], m, out=hhat)
            h[t] += xp.matmul(masked, params.U, out=hU)
            elementwise.rnn_step(h[t], h=h[t])  # Eq. 1
            if valid is not None:
                h[t] = xp.where(valid[t - 1, :, None], h[t], h[t - 1])
        return h[1:], rnn.State(h[T].copy()), Cache(given, h, slot, slot.ticket)

    def run_backward(
        self,
        params: rnn.Params,
        cache: Cache,
        dh: Array | None,
        dstate: rnn.State | None,
        weights: bool,
        inputs: bool,
        masks: bool,
    ) -> rnn.Grads:
        given, h, slot = cache.given, cache.h, cache.slot
        x, m = given.x, given.m
        slot.check(cache.ticket)
        xp, T, B, H = gradient_inputs(params, x, h.shape[2], dh, dstate)
        dz, dhhat = slot.take("dz", (T, B, H), x), slot.take("dhhat", (B, H), x)
        dm = xp.zeros((B, H), x.dtype) if masks else None
        dh_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.h.copy()
        for t in range(T, 0, -1):
            carried = _begin_step(dh_t, dh, given.valid, t)
            elementwise.rnn_step_backward(h[t], dh_t, dz=dz[t - 1])
            xp.matmul(dz[t - 1], params.U.T, out=dhhat)
            _through_mask(dhhat, h[t - 1], m, dm, dh_t)
            if carried is not None:
                dh_t += carried
        flat_dz = dz.reshape(T * B, H)
        dx = (flat_dz @ params.W.T).reshape(x.shape) if inputs else None
        dparams = None
        if weights:
            flat_x, hhats = x.reshape(T * B, -1), _masked_states(h, m, slot, x)
            dparams = rnn.Params(W=flat_x.T @ flat_dz, U=hhats.T @ flat_dz, b=flat_dz.sum(axis=0))
        return rnn.Grads(dparams, dx, rnn.State(dh_t), dm, None)


@dataclass(frozen=True)
class GruRows(OneByOne):
    """The engine of the GRU, whose leak is clean or masked."""

    leak: Literal["clean", "masked"] = "clean"
    name = "rows"

    def run(self, params: gru.Params, given: Inputs, keep_h: bool, work: Workspace | None) -> tuple[Any, Any, Any]:
        x, m, valid = given.x, given.m, given.valid
        xp, T, B, H = forward_inputs(params, x, given.state, m, valid, blocks=3)
        slot = take_slot(work)
        h = slot.take("h", (T + 1, B, H), x)
        h[0] = 0 if given.state is None else given.state.h
        a, q = slot.take("a", (T, B, 3 * H), x), slot.take("q", (T, B, H), x)
        hhat, hU = slot.take("hhat", (B, H), x), slot.take("hU", (B, 3 * H), x)
        xp.matmul(x.reshape(T * B, -1), params.W, out=a.reshape(T * B, 3 * H))
        a += params.b  # until step t, a[t - 1] holds the input's share of the pre-activation
        for t in range(1, T + 1):
            masked = h[t - 1] if m is None else xp.multiply(h[t - 1], m, out=hhat)
            xp.matmul(masked, params.U, out=hU)
            h_leak = h[t - 1] if self.leak == "clean" else masked
            elementwise.gru_step(a[t - 1], hU, params.bn, h_leak, q=q[t - 1], h=h[t])  # Eq. 1
            if valid is not None:
                h[t] = xp.where(valid[t - 1, :, None], h[t], h[t - 1])
        return h[1:], gru.State(h[T].copy()), Cache(given, h, slot, slot.ticket, a, q)

    def run_backward(
        self,
        params: gru.Params,
        cache: Cache,
        dh: Array | None,
        dstate: gru.State | None,
        weights: bool,
        inputs: bool,
        masks: bool,
    ) -> gru.Grads:
        given, h, a, q, slot = cache.given, cache.h, cache.a, cache.q, cache.slot
        assert a is not None and q is not None
        x, m, masked_leak = given.x, given.m, self.leak == "masked"
        slot.check(cache.ticket)
        xp, T, B, H = gradient_inputs(params, x, h.shape[2], dh, dstate)
        dhU, dn = slot.take("dhU", (T, B, 3 * H), x), slot.take("dn", (T, B, H), x)
        dhhat, dleak = slot.take("dhhat", (B, H), x), slot.take("dleak", (B, H), x)
        dm = xp.zeros((B, H), x.dtype) if masks else None
        dh_t = xp.zeros((B, H), x.dtype) if dstate is None else dstate.h.copy()
        for t in range(T, 0, -1):
            carried = _begin_step(dh_t, dh, given.valid, t)
            h_leak = h[t - 1] if m is None or not masked_leak else h[t - 1] * m
            outputs = {"dhU": dhU[t - 1], "dn": dn[t - 1], "dh_leak": dleak}
            elementwise.gru_step_backward(a[t - 1], q[t - 1], h_leak, dh_t, **outputs)
            xp.matmul(dhU[t - 1], params.U.T, out=dhhat)
            if masked_leak:
                dhhat += dleak
                dleak[...] = 0
            _through_mask(dhhat, h[t - 1], m, dm, dh_t)
            dh_t += dleak
            if carried is not None:
                dh_t += carried
        flat_dhU, flat_dn = dhU.reshape(T * B, 3 * H), dn.reshape(T * B, H)
        flat_drz, dx, dparams = flat_dhU[:, : 2 * H], None, None
        if inputs:
            dx = (flat_drz @ params.W[:, : 2 * H].T + flat_dn @ params.W[:, 2 * H :].T).reshape(x.shape)
        if weights:
            flat_x, hhats = x.reshape(T * B, -1), _masked_states(h, m, slot, x)
            dparams = gru.Params(
                W=xp.concatenate([flat_x.T @ flat_drz, flat_x.T @ flat_dn], axis=1),
                U=hhats.T @ flat_dhU,
                b=xp.concatenate([flat_drz.sum(axis=0), flat_dn.sum(axis=0)]),
                bn=flat_dhU[:, 2 * H :].sum(axis=0),
            )
        return gru.Grads(dparams, dx, gru.State(dh_t), dm, None)


def _begin_step(dh_t: Array, dh: Array | None, valid: Array | None, t: int) -> Array | None:
    """Add the step's own gradient to ``dh_t``, in place; take out and return what goes past the cell, over padding."""
    if t % 16 == 0:
        elementwise.flush_vanished(dh_t)
    if dh is not None:
        dh_t += dh[t - 1]
    if valid is None:
        return None
    carried: Array = namespace(dh_t).where(valid[t - 1, :, None], 0, dh_t)
    dh_t -= carried
    return carried


def _through_mask(dhhat: Array, h_prev: Array, m: Array | None, dm: Array | None, dh_t: Array) -> None:
    """The influence map's term of a step into ``dm``, and the gradient of the state that entered it into ``dh_t``."""
    if dm is not None:
        dm += dhhat * h_prev  # Eq. 6
    if m is None:
        dh_t[...] = dhhat
    else:
        namespace(dhhat).multiply(dhhat, m, out=dh_t)


def _masked_states(h: Array, m: Array | None, slot: Slot, x: Array) -> Array:
    """The masked states that entered the steps, (TB, H)."""
    T, B, H = h.shape[0] - 1, *h.shape[1:]
    hhats = h[:-1] if m is None else namespace(h).multiply(h[:-1], m, out=slot.take("hhats", (T, B, H), x))
    return hhats.reshape(T * B, H)
