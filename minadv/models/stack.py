r"""A stack of recurrent layers: the cells of `minadv.rnn`, `lstm` and `gru` by name, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from minadv import gru, lstm, rnn
from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.trees import tree_add
from minadv.fast import remat as segments
from minadv.fast.workspace import Workspace

CELLS: dict[str, ModuleType] = {"rnn": rnn, "lstm": lstm, "gru": gru}


def by_name(cell: str) -> Any:
    """The module of a cell."""
    expect_choice("cell", cell, CELLS)
    return CELLS[cell]


@dataclass(frozen=True)
class StackGrads:
    """Gradients through a stack, one entry a layer (masks: None where a layer had none)."""

    params: tuple[Any, ...] | None
    x: Array | None
    state: tuple[Any, ...]
    masks: tuple[Array | None, ...]


def forward(
    cell: str,
    params: tuple[Any, ...],
    x: Array,
    *,
    state: tuple[Any, ...] | None,
    masks: tuple[Array | None, ...],
    valid: Array | None,
    leak: str = "clean",
    remat: bool = False,
    top: bool = True,
    work: Workspace | None = None,
) -> tuple[Array | None, tuple[Any, ...], tuple[Any, ...]]:
    """Run layer after layer; returns the top layer's h (T, B, H), the last states and the caches.

    ``remat`` keeps a few states for backward instead of every step (`minadv.fast.remat`); with ``top=False`` nobody
    needs the top layer's h, and it may be None.
    """
    module = by_name(cell)
    options = {"leak": leak} if cell == "gru" else {}
    h: Any = x
    states: list[Any] = []
    caches: list[Any] = []
    for n, layer in enumerate(params):
        given: dict[str, Any] = {
            "state": None if state is None else state[n],
            "m": masks[n],
            "valid": valid,
            "work": work,
            **options,
        }
        run = partial(segments.forward, module) if remat else module.forward
        h, last, cache = run(layer, h, states=top or n < len(params) - 1, **given)
        states.append(last)
        caches.append(cache)
    return h, tuple(states), tuple(caches)


def forward_together(
    cell: str,
    params: tuple[Any, ...],
    xs: Sequence[Array],
    *,
    state: tuple[Any, ...] | None,
    masks: Sequence[tuple[Array | None, ...]],
    valid: Array | None,
    leak: str = "clean",
    remat: bool = False,
    top: bool = True,
    lasting: bool = False,
    work: Workspace | None = None,
) -> list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]]:
    """`forward` of several passes, each with its own x and masks; LSTMs layer by layer side by side.

    ``lasting``: later passes may be given the very same xs.
    """
    if cell != "lstm" or remat:
        given: dict[str, Any] = {"state": state, "valid": valid, "leak": leak, "remat": remat, "top": top, "work": work}
        return [forward(cell, params, x, masks=m, **given) for x, m in zip(xs, masks, strict=True)]
    hs, states, caches = list(xs), [], []
    for n, layer in enumerate(params):
        last = None if state is None else state[n]
        passes = [lstm.Inputs(h, last, m[n], valid, lasting and n == 0) for h, m in zip(hs, masks, strict=True)]
        done = lstm.forward_together(layer, passes, states=top or n < len(params) - 1, work=work)
        hs = [h for h, _, _ in done]
        states.append([after for _, after, _ in done])
        caches.append([cache for _, _, cache in done])
    return list(zip(hs, zip(*states, strict=True), zip(*caches, strict=True), strict=True))


def backward(
    cell: str,
    params: tuple[Any, ...],
    caches: tuple[Any, ...],
    dh: Array | None,
    *,
    dstate: tuple[Any, ...] | None = None,
    weights: bool = True,
    inputs: bool = True,
) -> StackGrads:
    """Back through the layers from the gradient of the top layer's h, of its last states, or of both.

    ``inputs=False`` leaves out the gradient of x.
    """
    module = by_name(cell)
    grads = []
    for n in range(len(params) - 1, -1, -1):
        last = None if dstate is None else dstate[n]
        wanted: dict[str, Any] = {"dstate": last, "weights": weights, "inputs": inputs or n > 0, "hhat": False}
        if isinstance(caches[n], segments.Cache):
            grads.append(segments.backward(module, params[n], caches[n], dh, **wanted))
        else:
            grads.append(module.backward(params[n], caches[n], dh, **wanted))
        dh = grads[-1].x
    grads.reverse()
    return StackGrads(
        params=tuple(g.params for g in grads) if weights else None,
        x=grads[0].x,
        state=tuple(g.state for g in grads),
        masks=tuple(g.m for g in grads),
    )


def backward_together(
    cell: str,
    params: tuple[Any, ...],
    caches: Sequence[tuple[Any, ...]],
    dhs: Sequence[Array | None],
    *,
    dstates: Sequence[tuple[Any, ...] | None],
) -> tuple[Any, ...]:
    """The gradient of the parameters, summed over several passes; LSTMs layer by layer side by side."""
    if cell != "lstm" or any(isinstance(cache, segments.Cache) for cache in caches[0]):
        total: Any = None
        for cache, dh, dstate in zip(caches, dhs, dstates, strict=True):
            total = tree_add(total, backward(cell, params, cache, dh, dstate=dstate, inputs=False).params)
        return tuple(total)
    sums: list[Any] = []
    for n in range(len(params) - 1, -1, -1):
        layer = [cache[n] for cache in caches]
        last = [None if dstate is None else dstate[n] for dstate in dstates]
        summed, rest = lstm.backward_together(params[n], layer, dhs, last, inputs=n > 0, masks=False, hhat=False)
        sums.append(summed)
        dhs = [grads.x for grads in rest]
    return tuple(sums[::-1])
