"""The directive ``exercise``: a question whose answer is computed in the build and checked by the page.

``kind`` is ``number`` (``answer`` is an expression, ``tolerance`` relative), ``choice`` (the body's last list holds the
choices, ``answer`` is the place of the right one, from 1) or ``code`` (the body's fences ``start`` and ``solution``
hold what the reader is given and what is right; ``answer`` is an expression that must be false after the first and true
after the second). What follows a line ``+++`` is the explanation. Expressions see the names of the page's examples.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from _site import cells, page
from _site.elements import make, python
from _site.live import ExampleError, names_of
from _site.truth import is_true


class Exercise(SphinxDirective):
    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {
        "kind": lambda text: directives.choice(text, ("number", "choice", "code")),
        "answer": directives.unchanged_required,
        "tolerance": float,
        "start": directives.unchanged,
        "solution": directives.unchanged,
        "name": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        if "kind" not in self.options or "answer" not in self.options:
            raise self.error("an exercise needs the options kind and answer")
        lines = list(self.content)
        cut = lines.index("+++") if "+++" in lines else len(lines)
        question, fences = take_fences("\n".join(lines[:cut]))
        body, explanation = self._parse(question, 0), self._parse("\n".join(lines[cut + 1 :]), cut + 1)
        kind, data = self.options["kind"], {}
        inside: list[nodes.Node] = []
        if kind == "code":
            start = self.options.get("start", fences.get("start", ""))
            solution = self.options.get("solution", fences.get("solution", ""))
            answer = self._code_answer(start, solution)
            inside = [make("div", python(start), classes="exercise-code")]
            said: list[nodes.Node] = [python(solution)]
        elif kind == "choice":
            answer, said = self._choice_answer(body)
        else:
            value = float(self._value(self.options["answer"], names_of(self.env)))
            tolerance = self.options.get("tolerance", 0.01)
            answer, said = repr(value), [nodes.paragraph("", f"Answer: {spoken(value, tolerance)}")]
            data["data_tolerance"] = repr(tolerance)
        title = make("p", f"Exercise: {self.arguments[0]}", classes="exercise-title")
        folded = make("details", make("summary", "Answer"), *said, *explanation, classes="explanation")
        box = make("div", title, *body, *inside, folded, classes="exercise", data_kind=kind, data_answer=answer, **data)
        self.add_name(box)
        return [box]

    def _parse(self, text: str, offset: int) -> list[nodes.Node]:
        return self.parse_text_to_nodes(text, offset=self.content_offset + offset) if text.strip() else []

    def _value(self, expression: str, names: dict[str, Any]) -> Any:
        try:
            return eval(expression, names)
        except Exception as problem:
            raise ExampleError(f"{self.get_location()}: the answer {expression} raises {problem!r}") from problem

    def _choice_answer(self, body: list[nodes.Node]) -> tuple[str, list[nodes.Node]]:
        lists = [
            n for part in body for n in part.findall(lambda n: isinstance(n, nodes.bullet_list | nodes.enumerated_list))
        ]
        if not lists:
            raise ExampleError(f"{self.get_location()}: a choice needs a list in its body")
        lists[-1]["classes"].append("choices")
        right = int(self._value(self.options["answer"], names_of(self.env)))
        if not 1 <= right <= len(lists[-1].children):
            raise ExampleError(f"{self.get_location()}: the answer is {right}, of {len(lists[-1].children)} choices")
        return str(right), [nodes.paragraph("", "Answer: ", nodes.inline("", f"number {right} of the list"))]

    def _code_answer(self, start: str, solution: str) -> str:
        """The expression, after a look at both codes: each runs in a copy of the page's names."""
        for what, code, right in (("start", start, False), ("solution", solution, True)):
            if not code.strip():
                raise ExampleError(f"{self.get_location()}: an exercise of the kind code needs a fence {what}")
            names = dict(names_of(self.env))
            result = cells.run(code, names)
            if is_true(self.options["answer"], names) != right:
                wrong = f"after the {what} the answer must be {right}: {self.options['answer']}"
                raise ExampleError(f"{self.get_location()}: {wrong}\n{result.error or ''}")
        return str(self.options["answer"])


def take_fences(text: str) -> tuple[str, dict[str, str]]:
    """A text without its fences ``start`` and ``solution``, and what stood in them."""
    found: dict[str, str] = {}

    def keep(match: re.Match[str]) -> str:
        found[match[1]] = match[2]
        return ""

    return re.sub(r"^```(start|solution)\n(.*?)^```$", keep, text, flags=re.MULTILINE | re.DOTALL), found


def spoken(value: float, tolerance: float) -> str:
    """An answer as the page says it: a whole number in full, one that may be a tenth off as "about" one digit."""
    if value.is_integer():
        return f"{value:,.0f}"
    return f"about {value:.1g}" if tolerance >= 0.1 else page.number(value)
