"""A second minadv in memory, some of whose files have another text: what `kernel.edit` does in the page's worker."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any


class _Edited(importlib.machinery.SourceFileLoader):
    """Loads a module from a text in the place of its file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: Mapping[str, str]) -> None:
        self.edits = edits

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self.edits:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"there is no module {name} to edit")
        loader = _Edited(name, found.origin, self.edits[name])
        package = Path(found.origin).name == "__init__.py"
        search = [str(Path(found.origin).parent)] if package else None
        return importlib.util.spec_from_file_location(
            name, found.origin, loader=loader, submodule_search_locations=search
        )


def module_of(file: str) -> str:
    """The name of the module in a file of minadv/: ``models/stack.py`` is ``minadv.models.stack``."""
    return ".".join(["minadv", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


@contextmanager
def planted(texts: Mapping[str, str]) -> Iterator[None]:
    """Within this context ``import minadv`` is a new copy, in which files of minadv/ have other texts."""
    ours = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "minadv"}
    finder = _Finder({module_of(file): text for file, text in texts.items()})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "minadv"]:
            del sys.modules[name]
        sys.modules.update(ours)


def printed(*programs: str) -> list[str]:
    """What each of several programs prints, run one after the other in one namespace."""
    names: dict[str, Any] = {"__name__": "demonstration"}
    texts = []
    for program in programs:
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile(program, "<demonstration>", "exec", dont_inherit=True), names)
        texts.append(output.getvalue().rstrip())
    return texts
