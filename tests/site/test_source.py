"""The pages that show a file beside its reasons: every line once, every anchor in its place, every name where it is."""

import html
import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the site is built by Sphinx, with Pygments")
from _site import source

from tests.site.support import DOCS, ROOT

SMALL = '''"""About."""

import os

from minadv.masks import hamming


@decorated
class A:
    """A class.

    With three lines.
    """

    x: int = 1

    def f(self, y):
        z = y  # Eq. 6
        return z


def g(y):
    w = 2  # first
    return w + y  # Eq. 7, Alg. 1
'''


def notes(name: str) -> list[source.Note]:
    """What the page of a file says."""
    text = (DOCS / "code" / f"{name}.md").read_text()
    inside = re.search(r"^````\{sidebyside\} minadv/(\w+)\.py\n(.*?)^````$", text, re.MULTILINE | re.DOTALL)
    assert inside is not None
    assert inside[1] == name
    return source.notes_of(inside[2])


@pytest.mark.parametrize("name", source.PAGES)
def test_every_anchor_stands_in_the_source(name: str) -> None:
    """Where this fails after a change of minadv/NAME.py, bring docs/code/NAME.md up to date with it."""
    text = (ROOT / "minadv" / f"{name}.py").read_text()
    said = notes(name)
    assert len(said) >= 8
    assert len(source.places(text, said)) == len(said)
    assert all(note.text for note in said)


@pytest.mark.parametrize("name", source.PAGES)
def test_every_line_stands_in_one_block(name: str) -> None:
    text = (ROOT / "minadv" / f"{name}.py").read_text()
    blocks = source.blocks(text, notes(name))
    assert [n for block in blocks for n in range(block.first, block.last + 1)] == list(
        range(1, len(text.splitlines()) + 1)
    )
    shown = "".join(source.lines_html(text, "notation.html"))
    assert html.unescape(re.sub(r"<[^>]*>", "", shown)) == text


def test_blocks() -> None:
    found = source.blocks(SMALL, [source.Note("w = 2", "two"), source.Note("return w", "sum")])
    firsts = [SMALL.splitlines()[block.first - 1].strip() for block in found]
    assert firsts == [
        '"""About."""',
        "import os",
        "@decorated",
        "def f(self, y):",
        "def g(y):",
        "w = 2  # first",
        "return w + y  # Eq. 7, Alg. 1",
    ]
    assert [block.scope for block in found] == ["", "", "A", "A.f", "g", "g", "g"]
    assert [block.notes for block in found][-2:] == [("two",), ("sum",)]
    assert [block.tags for block in found] == [(), (), (), ("Eq. 6",), (), (), ("Eq. 7", "Alg. 1")]
    assert found[2].docstring == source.Docstring(10, 13, "A class.\n\nWith three lines.")


def test_a_decorator_stays_with_its_class() -> None:
    found = source.blocks(SMALL, [source.Note("class A", "the class")])
    assert SMALL.splitlines()[found[2].first - 1] == "@decorated"
    assert found[2].notes == ("the class",)


@pytest.mark.parametrize("anchors", [["nowhere"], ["def g", "class A"]])
def test_an_anchor_that_is_not_there_is_an_error(anchors: list[str]) -> None:
    with pytest.raises(source.AnchorError, match=repr(anchors[-1])):
        source.places(SMALL, [source.Note(anchor, "") for anchor in anchors])


def test_names_lead_to_their_lines() -> None:
    names = source.names_of(SMALL)
    line = {text.strip(): n for n, text in enumerate(SMALL.splitlines(), 1)}
    assert names.place("w", "g") == f"#L{line['w = 2  # first']}"
    assert names.place("w") is None
    assert names.place("A") == f"#L{line['class A:']}"
    assert names.place("A.x") == f"#L{line['x: int = 1']}"
    assert names.place("y", "A.f") == f"#L{line['def f(self, y):']}"
    assert names.place("hamming") == "masks.html#def-hamming"
    assert names.place("minadv.lstm.forward") == "lstm.html#def-forward"
    assert names.place("minadv.lstm") == "lstm.html"
    assert names.place("minadv.protocol.Model") is None


def test_lines_have_places_for_definitions_and_equations() -> None:
    shown = source.lines_html(SMALL, "../notation.html")
    assert 'id="def-A"' in shown[8]
    assert 'id="def-A.x"' in shown[14]
    assert 'id="eq-6"' in shown[17]
    assert '<a class="eq" href="../notation.html#eq-6">Eq. 6</a>' in shown[17]
    assert 'id="alg-1"' in shown[23]


def test_every_page_is_listed() -> None:
    assert {path.stem for path in (DOCS / "code").glob("*.md")} == {*source.PAGES, "index"}
    listed = (DOCS / "code" / "index.md").read_text()
    assert [name for name in source.PAGES if f"[{name}.py]({name}.md)" not in listed] == []


def test_the_notation_names_every_equation_of_the_pages() -> None:
    from _site.sidebyside import equations

    tagged = {tag for name in source.PAGES for tag, _ in source.tags_of((ROOT / "minadv" / f"{name}.py").read_text())}
    assert tagged <= set(equations())
    assert Path(DOCS / "notation.md").exists()
