"""What pictures are drawn with: lines and words of an SVG in the colours of the page, and numbers as short texts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

COLOURS = {
    "fg": "#1b1f24", "muted": "#57606a", "grid": "#d0d7de", "paper": "#ffffff", "pos": "#b35900", "neg": "#0b61a4",
    "s1": "#0b61a4", "s2": "#b35900", "s3": "#1a7f37", "s4": "#8250df", "s5": "#a40e26", "s6": "#4d5866",
}  # fmt: skip
"""The CSS variables that plots use, with what they are where no style sheet defines them."""

WIDTH = 480


def colour(name: str) -> str:
    return f"var(--{name},{COLOURS[name]})"


@dataclass(frozen=True)
class Shown:
    """A piece of HTML and what it says in plain text."""

    html: str
    text: str


def number(value: Any, digits: int = 4) -> str:
    """A number as a short text: whole numbers whole, others with ``digits`` significant digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        text = f"{float(value):.{digits}g}"
        return "0" if text == "-0" else text
    return str(value)


def svg(art: Sequence[str], height: float, title: str, said: str, width: float = WIDTH, kind: str = "plot") -> Shown:
    name = html.escape(f"{title}: {said}", quote=True)
    W, H = math.ceil(width), math.ceil(height)
    return Shown(
        f'<svg class="{kind}" role="img" aria-label="{name}" viewBox="0 0 {W} {H}" style="max-width:{W * 4 // 3}px" '
        f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif"><title>{html.escape(title)}</title>'
        f"{''.join(art)}</svg>",
        f"{title}: {said}",
    )


def line(x1: float, y1: float, x2: float, y2: float, hue: str, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour(hue)}" stroke-width="{width}"/>'
    )


def text(x: float, y: float, words: str, anchor: str, hue: str, size: int = 13) -> str:
    if not words:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour(hue)}">'
        f"{html.escape(words)}</text>"
    )
