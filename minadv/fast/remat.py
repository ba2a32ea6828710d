r"""Less memory for more time: keep the state before each segment of a pass, and run each segment again on the way back.

With segments of about :math:`\sqrt T` steps, what is kept for backward shrinks from T steps to :math:`\sqrt T` states
and the buffers of one segment, for the price of one more forward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from minadv.backend import Array, namespace
from minadv.base.checks import gradient_inputs
from minadv.base.trees import tree_add, tree_map
from minadv.fast.engines import Engine, Inputs, OneByOne
from minadv.fast.workspace import Workspace, scope


@dataclass(frozen=True)
class Cache:
    """What the way back needs: what the pass was given, and the state before each segment."""

    given: Inputs
    states: tuple[Any, ...]
    length: int  # steps in a segment
    work: Workspace


@dataclass(frozen=True)
class Recomputing(OneByOne):
    r"""An engine that runs another one segment by segment, of ``length`` steps each (None: :math:`\sqrt T`).

    The workspace, one of its own where none is given, holds the buffers of one segment at a time.
    """

    engine: Engine
    length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"length is {self.length}, expected segments of at least one step")

    @property
    def name(self) -> str:
        return f"{self.engine.name}, recomputing"

    def run(self, params: Any, given: Inputs, keep_h: bool, work: Workspace | None) -> tuple[Array | None, Any, Cache]:
        T, B, _ = given.x.shape
        length = math.ceil(math.sqrt(T)) if self.length is None else self.length
        work = Workspace() if work is None else work
        h: Array | None = namespace(given.x).empty((T, B, params.U.shape[0]), dtype=given.x.dtype) if keep_h else None
        state, before = given.state, []
        with scope(work):  # the segments share packed weights
            for first in range(0, T, length):
                before.append(state)
                with scope(work):
                    segment = _segment(given, slice(first, first + length), state)
                    [(part, state, _)] = self.engine.forward(params, [segment], keep_h=keep_h, work=work)
                    if h is not None:
                        h[first : first + length] = part
        return h, state, Cache(given, tuple(before), length, work)

    def run_backward(
        self, params: Any, cache: Cache, dh: Array | None, dstate: Any, weights: bool, inputs: bool, masks: bool
    ) -> Any:
        xp, *_ = gradient_inputs(params, cache.given.x, params.U.shape[0], dh, dstate)
        wanted = {"weights": weights, "inputs": inputs, "masks": masks}
        total: Any = None
        dm: Array | None = None
        dx: list[Array] = []
        with scope(cache.work):
            for n in range(len(cache.states) - 1, -1, -1):
                steps = slice(n * cache.length, (n + 1) * cache.length)
                segment = _segment(cache.given, steps, cache.states[n])
                with scope(cache.work):
                    [(_, _, again)] = self.engine.forward(params, [segment], keep_h=False, work=cache.work)
                    dhs = [None if dh is None else dh[steps]]
                    share, [grads] = self.engine.backward(params, [again], dhs, [dstate], **wanted)
                dstate = grads.state
                if total is None:
                    total = share
                elif share is not None:  # added in place: for large weights new memory costs more than the sum
                    tree_map(lambda whole, part: xp.add(whole, part, out=whole), total, share)
                dm = tree_add(dm, grads.m)
                dx.append(grads.x)
        return replace(grads, params=total, x=xp.concatenate(dx[::-1]) if inputs else None, m=dm)


def _segment(given: Inputs, steps: slice, state: Any) -> Inputs:
    """Some steps of a pass, from the state before them."""
    valid = None if given.valid is None else given.valid[steps]
    return replace(given, x=given.x[steps], state=state, valid=valid, lasting=False)
