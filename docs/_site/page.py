"""What an example can show, in the build and in the browser alike: arrays and tables, and the plots of `plots`.

Each function returns a `Shown`; `show` puts one or several under the example.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from _site.drawing import Shown, number
from _site.plots import bars, heat, lines, mask, unrolled

__all__ = ["Shown", "array", "as_shown", "bars", "heat", "lines", "mask", "number", "show", "table", "unrolled"]

MOST = 12


def show(*objects: Any, caption: str | None = None) -> None:
    """Put objects under the example, side by side where there is room: a `Shown`, an array, a text, anything else."""
    shown = [as_shown(thing) for thing in objects]
    inside = "".join(one.html for one in shown)
    below = "" if caption is None else f"<figcaption>{html.escape(caption)}</figcaption>"
    whole = Shown(
        f'<figure class="shown"><div class="shown-row">{inside}</div>{below}</figure>', _joined(shown, caption)
    )
    sink = getattr(sys.stdout, "show", None)
    if sink is None:
        print(whole.text)
    else:
        sink(whole)


def as_shown(thing: Any) -> Shown:
    """A `Shown` as it is, an array or a number as a table, a text as a paragraph, anything else as Python prints it."""
    if isinstance(thing, Shown):
        return thing
    if isinstance(thing, np.ndarray):
        return array(thing)
    if isinstance(thing, str):
        return Shown(f"<p>{html.escape(thing)}</p>", thing)
    return Shown(f"<pre>{html.escape(repr(thing))}</pre>", repr(thing))


def array(a: Any, label: str = "", *, digits: int = 4) -> Shown:
    """An array of up to three axes as a table, or as one table for each of its first rows; long axes are cut."""
    a = np.asarray(a)
    if a.ndim <= 1:
        return _grid(np.atleast_2d(a), label or f"array, shape {a.shape}", digits, rows=a.ndim == 2)
    if a.ndim == 2:
        return _grid(a, label or f"array, shape {a.shape}", digits)
    if a.ndim > 3:
        raise ValueError(f"the array has {a.ndim} axes, expected at most 3: choose a part of it")
    name = label or f"array, shape {a.shape}"
    parts = [_grid(part, f"{name}: [{n}]", digits) for n, part in enumerate(a[:3])]
    return Shown("".join(part.html for part in parts), _joined(parts))


def _grid(a: Any, label: str, digits: int, rows: bool = True) -> Shown:
    cut = a[:MOST, :MOST]
    wide, long = a.shape[1] > MOST, a.shape[0] > MOST
    head = ["", *map(str, range(cut.shape[1]))] if rows else [str(n) for n in range(cut.shape[1])]
    body = [([f"[{n}]"] if rows else []) + [number(v, digits) for v in row] for n, row in enumerate(cut)]
    if wide:
        head, body = [*head, "…"], [[*row, "…"] for row in body]
    if long:
        body.append(["…"] * len(body[0]))
    return table(body, head=head, label=label)


def table(rows: Iterable[Sequence[Any]], head: Sequence[str] | None = None, label: str = "") -> Shown:
    """Rows of texts and numbers; ``head`` names the columns, ``label`` stands above and names the table."""
    cells = [[number(value) for value in row] for row in rows]
    right = [all(_is_number(value) for value in column) for column in zip(*cells, strict=True)]

    def line(row: Sequence[str], tag: str) -> str:
        parts = [f"<{tag}{' class=num' if r else ''}>{html.escape(v)}</{tag}>" for v, r in zip(row, right, strict=True)]
        return f"<tr>{''.join(parts)}</tr>"

    top = "" if head is None else f"<thead>{line([str(name) for name in head], 'th')}</thead>"
    title = f"<caption>{html.escape(label)}</caption>" if label else ""
    body = "".join(line(row, "td") for row in cells)
    text = "\n".join("  ".join(row) for row in ([[str(name) for name in head]] if head else []) + cells)
    return Shown(
        f'<div class="scrolls"><table class="page-table">{title}{top}<tbody>{body}</tbody></table></div>',
        f"{label}\n{text}" if label else text,
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "…"
    return True


def _joined(shown: Iterable[Shown], caption: str | None = None) -> str:
    return "\n".join([*(one.text for one in shown), *([caption] if caption else [])])
