"""Running an example: what it prints and shows, in order, as text and as HTML; the same in build and browser."""

from __future__ import annotations

import ast
import html
import io
import linecache
import re
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from _site import page

NAMES = ("array", "bars", "heat", "lines", "mask", "show", "table", "unrolled")
"""What an example may use of `page` without importing it."""


@dataclass
class Result:
    """What one run of an example gave."""

    text: str
    shown: list[str]
    error: str | None
    html: str


@dataclass
class Output(io.TextIOBase):
    """Standard output of an example; ``show`` of `page` finds its way here through ``sys.stdout.show``."""

    parts: list[str | page.Shown] = field(default_factory=list)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.parts and isinstance(self.parts[-1], str):
            self.parts[-1] += text
        elif text:
            self.parts.append(text)
        return len(text)

    def show(self, shown: page.Shown) -> None:
        self.parts.append(shown)


def namespace() -> dict[str, Any]:
    """The names that every example begins with: np, minadv and those of `page`."""
    import numpy as np

    import minadv

    return {"__name__": "example", "np": np, "minadv": minadv, **{name: getattr(page, name) for name in NAMES}}


def run(code: str, names: dict[str, Any], title: str = "example") -> Result:
    """Run an example in a namespace. The value of a last line that is an expression is shown, as a notebook does."""
    output, error = Output(), None
    file = f"<{title}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    with redirect_stdout(output), redirect_stderr(output), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *_: print(f"{category.__name__}: {message}")
        try:
            tree = ast.parse(code, file)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, file, "exec", dont_inherit=True), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), file, "eval", dont_inherit=True), names)
                if isinstance(value, page.Shown):
                    page.show(value)
                elif value is not None:
                    print(repr(value))
        except BaseException as problem:  # an example may also raise SystemExit
            error = _trace(problem)
    return Result(
        text="".join(part for part in output.parts if isinstance(part, str)),
        shown=[part.html for part in output.parts if isinstance(part, page.Shown)],
        error=error,
        html=as_html(output.parts, error),
    )


def as_html(parts: list[str | page.Shown], error: str | None) -> str:
    """What stands under an example."""
    pieces = [
        p.html if isinstance(p, page.Shown) else f"<pre>{html.escape(p.rstrip())}</pre>" for p in parts if p != "\n"
    ]
    if error is not None:
        pieces.append(f'<pre class="error">{html.escape(error)}</pre>')
    return "".join(pieces)


def _trace(problem: BaseException) -> str:
    """The traceback without this file's own frames, and with paths from minadv/ on."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if not f.filename.endswith("_site/cells.py")]
    stack = traceback.format_list([f for f in frames if f.filename != ast.__file__])
    text = "".join([*(["Traceback (most recent call last):\n"] if stack else []), *stack])
    text += "".join(traceback.format_exception_only(problem))
    return re.sub(r'File "[^"]*?/((?:minadv|_site|numpy)/[^"]*)"', r'File "\1"', text).rstrip()
