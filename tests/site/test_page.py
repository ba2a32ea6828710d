"""Tables and plots of the site: well-formed, with their numbers in words, and nothing that only a colour tells."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from _site import drawing, page

PLOTS = {
    "lines": lambda: page.lines({"a": [1.0, 2.0], "b": [3.0, 1.0]}, xlabel="step", ylabel="loss"),
    "log": lambda: page.lines(10.0 ** -np.arange(20), log=True),
    "one point": lambda: page.lines([2.0]),
    "flat": lambda: page.lines([0.0, 0.0]),
    "bars": lambda: page.bars({"x": 1.0, "y": -2.5}, highlight=["y"]),
    "heat": lambda: page.heat(np.arange(6.0).reshape(2, 3) - 3),
    "wide heat": lambda: page.heat(np.ones((2, 40)), diverging=False),
    "mask": lambda: page.mask([1, 0, 1]),
    "masks": lambda: page.mask(np.eye(3), labels=["i", "f", "g"]),
    "unrolled": lambda: page.unrolled([1, 0, 1], T=4),
    "one step": lambda: page.unrolled([1], T=1),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_well_formed_and_labelled(name: str) -> None:
    shown = PLOTS[name]()
    svg = ET.fromstring(shown.html)
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == shown.text
    assert svg.find("{http://www.w3.org/2000/svg}title") is not None
    _, _, width, height = map(float, (svg.get("viewBox") or "").split())
    for element in svg.iter():
        for key, limit in (("x", width), ("x1", width), ("x2", width), ("y", height), ("y1", height), ("cy", height)):
            assert 0 <= float(element.get(key, "0")) <= limit, f"{element.tag} {element.attrib} is outside the plot"


def test_a_plot_says_its_numbers() -> None:
    assert "a from 1 to 2; b from 3 to 1" in PLOTS["lines"]().text
    assert "x 1, y -2.5" in PLOTS["bars"]().text
    assert "largest -3 at row 0, column 0" in PLOTS["heat"]().text
    assert PLOTS["mask"]().text == "Mask: dropped 1 of 3 units"


def test_series_differ_in_more_than_colour() -> None:
    svg = ET.fromstring(page.lines({str(n): [n, n + 1] for n in range(6)}).html)
    dashes = [e.get("stroke-dasharray") for e in svg.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(set(dashes)) == 6


def test_a_line_goes_through_its_points() -> None:
    """The curve's ends stand at the ends of the axis, the larger value higher up."""
    svg = ET.fromstring(page.lines([0.0, 5.0, 10.0]).html)
    points = next(svg.iter("{http://www.w3.org/2000/svg}polyline")).get("points") or ""
    (x0, y0), (x1, y1), (x2, y2) = (map(float, p.split(",")) for p in points.split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2


def test_the_horizontal_axis_ends_with_the_curve() -> None:
    svg = ET.fromstring(page.lines([1.0, 2.0, 3.0], x=[-0.2, 0.4, 1.0]).html)
    points = next(svg.iter("{http://www.w3.org/2000/svg}polyline")).get("points") or ""
    assert float(points.split(",")[0]) == 58 and float(points.split()[-1].split(",")[0]) == drawing.WIDTH - 18
    along = [e.text for e in svg.iter("{http://www.w3.org/2000/svg}text") if e.get("text-anchor") == "middle"]
    assert along == ["0", "0.5", "1"]


def test_an_array_is_cut_where_it_is_long() -> None:
    shown = page.array(np.zeros((30, 30)))
    assert shown.html.count("<tr>") == 1 + page.MOST + 1
    assert "…" in shown.text
    assert "shape (30, 30)" in shown.text


def test_tables_escape_their_text() -> None:
    shown = page.table([["<b>", 1.23456]], head=["name", "value"])
    assert "&lt;b&gt;" in shown.html
    assert "1.235" in shown.html
    assert "<b>" not in shown.html


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (0.123456, "0.1235"), (-0.0, "0"), (True, "yes"), (np.float64(1e-12), "1e-12"), ("x", "x")],
)
def test_numbers_are_short(value: object, text: str) -> None:
    assert page.number(value) == text


def test_show_prints_where_nothing_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page.show(page.mask([1, 0]), caption="two units")
    assert capsys.readouterr().out == "Mask: dropped 1 of 2 units\ntwo units\n"


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="no finite number"):
        page.lines([np.nan])
    with pytest.raises(ValueError, match="2 labels for 1 values"):
        page.bars([1.0], labels=["a", "b"])
