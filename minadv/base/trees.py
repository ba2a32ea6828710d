r"""Trees of arrays: parameters, states and gradients as one value.

A tree is an array, ``None``, or a frozen dataclass, dict, tuple or list of trees. Optimisers, checkpoints, gradient
checks and device moves all walk trees with `tree_map` and `leaves`; a leaf's path (``"lstm.W"``) is its name in all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Tree = TypeVar("Tree")


def children(tree: Any) -> list[tuple[str, Any]] | None:
    """The named parts of an inner node, in their order of definition; None for a leaf."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree)]
    if isinstance(tree, dict):
        return [(str(key), value) for key, value in tree.items()]
    if isinstance(tree, tuple | list):
        return [(str(n), value) for n, value in enumerate(tree)]
    return None


def _rebuild(tree: Any, parts: list[Any]) -> Any:
    """An inner node like ``tree`` with other parts."""
    if isinstance(tree, dict):
        return dict(zip(tree, parts, strict=True))
    if isinstance(tree, tuple | list):
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return type(tree)(**dict(zip([f.name for f in dataclasses.fields(tree)], parts, strict=True)))


def tree_map(f: Callable[..., Any], tree: Tree, *others: Any) -> Tree:
    """Apply ``f`` leaf by leaf to trees of one structure; ``None`` stays ``None``.

    Raises ValueError if the structures differ, naming the node.
    """
    mapped: Tree = _map(f, "", tree, *others)
    return mapped


def _map(f: Callable[..., Any], path: str, tree: Any, *others: Any) -> Any:
    if tree is None:
        return None
    parts = children(tree)
    if parts is None:
        return f(tree, *others)
    names = [name for name, _ in parts]
    rows = []
    for other in others:
        theirs = children(other)
        their_names = None if theirs is None else [name for name, _ in theirs]
        if theirs is None or their_names != names:
            raise ValueError(f"trees differ at {path or 'the root'}: {names} and {their_names}")
        rows.append([value for _, value in theirs])
    return _rebuild(
        tree,
        [
            _map(f, f"{path}.{name}" if path else name, value, *(row[n] for row in rows))
            for n, (name, value) in enumerate(parts)
        ],
    )


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves with their paths, depth first, ``None`` left out."""
    parts = children(tree)
    if parts is None:
        if tree is not None:
            yield path, tree
        return
    for name, value in parts:
        yield from leaves(value, f"{path}.{name}" if path else name)


def tree_add(a: Tree, b: Tree) -> Tree:
    """The sum of two trees of one structure; where one has ``None``, the other's leaf."""
    if a is None or b is None:
        return b if a is None else a
    parts_a, parts_b = children(a), children(b)
    if parts_a is None or parts_b is None:
        return a + b  # type: ignore[operator, no-any-return]
    names_a, names_b = [n for n, _ in parts_a], [n for n, _ in parts_b]
    if names_a != names_b:
        raise ValueError(f"trees differ: {names_a} and {names_b}")
    total: Tree = _rebuild(a, [tree_add(x, y) for (_, x), (_, y) in zip(parts_a, parts_b, strict=True)])
    return total


def tree_filled(tree: Any, like: Any) -> Any:
    """The leaves of a tree, by their names, with zeros for a part that is None and not so in ``like``."""
    if tree is None:
        return tree_map(lambda a: 0 * a, like)
    parts, theirs = children(like), children(tree)
    if parts is None:
        return tree
    names = [name for name, _ in parts]
    if theirs is None or [name for name, _ in theirs] != names:
        raise ValueError(f"trees differ: a {type(tree).__name__}, expected the structure of a {type(like).__name__}")
    return {name: tree_filled(a, b) for name, (_, a), (_, b) in zip(names, theirs, parts, strict=True)}


def any_array(tree: Any) -> Any:
    """Any array of a tree, such as the parameters: its module and dtype are those of new arrays beside it."""
    return next(leaf for _, leaf in leaves(tree) if hasattr(leaf, "dtype"))
