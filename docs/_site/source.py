"""A source file cut into blocks, for the pages that show it beside its reasons: every line stands in exactly one block.

A block begins at each function, class and method, where the imports begin and end, and at each anchor: a line that the
page's own notes name by a piece of its text. Docstrings belong to the block they stand in.
"""

from __future__ import annotations

import ast
import html
import inspect
import io
import re
import tokenize
from dataclasses import dataclass

PAGES = (
    "rnn", "lstm", "gru", "masks", "distances", "influence", "flip", "adversary", "searches", "regularizers", "bounds",
)  # fmt: skip
"""The files of the paper that have a page, in reading order."""

TAG = re.compile(r"(?:Eq\.|Alg\.|Prop\.|Remark) \d+")


class AnchorError(ValueError):
    """A note of a page that names a line which the source does not have."""


@dataclass(frozen=True)
class Note:
    """What a page says about the lines from its anchor on, in Markdown; without an anchor, about the whole file."""

    anchor: str
    text: str


@dataclass(frozen=True)
class Docstring:
    first: int
    last: int
    text: str


@dataclass(frozen=True)
class Block:
    """Lines ``first`` to ``last``, counted from 1, with what is said about them."""

    first: int
    last: int
    scope: str  # the function or class that they stand in: "backward", "Greedy.run"; "" at the top
    docstring: Docstring | None
    notes: tuple[str, ...]
    tags: tuple[str, ...]


def notes_of(text: str) -> list[Note]:
    """The notes of a page: each begins with a line ``@@ ANCHOR``."""
    found = []
    for part in re.split(r"^@@ +", text, flags=re.MULTILINE)[1:]:
        anchor, _, note = part.partition("\n")
        found.append(Note(anchor.strip(), note.strip()))
    return found


def places(source: str, notes: list[Note]) -> list[int]:
    """The line of each note: the first line that holds its anchor, after the line of the note before it."""
    lines, at, found = source.splitlines(), 0, []
    for note in notes:
        line = next((n for n in range(at, len(lines)) if note.anchor in lines[n]), None)
        if line is None:
            raise AnchorError(
                f"no line after {at} holds {note.anchor!r}: correct the anchor, or the order of the notes"
            )
        found.append(line + 1)
        at = line + 1
    return found


def blocks(source: str, notes: list[Note]) -> list[Block]:
    """The blocks of a source text, in order."""
    tree = ast.parse(source)
    n_lines = len(source.splitlines())
    anchored: dict[int, list[str]] = {}
    heads = _heads(tree)
    for line, note in zip(places(source, notes), notes, strict=True):
        anchored.setdefault(heads.get(line, line), []).append(note.text)
    starts = {1, *anchored, *_starts(tree)}
    docstrings, scopes, tags = _docstrings(tree), _scopes(tree), tags_of(source)
    firsts = sorted(starts)
    made = []
    for first, after in zip(firsts, [*firsts[1:], n_lines + 1], strict=True):
        inside = range(first, after)
        made.append(
            Block(
                first,
                after - 1,
                next((name for a, b, name in reversed(scopes) if a <= first <= b), ""),
                next((doc for doc in docstrings if doc.first in inside), None),
                tuple(anchored.get(first, ())),
                tuple(dict.fromkeys(tag for tag, line in tags if line in inside)),
            )
        )
    return made


def _starts(tree: ast.Module) -> set[int]:
    starts: set[int] = set()
    kinds = ast.FunctionDef | ast.ClassDef
    before: ast.stmt | None = None
    for node in tree.body:
        imports = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, kinds) or (before is not None and (_kind(node) != _kind(before) or not imports)):
            starts.add(_first(node))
        if isinstance(node, ast.ClassDef):
            starts |= {_first(part) for part in node.body if isinstance(part, ast.FunctionDef)}
        before = node
    return starts


def _heads(tree: ast.Module) -> dict[int, int]:
    """The line of each ``class`` and ``def``, with the line of its first decorator: the two are not torn apart."""
    return {n.lineno: _first(n) for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def _kind(node: ast.stmt) -> str:
    return "import" if isinstance(node, ast.Import | ast.ImportFrom) else type(node).__name__


def _first(node: ast.stmt) -> int:
    """The first line of a statement, its decorators among it."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _docstrings(tree: ast.Module) -> list[Docstring]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if text := ast.get_docstring(node, clean=False):
            stood = node.body[0]
            found.append(Docstring(stood.lineno, stood.end_lineno or stood.lineno, inspect.cleandoc(text)))
    return sorted(found, key=lambda doc: doc.first)


def _scopes(tree: ast.AST, prefix: str = "") -> list[tuple[int, int, str]]:
    """First line, last line and name of every function and class; what stands inside another comes after it."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            found += [(_first(node), node.end_lineno or node.lineno, name), *_scopes(node, f"{name}.")]
    return found


def tags_of(source: str) -> list[tuple[str, int]]:
    """The equations that comments name, ``# Eq. 6``, with their lines."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for comment in token.string.split("#"):
                if TAG.match(comment.strip()):
                    found += [(tag, token.start[0]) for tag in TAG.findall(comment)]
    return found


def slug(tag: str) -> str:
    """``Eq. 6`` as the name of a place in a page: eq-6."""
    return tag.lower().replace(".", "").replace(" ", "-")


@dataclass(frozen=True)
class Names:
    """Where a file defines its names: lines by scope, and what it imports from files with a page."""

    lines: dict[str, dict[str, int]]
    imported: dict[str, str]

    def place(self, name: str, scope: str = "") -> str | None:
        """The address of a name that the text of a block in ``scope`` mentions; None for a stranger."""
        module, _, rest = name.removeprefix("minadv.").partition(".")
        if name.startswith("minadv.") and module in PAGES:
            return f"{module}.html#def-{rest}" if rest else f"{module}.html"
        parts = scope.split(".") if scope else []
        for depth in range(len(parts), -1, -1):
            line = self.lines.get(".".join(parts[:depth]), {}).get(name)
            if line is not None:
                return f"#L{line}"
        owner, _, field = name.rpartition(".")
        if owner and (line := self.lines.get(owner, {}).get(field)) is not None:
            return f"#L{line}"
        return self.imported.get(name)


def names_of(source: str) -> Names:
    tree = ast.parse(source)
    lines: dict[str, dict[str, int]] = {}
    imported: dict[str, str] = {}

    def note(scope: str, name: str, line: int) -> None:
        known = lines.setdefault(scope, {})
        known[name] = min(line, known.get(name, line))

    def walk(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                note(scope, child.name, child.lineno)
                inner = f"{scope}.{child.name}".lstrip(".")
            elif isinstance(child, ast.arg):
                note(scope, child.arg, child.lineno)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                note(scope, child.id, child.lineno)
            elif isinstance(child, ast.ImportFrom) and (child.module or "").startswith("minadv"):
                module = (child.module or "").removeprefix("minadv").lstrip(".")
                for alias in child.names:
                    if module in PAGES:
                        imported[alias.name] = f"{module}.html#def-{alias.name}"
                    elif not module and alias.name in PAGES:
                        imported[alias.name] = f"{alias.name}.html"
            walk(child, inner)

    walk(tree, "")
    return Names(lines, imported)


def lines_html(source: str, notation: str) -> list[str]:
    """The source as one piece of HTML a line: coloured, numbered, each definition and equation with a place of its own.

    ``notation`` is the address of the page of equations.
    """
    from pygments.lexers import PythonLexer
    from pygments.token import STANDARD_TYPES, Comment

    lines = [""]
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        style = STANDARD_TYPES.get(kind, "")
        for n, piece in enumerate(text.split("\n")):
            if n:
                lines.append("")
            if piece:
                shown = html.escape(piece, quote=False)
                if kind in Comment:
                    shown = TAG.sub(lambda m: f'<a class="eq" href="{notation}#{slug(m[0])}">{m[0]}</a>', shown)
                lines[-1] += f'<span class="{style}">{shown}</span>' if style else shown
    places_at: dict[int, list[str]] = {}
    for scope, known in names_of(source).lines.items():
        if not scope or scope[0].isupper():  # the names of the module and of its classes, not those of functions
            for name, line in known.items():
                places_at.setdefault(line, []).append(f"def-{scope}.{name}" if scope else f"def-{name}")
    seen: set[str] = set()
    for tag, line in tags_of(source):
        if tag not in seen:
            seen.add(tag)
            places_at.setdefault(line, []).append(slug(tag))
    made = []
    for n, line in enumerate(lines[: len(source.splitlines())], 1):
        anchors = "".join(f'<span id="{name}"></span>' for name in places_at.get(n, ()))
        made.append(f'<span class="ln" id="L{n}" data-n="{n}">{anchors}{line}\n</span>')
    return made
