r"""Mathematics as MathML, made in the build by docutils: read without a network and without JavaScript.

A formula that docutils cannot read is a warning, which the build treats as an error: write it with other commands, or
add the command to `REWRITTEN`.
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

REWRITTEN = [
    (r"\\mathrel\{\+\}=", r"\\boxplus "),  # a sign that nothing else uses, and then +=
    (r"\\dots\b", r"\\ldots"),
    (r"\\([bB]igg?)(?=\s*(?:\)|\]|\\\}|\\rangle|\\rfloor|\\rceil))", r"\\\1r"),
    (r"\\([bB]igg?)(?![a-zA-Z])", r"\\\1l"),
    (r"\\tr\b", r"\\operatorname{tr}"),
    (r"\\([td]?frac) ?(\d)(\d)", r"\\\1{\2}{\3}"),  # \frac12 is a half; docutils would read the number 12
]
"""What docutils does not know, in the words that it knows."""

ACCENT = re.compile(
    r"<munderover><mi>([^<]*)</mi>((?:<m[ino]>[^<]*</m[ino]>)|(?:<mrow>(?:(?!</?mrow).)*</mrow>))"
    r'(<mo stretchy="false">[^<]*</mo>)</munderover>'
)
"""A letter with an accent and a subscript: docutils puts the subscript under the letter, and it belongs beside it."""

APPLIED = "<mo>&ApplyFunction;</mo>"
SPACED = [
    (rf"(</m(?!o>)\w+>|<mo[^>]*>\)</mo>)(<mi[^>]*>[a-z]+</mi>{APPLIED})", r'\1<mspace width="0.17em"/>\2'),
    (rf"{APPLIED}(?!<mo|</)", APPLIED.replace("<mo", '<mo rspace="0.17em"')),
    (r"(<m(su[bp])><mi>[a-z]{2,}</mi><m[in]>[^<]*</m[in]></m\2>)(?!<mo|</|$)", r'\1<mspace width="0.17em"/>'),
]
"""The thin spaces around the name of a function, as in p log p, which MathML leaves out."""

MARKS = re.compile(r"[.,;:!?)\]’”]+")
"""What must not stand alone at the beginning of a line."""


def mathml(tex: str, block: bool = False) -> str:
    """A formula of LaTeX as MathML; raises MathError for what is not understood."""
    for pattern, words in REWRITTEN:
        tex = re.sub(pattern, words, tex)
    made = re.sub(r">\s+<", "><", tex2mathml(" ".join(tex.split()), as_block=block)).replace("⊞", "+=")
    made = ACCENT.sub(r"<msub><mover><mi>\1</mi>\3</mover>\2</msub>", made)
    for pattern, words in SPACED:
        made = re.sub(pattern, words, made)
    made = re.sub("<mo>([|‖])</mo>", r'<mo stretchy="false">\1</mo>', made)  # as tall as a letter
    return made.replace("<math ", f'<math alttext="{html.escape(tex, quote=True)}" ', 1)


def pieces(tex: str) -> list[str]:
    r"""The formulas of a display, cut at wide spaces (``\quad``), where a narrow page breaks the line."""
    found = []
    for formula in re.split(r"\n\s*\n", tex):
        depth, start = 0, 0
        for match in re.finditer(r"\\q?quad\b|\\begin|\\end|\\left|\\right(?![a-z])|(?<!\\)[{}]", formula):
            if "quad" in match[0]:
                if depth == 0:
                    found.append(formula[start : match.start()])
                    start = match.end()
            else:
                depth += 1 if match[0] in ("{", r"\begin", r"\left") else -1
        found.append(formula[start:])
    return [part.strip() for part in found if part.strip()]


def _made(node: Any, block: bool) -> str:
    try:
        return mathml(node.astext(), block)
    except MathError as problem:
        logger.warning("the formula %r is not understood: %s", node.astext(), problem, location=node)
        return f"<code>{html.escape(node.astext())}</code>"


def hold_marks(app: Any, tree: Any, docname: str) -> None:
    """Give the full stop or comma after a formula to the formula, because browsers break lines between the two."""
    if app.builder.format != "html":
        return
    for node in list(tree.findall(nodes.math)):
        after = node.next_node(siblings=True, descend=False)
        if isinstance(after, nodes.Text) and (marks := MARKS.match(after)):
            node["marks"] = marks[0]
            after.parent.replace(after, nodes.Text(after[marks.end() :]))


def visit_inline(translator: Any, node: Any) -> None:
    made = _made(node, block=False)
    if marks := node.get("marks"):
        made = f'<span class="whole">{made}{marks}</span>'
    translator.body.append(made)
    raise nodes.SkipNode


def visit_block(translator: Any, node: Any) -> None:
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    formulas = [nodes.math_block(part, part) for part in pieces(node.astext())]
    for formula in formulas:
        formula.source, formula.line = node.source, node.line
    inside = "".join(_made(formula, block=True) for formula in formulas)
    translator.body.append(translator.starttag(node, "div", CLASS="math scrolls") + number + inside + "</div>\n")
    raise nodes.SkipNode
