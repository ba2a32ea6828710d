"""The directives of the results page: verdicts computed from the result files, tables beside the paper's, and folds.

``summary``: all comparisons in a figure and five sentences. ``verdict``: the paper's claims, one by one.
``beside NAME``: one of our tables with the paper's columns. ``report NAME``: what an experiment wrote, folded, with the
directive's body first. ``opening NAME``: the first list of that. ``compared``: both for every comparison
that there is. ``effects``: what the differences from the paper measure. ``fold TITLE``: its body, folded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from _site import effects, page, results, summary
from _site.elements import make, raw


class Markdown(SphinxDirective):
    """What the directives below have in common: Markdown becomes nodes."""

    def markdown(self, text: str, source: str) -> list[nodes.Node]:
        lines = StringList(text.splitlines(), source=source)
        box = nodes.Element()
        self.state.nested_parse(lines, self.content_offset, box)
        return list(box.children)

    def uses(self, name: str) -> None:
        """The page is made anew when a file of results has changed."""
        for ending in (".json", ".md"):
            self.env.note_dependency(str(results.RESULTS / f"{name}{ending}"))

    def fold(self, title: str, children: list[nodes.Node]) -> nodes.Node:
        return make("details", make("summary", title), *children, classes="fold")

    def report(self, name: str, title: str) -> nodes.Node:
        """What an experiment wrote, with its figure, folded."""
        self.uses(name)
        children = self.markdown(results.report(name), f"experiments/results/{name}.md")
        if (results.RESULTS / f"{name}.png").exists():
            path = f"../experiments/results/{name}.png"
            children += self.markdown(f"![The figure of {name}]({path})", self.env.docname)
        return self.fold(title, children)


class Fold(Markdown):
    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        box = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, box)
        return [self.fold(self.arguments[0], list(box.children))]


class Report(Markdown):
    has_content = True
    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"title": str}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        title = self.options.get("title", f"All of {name}: settings, seeds, tests, figure, machine and command")
        found = self.report(name, title)
        box = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, box)
        assert isinstance(found, nodes.Element)
        for child in reversed(list(box.children)):
            found.insert(1, child)
        return [found]


class Beside(Markdown):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        self.uses(name)
        head, rows = results.beside(name)
        return [*self.markdown(results.best(name), self.env.docname), raw(page.table(rows, head=head).html)]


class Verdict(Markdown):
    def run(self) -> list[nodes.Node]:
        found = [*results.papers(), *results.ours()]
        for path in sorted(results.RESULTS.glob("table[123]-*.json")):
            self.uses(path.stem)
        lines = "\n".join(f"- {line}" for line in results.summary(found))
        head, rows = results.claims(found)
        shown = page.table(rows, head=head, label="Each claim of the paper, in its own tables and in ours")
        return [
            *self.markdown(lines, self.env.docname),
            self.fold("Claim by claim, comparison by comparison", [raw(shown.html)]),
        ]


class Effects(Markdown):
    def run(self) -> list[nodes.Node]:
        for name in ("bounds", "search_quality"):
            self.uses(name)
        shown = page.table(effects.rows(), head=["difference", "measured", "from"])
        return [raw(shown.html)]


class Opening(Markdown):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.uses(self.arguments[0])
        return self.markdown(results.opening(self.arguments[0])[1], self.arguments[0])


class Summary(Markdown):
    def run(self) -> list[nodes.Node]:
        found = summary.comparisons()
        for name in found:
            self.uses(f"compare-{name}")
        left = [name for name in summary.TASKS if name not in found]
        lines = "\n".join(f"- {line}" for line in summary.sentences(found))
        text = f"{lines}\n\n{summary.shown(list(found), left)}"
        said = "Difference of the mean test result to that of none, in per cent of it, with 95 % intervals over seeds."
        drawn = make("figure", raw(summary.figure(found).html), make("figcaption", said), classes="shown")
        return [*self.markdown(text, self.env.docname), drawn]


class Compared(Markdown):
    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for path in sorted(Path(results.RESULTS).glob("compare-*.md")):
            title, verdict = results.opening(path.stem)
            found += self.markdown(f"**{title}**\n\n{verdict}", path.name)
            found.append(self.report(path.stem, f"All of {path.stem}"))
        if not found:
            text = "No comparison by the protocol has been written yet: `python -m experiments.compare TASK` makes one."
            found = self.markdown(text, self.env.docname)
        return found
