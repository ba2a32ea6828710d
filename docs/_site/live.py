"""The directive ``live``: an example that is run in the build, and that the reader can edit and run in the page.

The examples of a page share one namespace, in their order. An example that raises fails the build, unless it has the
option ``raises``. One with the option ``static`` is run in the build alone, for what the browser has not got: no other
example may need it. With the option ``file`` the code is that of a file beside the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import SphinxError
from sphinx.util.docutils import SphinxDirective

from _site import cells
from _site.elements import make, python, raw


class ExampleError(SphinxError):
    """An example or an exercise that does not do what the page says."""

    category = "example"


def names_of(env: Any) -> dict[str, Any]:
    """The namespace of the page that is being read."""
    if "site_names" not in env.temp_data:
        env.temp_data["site_names"] = cells.namespace()
    found: dict[str, Any] = env.temp_data["site_names"]
    return found


class Live(SphinxDirective):
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "name": directives.unchanged_required,
        "hidden-code": directives.flag,
        "static": directives.flag,
        "raises": directives.flag,
        "file": directives.path,
    }

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        if "file" in self.options:
            _, path = self.env.relfn2path(self.options["file"])
            self.env.note_dependency(path)
            code = Path(path).read_text().rstrip()
        result = cells.run(code, names_of(self.env))
        if (result.error is not None) != ("raises" in self.options):
            wrong = result.error or "the example has the option raises, and did not raise"
            raise ExampleError(f"{self.get_location()}: {wrong}\n\n{code}")
        block: nodes.Element = python(code)
        if "hidden-code" in self.options:
            block = make("details", make("summary", "Code"), block, classes="hidden-code")
        kind = {f"data_{option}": "" for option in ("static", "raises") if option in self.options}
        output = make("div", raw(result.html), classes="cell-output")
        cell = make("div", block, output, classes="cell", **kind)
        self.add_name(cell)
        return [cell]
