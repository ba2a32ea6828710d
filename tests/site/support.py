"""What the tests of the site share: the live parts, Node, and the examples of the pages."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from _site import parts

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def have(name: str) -> Path:
    """A program's path, or the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} on this machine")
    return Path(found)


def fetched(*names: str) -> None:
    """The packages are in the cache or come from npm, or the test is skipped."""
    try:
        for name in names:
            parts.fetch(name)
    except parts.PartsMissing as why:
        pytest.skip(str(why))


@dataclass(frozen=True)
class Example:
    """An example of a page, or an exercise's answer with the expression that must be true after it."""

    code: str
    raises: bool = False
    answer: str | None = None


FENCE = re.compile(r"^(`{3,})\{(live|exercise)\}[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^:([\w-]+):\s*(.*)$")


def examples(text: str) -> list[Example]:
    """The examples and the solutions of a page that the browser can run, in order."""
    found = []
    for _, kind, inside in FENCE.findall(text):
        lines = inside.splitlines()
        options = {}
        while lines and (option := OPTION.match(lines[0])):
            options[option[1]] = option[2]
            lines.pop(0)
        if kind == "live" and "static" not in options:  # a static example runs in the build alone
            code = (DOCS / options["file"]).read_text() if "file" in options else "\n".join(lines)
            found.append(Example(code, raises="raises" in options))
        elif kind == "exercise" and options.get("kind") == "code":
            solution = re.search(r"^```solution\n(.*?)^```$", inside, re.MULTILINE | re.DOTALL)
            assert solution is not None
            found.append(Example(solution[1], answer=options["answer"]))
    return found


def pages() -> dict[str, list[Example]]:
    """Every page with examples, by its path under docs/."""
    files = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
    found = {path.relative_to(DOCS).as_posix(): examples(path.read_text()) for path in files}
    return {name: codes for name, codes in found.items() if codes}
