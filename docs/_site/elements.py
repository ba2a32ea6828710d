"""One kind of node for all directives: an HTML element around its children. Other builders write the children only."""

from __future__ import annotations

from typing import Any

from docutils import nodes


class element(nodes.General, nodes.Element):  # noqa: N801  # docutils' nodes are named so
    """``element(tag="div", classes=[...], attributes={"data-kind": "number"})``."""


def make(tag: str, *children: Any, classes: str = "", **attributes: str) -> element:
    """An element; ``data_kind="x"`` becomes the attribute ``data-kind``."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    made = element("", tag=tag, classes=classes.split(), attributes=named)
    made += [nodes.Text(child) if isinstance(child, str) else child for child in children]
    return made


def raw(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def python(code: str) -> nodes.literal_block:
    return nodes.literal_block(code, code, language="python")


def visit_html(translator: Any, node: Any) -> None:
    translator.body.append(translator.starttag(node, node["tag"], "", **node["attributes"]))


def depart_html(translator: Any, node: Any) -> None:
    translator.body.append(f"</{node['tag']}>\n")


def ignore(translator: Any, node: Any) -> None:
    """For builders other than HTML."""
