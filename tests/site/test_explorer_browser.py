"""The explorer and the museum in a browser: the numbers of all 256 masks are the library's, mistakes are noticed."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("furo", reason="the site is built by Sphinx with Furo")
from _site import explorer
from _site.network import trained

from tests.site.test_browser import browse as browse
from tests.site.test_browser import site as site

pytestmark = pytest.mark.site


@pytest.fixture(scope="module")
def seen(browse: Any) -> Any:
    return browse("explorer")


def as_number(text: str) -> float:
    return float(text.replace("−", "-"))


@pytest.mark.parametrize(("part", "distance", "scale"), [("built", "js", "none"), ("live", "kl", "kept")])
def test_the_numbers_of_every_mask_are_the_librarys(seen: Any, part: str, distance: str, scale: str) -> None:
    """What the page prints has four decimals of five digits, or two digits where it is small."""
    table = explorer.table(trained(), 0, distance, scale)
    d, im = np.array(table["d"]), np.array(table["im"])
    masks = [sum(unit["dropped"] << i for i, unit in enumerate(shown["units"])) for shown in seen[part]]
    assert sorted(masks) == list(range(256))

    def close(text: str, value: float) -> bool:
        return abs(as_number(text) - value) <= 5.1e-5 + abs(value) * (0.06 if abs(value) < 6e-4 else 6e-5)

    for mask, shown in zip(masks, seen[part], strict=True):
        assert close(shown["d"], d[mask])
        p = table["p"][mask]
        assert f"Predicts {np.argmax(p)} with {max(p):.2f}" in shown["said"]
        for i, unit in enumerate(shown["units"]):
            told, promised, really = unit["numbers"]
            kept = 1 - (mask >> i & 1)
            assert close(told, im[mask, i])
            assert close(promised, (1 - 2 * kept) * im[mask, i])
            assert close(really, d[mask ^ 1 << i] - d[mask])


def test_searches_run_in_the_page(seen: Any) -> None:
    network = trained()
    found = {
        s["label"]: explorer.search(network, 0, s["kind"], s["options"], distance="kl", scale="kept")
        for s in explorer.SEARCHES.values()
    }
    d = explorer.table(network, 0, "kl", "kept")["d"]
    assert [row[0] for row in seen["searches"]] == list(found)
    for label, shown, _, flips in seen["searches"]:
        mask = found[label]["found"]["mask"]
        assert as_number(shown) == pytest.approx(d[mask], abs=5.1e-5)
        assert flips.removesuffix(" (over)") == str(bin(mask).count("1"))
    assert seen["steps"] == 3 and seen["focus"] == "next"
    assert seen["status"].strip() == "Computed in this page by minadv."
    assert seen["wrong"] == []


def test_from_a_file_it_shows_what_was_built(browse: Any) -> None:
    found = browse("explorer from a file")
    assert found["said"].startswith("Unit 3 dropped.")
    assert "python -m http.server" in found["status"]
    assert found["distance"] == "js"


def test_the_museum_in_the_page(browse: Any) -> None:
    found = browse("museum")
    for piece in found["seen"]:
        assert piece["planted"][0] == "noticed", piece
        assert piece["restored"][0] == "passed", piece
    assert len(found["seen"]) >= 12
    assert found["wrong"] == []
