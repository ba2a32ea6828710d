r"""The seam between a readable function and a device's own way to compute it.

::

    @on_device
    def js(logits0, logits1): ...                     # the definition, and what runs on the host

    provide(distances.js, device_distances.js)        # elsewhere: the same numbers by one kernel

The paper's files say what is computed and know nothing of kernels; `minadv.fast` knows kernels and is not known to
them. Both know this file.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from minadv.backend import is_device
from minadv.base.trees import leaves

Given = ParamSpec("Given")
Made = TypeVar("Made")

_kernels: dict[str, Callable[..., Any]] = {}
_providers: list[Callable[[], None]] = []


def on_device(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Let a device compute a function in its own way: a decorator.

    The function's text is the definition, and what runs on the host. Where an argument is a CuPy array, or a tree of
    them, what `provide` was given runs instead; if that was nothing, or it returns ``NotImplemented``, the text runs.
    """
    name = _name(function)

    @functools.wraps(function)
    def either(*args: Given.args, **named: Given.kwargs) -> Made:
        if "cupy" in sys.modules and any(is_device(a) for one in (*args, *named.values()) for _, a in leaves(one)):
            while _providers:
                _providers[-1]()
                _providers.pop()  # one that raises stays, and is called again the next time
            own = _kernels.get(name)
            made: Any = NotImplemented if own is None else own(*args, **named)
            if made is not NotImplemented:
                return made  # type: ignore[no-any-return]
        return function(*args, **named)

    return either


def provide(function: Callable[..., Any] | str, own: Callable[..., Any]) -> None:
    """Say how a device computes a function that `on_device` decorates: ``own`` is called as the function is.

    A function that whoever provides may not import, because it is of a higher rank, is named: module and name.
    """
    if not isinstance(function, str) and not hasattr(function, "__wrapped__"):
        raise TypeError(f"{_name(function)} is not decorated with on_device")
    _kernels[function if isinstance(function, str) else _name(function)] = own


def provider(load: Callable[[], None]) -> Callable[[], None]:
    """Have a function called before a device first computes one, to `provide` what it knows: a decorator."""
    _providers.append(load)
    return load


def provided() -> dict[str, Callable[..., Any]]:
    """What was provided so far, by the name of the function."""
    return dict(_kernels)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
