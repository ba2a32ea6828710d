r"""Values against the types that stand in annotations: how records check their fields, and configurations theirs.

The annotations are the schema: nothing is said twice. A number may carry its range (`minadv.base.numbers`); a table of
a configuration is a ``TypedDict``, whose own keys are checked and whose others are left alone.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from minadv.base.numbers import Number, as_python

_NAMES = {
    bool: "one of True, False",
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    type(None): "None",
}
_PLAIN = {int: Number(int, -math.inf, math.inf), float: Number(float, -sys.float_info.max, about="a finite number")}


def expect_fields(record: Any, *, only: tuple[str, ...] | None = None) -> None:
    """Raise ValueError unless a dataclass's fields have the types and ranges of their annotations.

    A number of NumPy becomes Python's, because an array in single precision times NumPy's is in double. Fields with the
    metadata ``{"config": False}`` are data and are not looked at.
    """
    kind: Any = type(record)
    for name, hint in hints(kind).items():
        if only is None or name in only:
            value = getattr(record, name)
            expect_type(name, value, hint)
            if isinstance(value, np.generic):
                object.__setattr__(record, name, as_python(value))


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields by name, without those that are data; of a TypedDict, those of its keys."""
    try:
        found = get_type_hints(kind, include_extras=True)
    except NameError:  # a record of a user's own, whose types are known where it was written and nowhere else
        return {}
    if is_typeddict(kind):
        return found
    return {field.name: found[field.name] for field in fields(kind) if field.metadata.get("config", True)}


def expect_type(name: str, value: Any, hint: Any) -> None:
    """Raise ValueError, which names the value and what was expected, unless it is of the type."""
    wrong = mismatch(name, value, hint)
    if wrong is not None:
        where, given, expected = wrong
        raise ValueError(f"{where} is {shown_as(given)}, expected {expected}")


def mismatch(name: str, value: Any, hint: Any) -> tuple[str, Any, str] | None:
    """Where a value leaves its type, what stands there, and what was expected; None if it does not leave it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        expected = arguments[1].wrong(value)
        return None if expected is None else (name, value, expected)
    if origin in (Union, types.UnionType):
        return _of_union(name, value, arguments)
    if origin is Literal:
        fits = any(type(value) is type(choice) and value == choice for choice in arguments)
        return None if fits else (name, value, f"one of {', '.join(map(repr, arguments))}")
    if origin in (tuple, list):
        if not isinstance(value, tuple | list):
            return name, value, "a list"
        return next((w for n, v in enumerate(value) if (w := mismatch(f"{name}[{n}]", v, arguments[0]))), None)
    if is_typeddict(hint) or origin in (dict, Mapping):
        return _of_table(name, value, hint, arguments)
    if hint in _PLAIN:
        bad = _PLAIN[hint].wrong(value)
        return None if bad is None else (name, value, bad)
    if hint is Any or isinstance(value, origin or hint) or (origin is np.ndarray and hasattr(value, "dtype")):
        return None
    return name, value, _called(hint)


def _of_union(name: str, value: Any, several: tuple[Any, ...]) -> tuple[str, Any, str] | None:
    """A value that fits none is told what the first of the types expected, the one that is meant, or None if may be."""
    if value is None and type(None) in several:
        return None
    wrongs = [mismatch(name, value, one) for one in several if one is not type(None)]
    if None in wrongs:
        return None
    deeper = next((wrong for wrong in wrongs if wrong and wrong[0] != name), None)
    if deeper is not None:
        return deeper
    expected = " or ".join(dict.fromkeys(wrong[2] for wrong in wrongs if wrong))
    return name, value, expected + (", or None" if type(None) in several else "")


def _of_table(name: str, value: Any, hint: Any, arguments: tuple[Any, ...]) -> tuple[str, Any, str] | None:
    if not isinstance(value, Mapping):
        return name, value, "a table of values by name"
    if not is_typeddict(hint):
        return next((w for key, v in value.items() if (w := mismatch(f"{name}.{key}", v, arguments[1]))), None)
    for key, inner in hints(hint).items():
        where = f"{name}.{key}" if name else key
        if key not in value and key in hint.__required_keys__:
            return where, MISSING, _called(inner)
        if key in value and (wrong := mismatch(where, value[key], inner)) is not None:
            return wrong
    return None


class _Missing:
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def _called(hint: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(arguments[1])
    if origin in (Union, types.UnionType):
        return " or ".join(_called(one) for one in arguments)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in (tuple, list):
        return "a list"
    if origin is np.ndarray:
        return "an array"
    if is_typeddict(hint) or origin in (dict, Mapping):
        return "a table of values by name"
    if origin is Callable:
        return "a function or a record that can be called"
    return _NAMES.get(hint, f"a {getattr(hint, '__name__', hint)}")


def shown_as(value: Any) -> str:
    """A value in an error: its beginning, if it is long."""
    if isinstance(value, int) and value.bit_length() > 1000:  # Python refuses to write very long numbers out
        return f"a whole number of {value.bit_length()} bits"
    shown = repr(value).replace("\n", "")  # of an array
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
