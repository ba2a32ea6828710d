"""The directive ``museum``: every piece with its line, what it does to the numbers, and the check that notices it."""

from __future__ import annotations

import difflib
import functools
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from _site import museum, planting

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Exhibit:
    """A piece as the page shows it; ``before`` and ``after`` are what the two programs of its demonstration print."""

    name: str
    effect: str
    source: str
    file: str
    old: str
    new: str
    caught_by: str
    line: int
    lines: tuple[str, ...]  # as in a diff: "-..." and "+..."
    demo: museum.Demo
    before: tuple[str, str]
    after: tuple[str, str]


@functools.cache
def exhibits() -> tuple[Exhibit, ...]:
    """All pieces, demonstrated: each is run once with minadv as it is and once with the mistake planted in memory."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from tests.support.museum import MUSEUM

    made = []
    for piece in MUSEUM:
        mutant = piece.mutant
        name = mutant.name.removeprefix("museum: ")
        if name not in museum.DEMOS:
            raise KeyError(f"tests/support/museum.py has {mutant.name!r}, which has no demonstration in museum.DEMOS")
        demo = museum.DEMOS[name]
        wrong = museum.text_with(mutant.file, mutant.old, mutant.new)
        right = wrong if mutant.new == mutant.old else museum.text_with(mutant.file, mutant.old, mutant.old)
        line, lines = changed(right, wrong)
        before = planting.printed(demo.numbers, demo.check)
        with planting.planted({mutant.file: wrong}):
            after = planting.printed(demo.numbers, demo.check)
        about = (name, piece.effect, piece.source, mutant.file, mutant.old, mutant.new, mutant.caught_by)
        made.append(Exhibit(*about, line, lines, demo, (before[0], before[1]), (after[0], after[1])))
    return tuple(made)


def changed(right: str, wrong: str) -> tuple[int, tuple[str, ...]]:
    """The number of the first line that differs, and all lines that do, as in a diff."""
    pieces = difflib.SequenceMatcher(None, right.splitlines(), wrong.splitlines(), autojunk=False).get_opcodes()
    first, lines = 0, []
    for what, a, b, c, d in pieces:
        if what != "equal":
            first = first or a + 1
            lines += [f"-{line}" for line in right.splitlines()[a:b]] + [f"+{line}" for line in wrong.splitlines()[c:d]]
    return first, tuple(lines)


class Museum(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [self.section(n, exhibit) for n, exhibit in enumerate(exhibits(), 1)]

    def section(self, n: int, exhibit: Exhibit) -> nodes.section:
        title = f"{n}. {exhibit.name[0].upper()}{exhibit.name[1:]}"
        found = nodes.section(ids=[nodes.make_id(exhibit.name)], names=[nodes.fully_normalize_name(title)])
        found += nodes.title("", title)
        found += nodes.paragraph("", exhibit.effect)
        found += nodes.raw("", piece(exhibit), format="html")
        return found


def piece(exhibit: Exhibit) -> str:
    """The HTML of a piece, below its title and its effect."""
    indent = min(len(line) - 1 - len(line[1:].lstrip()) for line in exhibit.lines)
    diff = "".join(
        f'<{tag} class="museum-{tag}"><span aria-hidden="true">{sign}</span>{escape(line[1 + indent :])}</{tag}>'
        for line in exhibit.lines
        for tag, sign in [("del", "− ") if line[0] == "-" else ("ins", "+ ")]
    )
    data = {"file": exhibit.file, "old": exhibit.old, "new": exhibit.new}
    program = f"{exhibit.demo.numbers}\n{exhibit.demo.check}"
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in {**data, "program": program}.items())
    return (
        f'<div class="museum"{attributes}>'
        f'<pre class="museum-diff" tabindex="0" aria-label="the line, as it is and with the mistake">'
        f"<code>minadv/{exhibit.file}, line {exhibit.line}\n{diff}</code></pre>"
        f"<p>What to look at: {escape(exhibit.demo.looks_at)}.</p>"
        f'<div class="museum-two">{side("As it is", exhibit.before)}{side("With the mistake", exhibit.after)}</div>'
        f"<p>In minadv <code>tests/{exhibit.caught_by}</code> notices it; {where(exhibit.source)}.</p>"
        f'<div class="museum-live" hidden></div></div>'
    )


def where(source: str) -> str:
    """Where a mistake was reported, or which code or part of the paper has it."""
    if not source.startswith("https://"):
        return source
    reported = re.search("/(issues|pull)/", source)
    how = "reported at" if reported else "it is in the code that the paper's authors released,"
    return f'{how} <a class="reference external" href="{source}">{source.removeprefix("https://")}</a>'


def side(title: str, printed: tuple[str, str]) -> str:
    """One of the two columns: numbers, and the verdict of the check."""
    numbers, check = printed
    failed = "FAILED" in check
    verdict = "the check notices" if failed else "the check passes"
    kind = "bad" if failed else "good"
    return (
        f"<div><h3>{title}</h3><pre tabindex=0>{escape(numbers)}</pre>"
        f'<details><summary class="museum-{kind}">{"✗" if failed else "✓"} {verdict}</summary>'
        f"<pre tabindex=0>{escape(check)}</pre></details></div>"
    )
