r"""Trees as two flat dicts by path, arrays and scalars, and back: how a checkpoint sees a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from minadv.backend import Array, is_device, is_host, to_host
from minadv.base.checks import shape_text
from minadv.base.trees import leaves, tree_map

Tree = TypeVar("Tree")


class PackingError(ValueError):
    """A tree cannot be packed, or leaves do not fit a tree; the message names the leaf."""


def pack(tree: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """The leaves by path: the arrays, on the host, and the Python numbers, booleans and strings."""
    arrays: dict[str, Array] = {}
    scalars: dict[str, Any] = {}
    for name, leaf in leaves(tree):
        if name in arrays or name in scalars:
            raise PackingError(f"two leaves are called {name}: rename a dict key that holds a dot")
        if is_host(leaf) or is_device(leaf):
            if leaf.dtype.kind not in "biuf":
                raise PackingError(f"{name} has dtype {leaf.dtype}, expected booleans, integers or real numbers")
            arrays[name] = np.asarray(to_host(leaf), order="C")  # safetensors writes the buffer as it lies
        elif isinstance(leaf, bool | int | float | str):
            scalars[name] = leaf
        else:
            raise PackingError(f"{name} is a {type(leaf).__name__}, expected an array, a number, a boolean or a string")
    return arrays, scalars


def unpack(found: dict[str, Any], like: Tree) -> Tree:
    """The tree with the structure of ``like`` and the leaves found; names, shapes, dtypes and types must agree."""
    wanted = dict(leaves(like))
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        sides = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(extra)} besides"] * bool(extra)
        raise PackingError(f"it {' and '.join(sides)}")
    for name, leaf in wanted.items():
        given, expected = _describe(found[name]), _describe(leaf)
        if given != expected:
            raise PackingError(f"its {name} is {given}, expected {expected}")
    names = iter(wanted)
    return tree_map(lambda _: found[next(names)], like)


def _describe(leaf: Any) -> str:
    if is_host(leaf) or is_device(leaf):
        return f"{leaf.dtype} of shape {shape_text(leaf.shape)}"
    return f"a Python {type(leaf).__name__}"


def arrays_to_bytes(arrays: dict[str, Array]) -> bytes:
    """The bytes of a safetensors file."""
    content: bytes = safetensors().save(arrays)
    return content


def arrays_from_file(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file; raises PackingError for a file that is none, whatever its checksum says."""
    module = safetensors()
    from safetensors import SafetensorError

    try:
        arrays: dict[str, Array] = module.load_file(path)
    except (ValueError, TypeError, KeyError, SafetensorError) as error:
        raise PackingError(f"{path} is no file of arrays: {error}") from error
    return arrays


def safetensors() -> Any:
    """The package that checkpoints are written with; raises ImportError where it is missing."""
    try:
        from safetensors import numpy
    except ImportError as error:
        raise ImportError("checkpoints need safetensors: pip install minadv[experiments]") from error
    return numpy
