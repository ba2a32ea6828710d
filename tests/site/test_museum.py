"""The museum's demonstrations: each mistake changes what is printed, and its check notices it."""

import importlib.util
import sys
from pathlib import Path

import pytest
from _site import museum, planting

import minadv
from minadv import lstm
from tests.support.museum import MUSEUM

NAMES = [piece.mutant.name.removeprefix("museum: ") for piece in MUSEUM]
PIECES = pytest.mark.parametrize("piece", MUSEUM, ids=NAMES)


def test_each_piece_has_its_demonstration():
    assert sorted(museum.DEMOS) == sorted(NAMES)


@PIECES
def test_the_check_notices_the_mistake_and_nothing_else(piece):
    demo = museum.DEMOS[piece.mutant.name.removeprefix("museum: ")]
    wrong = museum.text_with(piece.mutant.file, piece.mutant.old, piece.mutant.new)
    numbers, check = planting.printed(demo.numbers, demo.check)
    assert "passed" in check and "FAILED" not in check
    with planting.planted({piece.mutant.file: wrong}):
        wrong_numbers, wrong_check = planting.printed(demo.numbers, demo.check)
    assert "FAILED" in wrong_check
    assert wrong_numbers != numbers
    assert demo.looks_at and not demo.looks_at.endswith(".")


def test_planting_changes_a_copy_and_nothing_else():
    before = dict(sys.modules)
    text = Path(lstm.__file__).read_text()
    with planting.planted({"lstm.py": text + "planted = True\n"}):
        copy = importlib.import_module("minadv.lstm")
        assert copy.planted and copy is not lstm
    with pytest.raises(ValueError, match="planted"), planting.planted({"lstm.py": "raise ValueError('planted')"}):
        importlib.import_module("minadv")
    assert {name: module for name, module in sys.modules.items() if name in before} == before
    assert sys.modules["minadv"] is minadv and not hasattr(lstm, "planted")
    assert Path(lstm.__file__).read_text() == text


def test_a_package_can_be_edited_too():
    with planting.planted({"models/__init__.py": "planted = 1\n"}):
        spec = importlib.util.find_spec("minadv.models")
        assert spec.loader.get_code("minadv.models").co_consts[0] == 1 and spec.submodule_search_locations


def test_a_line_that_is_not_there_cannot_be_changed():
    with pytest.raises(ValueError, match=r"minadv/flip\.py has 'no such line' 0 times, expected once"):
        museum.text_with("flip.py", "no such line", "")


def test_what_a_piece_says():
    pytest.importorskip("sphinx", reason="the site is built with Sphinx: pip install minadv[docs]")
    from _site import museum_page

    line, lines = museum_page.changed("a\nb\nc\n", "a\nB\nc\n")
    assert (line, lines) == (2, ("-b", "+B"))
    assert museum_page.changed("a\nb\nc\n", "a\nc\n") == (2, ("-b",))
    shown = museum_page.side("As it is", ("x < 1", "all passed"))
    assert "x &lt; 1" in shown and "✓ the check passes" in shown
    assert "✗ the check notices" in museum_page.side("With the mistake", ("x", "1 FAILED"))
    assert museum_page.where("https://github.com/a/b/issues/7").startswith("reported at <a ")
    assert "the paper's authors released, <a " in museum_page.where("https://github.com/a/b")


def test_each_piece_has_its_source():
    """An address, or the algorithm that the paper prints."""
    words = [piece.source for piece in MUSEUM if not piece.source.startswith("https://")]
    assert words == ["it is in the paper's Algorithm 1"]
