"""The directive ``explorer``: what stands there without JavaScript, and the numbers that the script begins with."""

from __future__ import annotations

import functools
import json
from html import escape
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from _site import explorer, page
from _site.network import trained

OFFLINE = (
    "This needs Python in the page. The parts that run it are missing in this copy of the site, or the page was opened "
    "as a file: build the site with its live parts, serve its folder with “python -m http.server -d FOLDER”, and open "
    "it from there. The digits, the units and the searches of the table work without."
)
DATA = "explorer-data.js"


class Explorer(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        text = f'<div id="explorer" data-offline="{escape(OFFLINE)}">{still()}</div>'
        return [nodes.raw("", text, format="html")]


class MoreMaps(SphinxDirective):
    """A sentence with this build's numbers: for which digits a second influence map helps greedy, and for which not."""

    def run(self) -> list[nodes.Node]:
        rows = {row[0]: row[1:] for row in shares()}
        pairs = zip(trained()["examples"], rows["Greedy, K = 1"], rows["Greedy, K = 2"], strict=False)
        said = [f"the {one['y']} from {before} to {after}" for one, before, after in pairs]
        text = f"Share of the exact maximum with K = 1, and with K = 2, at seed 0: {', '.join(said)}."
        return [nodes.paragraph("", text)]


def beginnings() -> dict[str, Any]:
    """What the page can show before anything runs in it: every mask of every digit, and the searches of the table."""
    network = trained()
    digits = range(len(network["examples"]))
    return {
        "network": network,
        "budget": explorer.BUDGET,
        "searches": explorer.SEARCHES,
        "tables": [explorer.drawn(network, n) for n in digits],
        "traces": [
            {
                key: explorer.search(network, n, s["kind"], s["options"], delta=explorer.BUDGET / len(network["U"]))
                for key, s in explorer.SEARCHES.items()
            }
            for n in digits
        ],
    }


def script() -> str:
    """The numbers as a script, which a page that was opened from a file may load."""
    return f"window.minadvExplorer = {json.dumps(beginnings(), separators=(',', ':'))};\n"


def still(example: int = 0) -> str:
    """The explorer as a picture and two tables."""
    network = trained()
    found = explorer.table(network, example)
    y = network["examples"][example]["y"]
    H, d = len(network["U"]), np.array(found["d"])
    p0, single = np.array(found["p0"]), [d[1 << i] for i in range(H)]
    flips = np.array([bin(k).count("1") for k in range(len(d))])
    ball = np.flatnonzero(flips <= explorer.BUDGET)
    best = int(ball[d[ball].argmax()])
    units = ", ".join(str(i + 1) for i in range(H) if best >> i & 1)
    intro = (
        f"<p>The first digit is a {y}; the full network says {p0.argmax()} with probability {p0.max():.2f}. Of the "
        f"{len(ball)} masks within {explorer.BUDGET} flips the one that drops the units {units} moves that prediction "
        f"furthest: D = {d[best]:.4f}. With JavaScript this place is the explorer itself.</p>"
    )
    plot = landscape(d, flips, best)
    drops = page.bars(
        {f"unit {i + 1}": value for i, value in enumerate(single)},
        label=f"D where one unit of the recurrent connection is dropped, the digit {y}",
    )
    head = ["search", *(f"a {one['y']}" for one in network["examples"]), "passes, forward + backward"]
    return intro + plot + drops.html + page.table(shares(), head=head, label=SHARES).html


SHARES = f"Share of the largest D within {explorer.BUDGET} flips that each search finds, digit by digit"


@functools.cache
def shares() -> list[list[str]]:
    """A row for each search: the share of the exact maximum that it finds for each digit, and its passes."""
    network = trained()
    delta = explorer.BUDGET / len(network["U"])
    flips = np.array([bin(k).count("1") for k in range(2 ** len(network["U"]))])
    tables = [np.array(explorer.table(network, n)["d"]) for n in range(len(network["examples"]))]
    rows = []
    for search in explorer.SEARCHES.values():
        row, passes = [search["label"]], ""
        for n, d in enumerate(tables):
            found = explorer.search(network, n, search["kind"], search["options"], delta=delta)
            row.append(f"{found['found']['d'] / d[flips <= explorer.BUDGET].max():.2f}")
            passes = f"{found['passes']['forward']} + {found['passes']['backward']}"
        rows.append([*row, passes])
    return rows


def landscape(d: np.ndarray, flips: np.ndarray, best: int) -> str:
    """All masks as dots: D against the number of flips."""
    most = float(d.max()) or 1.0
    dots = []
    for n in range(int(flips.max()) + 1):
        column = np.flatnonzero(flips == n)
        for place, k in enumerate(column):
            x = 60 + (n + 0.5 + 0.72 * ((place / (len(column) - 1) if len(column) > 1 else 0.5) - 0.5)) * 62
            style = 'fill="var(--s1,#1f6feb)"' if n <= explorer.BUDGET else 'fill="none" stroke="var(--muted,#6b7280)"'
            dots.append(f'<circle cx="{x:.1f}" cy="{200 - 180 * d[k] / most:.1f}" r="3" {style}/>')
            if k == best:
                ring = f'cx="{x:.1f}" cy="{200 - 180 * d[k] / most:.1f}" r="8"'
                dots.append(f'<circle {ring} fill="none" stroke="var(--pos,#0a7d33)" stroke-width="2"/>')
        label = f'x="{60 + (n + 0.5) * 62:.0f}" y="220" text-anchor="middle" fill="currentColor" font-size="13"'
        dots.append(f"<text {label}>{n}</text>")
    said = (
        f"D of all {len(d)} masks against their number of flips, at most {most:.2f}; within {explorer.BUDGET} flips, "
        f"filled, at most {d[best]:.4f}, ringed."
    )
    axis = '<text x="340" y="238" text-anchor="middle" fill="currentColor" font-size="13">flips; D upwards</text>'
    return (
        f'<figure><svg viewBox="0 0 640 245" role="img" aria-label="{escape(said)}" style="width:100%;max-width:640px">'
        f"{''.join(dots)}{axis}</svg><figcaption>{escape(said)}</figcaption></figure>"
    )
