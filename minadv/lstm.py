r"""The LSTM with a time-invariant mask on its recurrent connection (Eq. 1 for a gated cell).

.. math:: (i, f, g, o)_t = (\sigma, \sigma, \tanh, \sigma)(x_t W + \hat h_{t-1} U + b), \qquad
          c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t

The masked copy :math:`\hat h_{t-1} = m \odot h_{t-1}` enters all four gates; the cell :math:`c` is never masked. The
columns of W, U and b are four blocks in the order i, f, g, o. Indices and sizes are those of `rnn`.

Within a pass an example is a **column**: the state of a step is (H, B), its gates are ``a[t] (4, H, B)``. Each gate is
then contiguous, and the product of a step is (4H, H) by (H, B), which a BLAS does faster than its transpose. What goes
in and comes out has an example a row, as everywhere. `rnn` and `gru` have one too within a pass: they are the ones to
read first, this the one that is fast.

Several passes over batches of one shape can run **together** (`forward_together`, `backward_together`): their columns
stand side by side in one product a step. Adversarial dropout has two that do not wait for each other, at its beginning
and at its end; with few examples and many units two together take less than twice as long as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv import gates
from minadv.backend import Array, namespace, to_host
from minadv.checks import backward_inputs, expect_shape, forward_inputs
from minadv.initial import blocks, glorot, orthogonal
from minadv.lstm_packing import Packed, by_gate, goes_below, in_pieces, pack, project
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
class Inputs:
    """What one of several passes is given; see `forward`."""

    x: Array  # (T, B, I)
    state: State | None = None
    m: Array | None = None  # (B, H)
    valid: Array | None = None  # (T, B)


@dataclass(frozen=True)
class Cache:
    """What backward needs of a forward pass."""

    x: Array  # (T, B, I)
    hs: Array  # (T+1, H, B)
    c: Array  # (T+1, H, B)
    a: Array  # (T, 4, H, B), the gates i, f, g, o after their activation
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    padded: Any  # (T,) on the host, where some example has ended; None without valid
    slot: Slot
    ticket: int

    @property
    def h(self) -> Array:
        """The states as rows, (T+1, B, H)."""
        return self.hs.transpose(0, 2, 1)


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

    Cost: T products of (4H, H) by (H, B) and of (4H, I) by (I, B). Keeps about 6 TBH numbers for backward.
    """
    return forward_together(params, [Inputs(x, state, m, valid)], work=work)[0]


def forward_together(
    params: Params, passes: Sequence[Inputs], *, work: Workspace | None = None
) -> list[tuple[Array, State, Cache]]:
    """`forward` of several passes of one shape, side by side. Those given the same ``x`` multiply it only once."""
    if not passes:
        raise ValueError("passes is empty, expected at least one")
    for p in passes:
        forward_inputs(params, p.x, p.state, p.m, p.valid, blocks=4)
        expect_shape("x of a later pass", p.x, passes[0].x.shape, "passes that run together have one shape")
    x, P, H = passes[0].x, len(passes), params.U.shape[0]
    (T, B, _), xp = x.shape, namespace(x)
    caches = [_start(p, H, work) for p in passes]
    masks = [None if p.m is None else xp.ascontiguousarray(p.m.T) for p in passes]  # (H, B)
    packed = pack(params) if work is None else work.once(params, pack)
    slot = caches[0].slot  # holds what the passes share
    entering = slot.take("entering", (packed.UWb.shape[1], P, B), x)  # the masked states, x_t if it is small, and 1
    entering[-1] = 1
    z = slot.take("z", (4, H, P, B), x)  # the pre-activations, without x W where that is apart
    UWb = packed.UWb.reshape(4, H, -1) if by_gate(H, entering) else packed.UWb
    entering_columns, z_columns = entering.reshape(-1, P * B), z.reshape(*UWb.shape[:-1], P * B)
    xW = _project(packed, caches)

    for t in range(1, T + 1):
        for n, (cache, m) in enumerate(zip(caches, masks, strict=True)):
            if m is None:
                entering[:H, n] = cache.hs[t - 1]
            else:
                xp.multiply(cache.hs[t - 1], m, out=entering[:H, n])
            if xW is None:
                entering[H:-1, n] = cache.x[t - 1].T
        xp.matmul(UWb, entering_columns, out=z_columns)
        for n, cache in enumerate(caches):
            h, c, a_t, z_t = cache.hs, cache.c, cache.a[t - 1], z[:, :, n]
            if xW is not None:
                z_t = xp.add(xW[n][t - 1], z_t, out=a_t)
            gates.lstm_step(z_t, c[t - 1], a=a_t, c=c[t], h=h[t])  # Eq. 1
            if cache.valid is not None and cache.padded[t - 1]:
                h[t] = xp.where(cache.valid[t - 1], h[t], h[t - 1])
                c[t] = xp.where(cache.valid[t - 1], c[t], c[t - 1])
    return [(cache.h[1:], State(cache.h[T].copy(), cache.c[T].T.copy()), cache) for cache in caches]


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


def _project(packed: Packed, caches: Sequence[Cache]) -> list[Array] | None:
    """The products with x for every step, (T, 4, H, B) a pass; None where x goes below the state.

    The product lies where the gates of the last pass with this x will be: at each step that pass comes last to it.
    """
    if packed.W is None:
        return None
    last = {id(cache.x): cache for cache in caches}
    for cache in last.values():
        project(packed.W, cache.x, out=cache.a.reshape(len(cache.a), -1, cache.a.shape[3]))
    return [last[id(cache.x)].a for cache in caches]


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
    total, (grads,) = backward_together(params, [cache], [dh], [dstate], weights=weights, inputs=inputs, hhat=hhat)
    return replace(grads, params=total)


def backward_together(
    params: Params,
    caches: Sequence[Cache],
    dhs: Sequence[Array | None],
    dstates: Sequence[State | None],
    *,
    weights: bool = True,
    inputs: bool = True,
    hhat: bool = True,
) -> tuple[Params | None, list[Grads]]:
    """`backward` of several passes of one shape, side by side.

    Returns the parameters' gradient summed over the passes, and each pass's other gradients.
    """
    if not caches:
        raise ValueError("caches is empty, expected at least one")
    for cache, dh, dstate in zip(caches, dhs, dstates, strict=True):
        backward_inputs(params, cache, dh, dstate)
        expect_shape("x of a later cache", cache.x, caches[0].x.shape, "passes that run together have one shape")
    x, slot, P, H = caches[0].x, caches[0].slot, len(caches), params.U.shape[0]
    (T, B, I), xp = x.shape, namespace(x)
    ways = [_Way(*given, hhat=hhat, inputs=inputs) for given in zip(caches, dhs, dstates, strict=True)]
    dz, free = slot.take("dz", (4, H, B), x), slot.take("free", (H, B), x)  # of one step of one pass
    dhhat = slot.take("dhhat_t", (H, P, B), x)  # of one step
    U = params.U.reshape(H, 4, H).transpose(1, 0, 2) if by_gate(H, dhhat) else params.U
    dhhat_columns = dhhat.reshape(H, P * B)
    shares = slot.take("shares", (4, H, P * B), x) if U.ndim == 3 else dhhat_columns
    # of a chunk of steps: enough columns for a fast product that outweighs the adding up, and no more
    C = -(-T // max(1, round(T * P * B / max(1024, 2 * H)))) if weights or inputs else 1
    dzs = slot.take("dzs", (4, H, C, P, B), x)
    entered = slot.take("entered", (H + I + 1, C, P, B), x) if weights else None  # the masked states, x and 1
    if entered is not None:
        entered[-1] = 1
    dparams: Array | None = None  # (H+I+1, 4H), the gradient of U above W above b
    whole = H + I + 1 if goes_below(I, H) else H  # its rows that are multiplied in one go
    joint = whole == H and P > 1 and all(cache.x is x for cache in caches)  # one x: its product is with the sum of dz

    for t in range(T, 0, -1):
        k = (t - 1) % C  # the step's place in its chunk
        for n, way in enumerate(ways):
            cache = way.cache
            if t % 16 == 0:
                gates.flush_vanished(way.dh, way.dc)
            if way.dh_out is not None:
                way.dh += way.dh_out[t - 1].T
            way.hold_back(t)
            gates.lstm_step_backward(cache.a[t - 1], cache.c[t - 1], cache.hs[t], way.dh, dc=way.dc, dz=dz, free=free)
            dzs[:, :, k, n] = dz
            if entered is not None:
                entered[:H, k, n] = cache.hs[t - 1] if way.m is None else xp.multiply(cache.hs[t - 1], way.m, out=free)
                if n == 0 or not joint:
                    entered[H:-1, k, n] = cache.x[t - 1].T
        xp.matmul(U, dzs[:, :, k].reshape(*U.shape[:-2], -1, P * B), out=shares)
        if U.ndim == 3:
            xp.sum(shares, axis=0, out=dhhat_columns)
        for n, way in enumerate(ways):
            way.hand_back(t, dhhat[:, n], free)
        if (weights or inputs) and k == 0:  # the chunk of the steps t .. t + size - 1 is whole
            size = min(C, T - t + 1)
            chunk = dzs[:, :, :size].reshape(4 * H, -1)
            if inputs:
                dx = (params.W @ chunk).reshape(I, size, P, B)
                for n, way in enumerate(ways):
                    way.dx[t - 1 : t - 1 + size] = dx[:, :, n].transpose(1, 2, 0)
            if entered is not None:
                columns, share = entered[:, :size].reshape(H + I + 1, -1), xp.empty((H + I + 1, 4 * H), x.dtype)
                xp.matmul(columns[:whole], chunk.T, out=share[:whole])
                if joint:
                    columns, chunk = entered[:, :size, 0].reshape(H + I + 1, -1), dzs[:, :, :size].sum(axis=3)
                if whole == H:
                    in_pieces(columns[H:], chunk.reshape(4 * H, -1).T, out=share[H:], piece=192)
                dparams = share if dparams is None else xp.add(dparams, share, out=dparams)
    total = None if dparams is None else Params(W=dparams[H:-1], U=dparams[:H], b=dparams[-1])
    return total, [way.grads() for way in ways]


class _Way:
    """One pass on its way back: the gradients that its later steps hand to the earlier ones, as columns."""

    def __init__(self, cache: Cache, dh: Array | None, dstate: State | None, *, hhat: bool, inputs: bool) -> None:
        xp, x = namespace(cache.x), cache.x
        T1, H, B = cache.hs.shape
        self.cache, self.dh_out = cache, dh
        self.dh = xp.zeros((H, B), x.dtype) if dstate is None else dstate.h.T.copy()  # (H, B), of h_t
        self.dc = xp.zeros((H, B), x.dtype) if dstate is None else dstate.c.T.copy()  # (H, B), of c_t
        self.m = None if cache.m is None else xp.ascontiguousarray(cache.m.T)  # (H, B)
        self.dm = None if self.m is None else xp.zeros_like(self.m)  # (H, B)
        self.dhhat = cache.slot.give("dhhat", (T1 - 1, H, B), x) if hhat else None
        self.dx: Any = xp.empty_like(x) if inputs else None
        self.carried: tuple[Array, Array] | None = None

    def hold_back(self, t: int) -> None:
        """Take aside what goes past the cell, over padding."""
        valid, self.carried = self.cache.valid, None
        if valid is not None and self.cache.padded[t - 1]:
            xp = namespace(self.dh)
            self.carried = xp.where(valid[t - 1], 0, self.dh), xp.where(valid[t - 1], 0, self.dc)
            self.dh -= self.carried[0]
            self.dc -= self.carried[1]

    def hand_back(self, t: int, dhhat: Array, free: Array) -> None:
        """From the gradient of the masked state (H, B) to those of h and m."""
        xp = namespace(dhhat)
        if self.dhhat is not None:
            self.dhhat[t - 1] = dhhat
        if self.m is None or self.dm is None:
            self.dh[...] = dhhat
        else:
            self.dm += xp.multiply(dhhat, self.cache.hs[t - 1], out=free)  # Eq. 6
            xp.multiply(dhhat, self.m, out=self.dh)
        if self.carried is not None:
            self.dh += self.carried[0]
            self.dc += self.carried[1]

    def grads(self) -> Grads:
        rows = State(self.dh.T.copy(), self.dc.T.copy())
        dm = None if self.dm is None else self.dm.T.copy()
        dhhat = None if self.dhhat is None else self.dhhat.transpose(0, 2, 1)
        return Grads(None, self.dx, rows, dm, dhhat)
