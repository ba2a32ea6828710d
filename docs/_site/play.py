"""The pages that one plays with, and those that are made of results: their directives, styles and scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from _site import explorer_page, museum_page, results_page

ASSETS = {"explorer": (explorer_page.DATA, "explorer.js"), "museum": ("museum.js",)}
"""Scripts of single pages, in order."""


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("explorer", explorer_page.Explorer)
    app.add_directive("explorer-more-maps", explorer_page.MoreMaps)
    app.add_directive("museum", museum_page.Museum)
    for name in ("Beside", "Compared", "Effects", "Fold", "Opening", "Report", "Summary", "Verdict"):
        app.add_directive(name.lower(), getattr(results_page, name))
    app.add_css_file("explorer.css")
    app.connect("env-updated", write)
    app.connect("html-page-context", add_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def write(app: Any, env: Any) -> None:
    """Write what the explorer begins with beside the site's other static files."""
    if app.builder.format == "html" and "explorer" in env.found_docs:
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / explorer_page.DATA).write_text(explorer_page.script(), encoding="utf-8")


def add_scripts(app: Any, pagename: str, templatename: str, context: Any, doctree: Any) -> None:
    """Give a page the scripts that it alone needs."""
    for name in ASSETS.get(pagename, ()):
        app.add_js_file(name, loading_method="defer")
