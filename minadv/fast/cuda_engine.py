r"""The passes of all three cells on a GPU: one launch a pass, or two a step.

In single precision and with few units a whole pass is one launch, and several passes are more blocks of it
(``cuda_pass.cu``); otherwise a step of all passes is one matrix product and one kernel (``cuda_step.cu``). Either way
the gradients of the weights are products over all steps and passes afterwards: the way back writes, for each step, the
gradients ``dz`` and what entered the step, the masked state, 1 and x beside each other, so that

.. math:: (dU; db; dW) = \sum_t (\hat h_{t-1}, 1, x_t)^\top dz_t

is one product; the GRU, where r stands between the state's share and n, needs three.

Imported by `minadv.fast` only, once there are CuPy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cupy
import numpy as np

from minadv.backend import Array
from minadv.base.checks import expect_shape, forward_inputs, gradient_inputs
from minadv.base.trees import tree_add
from minadv.fast.cuda_kernels import pass_kernels, product, shared_limit, step_kernels, table
from minadv.fast.cuda_source import GATES, GRADIENTS, KEPT, MOST_INPUTS, MOST_PASSES, fits_one_launch, pass_size
from minadv.fast.engines import CELLS, Inputs
from minadv.fast.packing import KEPT as LARGEST_KEPT
from minadv.fast.packing import worth_keeping
from minadv.fast.workspace import Slot, Workspace, take_slot

THREADS = 128  # of a block of the kernels of a step


@dataclass(frozen=True)
class Cache:
    """What the way back needs of a pass: what it was given, its states, and what was kept of its steps."""

    x: Any  # (T, B, I)
    m: Any  # (B, H) or None
    valid: Any  # (T, B) or None
    h: Any  # (T+1, B, H)
    c: Any  # (T+1, B, H), of the LSTM
    a: Any  # (T, B, 4H): i, f, g, o of the LSTM, r, z, n, q of the GRU
    slot: Slot
    ticket: int


@dataclass(frozen=True)
class Cuda:
    """The engine of a cell; the GRU's leak is clean or masked."""

    cell: str
    leak: Literal["clean", "masked"] = "clean"
    name = "cuda"

    def forward(
        self, params: Any, passes: Sequence[Inputs], *, keep_h: bool = True, work: Workspace | None = None
    ) -> list[tuple[Any, Any, Cache]]:
        """Run the passes side by side; passes with the same x share its product with W."""
        if not passes:
            raise ValueError("passes is empty, expected at least one")
        for p in passes:
            forward_inputs(params, p.x, p.state, p.m, p.valid, blocks=GATES[self.cell])
            expect_shape("x of a later pass", p.x, passes[0].x.shape, "passes that run together have one shape")
        done = []
        for first in range(0, len(passes), MOST_PASSES):
            done += self._forward(params, passes[first : first + MOST_PASSES], passes, work)
        return done

    def _forward(
        self, params: Any, passes: Sequence[Inputs], together: Sequence[Inputs], work: Workspace | None
    ) -> list[tuple[Any, Any, Cache]]:
        caches = [_start(self.cell, params, given, work) for given in passes]
        (T, B, I), H, P = caches[0].x.shape, params.U.shape[0], len(passes)
        own = I <= MOST_INPUTS  # the kernels multiply x themselves
        shares = [cache.x for cache in caches] if own else _input_products(params, passes, together, caches, work)
        last = cupy.empty((P, 2, B, H), params.U.dtype)  # not in a slot: a state outlives its pass's buffers
        arrays = [
            {
                **_shared_arrays(cache),
                "x": share,
                "h0": _contiguous(given.state.h) if given.state is not None else None,
                "c0": _contiguous(given.state.c) if given.state is not None and cache.c is not None else None,
                "h_last": after[0],
                "c_last": after[1],
            }
            for given, cache, share, after in zip(passes, caches, shares, last, strict=True)
        ]
        U, b, bn = _contiguous(params.U), _contiguous(params.b), _contiguous(getattr(params, "bn", None))
        W = _contiguous(params.W) if own else None
        given_passes = table(arrays)
        if self._one_launch(params, (T, B, I)):
            kernel, block = pass_kernels(self.cell, H, self.leak)[0], pass_size(self.cell, H)
            arguments = (U, W, b, bn, given_passes, *map(np.int32, (T, B, I)))
            kernel((B, P), (block.threads,), arguments, shared_mem=block.forward)
        else:
            slot, kernel = caches[0].slot, step_kernels(self.cell, str(U.dtype), self.leak)[0]
            hhat, z = slot.take("hhat", (P * B, H), U), slot.take("z", (P * B, U.shape[1]), U)
            multiply, grid = product(hhat, U, z), (-(-P * B * H // THREADS),)
            sizes = tuple(map(np.int32, (T, B, I, H, P)))
            kernel(grid, (THREADS,), (z, hhat, W, b, bn, given_passes, np.int32(-1), *sizes))
            for t in range(T):
                multiply()
                kernel(grid, (THREADS,), (z, hhat, W, b, bn, given_passes, np.int32(t), *sizes))
        return [(cache.h[1:], self._state(after), cache) for cache, after in zip(caches, last, strict=True)]

    def backward(
        self,
        params: Any,
        caches: Sequence[Cache],
        dhs: Sequence[Array | None],
        dstates: Sequence[Any],
        *,
        weights: bool = True,
        inputs: bool = True,
        masks: bool = True,
    ) -> tuple[Any, list[Any]]:
        if not caches:
            raise ValueError("caches is empty, expected at least one")
        for cache, dh, dstate in zip(caches, dhs, dstates, strict=True):
            cache.slot.check(cache.ticket)
            gradient_inputs(params, cache.x, cache.h.shape[2], dh, dstate)
            expect_shape("x of a later cache", cache.x, caches[0].x.shape, "passes that run together have one shape")
        total: Any = None
        grads: list[Any] = []
        for first in range(0, len(caches), MOST_PASSES):
            few = slice(first, first + MOST_PASSES)
            dparams, each = self._backward(params, caches[few], dhs[few], dstates[few], weights, inputs, masks)
            total = tree_add(total, dparams)
            grads += each
        return total, grads

    def _backward(
        self,
        params: Any,
        caches: Sequence[Cache],
        dhs: Sequence[Array | None],
        dstates: Sequence[Any],
        weights: bool,
        inputs: bool,
        masks: bool,
    ) -> tuple[Any, list[Any]]:
        (T, B, I), H, P, slot = caches[0].x.shape, params.U.shape[0], len(caches), caches[0].slot
        U, D = _contiguous(params.U), GRADIENTS[self.cell] * H
        dfirst = cupy.empty((P, 2, B, H), U.dtype)
        dm = cupy.empty((P, B, H), U.dtype) if masks else [None] * P
        dz_out = slot.take("wide", (P, T, B, D), U) if weights or inputs else None
        entered = slot.take("entered", (P, T, B, H + 1 + I), U) if weights else None
        arrays = [
            {
                **_shared_arrays(cache),
                "dh": _contiguous(dh),
                "dh_last": _contiguous(dstate.h) if dstate is not None else None,
                "dc_last": _contiguous(dstate.c) if dstate is not None and cache.c is not None else None,
                "dh0": before[0],
                "dc0": before[1],
                "dm": own_dm,
            }
            for cache, dh, dstate, before, own_dm in zip(caches, dhs, dstates, dfirst, dm, strict=True)
        ]
        given_passes = table(arrays)
        if self._one_launch(params, (T, B, I)):
            kernel, block = pass_kernels(self.cell, H, self.leak)[1], pass_size(self.cell, H)
            arguments = (U, given_passes, dz_out, entered, *map(np.int32, (T, B, I)))
            kernel((B, P), (block.threads,), arguments, shared_mem=block.backward)
        else:
            kernel = step_kernels(self.cell, str(U.dtype), self.leak)[1]
            dhhat, dz = slot.take("hhat", (P * B, H), U), slot.take("z", (P * B, U.shape[1]), U)
            multiply, grid = product(dz, U, dhhat, right="t"), (-(-P * B * H // THREADS),)
            sizes = tuple(map(np.int32, (T, B, I, H, P)))
            for t in range(T - 1, -1, -1):
                kernel(grid, (THREADS,), (dhhat, dz, dz_out, entered, given_passes, np.int32(t), *sizes))
                multiply()
            kernel(grid, (THREADS,), (dhhat, dz, dz_out, entered, given_passes, np.int32(-1), *sizes))
        flat_dz = None if dz_out is None else dz_out.reshape(-1, D)
        dx = self._input_gradients(params, flat_dz, (P, T, B, I)) if inputs else [None] * P
        dparams = None if entered is None else self._weight_gradients(params, flat_dz, entered.reshape(-1, H + 1 + I))
        Grads = CELLS[self.cell].Grads
        return dparams, [
            Grads(None, own_dx, self._state(before), own_dm, None)
            for own_dx, before, own_dm in zip(dx, dfirst, dm, strict=True)
        ]

    def _state(self, pair: Any) -> Any:
        """The state, or its gradient, of h and c (2, B, H)."""
        State = CELLS[self.cell].State
        return State(*pair) if self.cell == "lstm" else State(pair[0])

    def _one_launch(self, params: Any, shape: tuple[int, int, int]) -> bool:
        return fits_one_launch(self.cell, shape, params.U.shape[0], str(params.U.dtype), shared_limit())

    def _input_gradients(self, params: Any, dz: Any, shape: tuple[int, ...]) -> Any:
        """The gradients of x, (P, T, B, I)."""
        dx, W, H = cupy.empty(shape, dz.dtype), _contiguous(params.W), params.U.shape[0]
        flat = dx.reshape(-1, shape[-1])
        if self.cell == "gru":  # dz has r, z, q and n; W has r, z and n
            product(dz[:, : 2 * H], W[:, : 2 * H], flat, right="t")()
            product(dz[:, 3 * H :], W[:, 2 * H :], flat, right="t", add=True)()
        else:
            product(dz, W, flat, right="t")()
        return dx

    def _weight_gradients(self, params: Any, dz: Any, entered: Any) -> Any:
        """The gradients of the parameters, summed over all steps, examples and passes."""
        H, Params = params.U.shape[0], type(params)
        if self.cell != "gru":
            whole = cupy.empty((entered.shape[1], dz.shape[1]), dz.dtype)  # of U above b above W
            product(entered, dz, whole, left="t")()
            return Params(W=whole[H + 1 :], U=whole[:H], b=whole[H])
        of_state = cupy.empty((H + 1, 3 * H), dz.dtype)  # of U above the biases of r, z and q
        of_input = cupy.empty((entered.shape[1] - H, 3 * H), dz.dtype)  # of b above W
        product(entered[:, : H + 1], dz[:, : 3 * H], of_state, left="t")()
        product(entered[:, H:], dz[:, : 2 * H], of_input[:, : 2 * H], left="t")()
        product(entered[:, H:], dz[:, 3 * H :], of_input[:, 2 * H :], left="t")()
        return Params(W=of_input[1:], U=of_state[:H], b=of_input[0], bn=of_state[H, 2 * H :])


def _contiguous(array: Any) -> Any:
    """The array itself if its numbers lie one after the other, else a copy; None stays None."""
    return None if array is None else cupy.ascontiguousarray(array)


def _start(cell: str, params: Any, given: Inputs, work: Workspace | None) -> Cache:
    """The memory of a pass."""
    x, slot, H = _contiguous(given.x), take_slot(work), params.U.shape[0]
    T, B, _ = x.shape
    h = slot.take("h", (T + 1, B, H), x)
    c = slot.take("c", (T + 1, B, H), x) if cell == "lstm" else None
    a = slot.take("a", (T, B, KEPT[cell] * H), x) if KEPT[cell] else None
    return Cache(x, _contiguous(given.m), _contiguous(given.valid), h, c, a, slot, slot.ticket)


def _shared_arrays(cache: Cache) -> dict[str, Any]:
    """The arrays of a pass that both directions take."""
    return {name: getattr(cache, name) for name in ("x", "m", "valid", "a", "c", "h")}


def _input_products(
    params: Any, passes: Sequence[Inputs], together: Sequence[Inputs], caches: Sequence[Cache], work: Workspace | None
) -> list[Any]:
    """The product of each pass's x with W for all steps, (T, B, G H); made once for passes with the same x.

    Where later passes of the step may need it again, the workspace keeps it; else it lies where the way back writes.
    """
    W = _contiguous(params.W)
    (T, B, I), what = caches[0].x.shape, f"x W by {id(params.W)}"
    made: dict[int, Any] = {}
    for given, cache in zip(passes, caches, strict=True):
        if id(given.x) in made:
            continue

        def make(_: Any, slot: Slot, x: Any = cache.x) -> Any:
            out = slot.take("wide", (T, B, W.shape[1]), x)
            product(x.reshape(T * B, I), W, out.reshape(T * B, -1))()
            return out, params.W  # W is kept beside its product: while it is, no other array has its id

        small = 4 * T * B * W.shape[1] <= LARGEST_KEPT
        keep = work is not None and small and (worth_keeping(given, together) or work.has_made(given.x, what))
        kept = work.once(given.x, make, what) if keep and work is not None else make(given.x, cache.slot)
        made[id(given.x)] = kept[0]
    return [made[id(given.x)] for given in passes]
