"""Plots as SVG that scales to the width of the page: curves, bars, matrices, masks, a network unrolled in time.

Colours are CSS variables of site.css, for light and dark, and never carry a meaning alone: series differ in dashes and
are named, bars and cells have their numbers, dropped units are hatched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from _site.drawing import WIDTH, Shown, colour, line, number, svg, text

DASHES = ("", "7 4", "2 4", "9 3 2 3", "14 4", "4 2")


def lines(
    ys: Any,
    x: Any = None,
    *,
    xlabel: str = "",
    ylabel: str = "",
    label: str = "",
    log: bool = False,
    points: bool = False,
) -> Shown:
    """Curves: ``ys`` is one sequence, or several by name; ``log`` draws the logarithm of y, ``points`` adds dots."""
    series = {name: np.asarray(y, dtype=float) for name, y in (ys if isinstance(ys, Mapping) else {"": ys}).items()}
    at = {n: np.arange(len(y)) if x is None else np.asarray(x, dtype=float)[: len(y)] for n, y in series.items()}
    everything = np.concatenate(list(series.values()))
    everything = everything[np.isfinite(everything) & ((everything > 0) if log else True)]
    if everything.size == 0:
        raise ValueError("there is no finite number to draw (with log=True: no positive one)")
    along = np.concatenate(list(at.values()))
    ticks_y = _decades(everything) if log else round_ticks(everything.min(), everything.max())
    ticks_x = round_ticks(along.min(), along.max(), inside=True, whole=bool((along == along.round()).all()))
    names = [name for name in series if name]
    height, left, top, bottom, right = 260, 58, 14 if not ylabel else 28, 44 if xlabel else 26, 18
    legend = 20 * math.ceil(len(names) / 2)
    H = height + legend

    def value(v: float) -> float:
        return math.log10(v) if log else float(v)

    low, high = value(min(ticks_y[0], everything.min())), value(max(ticks_y[-1], everything.max()))
    x0, x1 = min(ticks_x[0], along.min()), max(ticks_x[-1], along.max())

    def px(v: float) -> float:
        return left + (v - x0) / ((x1 - x0) or 1) * (WIDTH - left - right)

    def py(v: float) -> float:
        return height - bottom - (value(v) - low) / ((high - low) or 1) * (height - top - bottom)

    art = []
    for tick in ticks_y:
        art.append(line(left, py(tick), WIDTH - right, py(tick), "grid"))
        art.append(text(left - 6, py(tick) + 4, number(tick, 3), "end", "muted"))
    for tick in ticks_x:
        art.append(line(px(tick), height - bottom, px(tick), height - bottom + 4, "muted"))
        art.append(text(px(tick), height - bottom + 18, number(tick, 4), "middle", "muted"))
    for n, (name, y) in enumerate(series.items()):
        good = [(px(a), py(b)) for a, b in zip(at[name], y, strict=True) if math.isfinite(b) and (b > 0 or not log)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in good)
        stroke, dash = colour(f"s{n % 6 + 1}"), DASHES[n % 6]
        art.append(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        if points or len(good) == 1:
            art += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{stroke}"/>' for a, b in good]
        if name:
            row, column = divmod(names.index(name), 2)
            lx, ly = left + column * (WIDTH - left) / 2, height + 12 + 20 * row
            art.append(
                f'<line x1="{lx}" y1="{ly - 4}" x2="{lx + 26}" y2="{ly - 4}" stroke="{stroke}" stroke-width="2.5" '
                f'stroke-dasharray="{dash}"/>'
            )
            art.append(text(lx + 32, ly, name, "start", "fg"))
    art.append(text((left + WIDTH - right) / 2, height - 6, xlabel, "middle", "fg"))
    art.append(text(4, 14, ylabel, "start", "fg"))
    ends = [
        f"{name or ylabel or 'curve'} from {number(float(y[0]))} to {number(float(y[-1]))}"
        for name, y in series.items()
    ]
    name = label or f"Plot of {ylabel or 'values'} over {xlabel or 'index'}"
    return svg(art, H, name, "; ".join(ends), kind="plot curves")


def bars(
    values: Any, labels: Sequence[str] | None = None, *, highlight: Any = (), label: str = "", digits: int = 3
) -> Shown:
    """One horizontal bar a value, with its number; ``values`` is a dict by name or an array."""
    if isinstance(values, Mapping):
        labels, values = [str(name) for name in values], list(values.values())
    numbers = [float(v) for v in np.ravel(np.asarray(values, dtype=float))]
    names = [str(n) for n in range(len(numbers))] if labels is None else [str(name) for name in labels]
    if len(names) != len(numbers):
        raise ValueError(f"there are {len(names)} labels for {len(numbers)} values")
    marked = {names.index(h) if isinstance(h, str) else int(h) for h in highlight}
    left = min(190, 30 + 8 * max(map(len, names)))
    room, row = 64, 26
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    span = (high - low) or 1

    def px(v: float) -> float:
        start = left + (room if low < 0 else 0)
        return start + (v - low) / span * (WIDTH - start - room)

    art = [line(px(0), 2, px(0), row * len(numbers) + 4, "muted")]
    for n, (name, v) in enumerate(zip(names, numbers, strict=True)):
        y, a, b = 4 + n * row, min(px(0), px(v)), max(px(0), px(v))
        fill, edge = colour("neg" if v < 0 else "s1" if low >= 0 else "pos"), colour("fg")
        outline = f' stroke="{edge}" stroke-width="2.5"' if n in marked else ""
        art.append(
            f'<rect x="{a:.1f}" y="{y}" width="{max(b - a, 0.5):.1f}" height="{row - 8}" fill="{fill}"{outline}/>'
        )
        art.append(text(left - 8, y + 14, name + (" ◂" if n in marked else ""), "end", "fg"))
        art.append(text(a - 5 if v < 0 else b + 5, y + 14, number(v, digits), "end" if v < 0 else "start", "fg"))
    said = ", ".join(f"{name} {number(v, digits)}" for name, v in zip(names, numbers, strict=True))
    return svg(art, row * len(numbers) + 8, label or "Bars", said, kind="plot curves")


def heat(
    a: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    label: str = "",
    diverging: bool = True,
    digits: int = 2,
) -> Shown:
    """A matrix of coloured cells, with their numbers where these have room; zero is the colour of the page."""
    a = np.atleast_2d(np.asarray(a, dtype=float))
    R, C = a.shape
    size = float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) or 1.0
    row_names = [str(n) for n in range(R)] if rows is None else [str(name) for name in rows]
    column_names = [str(n) for n in range(C)] if columns is None else [str(name) for name in columns]
    left = 12 + 8 * max(map(len, row_names))
    side = min(44.0, (WIDTH - left - 4) / C)
    tall = min(side, 32.0)
    written = side >= 30
    art = []
    for i in range(R):
        art.append(text(left - 6, 22 + (i + 0.5) * tall + 4, row_names[i], "end", "fg"))
        for j in range(C):
            v = float(a[i, j])
            share = min(abs(v) / size, 1.0) if math.isfinite(v) else 0.0
            hue = colour("neg" if v < 0 and diverging else "pos" if diverging else "s1")
            x, y = left + j * side, 22 + i * tall
            box = f'x="{x:.1f}" y="{y:.1f}" width="{side - 1:.1f}" height="{tall - 1:.1f}"'
            art.append(f'<rect {box} fill="{colour("paper")}" stroke="{colour("grid")}" stroke-width="1"/>')
            art.append(f'<rect {box} fill="{hue}" opacity="{0.55 * share:.3f}"/>')
            if written:
                art.append(text(x + side / 2, y + tall / 2 + 4, number(v, digits), "middle", "fg", 11))
    each = max(1, math.ceil(C / 12)) if columns is None else 1
    for j in range(0, C, each):
        art.append(text(left + (j + 0.5) * side, 15, column_names[j], "middle", "muted"))
    i, j = (int(k) for k in np.unravel_index(int(np.nanargmax(np.abs(a))), a.shape))
    said = f"{R} by {C}, largest {number(float(a[i, j]))} at row {row_names[i]}, column {column_names[j]}"
    return svg(art, 24 + R * tall, label or "Matrix", said, left + C * side + 4)


def mask(eps: Any, label: str = "", *, labels: Sequence[str] | None = None) -> Shown:
    """A mask as a row, or several as a grid: kept units filled, dropped units hatched and marked with a cross."""
    eps = np.atleast_2d(np.asarray(eps, dtype=float))
    B, H = eps.shape
    names = ([""] if B == 1 else [str(n) for n in range(B)]) if labels is None else [str(name) for name in labels]
    left = 12 + 8 * max(map(len, names)) if any(names) else 4
    side = min(34.0, (WIDTH - left - 4) / H)
    art = []
    for i in range(B):
        art.append(text(left - 6, 22 + i * (side + 4) + side / 2 + 4, names[i], "end", "fg"))
        for j in range(H):
            x, y = left + j * side, 20 + i * (side + 4)
            kept = eps[i, j] != 0
            box = f'x="{x:.1f}" y="{y:.1f}" width="{side - 3:.1f}" height="{side - 3:.1f}" rx="3"'
            fill = colour("s1") if kept else colour("paper")
            art.append(f'<rect {box} fill="{fill}" stroke="{colour("fg")}" stroke-width="1"/>')
            if not kept:
                inset = min(3.0, side / 8)
                a, b, w = x + inset, y + inset, side - 3 - 2 * inset
                art.append(line(a, b, a + w, b + w, "s5", 2) + line(a, b + w, a + w, b, "s5", 2))
    for j in range(0, H, max(1, math.ceil(H / 16))):
        art.append(text(left + j * side + (side - 3) / 2, 14, str(j), "middle", "muted"))
    said = []
    for i in range(B):
        dropped = [str(j) for j in range(H) if eps[i, j] == 0]
        who = f"row {names[i]}: " if B > 1 else ""
        said.append(f"{who}dropped {', '.join(dropped) or 'none'} of {H} units")
    return svg(art, 22 + B * (side + 4), label or "Mask", "; ".join(said), left + H * side + 4)


def unrolled(eps: Any, T: int = 4, label: str = "") -> Shown:
    """A network unrolled in time: a column a step, a circle a unit; no line leaves a unit that ``eps (H,)`` drops."""
    eps = np.ravel(np.asarray(eps, dtype=float))
    H = len(eps)
    left, gap, row, top = 66, (WIDTH - 66 - 30) / max(T - 1, 1), 40, 34
    middle = [(left + t * gap, [top + i * row for i in range(H)]) for t in range(T)]
    art = []
    for (x0, ys), (x1, _) in itertools.pairwise(middle):
        for i in range(H):
            if eps[i] != 0:
                art += [line(x0 + 13, ys[i], x1 - 13, y, "s1", 1) for y in ys]
    bottom = top + (H - 1) * row + 56
    for t, (x, ys) in enumerate(middle, 1):
        art.append(text(x, 14, f"step {t}", "middle", "muted"))
        art.append(text(x, bottom, f"x{chr(0x2080 + t) if t < 10 else t}", "middle", "fg"))
        art.append(line(x, bottom - 14, x, ys[-1] + 14, "muted", 1.5))
        for i, y in enumerate(ys):
            fill = colour("s1") if eps[i] != 0 else colour("paper")
            art.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="12" fill="{fill}" stroke="{colour("fg")}" stroke-width="1"/>'
            )
            if eps[i] == 0:
                art.append(line(x - 8, y - 8, x + 8, y + 8, "s5", 2) + line(x - 8, y + 8, x + 8, y - 8, "s5", 2))
    for i in range(H):
        art.append(text(left - 20, top + i * row + 4, f"unit {i}", "end", "fg"))
    dropped = ", ".join(str(i) for i in range(H) if eps[i] == 0)
    said = f"{T} steps of {H} units, of which {dropped or 'none'} is dropped at every step"
    return svg(art, bottom + 8, label or "A recurrent network, unrolled", said)


def round_ticks(low: float, high: float, *, inside: bool = False, whole: bool = False) -> list[float]:
    """Four to seven round numbers, whole ones if asked, from below ``low`` to above ``high``, or ``inside`` of them."""
    if high <= low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    raw = (high - low) / 5
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    if whole:
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if inside:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _decades(values: Any) -> list[float]:
    first, last = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()))
    each = max(1, math.ceil((last - first) / 6))
    return [10.0**n for n in range(max(last, first + 1), first - 1, -each)][::-1]
