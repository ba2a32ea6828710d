"""The README's figure: a digit, a network, its influence map as gains, the flips, and the prediction before and after.

``python -m docs._site.readme_figure``, from the root of the clone, writes docs/readme.svg. A test makes it again and
says when the committed one is out of date.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS))

from one_sitting import load_digits  # noqa: E402

import minadv  # noqa: E402
from _site.drawing import COLOURS, colour, number  # noqa: E402
from minadv.models import Batch, Classifier  # noqa: E402
from minadv.regularizers import Plain  # noqa: E402
from minadv.searches import Greedy  # noqa: E402
from minadv.training.optimizers import Adam  # noqa: E402

FILE = DOCS / "readme.svg"
H, BUDGET, TOP, ROW = 12, 3, 66, 23
DARK = {"fg": "#e6edf3", "muted": "#9aa5b1", "grid": "#3d444d", "paper": "#0d1117", "pos": "#f0883e", "neg": "#58a6ff"}
DARK |= {"s1": "#58a6ff", "s2": "#f0883e", "s5": "#ff7b72"}


@dataclass(frozen=True)
class Attack:
    """One digit under the paper's greedy search: everything that is drawn."""

    image: Any  # (8, 8)
    y: int
    gain: Any  # (H,)
    start: Any  # (H,)
    found: Any  # (H,)
    before: Any  # (10,), probabilities of the full network
    after: Any  # (10,), and under the mask that was found
    d: float


def attack() -> Attack:
    """Train a small network on digits, and attack the new digit whose answer it is surest of and gives up."""
    x, y = load_digits()
    rng = np.random.default_rng(0)
    model = Classifier(n_in=8, n_hidden=H, n_classes=10, cell="rnn", engine="plain")
    params = model.init(rng, dtype=np.float64)
    adam = Adam(lr=0.01)
    state = adam.init(params)
    for _ in range(300):
        rows = rng.integers(1400, size=50)
        term = Plain()(model, params, Batch(x[:, rows], y[rows]), rng=rng, likelihood=1.0)
        params, state = adam.step(params, term.grads, state)
    new = Batch(x[:, 1400:1500], y[1400:1500])

    def predict(masks: dict[str, Any]) -> Any:
        features, _, _ = model.body(params, new, masks=masks, noise=None)
        return np.exp(minadv.layers.log_softmax(model.logits(params, features)[-1]))

    trace = minadv.find_adversary(model, params, new, search=Greedy(), budgets=BUDGET, rng=np.random.default_rng(0))
    before, after = predict({}), predict(trace.eps)
    full = trace.flips["layer0"] == BUDGET
    fooled = (before.argmax(axis=1) == new.targets) & (after.argmax(axis=1) != new.targets) & full
    n = int(np.where(fooled, before.max(axis=1), 0).argmax())
    start = trace.start["layer0"][n]
    assert trace.visits[0].im is not None and trace.d is not None
    gain = (1 - 2 * start) * trace.visits[0].im["layer0"][n]
    found = trace.eps["layer0"][n]
    return Attack(new.x[:, n], int(new.targets[n]), gain, start, found, before[n], after[n], float(trace.d[n]))


def svg(a: Attack) -> str:
    """The figure; rows of the second and third panel are the same units."""
    ys = [TOP + (i + 0.5) * ROW for i in range(H)]
    art = [*_digit(a), *_network(a, ys), *_gains(a, ys), *_prediction(a)]
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in {**COLOURS, **colours}.items()) for colours in ({}, DARK)
    )
    dropped = ", ".join(str(i) for i in np.flatnonzero(a.found == 0))
    said = (
        f"A network of {H} units reads a digit {a.y} row by row. The influence map gives the gain of each flip. "
        f"The adversary drops units {dropped} at every step, and the prediction turns from {a.before.argmax()} "
        f"to {a.after.argmax()}."
    )
    height = TOP + H * ROW + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {height}" role="img" '
        f'font-family="system-ui, sans-serif">\n<title>{said}</title>\n'
        f"<style>svg{{{light}background:var(--paper)}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>\n"
        + "\n".join(art)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, words: str, anchor: str = "middle", hue: str = "fg", size: int = 13) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour(hue)}">{words}</text>'


def _title(x: float, one: str, two: str) -> list[str]:
    return [_text(x, 20, one, "start", size=15), _text(x, 40, two, "start", "muted")]


def _box(x: float, y: float, w: float, h: float, hue: str, more: str = "") -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{colour(hue)}"{more}/>'


def _digit(a: Attack) -> list[str]:
    side, left, top = 15, 12, TOP + 60
    cells = [
        _box(left + j * side, top + i * side, side - 1, side - 1, "fg", f' opacity="{a.image[i, j]:.2f}"')
        for i in range(8)
        for j in range(8)
        if a.image[i, j]
    ]
    frame = f'<rect x="{left}" y="{top}" width="{8 * side}" height="{8 * side}" fill="none" stroke="{colour("grid")}"/>'
    return [*_title(left, "a digit", "one row of pixels a step"), frame, *cells]


def _network(a: Attack, ys: list[float]) -> list[str]:
    xs = [212, 284, 356, 456]
    art = _title(190, "a recurrent network", "its units at every step; ✕ is dropped")
    for x0, x1 in itertools.pairwise(xs):
        wires = "".join(f"M{x0} {ys[i]:.1f}L{x1} {y:.1f}" for i in range(H) if a.found[i] for y in ys)
        art.append(f'<path d="{wires}" stroke="{colour("s1")}" stroke-width=".7" opacity=".3" fill="none"/>')
    for x, name in zip(xs, ("step 1", "step 2", "step 3", "step 8"), strict=True):
        art.append(_text(x, TOP + H * ROW + 20, name, hue="muted"))
        for i, y in enumerate(ys):
            fill = colour("s1" if a.found[i] else "paper")
            art.append(f'<circle cx="{x}" cy="{y:.1f}" r="8.5" fill="{fill}" stroke="{colour("fg")}"/>')
            if not a.found[i]:
                cross = f"M{x - 6} {y - 6:.1f}L{x + 6} {y + 6:.1f}M{x - 6} {y + 6:.1f}L{x + 6} {y - 6:.1f}"
                art.append(f'<path d="{cross}" stroke="{colour("s5")}" stroke-width="2.5"/>')
    art.append(_text(406, TOP + H * ROW + 20, "…", hue="muted"))
    return art


def _gains(a: Attack, ys: list[float]) -> list[str]:
    zero, room = 572, 68
    art = _title(500, "its influence map", "the gain of flipping each unit")
    art.append(_box(zero - 0.5, TOP, 1, H * ROW, "muted"))
    largest = np.abs(a.gain).max()
    for i, (y, gain) in enumerate(zip(ys, a.gain, strict=True)):
        width = abs(gain) / largest * room
        art.append(_box(zero - width if gain < 0 else zero, y - 7, max(width, 0.5), 14, "neg" if gain < 0 else "pos"))
        word = "start" if not a.start[i] else "flipped" if not a.found[i] else ""
        if word:
            art.append(_text(zero + room + 6, y + 4, f"✕ {word}", "start"))
    art.append(_text(zero, TOP + H * ROW + 20, "largest gains first", hue="muted"))
    return art


def _prediction(a: Attack) -> list[str]:
    left, room, row = 744, 118, 27
    art = _title(722, "its prediction", f"D = {number(a.d, 2)} of at most {number(float(np.log(2)), 2)}")
    for c in range(10):
        y = TOP + c * row
        art.append(_text(left - 8, y + 16, str(c), "end"))
        art.append(_box(left, y + 2, max(a.before[c] * room, 0.5), 9, "s1"))
        art.append(_box(left, y + 12, max(a.after[c] * room, 0.5), 9, "s2"))
        for k, p in enumerate((a.before[c], a.after[c])):
            if p > 0.1:
                art.append(_text(left + p * room + 5, y + 10 + 11 * k, f"{p:.2f}", "start", size=10))
    below = TOP + H * ROW + 20
    art += [_box(left, below - 9, 18, 9, "s1"), _text(left + 24, below, "whole", "start")]
    art += [_box(left + 78, below - 9, 18, 9, "s2"), _text(left + 102, below, "attacked", "start")]
    return art


if __name__ == "__main__":
    FILE.write_text(svg(attack()))
    print(f"wrote {FILE}")
