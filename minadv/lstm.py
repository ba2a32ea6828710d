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
stand side by side in one product and one element-wise step. Adversarial dropout has two that do not wait for each
other, at its beginning, at its end and where `reselect` tries two sides; with few examples and many units two take less
than twice as long as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv.backend import Array, namespace, to_host
from minadv.base.checks import backward_inputs, expect_shape, forward_inputs
from minadv.base.initial import blocks, glorot, orthogonal
from minadv.base.trees import tree_add
from minadv.fast import compiled, elementwise
from minadv.fast.chunks import Chunks
from minadv.fast.packing import Packed, by_gate, input_products, packed
from minadv.fast.workspace import Slot, Workspace, take_slot


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
    lasting: bool = False  # whether later passes may be given this very x: of several that share it now, they often are

    def met_again(self, passes: Sequence[Inputs]) -> bool:
        """Whether the product with x is worth keeping."""
        return self.lasting and sum(other.x is self.x for other in passes) > 1


@dataclass(frozen=True)
class Cache:
    """What backward needs of a forward pass."""

    x: Array  # (T, B, I)
    hs: Array  # (T+1, H, B), or fewer: see every
    c: Array  # (T+1, H, B), likewise
    a: Array  # (T, 4, H, B), the gates i, f, g, o after their activation
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    padded: Any  # (T,) on the host, where some example has ended; None without valid
    slot: Slot
    ticket: int
    every: int = 1  # a compiled pass keeps h and c of every so many steps, and those after the last

    @property
    def h(self) -> Array:
        """The states as rows, (T+1, B, H); made again where not all were kept."""
        hs: Array = self.hs if self.every == 1 else compiled.whole_pass().states(self)
        return hs.transpose(0, 2, 1)


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
    states: bool = True,
    work: Workspace | None = None,
) -> tuple[Array, State, Cache]:
    r"""Run the network over a sequence.

    ``x (T, B, I)``; ``m (B, H)``, all ones if None; ``valid (T, B)`` is False on padding, over which h and c are
    carried unchanged (``x`` must be finite there). Returns ``h (T, B, H)``, the last state and the cache;
    ``states=False`` says that ``h`` is not needed, and may be None.

    Cost: T products of (4H, H) by (H, B) and of (4H, I) by (I, B). Keeps about 6 TBH numbers for backward, a compiled
    pass 4 TBH, and h where that is needed.
    """
    return forward_together(params, [Inputs(x, state, m, valid)], states=states, work=work)[0]


def forward_together(
    params: Params, passes: Sequence[Inputs], *, states: bool = True, work: Workspace | None = None
) -> list[tuple[Any, State, Cache]]:
    """`forward` of several passes of one shape, side by side. Those given the same ``x`` multiply it only once.

    Small passes are compiled as a whole where Numba is installed, and run one after the other: see `numba_pass`.
    Those multiply it only once within a workspace's scope, if it is a lasting one.
    """
    if not passes:
        raise ValueError("passes is empty, expected at least one")
    for p in passes:
        forward_inputs(params, p.x, p.state, p.m, p.valid, blocks=4)
        expect_shape("x of a later pass", p.x, passes[0].x.shape, "passes that run together have one shape")
    x, P, H = passes[0].x, len(passes), params.U.shape[0]
    (T, B, _), xp = x.shape, namespace(x)
    if compiled.takes_whole_passes(params.U) and all(p.valid is None for p in passes):
        run = compiled.whole_pass().forward
        return [run(params, p, states=states, again=p.met_again(passes), work=work) for p in passes]
    caches = [_start(p, H, work) for p in passes]
    weights = packed(params, work)
    slot, first = caches[0].slot, caches[0]  # the slot holds what the passes share
    m = _masks_beside(caches)
    entering = slot.take("entering", (weights.UWb.shape[1], P, B), x)  # the masked states, x_t if it is small, and 1
    entering[-1] = 1
    z = slot.take("z", (4, H, P, B), x)  # the pre-activations, without x W where that is apart
    UWb = weights.UWb.reshape(4, H, -1) if by_gate(H, entering) else weights.UWb
    entering_columns, z_columns = entering.reshape(-1, P * B), z.reshape(*UWb.shape[:-1], P * B)
    xW = _project(weights, passes, caches, work)
    a, c, h = z, slot.take("c_t", (H, P, B), x), slot.take("h_t", (H, P, B), x)  # of one step of all passes
    for n, cache in enumerate(caches):
        c[:, n], h[:, n] = cache.c[0], cache.hs[0]
    step = compiled.lstm_steps(x).lstm_step

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
        if P == 1:  # straight to where backward will look for it
            a, c, h = first.a[t - 1][:, :, None], first.c[t][:, None], first.hs[t][:, None]
        if xW is not None:
            for n in range(P):
                xp.add(xW[n][t - 1], z[:, :, n], out=a[:, :, n])
        step(z if xW is None else a, c_before, a=a, c=c, h=h)  # Eq. 1
        for n, cache in enumerate(caches):
            if cache.valid is not None and cache.padded[t - 1]:
                c[:, n] = xp.where(cache.valid[t - 1], c[:, n], cache.c[t - 1])
                h[:, n] = xp.where(cache.valid[t - 1], h[:, n], cache.hs[t - 1])
            if P > 1:
                cache.a[t - 1], cache.c[t], cache.hs[t] = a[:, :, n], c[:, n], h[:, n]
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


def _masks_beside(caches: Sequence[Cache]) -> Array | None:
    """The masks of all passes as columns (H, P, B), ones for a pass without; None if none has one."""
    given = [cache.m for cache in caches]
    if all(m is None for m in given):
        return None
    _, H, B = caches[0].hs.shape
    beside = caches[0].slot.take("m", (H, len(caches), B), caches[0].x)
    for n, m in enumerate(given):
        beside[:, n] = 1 if m is None else m.T
    return beside


def _project(
    weights: Packed, passes: Sequence[Inputs], caches: Sequence[Cache], work: Workspace | None
) -> list[Array] | None:
    """The products with x for every step, (T, 4, H, B) a pass; None where x goes below the state.

    Unless they are kept, they lie where the gates of the last pass with this x will be, which comes last to them.
    """
    if weights.W is None:
        return None
    last = {id(given.x): (given, cache) for given, cache in zip(passes, caches, strict=True)}
    made = {
        name: input_products(weights, given.x, out=cache.a, again=given.met_again(passes), work=work)
        for name, (given, cache) in last.items()
    }
    return [made[id(given.x)] for given in passes]


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
    masks: bool = True,
    hhat: bool = True,
) -> tuple[Params | None, list[Grads]]:
    """`backward` of several passes of one shape, side by side; ``masks=False`` leaves out the gradients of m.

    Returns the parameters' gradient summed over the passes, and each pass's other gradients.
    """
    if not caches:
        raise ValueError("caches is empty, expected at least one")
    for cache, dh, dstate in zip(caches, dhs, dstates, strict=True):
        backward_inputs(params, cache, cache.a.shape[2], dh, dstate)
        expect_shape("x of a later cache", cache.x, caches[0].x.shape, "passes that run together have one shape")
    if any(cache.every > 1 for cache in caches):
        wanted = {"weights": weights, "inputs": inputs, "masks": masks, "hhat": hhat}
        return _one_by_one(params, caches, dhs, dstates, **wanted)
    first, x, slot, P, H = caches[0], caches[0].x, caches[0].slot, len(caches), params.U.shape[0]
    (T, B, _), xp = x.shape, namespace(x)
    m = _masks_beside(caches)
    dm = None if m is None or not masks else xp.zeros_like(m)  # (H, P, B)
    dh, dc = (slot.take(name, (H, P, B), x) for name in ("dh", "dc"))  # what later steps hand to earlier ones
    for n, dstate in enumerate(dstates):
        dh[:, n], dc[:, n] = (0, 0) if dstate is None else (dstate.h.T, dstate.c.T)
    dhhats = [cache.slot.give("dhhat", (T, H, B), x) for cache in caches] if hhat else []
    chunks = Chunks(params.W, caches, weights=weights, inputs=inputs) if weights or inputs else None
    # of one step of all passes; of one pass alone, the gates, the cells and the states are the cache's own
    a, dz = slot.take("z", (4, H, P, B), x), slot.take("dz", (4, H, P, B), x)
    c_before, h, h_before, free, dhhat = (
        slot.take(name, (H, P, B), x) for name in ("c_t", "h_t", "h_before", "free", "dhhat_t")
    )
    for n, cache in enumerate(caches):
        h[:, n] = cache.hs[T]
    U = params.U.reshape(H, 4, H).transpose(1, 0, 2) if by_gate(H, dhhat) else params.U
    dz_columns, dhhat_columns = dz.reshape(*U.shape[:-2], -1, P * B), dhhat.reshape(H, P * B)
    shares = slot.take("shares", (4, H, P * B), x) if U.ndim == 3 else dhhat_columns
    step_backward = compiled.lstm_steps(x).lstm_step_backward

    for t in range(T, 0, -1):
        if P == 1:
            a, c_before = first.a[t - 1][:, :, None], first.c[t - 1][:, None]
            h, h_before = first.hs[t][:, None], first.hs[t - 1][:, None]
        else:
            for n, cache in enumerate(caches):
                a[:, :, n], c_before[:, n], h_before[:, n] = cache.a[t - 1], cache.c[t - 1], cache.hs[t - 1]
        if t % 16 == 0:
            elementwise.flush_vanished(dh, dc)
        for n, dh_out in enumerate(dhs):
            if dh_out is not None:
                dh[:, n] += dh_out[t - 1].T
        past = _hold_back(caches, t, dh, dc)
        step_backward(a, c_before, h, dh, dc=dc, dz=dz, free=free)
        if chunks is not None:
            chunks.add(t, dz, h_before if m is None else xp.multiply(h_before, m, out=free))
        xp.matmul(U, dz_columns, out=shares)
        if U.ndim == 3:
            xp.sum(shares, axis=0, out=dhhat_columns)
        for n, kept in enumerate(dhhats):
            kept[t - 1] = dhhat[:, n]
        if dm is not None:
            dm += xp.multiply(dhhat, h_before, out=free)  # Eq. 6
        if m is None:
            dh[...] = dhhat
        else:
            xp.multiply(dhhat, m, out=dh)
        for n, past_h, past_c in past:
            dh[:, n] += past_h
            dc[:, n] += past_c
        h, h_before = h_before, h
    return None if chunks is None else split(chunks.dparams, H), [
        Grads(
            params=None,
            x=None if chunks is None or chunks.dx is None else chunks.dx[n],
            state=State(dh[:, n].T.copy(), dc[:, n].T.copy()),
            m=None if dm is None or cache.m is None else dm[:, n].T.copy(),
            hhat=dhhats[n].transpose(0, 2, 1) if hhat else None,
        )
        for n, cache in enumerate(caches)
    ]


def _one_by_one(
    params: Params,
    caches: Sequence[Cache],
    dhs: Sequence[Array | None],
    dstates: Sequence[State | None],
    **wanted: bool,
) -> tuple[Params | None, list[Grads]]:
    """`backward_together` where some passes were compiled as a whole."""
    total: Params | None = None
    every: list[Grads] = []
    for cache, dh, dstate in zip(caches, dhs, dstates, strict=True):
        if cache.every > 1:
            summed, grads = compiled.whole_pass().backward(params, cache, dh, dstate, **wanted)
        else:
            summed, (grads,) = backward_together(params, [cache], [dh], [dstate], **wanted)
        total = tree_add(total, summed)
        every.append(grads)
    return total, every


def split(dparams: Array | None, H: int) -> Params | None:
    """The gradient of the parameters from that of U above W above b."""
    return None if dparams is None else Params(W=dparams[H:-1], U=dparams[:H], b=dparams[-1])


def _hold_back(caches: Sequence[Cache], t: int, dh: Array, dc: Array) -> list[tuple[int, Array, Array]]:
    """Take aside, of each pass with padding at this step, the gradients that go past the cell."""
    xp, past = namespace(dh), []
    for n, cache in enumerate(caches):
        if cache.valid is not None and cache.padded[t - 1]:
            valid = cache.valid[t - 1]
            past.append((n, xp.where(valid, 0, dh[:, n]), xp.where(valid, 0, dc[:, n])))
            dh[:, n] -= past[-1][1]
            dc[:, n] -= past[-1][2]
    return past
