r"""The passes of `minadv.lstm` with an example a **column**, for several passes at once.

The state of a step is (H, B), its gates are ``a[t] (4, H, B)``: each gate is then contiguous, and the product of a step
is (4H, H) by (H, B), which a BLAS does faster than its transpose. What goes in and comes out has an example a row, as
everywhere.

The columns of several passes of one shape stand side by side in one product and one element-wise step. Adversarial
dropout has two passes that do not wait for each other, at its beginning, at its end and where `Reselect` tries two
sides; with few examples and many units two take less than twice as long as one. Sizes: ``P`` passes of ``B`` examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minadv import lstm
from minadv.backend import Array, namespace, to_host
from minadv.base.checks import expect_shape, forward_inputs, gradient_inputs
from minadv.fast import choice, elementwise
from minadv.fast.chunks import Chunks, split
from minadv.fast.engines import Inputs
from minadv.fast.packing import Packed, by_gate, input_products, packed, worth_keeping
from minadv.fast.workspace import Slot, Workspace, take_slot


@dataclass(frozen=True)
class Cache:
    """What the way back needs of a pass."""

    x: Array  # (T, B, I)
    h: Array  # (T+1, H, B)
    c: Array  # (T+1, H, B)
    a: Array  # (T, 4, H, B), the gates i, f, g, o after their activation
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    padded: Any  # (T,) on the host, whether some example is padded at a step; None without valid
    slot: Slot
    ticket: int


@dataclass(frozen=True)
class Columns:
    """The engine; its element-wise steps are those that `minadv.fast.choice` has for the arrays."""

    name = "columns"

    def forward(
        self, params: lstm.Params, passes: Sequence[Inputs], *, keep_h: bool = True, work: Workspace | None = None
    ) -> list[tuple[Any, lstm.State, Cache]]:
        """Run the passes side by side; passes with the same x share its product with W."""
        if not passes:
            raise ValueError("passes is empty, expected at least one")
        for p in passes:
            forward_inputs(params, p.x, p.state, p.m, p.valid, blocks=4)
            expect_shape("x of a later pass", p.x, passes[0].x.shape, "passes that run together have one shape")
        x, P, H = passes[0].x, len(passes), params.U.shape[0]
        (T, B, _), xp = x.shape, namespace(x)
        caches = [_start(p, H, work) for p in passes]
        weights = packed(params, work)
        slot, first = caches[0].slot, caches[0]  # the first pass's slot holds what the passes share
        m = _masks_side_by_side(caches)
        # a column of `entering` is what a step multiplies: a masked state, x_t if it is small, and 1
        entering = slot.take("entering", (weights.UWb.shape[1], P, B), x)
        entering[-1] = 1
        z = slot.take("z", (4, H, P, B), x)  # the pre-activations, without x W where `_project` makes it
        UWb = weights.UWb.reshape(4, H, -1) if by_gate(H, entering) else weights.UWb
        entering_columns, z_columns = entering.reshape(-1, P * B), z.reshape(*UWb.shape[:-1], P * B)
        xW = _project(weights, passes, caches, work)
        a, c, h = z, slot.take("c_t", (H, P, B), x), slot.take("h_t", (H, P, B), x)  # of one step of all passes
        for n, cache in enumerate(caches):
            c[:, n], h[:, n] = cache.c[0], cache.h[0]
        step = choice.lstm_steps(x).lstm_step

        for t in range(1, T + 1):
            if m is None:
                entering[:H] = h
            else:
                xp.multiply(h, m, out=entering[:H])
            if xW is None:
                for n, cache in enumerate(caches):
                    entering[H:-1, n] = cache.x[t - 1].T
            xp.matmul(UWb, entering_columns, out=z_columns)
            c_before = c
            if P == 1:  # the step writes straight into the cache
                a, c, h = first.a[t - 1][:, :, None], first.c[t][:, None], first.h[t][:, None]
            if xW is not None:
                for n in range(P):
                    _add_share(xW[n][t - 1], z[:, :, n], out=None if P > 1 else first.a[t - 1], over=xW[n] is first.a)
            step(z if xW is None else a, c_before, a=a, c=c, h=h)  # Eq. 1
            for n, cache in enumerate(caches):
                if cache.valid is not None and cache.padded[t - 1]:
                    c[:, n] = xp.where(cache.valid[t - 1], c[:, n], cache.c[t - 1])
                    h[:, n] = xp.where(cache.valid[t - 1], h[:, n], cache.h[t - 1])
                if P > 1:
                    cache.a[t - 1], cache.c[t], cache.h[t] = a[:, :, n], c[:, n], h[:, n]
        return [
            (cache.h[1:].transpose(0, 2, 1), lstm.State(cache.h[T].T.copy(), cache.c[T].T.copy()), cache)
            for cache in caches
        ]

    def backward(
        self,
        params: lstm.Params,
        caches: Sequence[Cache],
        dhs: Sequence[Array | None],
        dstates: Sequence[lstm.State | None],
        *,
        weights: bool = True,
        inputs: bool = True,
        masks: bool = True,
    ) -> tuple[lstm.Params | None, list[lstm.Grads]]:
        if not caches:
            raise ValueError("caches is empty, expected at least one")
        for cache, dh_out, dstate in zip(caches, dhs, dstates, strict=True):
            cache.slot.check(cache.ticket)
            gradient_inputs(params, cache.x, cache.a.shape[2], dh_out, dstate)
            expect_shape("x of a later cache", cache.x, caches[0].x.shape, "passes that run together have one shape")
        first, x, slot, P, H = caches[0], caches[0].x, caches[0].slot, len(caches), params.U.shape[0]
        (T, B, _), xp = x.shape, namespace(x)
        m = _masks_side_by_side(caches)
        dm = xp.zeros((H, P, B), x.dtype) if masks else None
        dh, dc = (slot.take(name, (H, P, B), x) for name in ("dh", "dc"))  # what later steps hand to earlier ones
        for n, dstate in enumerate(dstates):
            dh[:, n], dc[:, n] = (0, 0) if dstate is None else (dstate.h.T, dstate.c.T)
        chunks = Chunks(params.W, caches, weights=weights, inputs=inputs) if weights or inputs else None
        # buffers for one step of all passes; for one pass alone, gates, cells and states are read in the cache
        a, dz = slot.take("z", (4, H, P, B), x), slot.take("dz", (4, H, P, B), x)
        c_before, h, h_before, scratch, dhhat = (
            slot.take(name, (H, P, B), x) for name in ("c_t", "h_t", "h_before", "scratch", "dhhat_t")
        )
        for n, cache in enumerate(caches):
            h[:, n] = cache.h[T]
        U = params.U.reshape(H, 4, H).transpose(1, 0, 2) if by_gate(H, dhhat) else params.U
        dz_columns, dhhat_columns = dz.reshape(*U.shape[:-2], -1, P * B), dhhat.reshape(H, P * B)
        shares = slot.take("shares", (4, H, P * B), x) if U.ndim == 3 else dhhat_columns
        step_backward = choice.lstm_steps(x).lstm_step_backward

        for t in range(T, 0, -1):
            if P == 1:
                a, c_before = first.a[t - 1][:, :, None], first.c[t - 1][:, None]
                h, h_before = first.h[t][:, None], first.h[t - 1][:, None]
            else:
                for n, cache in enumerate(caches):
                    a[:, :, n], c_before[:, n], h_before[:, n] = cache.a[t - 1], cache.c[t - 1], cache.h[t - 1]
            if t % 16 == 0:
                elementwise.flush_vanished(dh, dc)
            for n, dh_out in enumerate(dhs):
                if dh_out is not None:
                    dh[:, n] += dh_out[t - 1].T
            carried = _take_out_padding(caches, t, dh, dc)
            step_backward(a, c_before, h, dh, dc=dc, dz=dz, scratch=scratch)
            if chunks is not None:
                chunks.add(t, dz, h_before if m is None else xp.multiply(h_before, m, out=scratch))
            xp.matmul(U, dz_columns, out=shares)
            if U.ndim == 3:
                xp.sum(shares, axis=0, out=dhhat_columns)
            if dm is not None:
                dm += xp.multiply(dhhat, h_before, out=scratch)  # Eq. 6
            if m is None:
                dh[...] = dhhat
            else:
                xp.multiply(dhhat, m, out=dh)
            for n, carried_h, carried_c in carried:
                dh[:, n] += carried_h
                dc[:, n] += carried_c
            h, h_before = h_before, h
        return None if chunks is None else split(chunks.dparams, H), [
            lstm.Grads(
                params=None,
                x=None if chunks is None or chunks.dx is None else chunks.dx[n],
                state=lstm.State(dh[:, n].T.copy(), dc[:, n].T.copy()),
                m=None if dm is None else dm[:, n].T.copy(),
                hhat=None,
            )
            for n in range(P)
        ]


def _start(given: Inputs, H: int, work: Workspace | None) -> Cache:
    """The memory of a pass, with the first state in it."""
    x, state, slot = given.x, given.state, take_slot(work)
    T, B, _ = x.shape
    h, c = slot.take("h", (T + 1, H, B), x), slot.take("c", (T + 1, H, B), x)
    h[0] = 0 if state is None else state.h.T
    c[0] = 0 if state is None else state.c.T
    a = slot.take("a", (T, 4, H, B), x)
    padded = None if given.valid is None else to_host(~given.valid.all(axis=1))
    return Cache(x, h, c, a, given.m, given.valid, padded, slot, slot.ticket)


def _masks_side_by_side(caches: Sequence[Cache]) -> Array | None:
    """The masks of all passes as columns (H, P, B), ones for a pass without; None if no pass has one."""
    ms = [cache.m for cache in caches]
    if all(m is None for m in ms):
        return None
    _, H, B = caches[0].h.shape
    columns = caches[0].slot.take("m", (H, len(caches), B), caches[0].x)
    for n, m in enumerate(ms):
        columns[:, n] = 1 if m is None else m.T
    return columns


def _project(
    weights: Packed, passes: Sequence[Inputs], caches: Sequence[Cache], work: Workspace | None
) -> list[Array] | None:
    """The products with x for every step, (T, 4, H, B) a pass; None where x is multiplied together with the state.

    A product that is not kept lies in the memory for the gates of the last pass with this x: that pass is the last to
    read a step's product, just before its gates of the same step overwrite it.
    """
    if weights.W is None:
        return None
    last = {id(given.x): (given, cache) for given, cache in zip(passes, caches, strict=True)}
    products = {
        key: input_products(weights, given.x, out=cache.a, keep=worth_keeping(given, passes), work=work)
        for key, (given, cache) in last.items()
    }
    return [products[id(given.x)] for given in passes]


def _add_share(share: Array, z: Array, *, out: Array | None, over: bool) -> None:
    """The input's share and the state's, added into ``out`` or, for None, into ``z``; ``over``: ``out`` is ``share``.

    Where the memory of a sum is that of an operand, it is one and the same array here: CuPy copies an operand that only
    overlaps what is written.
    """
    if out is None:
        z += share
    elif over:
        share += z
    else:
        namespace(z).add(share, z, out=out)


def _take_out_padding(caches: Sequence[Cache], t: int, dh: Array, dc: Array) -> list[tuple[int, Array, Array]]:
    """Take out of dh and dc what goes past the cell at step t; returns it for each pass with padding at that step."""
    xp, carried = namespace(dh), []
    for n, cache in enumerate(caches):
        if cache.valid is not None and cache.padded[t - 1]:
            valid = cache.valid[t - 1]
            carried.append((n, xp.where(valid, 0, dh[:, n]), xp.where(valid, 0, dc[:, n])))
            dh[:, n] -= carried[-1][1]
            dc[:, n] -= carried[-1][2]
    return carried
