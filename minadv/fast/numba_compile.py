r"""How `minadv.fast.numba_steps` is compiled: the types of its arguments, and two decorators.

Numba keeps what it has compiled until the file of the function changes: after a change here, or of the constants that
numba_steps.py takes from `minadv.fast.elementwise`, touch numba_steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit  # whose types differ from version to version
_OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}  # contract: a * b + c may round once

GATES, CELL, MATRIX, FLAT = "float32[:, :, :, ::1]", "float32[:, :, ::1]", "float32[:, ::1]", "float32[::1]"
MATRICES = f"UniTuple({MATRIX}, 9)"
ANY = "float32[:, :, :]"  # however it lies in memory
STEPS, ROW = "boolean[:, ::1]", "boolean[::1]"  # which examples are real: at some steps, at one


def inlined(function: Function) -> Function:
    """A function that is compiled into those that call it."""
    return cast(Function, _njit(inline="always", **_OPTIONS)(function))


def compiled(*arguments: str) -> Callable[[Function], Function]:
    """Compile a function now for these types; keep the result on disk unless that fails (no folder, a full disk).

    A function is compiled for one signature only: if two processes saved several at once, Numba would mix them up.
    """

    def now(function: Function) -> Function:
        signature = f"void({', '.join(arguments)})"
        try:
            return cast(Function, _njit(signature, cache=True, **_OPTIONS)(function))
        except Exception:
            return cast(Function, _njit(signature, **_OPTIONS)(function))

    return now
