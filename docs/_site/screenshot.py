"""The README's picture of the explorer.

``python -m docs._site.screenshot SITE``, from the root of the clone, takes it of a site that ``sphinx-build docs SITE``
has built, with Node and Chromium, and writes docs/explorer.png; docs/explorer.png.sources says of which sources. A test
compares those with the sources as they are, and says when the picture must be taken again.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "explorer.png"
SOURCES = (
    *("_site/explorer.py", "_site/explorer_page.py", "_site/network.py"),
    *("_site/static/explorer.js", "_site/static/explorer.css"),
)
"""What the picture shows is made of these."""

SCRIPT = """
const [packages, executablePath, url, file] = process.argv.slice(1);
const { chromium } = require(`${packages}/playwright-core`);
(async () => {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width: 1280, height: 1900 }, colorScheme: "light" });
  await page.goto(url);
  await page.waitForSelector("#explorer[data-ready]");
  await page.locator(".ex-digits input").nth(4).check();
  await page.locator(".ex-compare tbody button").nth(7).click();
  await page.locator(".ex-steps [data-key=next]").click();
  await page.evaluate(() => scrollTo(0, 0));
  const from = await page.locator(".ex-settings").boundingBox();
  const to = await page.locator(".ex-landscape").boundingBox();
  const clip = { x: from.x - 12, y: from.y - 12, width: from.width + 24, height: to.y + to.height - from.y + 20 };
  await page.screenshot({ path: file, clip });
  await browser.close();
})();
"""


def fingerprint() -> str:
    """The hash of the sources, as the file beside the picture has it."""
    content = b"".join((DOCS / name).read_bytes() for name in SOURCES)
    return hashlib.sha256(content).hexdigest()


def take(site: Path) -> None:
    """Take the picture of a built site."""
    if str(DOCS) not in sys.path:
        sys.path.insert(0, str(DOCS))
    from _site import parts

    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None:
        raise SystemExit("this needs node and chromium on the path")
    with tempfile.TemporaryDirectory() as folder:
        parts.unpack("playwright-core", Path(folder))
        url = (site / "explorer.html").resolve().as_uri()
        subprocess.run([node, "-e", SCRIPT, folder, chromium, url, PICTURE], check=True)
    PICTURE.with_suffix(".png.sources").write_text(fingerprint() + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the folder of the built site")
    take(parser.parse_args().site)
