"""The directives live and exercise, in a build of one page: its results, and what fails the build."""

import re
from pathlib import Path

import pytest

pytest.importorskip("myst_parser", reason="the site is built by Sphinx with MyST")
from _site import extension
from _site.elements import make
from sphinx.application import Sphinx
from sphinx.errors import SphinxError

CONF = 'extensions = ["myst_parser", "_site"]\nhtml_math_renderer = "mathml"\nmyst_enable_extensions = ["dollarmath"]\n'


def build(folder: Path, text: str) -> str:
    """The HTML of one page."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    (source / "conf.py").write_text(CONF)
    (source / "index.md").write_text(text)
    app = Sphinx(source, source, folder / "out", folder / "trees", "html", status=None, warning=None, freshenv=True)
    app.build()
    return (folder / "out" / "index.html").read_text()


def exercise(kind: str, answer: str, body: str) -> str:
    example = "```{live}\na = np.arange(4.0)\n```"
    return f"# Page\n\n{example}\n\n````{{exercise}} title\n:kind: {kind}\n:answer: {answer}\n\n{body}\n````\n"


def test_an_example_stands_with_its_results(tmp_path: Path) -> None:
    examples = [
        "a = np.ones(3)",
        ":name: second\nprint('sum', a.sum())\nmask([1, 0])",
        ":static:\n:hidden-code:\nprint('folded')",
        ":raises:\n1 / 0",
    ]
    page = build(tmp_path, "# Page\n\n" + "\n".join(f"```{{live}}\n{code}\n```\n" for code in examples))
    assert page.count('class="cell') - page.count('class="cell-output') == 4
    assert "<pre>sum 3.0</pre>" in page
    assert 'id="second"' in page
    assert '<svg class="plot"' in page
    assert re.search(r'class="cell" data-static="">\s*<details class="hidden-code"><summary>Code</summary>', page)
    assert "ZeroDivisionError" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```{live}\n1 / 0\n```", "ZeroDivisionError"),
        ("```{live}\n:raises:\n1 + 1\n```", "did not raise"),
    ],
)
def test_an_example_that_does_otherwise_fails_the_build(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SphinxError, match=message):
        build(tmp_path, f"# Page\n\n{text}\n")


def test_a_note_says_what_can_be_done() -> None:
    assert extension.served(make("div", classes="cell")).startswith("Examples can be edited")
    assert extension.served(make("div", classes="sidebyside")).startswith(
        "Click on a line to change it, and press Check"
    )


def test_a_full_stop_stays_with_its_formula(tmp_path: Path) -> None:
    page = build(tmp_path, "# Page\n\nRow $i$ of $U$. And $x$, or (as $y$) $z$ alone.\n")
    assert re.findall(r"</math>([^<]*)</span>([^<]*)", page) == [(".", " And "), (",", " or (as "), (")", " ")]
    assert page.count('<span class="whole"><math') == 3


def test_a_number(tmp_path: Path) -> None:
    page = build(tmp_path, exercise("number", "a.sum()", "What is $a$?\n\n+++\nThe sum."))
    assert 'data-answer="6.0" data-kind="number" data-tolerance="0.01"' in page
    assert re.search(
        r"<details class=\"explanation\"><summary>Answer</summary>\s*<p>Answer: 6</p>\s*<p>The sum.</p>", page
    )


def test_answers_are_said_in_full_or_roughly() -> None:
    from _site.exercise import spoken

    assert [spoken(307720.0, 0.01), spoken(3.97, 0.1), spoken(0.058149, 0.01)] == ["307,720", "about 4", "0.05815"]


def test_a_choice(tmp_path: Path) -> None:
    page = build(tmp_path, exercise("choice", "1 + 1", "Which?\n\n1. one\n2. two\n\n+++\nTwo."))
    assert 'data-answer="2" data-kind="choice"' in page
    assert re.search(r'<ol class="[^"]*choices', page)


def test_code(tmp_path: Path) -> None:
    fences = "```start\ndef f(x):\n    return x\n```\n\n```solution\ndef f(x):\n    return x + a[1]\n```\n"
    page = build(tmp_path, exercise("code", "f(1) == 2", f"Write it.\n\n{fences}\n+++\nAdd."))
    assert 'data-answer="f(1) == 2" data-kind="code"' in page
    assert page.index("exercise-code") < page.index("explanation") < page.index("Add.")


@pytest.mark.parametrize(
    ("kind", "answer", "body", "message"),
    [
        ("number", "b", "?", "raises NameError"),
        ("choice", "3", "1. one\n2. two", "the answer is 3, of 2 choices"),
        ("choice", "1", "no list", "needs a list"),
        (
            "code",
            "f() == 1",
            "```start\ndef f(): return 1\n```\n\n```solution\ndef f(): return 1\n```",
            "start .* must be False",
        ),
        (
            "code",
            "f() == 1",
            "```start\ndef f(): return 2\n```\n\n```solution\ndef f(): return 2\n```",
            "solution .* must be True",
        ),
        ("code", "f() == 1", "```start\ndef f(): return 2\n```", "needs a fence solution"),
    ],
)
def test_an_exercise_that_is_wrong_fails_the_build(
    tmp_path: Path, kind: str, answer: str, body: str, message: str
) -> None:
    with pytest.raises(SphinxError, match=message):
        build(tmp_path, exercise(kind, answer, body))
