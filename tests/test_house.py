"""Who may import whom: a module imports its own rank and those below it, never above, and never in a circle.

Ranks: 0 the backend and base/, 1 the other flat files, 2 words/ and fast/, 3 models/ and data/, 4 training/, 5 tasks/,
6 commands/ and plots, 7 the doors (cli, __main__, __init__). Imports inside functions count as well.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "minadv"
FOLDERS = {"base": 0, "words": 2, "fast": 2, "models": 3, "data": 3, "training": 4, "tasks": 5, "commands": 6}
FILES = {"backend": 0, "plots": 6, "cli": 7, "__main__": 7, "__init__": 7}
STRANGERS = [("words", "fast"), ("models", "data")]  # of one rank, and yet they do not know each other
CELLS = {"minadv.rnn", "minadv.lstm", "minadv.gru"}

DOOR = {"minadv.fast"}
"""What may be imported from fast/ outside of it: models/stack has all that the door has, others these three names."""
THREE = {"describe", "limit_threads", "reusing"}


def module_of(path: Path) -> str:
    parts = ("minadv", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def folder(module: str) -> str:
    """The folder of minadv/ that a module lies in, or its own name if it lies flat."""
    return module.split(".")[1] if "." in module else "__init__"


def rank(module: str) -> int:
    top = folder(module)
    return FOLDERS[top] if top in FOLDERS else FILES.get(top, 1)


def imports(source: str, known: set[str]) -> Iterator[str]:
    """The modules of minadv that a source text imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "minadv")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "minadv":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def edges() -> set[tuple[str, str]]:
    known = set(MODULES)
    found = {(module, other) for module, path in MODULES.items() for other in imports(path.read_text(), known)}
    return {(module, "minadv.__init__" if other == "minadv" else other) for module, other in found}


def wrong(module: str, other: str) -> bool:
    if rank(other) > rank(module) or (module in CELLS and folder(other) == "fast"):
        return True
    pair = {folder(module), folder(other)}
    return any(pair == set(strangers) for strangers in STRANGERS)


def test_every_file_has_a_rank() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(FOLDERS)


def test_nothing_is_imported_from_above() -> None:
    found = sorted(edge for edge in edges() if wrong(*edge))
    assert not found, "\n".join(f"{a} imports {b}" for a, b in found)


def test_fast_has_one_door() -> None:
    """Only models/stack runs engines; others may describe them, limit their threads, and reuse their buffers."""
    wrong_ways = [f"{a} imports {b}" for a, b in edges() if folder(b) == "fast" != folder(a) and b not in DOOR]
    for module, path in MODULES.items():
        if folder(module) != "fast" and module != "minadv.models.stack":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module == "minadv.fast":
                    wrong_ways += [f"{module} imports {a.name} of fast" for a in node.names if a.name not in THREE]
    assert not wrong_ways, "\n".join(wrong_ways)


def test_nothing_is_imported_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for module, other in edges():
        parts = other.split(".")
        packages = {".".join(parts[:n]) for n in range(2, len(parts))}  # their __init__ runs first
        own = {package for package in packages if module == package or module.startswith(f"{package}.")}
        graph.setdefault(module, set()).update((packages & set(MODULES)) - own, {other} - {module})
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import minadv.fast\n", ["minadv.fast"]),
        ("from minadv import lstm\n", ["minadv.lstm"]),
        ("from minadv.lstm import Params\n", ["minadv.lstm"]),
        ("def f():\n    from minadv import lstm\n", ["minadv.lstm"]),
        ("import numpy\n", []),
    ],
)
def test_what_counts_as_an_import(source: str, found: list[str]) -> None:
    assert list(imports(source, {"minadv.lstm"})) == found
