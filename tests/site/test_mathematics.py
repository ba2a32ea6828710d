"""Mathematics is made in the build: what the documentation writes is understood and stands where it belongs."""

import xml.etree.ElementTree as ET

import pytest

pytest.importorskip("sphinx", reason="the site is built by Sphinx")
from _site.mathematics import mathml
from docutils.utils.math import MathError


@pytest.mark.parametrize(
    "tex",
    [
        r"\Big( \frac{a}{b} \Big) \big\{ x \big\}",
        r"dh_{t-1} \mathrel{+}= m \odot d\hat h_{t-1}",
        r"x_1, \dots, x_n",
        r"\lfloor \delta H \rfloor, \quad \tfrac12, \quad \mathrm{softmax}(a)",
    ],
)
def test_well_formed(tex: str) -> None:
    ET.fromstring(mathml(tex))
    assert ET.fromstring(mathml(tex, block=True)).get("display") == "block"


def test_an_accent_and_a_subscript() -> None:
    assert "<msub><mover><mi>h</mi>" in mathml(r"\hat h_{t-1}")
    assert "<msub><mover><mi>p</mi>" in mathml(r"\bar p_i")
    assert "munderover" in mathml(r"\sum_{t=1}^{T}")  # limits stay limits


def test_plus_equals_is_one_sign() -> None:
    assert "<mo>+=</mo>" in mathml(r"a \mathrel{+}= b")


def test_what_is_not_understood_is_an_error() -> None:
    with pytest.raises(MathError):
        mathml(r"\nosuchcommand x")


def test_a_fraction_of_two_digits_is_a_fraction() -> None:
    assert "<mn>1</mn><mn>2</mn></mfrac><mi>x</mi>" in mathml(r"\tfrac12 x")
    assert "<mn>1</mn><mn>4</mn></mfrac>" in mathml(r"\frac14")


def test_bars_do_not_grow() -> None:
    made = mathml(r"D[p \| q] + |a|")
    assert made.count('<mo stretchy="false">‖</mo>') == 1
    assert made.count('<mo stretchy="false">|</mo>') == 2


@pytest.mark.parametrize(
    ("tex", "spaces"),
    [
        (r"p \log p", 2),
        (r"-\log p_y", 1),
        (r"\tanh(x)", 0),
        (r"o \odot \tanh c", 1),
        (r"1 - \tanh^2 c_t", 1),
        (r"\tanh'", 0),
        (r"\log_2 H", 1),
        (r"\frac{\log p}{2}", 1),
        (r"(u - 1) \log u", 2),
    ],
)
def test_the_name_of_a_function_stands_apart(tex: str, spaces: int) -> None:
    made = mathml(tex)
    ET.fromstring(made.replace("&ApplyFunction;", "\u2061"))
    assert made.count("0.17em") == spaces
