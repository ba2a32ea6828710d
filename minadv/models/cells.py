r"""A stack of recurrent layers: the cells of `minadv.rnn`, `lstm` and `gru` by name, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from minadv import gru, lstm, rnn
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
    work: Workspace | None = None,
) -> tuple[Array, tuple[Any, ...], tuple[Any, ...]]:
    """Run layer after layer; returns the top layer's h (T, B, H), the last states and the caches."""
    module = by_name(cell)
    options = {"leak": leak} if cell == "gru" else {}
    h, states, caches = x, [], []
    for n, layer in enumerate(params):
        h, last, cache = module.forward(
            layer, h, state=None if state is None else state[n], m=masks[n], valid=valid, work=work, **options
        )
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
        needs_x = inputs or n > 0
        grads.append(
            module.backward(params[n], caches[n], dh, dstate=last, weights=weights, inputs=needs_x, hhat=False)
        )
        dh = grads[-1].x
    grads.reverse()
    return StackGrads(
        params=tuple(g.params for g in grads) if weights else None,
        x=grads[0].x,
        state=tuple(g.state for g in grads),
        masks=tuple(g.m for g in grads),
    )
