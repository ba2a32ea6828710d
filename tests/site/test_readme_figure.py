"""The README's figure is the one that its command makes today, up to rounding."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from _site import readme_figure

NUMBER = re.compile(r"-?\d*\.?\d+")


@pytest.fixture(scope="module")
def attack() -> Any:
    return readme_figure.attack()


def test_the_committed_figure_is_up_to_date(attack: Any) -> None:
    """Coordinates may differ by a rounding error; what is drawn, and every word, may not."""
    made, committed = readme_figure.svg(attack), readme_figure.FILE.read_text()
    out_of_date = "docs/readme.svg is out of date: run python -m docs._site.readme_figure"
    assert NUMBER.sub("#", made) == NUMBER.sub("#", committed), out_of_date
    numbers = [np.array([float(n) for n in NUMBER.findall(text)]) for text in (made, committed)]
    assert np.abs(numbers[0] - numbers[1]).max() <= 0.11, out_of_date


def test_it_shows_an_attack_within_the_budget(attack: Any) -> None:
    assert attack.before.argmax() == attack.y != attack.after.argmax()
    assert (attack.found == 0).sum() == readme_figure.BUDGET
    assert (attack.start == 0).sum() == 1
    dropped = (attack.found == 0) & (attack.start == 1)
    assert attack.gain[dropped].min() >= np.delete(attack.gain, np.flatnonzero(attack.found == 0)).max()


def test_it_is_well_formed_and_in_the_readme(attack: Any) -> None:
    svg = ET.fromstring(readme_figure.FILE.read_text())
    title = svg.find("{http://www.w3.org/2000/svg}title")
    assert title is not None and f"a digit {attack.y}" in (title.text or "")
    readme = (readme_figure.DOCS.parent / "README.md").read_text()
    assert "(docs/readme.svg)" in readme
    assert "docs/one_sitting.md" in readme and "docs/walk/01-mask.md" in readme
