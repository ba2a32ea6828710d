r"""Gradient clipping, by global norm or by value, for all leaves or for a group of them.

::

    grads, norm = Clip(1.0, but=("embedding",))(grads)

A group is chosen by the beginnings of the leaves' paths (`minadv.base.trees`): ``"embedding"`` stands for the leaf of
that name and for every leaf below it (``"embedding.E"``), not for ``"embeddings"``. Several groups with limits of their
own are several clips, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.kernels import on_device
from minadv.base.numbers import Positive
from minadv.base.schema import expect_fields, expect_type
from minadv.base.trees import leaves, tree_map

Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Clip:
    """A clip as one value: the limit, how it is meant, and the group it holds for."""

    limit: Positive
    how: Literal["norm", "value"] = "norm"
    only: tuple[str, ...] | None = None
    but: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expect_fields(self)

    def __call__(self, grads: Tree) -> tuple[Tree, Array | None]:
        """The clipped gradients, and the group's norm before clipping; None where values are cut, which needs none."""
        if self.how == "norm":
            return clip_norm(grads, self.limit, only=self.only, but=self.but)
        return clip_value(grads, self.limit, only=self.only, but=self.but), None

    def group(self, grads: Any) -> frozenset[str]:
        """The paths of the leaves that are clipped."""
        return choose(grads, only=self.only, but=self.but)


def clip_norm(
    grads: Tree, limit: float, *, only: Iterable[str] | None = None, but: Iterable[str] = ()
) -> tuple[Tree, Array]:
    r"""Scale the group so that its norm, taken over all its leaves together, is at most ``limit``.

    .. math:: g \leftarrow g \cdot c / \max(c, |g|_2)

    Gradients within the limit stay as they are, bit for bit. Returns the gradients and the norm before clipping, a
    float64 array of shape ``()`` on the gradients' device: reading it waits for the device. A norm that is not finite
    is returned as it is, for the caller to stop at.
    """
    _expect_limit(limit)
    group = choose(grads, only=only, but=but)
    norm = global_norm(grads, group)
    xp = namespace(norm)
    scale = limit / xp.maximum(norm, limit)
    names = iter([name for name, _ in leaves(grads)])
    return tree_map(lambda g: g * scale.astype(g.dtype) if next(names) in group else g, grads), norm


def clip_value(grads: Tree, limit: float, *, only: Iterable[str] | None = None, but: Iterable[str] = ()) -> Tree:
    r"""Cut every entry of the group to :math:`[-c, c]`, :math:`c` = ``limit``."""
    _expect_limit(limit)
    group = choose(grads, only=only, but=but)
    names = iter([name for name, _ in leaves(grads)])
    return tree_map(lambda g: namespace(g).clip(g, -limit, limit) if next(names) in group else g, grads)


@on_device
def global_norm(grads: Any, group: Iterable[str] | None = None) -> Array:
    r""":math:`|g|_2` over all leaves together, or over those named; float64, shape ``()``.

    The squares are float64 as well, because that of a finite float32 may be infinite in float32.
    """
    chosen = None if group is None else frozenset(group)
    named = [(name, g) for name, g in leaves(grads) if chosen is None or name in chosen]
    xp = namespace(**dict(named))
    flat = [g.reshape(-1) for _, g in named]
    squares = [xp.einsum("i,i->", g, g, dtype=np.float64) for g in flat]  # without a float64 copy of the leaf
    norm: Array = xp.sqrt(sum(squares))
    return norm


def choose(tree: Any, *, only: Iterable[str] | None = None, but: Iterable[str] = ()) -> frozenset[str]:
    """The paths of the leaves below ``only`` (None: all) and not below ``but``.

    Raises ValueError for a beginning that no path has, which is a misspelt name, and for an empty group.
    """
    paths = [path for path, _ in leaves(tree)]

    def below(beginnings: Iterable[str], name: str) -> set[str]:
        found: set[str] = set()
        for beginning in beginnings:
            here = {path for path in paths if path == beginning or path.startswith(f"{beginning}.")}
            if not here:
                raise ValueError(f"{name} names {beginning!r}, but the leaves are {', '.join(paths)}")
            found |= here
        return found

    group = (set(paths) if only is None else below(only, "only")) - below(but, "but")
    if not group:
        raise ValueError(f"no leaf is left to clip: only={only!r}, but={but!r}, leaves {', '.join(paths)}")
    return frozenset(group)


def _expect_limit(limit: float) -> None:
    expect_type("limit", limit, Positive)
