r"""What an engine is: the passes of a cell, and the way back through them, for one or several passes of one shape.

An engine computes the numbers of `minadv.rnn`, `minadv.lstm` or `minadv.gru` and takes and returns their `Params`,
`State` and `Grads`; its caches are its own, and may be gone back through more than once. An engine has no state, so
that two engines are equal if they were chosen alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Protocol

from minadv import gru, lstm, rnn
from minadv.backend import Array
from minadv.base.trees import tree_add
from minadv.fast.workspace import Workspace

CELLS: dict[str, ModuleType] = {"rnn": rnn, "lstm": lstm, "gru": gru}


@dataclass(frozen=True)
class Inputs:
    """What one pass is given; see a cell's ``forward``."""

    x: Array  # (T, B, I)
    state: Any = None
    m: Array | None = None  # (B, H)
    valid: Array | None = None  # (T, B)
    lasting: bool = False  # True: later passes of this step may reuse this x, and its product with W is worth keeping


class Engine(Protocol):
    """What `minadv.models.stack` asks of an engine."""

    @property
    def name(self) -> str:
        """The name in a run's log."""
        ...

    def forward(
        self, params: Any, passes: Sequence[Inputs], *, keep_h: bool = True, work: Workspace | None = None
    ) -> list[tuple[Any, Any, Any]]:
        """For each pass h (T, B, H), the last state and a cache. Without ``keep_h`` nobody needs h: it may be None."""
        ...

    def backward(
        self,
        params: Any,
        caches: Sequence[Any],
        dhs: Sequence[Array | None],
        dstates: Sequence[Any],
        *,
        weights: bool = True,
        inputs: bool = True,
        masks: bool = True,
    ) -> tuple[Any, list[Any]]:
        """The gradient of the parameters, summed over the passes, and each pass's other gradients.

        What is not asked for is None: ``weights`` the gradients of the parameters, ``inputs`` those of x, ``masks``
        those of m, which exist whether or not a pass was given a mask.
        """
        ...


class OneByOne:
    """An engine that runs passes one after the other; a subclass writes ``run`` and ``run_backward`` for one pass."""

    def run(self, params: Any, given: Inputs, keep_h: bool, work: Workspace | None) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def run_backward(
        self, params: Any, cache: Any, dh: Array | None, dstate: Any, weights: bool, inputs: bool, masks: bool
    ) -> Any:
        raise NotImplementedError

    def forward(
        self, params: Any, passes: Sequence[Inputs], *, keep_h: bool = True, work: Workspace | None = None
    ) -> list[tuple[Any, Any, Any]]:
        return [self.run(params, given, keep_h, work) for given in passes]

    def backward(
        self,
        params: Any,
        caches: Sequence[Any],
        dhs: Sequence[Array | None],
        dstates: Sequence[Any],
        *,
        weights: bool = True,
        inputs: bool = True,
        masks: bool = True,
    ) -> tuple[Any, list[Any]]:
        total: Any = None
        others: list[Any] = []
        for cache, dh, dstate in zip(caches, dhs, dstates, strict=True):
            grads = self.run_backward(params, cache, dh, dstate, weights, inputs, masks)
            total = tree_add(total, grads.params)
            others.append(replace(grads, params=None))
        return total, others


@dataclass(frozen=True)
class Plain(OneByOne):
    """The readable cells themselves."""

    cell: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    name = "plain"

    def run(self, params: Any, given: Inputs, keep_h: bool, work: Workspace | None) -> tuple[Any, Any, Any]:
        state, m, valid = given.state, given.m, given.valid
        return CELLS[self.cell].forward(params, given.x, state=state, m=m, valid=valid, **self.options)  # type: ignore[no-any-return]

    def run_backward(
        self, params: Any, cache: Any, dh: Array | None, dstate: Any, weights: bool, inputs: bool, masks: bool
    ) -> Any:
        grads = CELLS[self.cell].backward(params, cache, dh, dstate=dstate, weights=weights)
        return replace(grads, x=grads.x if inputs else None, m=grads.m if masks else None, hhat=None)
