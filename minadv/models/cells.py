r"""A stack of recurrent layers: the cells of `minadv.rnn`, `lstm` and `gru` by name, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from minadv import gru, lstm, rnn
from minadv import remat as segments
from minadv.backend import Array
from minadv.checks import expect_choice
from minadv.workspace import Workspace

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

    ``remat`` keeps a few states for backward instead of every step (`minadv.remat`); with ``top=False`` the top layer's
    h, which nobody needs, is then None.
    """
    module = by_name(cell)
    options = {"leak": leak} if cell == "gru" else {}
    h: Any = x
    states, caches = [], []
    for n, layer in enumerate(params):
        given: dict[str, Any] = {
            "state": None if state is None else state[n],
            "m": masks[n],
            "valid": valid,
            "work": work,
            **options,
        }
        if remat:
            h, last, cache = segments.forward(module, layer, h, states=top or n < len(params) - 1, **given)
        else:
            h, last, cache = module.forward(layer, h, **given)
        states.append(last)
        caches.append(cache)
    return h, tuple(states), tuple(caches)


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
