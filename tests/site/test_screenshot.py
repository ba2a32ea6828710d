"""The README's picture of the explorer is of the sources as they are."""

from _site import screenshot

from tests.site.support import ROOT


def test_the_picture_is_of_these_sources() -> None:
    kept = screenshot.PICTURE.with_suffix(".png.sources").read_text().strip()
    told = "the explorer has changed: sphinx-build docs SITE && python -m docs._site.screenshot SITE"
    assert kept == screenshot.fingerprint(), told


def test_the_readme_shows_the_picture_and_its_command() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "(docs/explorer.png)" in readme
    assert "`python -m docs._site.screenshot SITE`" in readme
    assert screenshot.PICTURE.read_bytes().startswith(b"\x89PNG")
    assert screenshot.PICTURE.stat().st_size < 300_000
