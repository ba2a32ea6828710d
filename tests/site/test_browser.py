"""The built site in a browser: Debian's Chromium, driven by playwright-core; accessibility by axe-core.

The site is built once for all tests, with its live parts; MINADV_SITE names a folder where it has been built already.
Where Node, Chromium, Sphinx or the packages of npm are missing, the tests are skipped.
"""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("furo", reason="the site is built by Sphinx with Furo")
from _site import parts, source

from tests.site.support import DOCS, ROOT, fetched, have

pytestmark = pytest.mark.site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    if "MINADV_SITE" in os.environ:
        return Path(os.environ["MINADV_SITE"])
    fetched(*parts.SERVED)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-d", folder / "trees", DOCS, folder / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="session")
def browse(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that plays a scenario of browser.mjs and returns what was seen; the console must have been silent."""
    node, chromium = have("node"), have("chromium")
    fetched("playwright-core", "axe-core")
    packages = tmp_path_factory.mktemp("packages")
    for name in ("playwright-core", "axe-core"):
        parts.unpack(name, packages)

    def play(scenario: str) -> dict[str, Any]:
        command = [node, ROOT / "tests" / "site" / "browser.mjs", packages, chromium, site, scenario]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        assert seen["complaints"] == []
        return seen

    return play


def test_every_page_fits_and_is_accessible(browse: Any) -> None:
    """At 1280 pixels in light and at 375 in dark colours; no request leaves the machine; the console is silent."""
    seen = browse("pages")
    assert seen["count"] > 20
    assert seen["wrong"] == {}


def test_every_page_is_read_without_javascript(browse: Any) -> None:
    assert browse("plain")["wrong"] == {}


def test_from_a_file_the_page_says_how_to_serve_it(browse: Any) -> None:
    notes = browse("file")["notes"]
    assert {f"code/{name}.html" for name in source.PAGES} <= set(notes)
    assert {note for note in notes.values() if "python -m http.server" not in note} == set()


def test_exercises_accept_right_and_refuse_wrong_answers(browse: Any) -> None:
    seen = browse("exercises")["seen"]
    assert len(seen) >= 18
    for one in seen:
        assert one["wrong"] == "verdict wrong", one
        assert one.get("words", "verdict wrong") == "verdict wrong", one
        assert one["right"] == "verdict right", one
        assert one["closed"] and one["opened"], one


def test_exercises_of_code(browse: Any) -> None:
    for one in browse("code")["seen"]:
        assert (one["wrong"], one["right"]) == ("verdict wrong", "verdict right"), one


def test_the_example_of_the_readme_runs_in_the_page(browse: Any) -> None:
    seen = browse("example")
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"^<!-- output -->\n```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert shown is not None
    rounding = re.compile(r"difference .*? \(")  # its size and place depend on the machine
    assert seen["status"] == "done"
    assert rounding.sub("", seen["ran"]).split() == rounding.sub("", shown[1]).split()
    assert rounding.sub("", seen["built"]).split() == rounding.sub("", shown[1]).split()
    assert seen["edited"].endswith("and 42")
    assert seen["failed"] == "error"
    assert "ZeroDivisionError" in seen["error"]
    assert seen["source"] and seen["reset"] == seen["built"]


def test_a_changed_sign_turns_its_gradients_red(browse: Any) -> None:
    seen = browse("mutation")
    assert seen["before"] and all(verdict.startswith("right ") for verdict in seen["before"])
    red = {verdict.removeprefix("wrong ") for verdict in seen["mutated"] if verdict.startswith("wrong ")}
    assert {"dstate.c", "dx", "dparams.W"} <= red
    assert seen["wrong"] == []
    assert seen["after"] == seen["before"]


class Page(HTMLParser):
    """The places and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                assert value not in self.ids, f"the place {value} is there twice"
                self.ids.add(value)
            elif name == "href" and tag == "a" and value and not re.match(r"[a-z]+:", value):
                self.links.append(value)


def test_links_lead_somewhere(site: Path) -> None:
    """Every link within the site, to its place in the page."""
    own = [path for path in site.rglob("*.html") if not path.relative_to(site).parts[0].startswith("_")]
    pages = {path.relative_to(site).as_posix(): Page(path.read_text()) for path in own}
    wrong = []
    for name, page in pages.items():
        for link in page.links:
            address, _, place = link.partition("#")
            target = (site / name).parent / address if address else site / name
            found = target.resolve().relative_to(site.resolve()).as_posix()
            if not target.exists():
                wrong.append(f"{name}: {link} is not there")
            elif place and found in pages and place not in pages[found].ids:
                wrong.append(f"{name}: {link}: there is no such place")
    assert wrong == []


def test_equations_and_code_lead_to_each_other(site: Path) -> None:
    notation = Page((site / "notation.html").read_text())
    for name in source.PAGES:
        page = Page((site / "code" / f"{name}.html").read_text())
        tags = {tag for tag, _ in source.tags_of((ROOT / "minadv" / f"{name}.py").read_text())}
        for place in map(source.slug, tags):
            assert f"../notation.html#{place}" in page.links
            assert place in page.ids
            assert place in notation.ids
            assert f"code/{name}.html#{place}" in notation.links
