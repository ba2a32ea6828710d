r"""Results as data: JSON in one compact form that people can read as well, a record a line.

`text` writes this form; `parse` reads it, and any other JSON, such as that of earlier versions. The form:

* Each member of the outermost value is on a line of its own. So is each member of a table, which is a list or a dict of
  nothing but dicts: a run of an experiment is one line; and each member of a dict that holds a table and would take
  more than `LONG` characters.
* Numbers in lists, which are curves, masks and the seconds of rounds, have eight significant digits. Numbers that
  stand alone are exact, and so is all of a "preset", which tells runs of one setting from those of another.
* A long list of whole numbers that rise, like the texts that a run gets wrong, is told by the gaps between them:
  ``{"gaps":[4,3,12]}`` for 4, 7, 19.
"""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from typing import Any

LONG = 2000
DIGITS = 8
MANY = 100
"""How many numbers a list needs for its gaps to be written instead."""


def text(data: Any) -> str:
    """The data in the compact form, ready for a file."""
    return _lines(plain(data), whole=True) + "\n"


def parse(written: str) -> Any:
    """The data that `text` wrote, as `plain` returns them; or those of any other JSON."""
    return json.loads(written, object_hook=_filled)


def plain(data: Any) -> Any:
    """The data as they come back from a file: lists for tuples, strings for keys, and numbers in lists rounded."""
    return _rounded(json.loads(json.dumps(data, default=float)))


def tuples(value: Any) -> Any:
    """The value with tuples for lists, at any depth: what a preset was before it was written."""
    if isinstance(value, dict):
        return {name: tuples(member) for name, member in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def _rounded(value: Any, *, listed: bool = False) -> Any:
    if isinstance(value, dict):
        return {name: member if name == "preset" else _rounded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_rounded(member, listed=True) for member in value]
    return float(f"{value:.{DIGITS}g}") if listed and isinstance(value, float) else value


def _lines(value: Any, *, whole: bool = False) -> str:
    """A value on one line, or with its members on lines of their own."""
    line = json.dumps(_with_gaps(value), separators=(",", ":"))
    opened = whole or _is_table(value) or (len(line) > LONG and any(map(_is_table, _members(value))))
    if not _members(value) or not opened:
        return line
    if isinstance(value, dict):
        inside = ",\n".join(f"{json.dumps(name)}:{_lines(member)}" for name, member in value.items())
        return f"{{\n{inside}\n}}"
    inside = ",\n".join(map(_lines, value))
    return f"[\n{inside}\n]"


def _members(value: Any) -> list[Any]:
    """What a dict or a list holds; nothing for any other value."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _is_table(value: Any) -> bool:
    members = _members(value)
    return bool(members) and all(isinstance(member, dict) for member in members)


def _with_gaps(value: Any) -> Any:
    """The value with gaps for every long list of whole numbers that rise."""
    if isinstance(value, dict):
        return {name: _with_gaps(member) for name, member in value.items()}
    if not isinstance(value, list):
        return value
    whole = len(value) >= MANY and all(type(member) is int for member in value)
    if whole and all(one < other for one, other in pairwise(value)):
        return {"gaps": [value[0], *(other - one for one, other in pairwise(value))]}
    return [_with_gaps(member) for member in value]


def _filled(read: dict[str, Any]) -> Any:
    """The list that a dict of gaps stands for; any other dict as it is."""
    return list(accumulate(read["gaps"])) if read.keys() == {"gaps"} else read
