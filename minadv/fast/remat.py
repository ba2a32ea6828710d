r"""Less memory for more time: keep the state at the start of each segment, and run each segment again on the way back.

With segments of about :math:`\sqrt T` steps, what is kept for backward shrinks from T steps to :math:`\sqrt T` states
and the buffers of one segment, for the price of one more forward pass. These two functions stand in for a cell's own
``forward`` and ``backward``, and are written with them: any module of `minadv.rnn`, `lstm` and `gru` is a ``cell``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from minadv.backend import Array, namespace
from minadv.base.trees import any_array, tree_add, tree_map
from minadv.fast.workspace import Workspace, scope


@dataclass(frozen=True)
class Cache:
    """What backward needs: the inputs, and the state before each segment."""

    x: Array  # (T, B, I)
    states: tuple[Any, ...]
    m: Array | None  # (B, H)
    valid: Array | None  # (T, B)
    length: int  # steps in a segment
    options: dict[str, Any]
    work: Workspace


def forward(
    cell: Any,
    params: Any,
    x: Array,
    *,
    state: Any = None,
    m: Array | None = None,
    valid: Array | None = None,
    length: int | None = None,
    states: bool = True,
    work: Workspace | None = None,
    **options: Any,
) -> tuple[Array | None, Any, Cache]:
    r"""As the cell's forward; ``length`` is the number of steps in a segment (default: :math:`\lceil\sqrt T\,\rceil`).

    ``states=False`` returns None in the place of ``h``, where only the last state is needed. The workspace, one of its
    own if None is given, holds the buffers of one segment at a time.
    """
    T, B = x.shape[:2]
    length = math.ceil(math.sqrt(T)) if length is None else length
    if length < 1:
        raise ValueError(f"length is {length}, expected segments of at least one step")
    work = Workspace() if work is None else work
    H = params.U.shape[0]
    h: Array | None = namespace(x).empty((T, B, H), dtype=x.dtype) if states else None
    before = []
    for first in range(0, T, length):
        steps = slice(first, first + length)
        before.append(state)
        with scope(work):
            part, state, _ = cell.forward(
                params,
                x[steps],
                state=state,
                m=m,
                valid=None if valid is None else valid[steps],
                states=states,
                work=work,
                **options,
            )
            if h is not None:
                h[steps] = part
    return h, state, Cache(x, tuple(before), m, valid, length, options, work)


def backward(
    cell: Any,
    params: Any,
    cache: Cache,
    dh: Array | None,
    *,
    dstate: Any = None,
    weights: bool = True,
    inputs: bool = True,
    hhat: bool = False,
) -> Any:
    """As the cell's backward, with its ``Grads``; equal to it up to the order of sums."""
    xp = namespace(any_array(params))
    total: Any = None  # of the parameters
    dm: Array | None = None
    dx: list[Array] = []
    dhhat: list[Array] = []
    for n in range(len(cache.states) - 1, -1, -1):
        steps = slice(n * cache.length, (n + 1) * cache.length)
        valid = None if cache.valid is None else cache.valid[steps]
        with scope(cache.work):
            _, _, again = cell.forward(
                params,
                cache.x[steps],
                state=cache.states[n],
                m=cache.m,
                valid=valid,
                states=False,
                work=cache.work,
                **cache.options,
            )
            grads = cell.backward(
                params,
                again,
                None if dh is None else dh[steps],
                dstate=dstate,
                weights=weights,
                inputs=inputs,
                hhat=hhat,
            )
            dstate = grads.state
            if total is None:
                total = grads.params
            elif grads.params is not None:  # added in place: for large weights new memory costs more than the sum
                tree_map(lambda whole, part: xp.add(whole, part, out=whole), total, grads.params)
            dm = tree_add(dm, grads.m)
            if inputs:
                dx.append(grads.x)
            if hhat:
                dhhat.append(grads.hhat.copy())
    return cell.Grads(
        params=total,
        x=xp.concatenate(dx[::-1]) if inputs else None,
        state=dstate,
        m=dm,
        hhat=xp.concatenate(dhhat[::-1]) if hhat else None,
    )
