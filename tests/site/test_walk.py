"""The walk is what it promises: pictures, things to run, exercises, and code that fits the page and the browser."""

import ast
import re
from pathlib import Path

import pytest
from _site import parts

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "one_sitting.md", *sorted((DOCS / "walk").glob("*.md"))]
FENCE = re.compile(r"^(`{3,})\{(live|exercise)\}([^\n]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^:([\w-]+): *(.*)$", re.MULTILINE)
PICTURES = {"bars", "heat", "lines", "mask", "unrolled"}
IN_THE_BROWSER = {"dataclasses", "itertools", "minadv", "numpy", "one_sitting", "warnings"}


def directives(page: Path, kind: str) -> list[tuple[dict[str, str], str]]:
    """The options and the body of each directive of a kind."""
    found = []
    for _, name, _, body in FENCE.findall(page.read_text()):
        if name == kind:
            head = re.match(r"(?::[\w-]+:[^\n]*\n)*", body)
            assert head
            found.append((dict(OPTION.findall(head[0])), body[head.end() :]))
    return found


def test_there_are_nine_chapters_in_order() -> None:
    assert [page.name[:2] for page in PAGES[1:]] == [f"{n:02}" for n in range(1, 10)]
    for n, page in enumerate(PAGES[1:], 1):
        assert page.read_text().startswith(f"# {n}. ")


def test_the_first_page_shows_the_path() -> None:
    """One sitting, then the chapters, in order."""
    text = (DOCS / "index.md").read_text().split("```{live}")[0]
    places = [text.index(f"({page.relative_to(DOCS).as_posix()})") for page in PAGES]
    assert places == sorted(places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_has_a_picture_something_to_run_and_two_exercises(page: Path) -> None:
    cells = directives(page, "live")
    live = [code for options, code in cells if "static" not in options]
    assert live, "nothing to run"
    names = {node.id for code in live for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    assert names & PICTURES, "no picture in what can be run"
    exercises = directives(page, "exercise")
    assert len(exercises) >= 2
    for options, body in exercises:
        assert {"kind", "answer"} <= set(options)
        assert "\n+++\n" in body, "an exercise without an explanation"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_fits_the_page_and_needs_nothing_that_a_browser_lacks(page: Path) -> None:
    for options, code in directives(page, "live"):
        assert max(map(len, code.splitlines())) <= 84, "a line that the page would cut"
        for node in ast.walk(ast.parse(code)):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            strangers = {module.split(".")[0] for module in modules} - IN_THE_BROWSER
            assert "static" in options or not strangers, f"{strangers} cannot be imported in the browser"


def test_no_result_is_typed() -> None:
    """Numbers of experiments come from their files: the prose of the last chapter has no decimal fraction."""
    text = FENCE.sub("", (DOCS / "walk" / "09-results.md").read_text())
    assert re.findall(r"\d+\.\d+", text) == []


def test_the_browser_has_the_digits() -> None:
    packed = dict(parts._minadv_files(DOCS.parent))
    assert packed["one_sitting.py"] == (DOCS / "one_sitting.py").read_bytes()
    assert packed["digits.txt"] == (DOCS / "digits.txt").read_bytes()
