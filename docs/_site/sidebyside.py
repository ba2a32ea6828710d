"""The directive ``sidebyside``: a file of minadv on the right as it is, what is to be said about its lines on the left.

On the left stand the docstrings, with their mathematics; the notes of the page, each at its anchor (a line ``@@ TEXT``
of the directive's body, TEXT being a piece of the line where it belongs); and the equations of the paper that the lines
implement. Names in these texts lead to the lines that define them.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser
from docutils.utils import new_document
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.rst import default_role

from _site import checks, source
from _site.elements import make, raw
from _site.live import ExampleError

ROOT = Path(__file__).parents[2]


class SideBySide(SphinxDirective):
    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = self.arguments[0]
        file = ROOT / path
        self.env.note_dependency(str(file))
        self.env.note_dependency(str(ROOT / "docs" / "notation.md"))
        text = file.read_text()
        try:
            parts = source.blocks(text, source.notes_of("\n".join(self.content)))
        except source.AnchorError as problem:
            raise ExampleError(f"{self.get_location()}: {path}: {problem}") from problem
        notation = "../" * self.env.docname.count("/") + "notation.html"
        lines, names = source.lines_html(text, notation), source.names_of(text)
        rows = [self._row(block, text, lines, names, notation) for block in parts]
        whole = make("div", *rows, classes="sidebyside", data_path=path)
        return [self._check(Path(path).stem), whole]

    def _row(self, block: source.Block, text: str, lines: list[str], names: source.Names, notation: str) -> nodes.Node:
        said: list[nodes.Node] = []
        if block.docstring is not None:
            said += self._docstring(block.docstring.text)
        for note in block.notes:
            said += self.parse_text_to_nodes(note, offset=self.content_offset)
        if block.tags:
            what = equations()
            links = [
                f'<a href="{notation}#{source.slug(t)}">{t}</a>: {html.escape(what.get(t, ""))}' for t in block.tags
            ]
            said.append(raw(f'<p class="eqs">{"<br>".join(links)}</p>'))
        left = make("div", *said, classes="why" if said else "why empty")
        for node in [*left.findall(nodes.literal), *left.findall(addnodes.pending_xref)]:
            link(node, names, block.scope)
        return make("div", left, raw(code_html(block, text, lines)), classes="row")

    def _docstring(self, text: str) -> list[nodes.Node]:
        """A docstring, which is reStructuredText, as nodes."""
        document = new_document(self.env.docname, self.state.document.settings or get_default_settings(Parser))
        document.reporter = self.state.document.reporter
        with default_role(self.env.docname, self.config.default_role):
            Parser().parse(text, document)
        return list(document.children)

    def _check(self, module: str) -> nodes.Node:
        """What the module's check says in the build; the page runs it again on edited lines."""
        if module not in checks.CHECKS:
            return nodes.comment()
        rows = checks.check(module)
        if not all(row.passed for row in rows):
            raise ExampleError(f"{self.get_location()}: the check of {module} fails: {rows}")
        inside = make("div", raw(checks.as_html(rows)), classes="check-rows")
        title = make("summary", f"The check of {module}.py: all {len(rows)} pass")
        return make("details", title, inside, classes="module-check", data_module_name=module)


def code_html(block: source.Block, text: str, lines: list[str]) -> str:
    """The lines of a block; a long docstring is folded, because it stands on the left."""
    own = "\n".join(text.splitlines()[block.first - 1 : block.last])
    pieces, last = [], block.last
    while last > block.first and not text.splitlines()[last - 1].strip():
        last -= 1  # empty lines at the end are kept in data-source, and not drawn
    doc = block.docstring
    if doc is None or doc.last - doc.first < 2:
        pieces.append(_pre(lines[block.first - 1 : last]))
    else:
        pieces.append(_pre(lines[block.first - 1 : doc.first - 1]))
        folded = f"docstring, lines {doc.first}–{doc.last}, on the left"
        inside = _pre(lines[doc.first - 1 : doc.last])
        pieces.append(f'<details class="folded"><summary>{folded}</summary>{inside}</details>')
        pieces.append(_pre(lines[doc.last : last]))
    label = f"lines {block.first} to {block.last}"
    return (
        f'<div class="code" data-source="{html.escape(own, quote=True)}" data-label="{label}">'
        f'<div class="highlight">{"".join(pieces)}</div></div>'
    )


def _pre(lines: list[str]) -> str:
    return f"<pre>{''.join(lines)}</pre>" if lines else ""


def link(node: Any, names: source.Names, scope: str) -> None:
    """Make a name in the text a link to where it is defined; leave what is unknown as it is."""
    wanted = node["reftarget"] if isinstance(node, addnodes.pending_xref) else node.astext()
    found = re.match(r"[A-Za-z_][\w.]*\w|[A-Za-z_]", wanted)
    place = names.place(found[0], scope) if found else None
    if place is None or isinstance(node.parent, nodes.reference | addnodes.pending_xref):
        return
    shown = node.children if isinstance(node, addnodes.pending_xref) else [node.deepcopy()]
    node.replace_self(nodes.reference("", "", *shown, refuri=place, internal=True, classes=["to-code"]))


def equations() -> dict[str, str]:
    """What each equation is, from the table of docs/notation.md."""
    found = {}
    for line in (ROOT / "docs" / "notation.md").read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and source.TAG.fullmatch(cells[0]):
            found[cells[0]] = cells[1]
    return found


def link_notation(app: Any, tree: Any) -> None:
    """Give each row of the table of equations a place, and lead its files to the lines that implement it."""
    if app.env.docname != "notation":
        return
    for row in tree.findall(nodes.row):
        first = row.children[0].astext().strip()
        if not source.TAG.fullmatch(first):
            continue
        row["ids"].append(source.slug(first))
        for literal in list(row.findall(nodes.literal)):
            name = literal.astext().removesuffix(".py")
            if literal.astext().endswith(".py") and name in source.PAGES:
                place = f"code/{name}.html#{source.slug(first)}"
                literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=place, internal=True))
