r"""Recurrent layers, one after the other: the one place that runs the engines of `minadv.fast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from minadv import fast
from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.schema import expect_fields, expect_type
from minadv.fast import CELLS as CELLS
from minadv.fast import ENGINES as ENGINES
from minadv.fast import Engine, Workspace
from minadv.fast import Inputs as Inputs

T = TypeVar("T")
M = TypeVar("M")


def by_name(cell: str) -> Any:
    """The module of a cell."""
    expect_choice("cell", cell, CELLS)
    return CELLS[cell]


@dataclass(frozen=True)
class Buffered:
    """What the models that run recurrent layers have in common: what computes their passes, and in which memory.

    ``engine="plain"`` runs the readable cells themselves, ``"fast"`` the engines of `minadv.fast`, ``"fast-1"`` an
    earlier version of them (`minadv.fast.choice`); None leaves the choice to the environment (MINADV_ENGINE), where
    ``"fast"`` is the default. `minadv.fast.reusing` gives a model ``buffers``, which are no part of its configuration.
    """

    engine: Literal["fast", "plain", "fast-1", "fast-2", "fast-3"] | None = field(default=None, kw_only=True)
    buffers: Workspace | None = field(default=None, kw_only=True, repr=False, compare=False, metadata={"config": False})

    def __post_init__(self) -> None:
        expect_fields(self)
        expect_type("buffers", self.buffers, Workspace | None)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls)
        for one, several in (("body", "bodies"), ("body_backward", "bodies_backward")):
            if one in own and several not in own and hasattr(cls, several):
                raise TypeError(f"{cls.__name__} overrides {one}, expected that it overrides {several} as well")

    def with_buffers(self, work: Workspace) -> Self:
        """The same model with passes that take their memory from a workspace."""
        return replace(self, buffers=work)

    def scope(self) -> AbstractContextManager[Callable[[Any], None]]:
        """See `minadv.protocol.scope`."""
        return fast.scope(self.buffers)

    def once(self, key: T, make: Callable[[T], M]) -> M:
        """``make(key)``, called once for each key within a scope; a key must not change there."""
        return make(key) if self.buffers is None else self.buffers.once(key, lambda of, _: make(of))


@dataclass(frozen=True)
class LayerCache:
    """A pass's cache in one layer, with the engine that made it."""

    engine: Engine
    own: Any  # the engine's own cache


@dataclass(frozen=True)
class StackGrads:
    """Gradients through the layers of one pass; ``masks`` has an entry a layer, None where it was not asked for."""

    x: Array | None
    state: tuple[Any, ...]
    masks: tuple[Array | None, ...]


def run_layer(
    cell: str,
    params: Any,
    passes: Sequence[Inputs],
    *,
    keep_h: bool = True,
    leak: Literal["clean", "masked"] = "clean",
    remat: bool = False,
    engine: str | None = None,
    buffers: Workspace | None = None,
) -> list[tuple[Any, Any, LayerCache]]:
    """One layer of several passes: h (T, B, H), or None without ``keep_h``, the last state and the cache of each."""
    chosen = fast.engine(cell, params, passes, leak=leak, remat=remat, asked=engine)
    done = chosen.forward(params, passes, keep_h=keep_h, work=buffers)
    return [(h, state, LayerCache(chosen, cache)) for h, state, cache in done]


def run_layer_backward(
    params: Any,
    caches: Sequence[LayerCache],
    dhs: Sequence[Array | None],
    dstates: Sequence[Any],
    *,
    weights: bool,
    inputs: bool,
    masks: bool,
) -> tuple[Any, list[Any]]:
    """Back through one layer of several passes that one engine ran: see `minadv.fast.engines.Engine.backward`."""
    engine, own = caches[0].engine, [cache.own for cache in caches]
    return engine.backward(params, own, dhs, dstates, weights=weights, inputs=inputs, masks=masks)


def forward(
    cell: str,
    params: tuple[Any, ...],
    xs: Sequence[Array],
    *,
    state: tuple[Any, ...] | None,
    masks: Sequence[tuple[Array | None, ...]],
    valid: Array | None,
    leak: Literal["clean", "masked"] = "clean",
    remat: bool = False,
    keep_h: bool = True,
    lasting: bool = False,
    engine: str | None = None,
    buffers: Workspace | None = None,
) -> list[tuple[Any, tuple[Any, ...], tuple[LayerCache, ...]]]:
    """Run several passes, each with its own x and masks, layer by layer.

    Returns, for each, the top layer's h (T, B, H), the last states and the caches. ``remat`` keeps a few states for
    backward instead of every step; without ``keep_h`` nobody needs the top layer's h, and it may be None;
    ``lasting``: later passes of this step may be given the very same xs.
    """
    hs, states, caches = list(xs), [], []
    for n, layer in enumerate(params):
        last = None if state is None else state[n]
        passes = [Inputs(h, last, m[n], valid, lasting and n == 0) for h, m in zip(hs, masks, strict=True)]
        how: dict[str, Any] = {"leak": leak, "remat": remat, "engine": engine, "buffers": buffers}
        done = run_layer(cell, layer, passes, keep_h=keep_h or n < len(params) - 1, **how)
        hs = [h for h, _, _ in done]
        states.append([after for _, after, _ in done])
        caches.append([cache for _, _, cache in done])
    return list(zip(hs, zip(*states, strict=True), zip(*caches, strict=True), strict=True))


def backward(
    params: tuple[Any, ...],
    caches: Sequence[tuple[LayerCache, ...]],
    dhs: Sequence[Array | None],
    *,
    dstates: Sequence[tuple[Any, ...] | None],
    weights: bool = True,
    inputs: bool = False,
    masks: Sequence[bool],
) -> tuple[tuple[Any, ...] | None, list[StackGrads]]:
    """Back through several passes, from the gradients of the top layer's h, of the last states, or of both.

    Returns the gradient of the parameters, summed over the passes, and each pass's other gradients; ``inputs`` asks for
    those of x, ``masks`` layer by layer for those of m.
    """
    sums: list[Any] = []
    grads: list[list[Any]] = []  # a list of layers, the top one first, each a list of passes
    for n in range(len(params) - 1, -1, -1):
        last = [None if dstate is None else dstate[n] for dstate in dstates]
        wanted = {"weights": weights, "inputs": inputs or n > 0, "masks": masks[n]}
        summed, each = run_layer_backward(params[n], [cache[n] for cache in caches], dhs, last, **wanted)
        sums.append(summed)
        grads.append(each)
        dhs = [back.x for back in each]
    passes = list(zip(*grads[::-1], strict=True))  # a list of passes, each with its layers from the lowest up
    return tuple(sums[::-1]) if weights else None, [
        StackGrads(layers[0].x, tuple(g.state for g in layers), tuple(g.m for g in layers)) for layers in passes
    ]


def compiles_passes(
    model: Any, cell: str, n_hidden: int, dtype: npt.DTypeLike, *, padded: bool = False, on_gpu: bool
) -> bool:
    """Whether the passes of a model's layer are compiled as a whole, and so let other threads run."""
    nbytes, asked = (
        4 * n_hidden * n_hidden * np.dtype(dtype).itemsize,
        model.engine if isinstance(model, Buffered) else None,
    )
    return cell == "lstm" and not on_gpu and fast.compiles_passes(nbytes, dtype, asked, padded=padded)
