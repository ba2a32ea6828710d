"""What Sphinx is told: the directives, the mathematics, and which of the live parts this build has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging

from _site import elements, mathematics, parts
from _site.exercise import Exercise
from _site.live import Live
from _site.sidebyside import SideBySide, link_notation

logger = logging.getLogger(__name__)

NOTES = {
    "no": "This build has no live code: it was made without npm. The results are those of the build.",
    "yes": "The results are those of the build. With JavaScript, and served, the page can edit and run its code.",
}
SERVED = "{} The first run loads about 9 MB: Python, NumPy and minadv; nothing is sent."
EXAMPLES = "Examples can be edited and run here."
LINES = "Click on a line to change it, and press Check to hold the file against its check."
FONT_FACE = '@font-face { font-family: "STIX Two Math"; src: url("stix-two-math.woff2"); font-display: swap; }\n'
FROM_FILE = (
    "These pages were opened as files. To run and edit examples, serve the FOLDER of index.html, "
    "python -m http.server -d FOLDER, and open http://localhost:8000."
)


def setup(app: Any) -> dict[str, Any]:
    pair = (elements.ignore, elements.ignore)
    html = (elements.visit_html, elements.depart_html)
    app.add_node(elements.element, html=html, text=pair, latex=pair, man=pair, texinfo=pair)
    app.add_html_math_renderer("mathml", (mathematics.visit_inline, None), (mathematics.visit_block, None))
    app.add_directive("live", Live)
    app.add_directive("exercise", Exercise)
    app.add_directive("sidebyside", SideBySide)
    app.connect("doctree-read", link_notation)
    app.add_config_value("live_parts", False, "html", bool)
    app.connect("builder-inited", look_for_parts)
    app.connect("doctree-resolved", add_note)
    app.connect("doctree-resolved", mathematics.hold_marks)
    app.connect("html-page-context", add_meta)
    app.connect("build-finished", write_parts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def look_for_parts(app: Any) -> None:
    """Decide whether this build is live: it was asked to be, and npm or the cache has the parts."""
    app.has_live_parts = False
    if app.config.live_parts and app.builder.format == "html":
        try:
            for name in parts.SERVED:
                parts.fetch(name)
            app.has_live_parts = True
        except parts.PartsMissing as why:
            logger.info("the site is built without its live parts: %s", why)
    if app.has_live_parts:
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / "stix-two-math.woff2").write_bytes(parts.font())
        (static / "font.css").write_text(FONT_FACE)
        app.add_css_file("font.css")


def served(node: Any) -> str:
    """What can be done with the first thing of a page that can be run, where it is live."""
    return SERVED.format(LINES if "sidebyside" in node["classes"] else EXAMPLES)


def add_note(app: Any, tree: Any, docname: str) -> None:
    """One line above the first thing of a page that can be run."""
    for node in tree.findall(elements.element):
        if node["attributes"].get("data-kind") == "code" or {"cell", "sidebyside"} & set(node["classes"]):
            live = "yes" if app.has_live_parts else "no"
            note = elements.make("p", NOTES[live], classes="site-note", data_file=FROM_FILE)
            if app.has_live_parts:
                note["attributes"]["data-served"] = served(node)
            node.parent.insert(node.parent.index(node), note)
            return


def add_meta(app: Any, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    live = "yes" if app.has_live_parts else "no"
    context["metatags"] = context.get("metatags", "") + f'<meta name="minadv-live" content="{live}">'


def write_parts(app: Any, problem: Exception | None) -> None:
    if problem is not None or not app.has_live_parts:
        return
    sizes = parts.assemble(Path(app.outdir) / "_static" / "live")
    logger.info("live parts: %.1f MB in %d files", sum(sizes.values()) / 1e6, len(sizes))
