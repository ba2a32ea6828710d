"""Running an example gives what it printed and showed, in order, and errors without the site's own frames."""

from _site import cells


def test_text_and_plots_come_in_order() -> None:
    result = cells.run("print('before')\nshow(mask([1, 0]))\nprint('after')\n1 + 1", cells.namespace())
    assert result.text == "before\nafter\n2\n"
    assert len(result.shown) == 1
    assert result.html.index("before") < result.html.index("<svg") < result.html.index("after")
    assert result.error is None


def test_examples_share_their_names() -> None:
    names = cells.namespace()
    cells.run("a = np.ones(3)", names)
    assert cells.run("print(a.sum())", names).text == "3.0\n"


def test_a_last_line_that_is_a_plot_is_shown() -> None:
    assert len(cells.run("lines([1.0, 2.0])", cells.namespace()).shown) == 1
    assert cells.run("x = lines([1.0, 2.0])", cells.namespace()).shown == []


def test_an_error_names_the_line_of_the_example() -> None:
    result = cells.run("print('<a>')\nminadv.masks.budget(2.0, 5)", cells.namespace())
    assert result.text == "<a>\n"
    assert result.error is not None
    assert 'File "<example>", line 2' in result.error
    assert 'File "minadv/masks.py", line ' in result.error
    assert "cells.py" not in result.error
    assert result.error.endswith("ValueError: delta is 2.0, expected a share of the units from 0 to 1")
    assert "&lt;a&gt;" in result.html


def test_a_mistake_in_the_syntax_is_an_error_too() -> None:
    result = cells.run("1 +", cells.namespace())
    assert result.error is not None
    assert "SyntaxError" in result.error


def test_a_warning_is_printed_without_a_path() -> None:
    result = cells.run("import warnings\nwarnings.warn('look', UserWarning)", cells.namespace())
    assert result.text == "UserWarning: look\n"


def test_an_example_may_define_a_dataclass() -> None:
    """It has no `from __future__ import annotations` unless it says so itself."""
    code = "from dataclasses import dataclass\n\n@dataclass\nclass A:\n    x: int\n\n"
    code += "print(A(3), A.__annotations__['x'] is int)"
    assert cells.run(code, cells.namespace()).text == "A(x=3) True\n"
