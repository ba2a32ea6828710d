"""What the page's worker calls, in the browser: functions that take and return texts, JSON where there is more."""

from __future__ import annotations

import importlib
import json
import linecache
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[1]
"""Where minadv/ and _site/ lie."""

sources: dict[str, str] = {}
"""The text of every module that was edited, as it was."""

state: dict[str, Any] = {}
"""The namespace of the page's examples, under "names", once one was run."""


def run(code: str) -> str:
    """Run an example in the page's namespace."""
    from _site import cells

    return to_json(asdict(cells.run(code, _names())))


def exercise(code: str, answer: str) -> str:
    """Run a reader's answer in a copy of the page's namespace; ``right``: whether the expression is true after it."""
    from _site import cells
    from _site.truth import is_true

    names = dict(_names())
    result = cells.run(code, names)
    return to_json({**asdict(result), "right": is_true(answer, names)})


def call(path: str, arguments: str) -> str:
    """Call ``module.function`` of _site, or of anything else, with JSON: a list of arguments, or a dict by name."""
    module, _, function = path.rpartition(".")
    of_site = (PLACE / "_site" / f"{module}.py").exists()
    found = importlib.import_module(f"_site.{module}" if of_site else module)
    given = json.loads(arguments)
    f = getattr(found, function)
    return to_json(f(**given) if isinstance(given, dict) else f(*given))


def edit(path: str, source: str) -> None:
    """Replace a module, such as minadv/lstm.py, by another text; whoever imports minadv next gets the new one."""
    file = PLACE / path
    compile(source, path, "exec")  # a mistake in the syntax is told before anything is replaced
    sources.setdefault(path, file.read_text())
    file.write_text(source)
    forget()


def reset() -> None:
    """Put every edited module back, and begin with an empty namespace."""
    for path, source in sources.items():
        (PLACE / path).write_text(source)
    sources.clear()
    forget()


def forget() -> None:
    """Drop minadv, the modules that use it, and the page's names: all are made anew when they are next needed."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("minadv", "_site") and name != __name__]:
        del sys.modules[name]
    importlib.invalidate_caches()
    linecache.clearcache()
    state.clear()


def _names() -> dict[str, Any]:
    from _site import cells

    if "names" not in state:
        state["names"] = cells.namespace()
    names: dict[str, Any] = state["names"]
    return names


def to_json(value: Any) -> str:
    """JSON of numbers, texts, arrays, dicts, lists and whatever has ``html``; a number that is not finite is null."""
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array of NumPy, or one of its numbers
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "html"):
        return value.html
    return value
