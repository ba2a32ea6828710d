"""The tables in docs/ and the code say the same: equation tags, differences from the paper, modules.

A tag is a comment that begins with `Eq. 6`, `Alg. 1`, `Prop. 1` or `Remark 1`, at the end of the line that implements
it. Files are named as they lie in minadv/: `lstm.py`, `models/classifier.py`.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "minadv"
TAG = re.compile(r"(?:Eq\.|Alg\.|Prop\.|Remark) \d+")
NOTE = "Differs from the paper:"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}

Tags = dict[tuple[str, str], int]


def tags_in(source: str) -> list[tuple[str, int]]:
    """The tags of a source text with their lines; `# type: ignore  # Eq. 6` and `# Eq. 6, Alg. 1` count as well."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for comment in token.string.split("#"):
                if TAG.match(comment.strip()):
                    found += [(tag, token.start[0]) for tag in TAG.findall(comment)]
    return found


def notes_in(source: str) -> list[tuple[str, int]]:
    """The notes in comments and docstrings: the function or class around each (outermost), and its line."""
    scopes = [
        (node.lineno, node.end_lineno or node.lineno, node.name)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    lines = [n for n, line in enumerate(source.splitlines(), 1) if NOTE in line]
    return [(next((name for first, last, name in scopes if first <= n <= last), ""), n) for n in lines]


def names_in(source: str) -> set[str]:
    """Every function, class, argument and constant that a source text defines."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def table(text: str, *columns: str) -> list[list[str]]:
    """The rows of the Markdown tables with these column heads."""
    rows: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if [cell.lower() for cell in cells] == list(columns):
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(line) <= set("|-: "):
            assert len(cells) == len(columns), f"{len(cells)} cells instead of {len(columns)} in: {line}"
            rows.append(cells)
    assert rows, f"no table with the columns {columns}"
    return rows


def files_in(cell: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", cell)


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def equation_rows() -> set[tuple[str, str]]:
    rows = table(read("notation.md"), "equation", "what", "files")
    return {(tag, file) for equation, _, files in rows for tag in TAG.findall(equation) for file in files_in(files)}


def tagged() -> Tags:
    return {(tag, file): line for file, source in SOURCES.items() for tag, line in tags_in(source)}


def test_each_tag_has_its_row() -> None:
    rows = equation_rows()
    missing = [
        f"minadv/{file}:{line} is tagged {tag}: name `{file}` in the row of {tag}"
        for (tag, file), line in tagged().items()
        if (tag, file) not in rows
    ]
    assert not missing, "\n".join(["missing in the table of equations of docs/notation.md", *missing])


def test_each_row_has_its_line() -> None:
    found = tagged()
    missing = [
        f"the row of {tag} names `{file}`, in which no comment begins with {tag}"
        for tag, file in sorted(equation_rows())
        if (tag, file) not in found
    ]
    assert not missing, "\n".join(["too much in the table of equations of docs/notation.md", *missing])


def test_symbols_name_files_that_exist() -> None:
    for symbol, _, _, _, files in table(read("notation.md"), "symbol", "name in code", "shape", "equation", "file"):
        unknown = [file for file in files_in(files) if file not in SOURCES]
        assert not unknown, f"docs/notation.md, row of {symbol}: there is no minadv/{unknown[0]}"
        assert files_in(files), f"docs/notation.md, row of {symbol}: names no file"


def difference_rows() -> list[list[str]]:
    return table(read("differences.md"), "point", "paper", "released code", "minadv", "file")


def test_each_difference_has_its_row() -> None:
    rows = [row[-1] for row in difference_rows()]
    missing = []
    for file, source in SOURCES.items():
        for name, line in notes_in(source):
            if not any(f"`{file}`" in cell and (not name or f"`{name}`" in cell) for cell in rows):
                missing.append(
                    f"minadv/{file}:{line}: a row whose last cell holds `{file}`" + f" and `{name}`" * bool(name)
                )
    assert not missing, "\n".join(["missing in docs/differences.md", *missing])


def test_each_difference_names_what_is_there() -> None:
    for point, *_, cell in difference_rows():
        files = files_in(cell)
        assert files, f"docs/differences.md, row {point}: the last cell names no file"
        unknown = [file for file in files if file not in SOURCES]
        assert not unknown, f"docs/differences.md, row {point}: there is no minadv/{unknown[0]}"
        known = set().union(*(names_in(SOURCES[file]) for file in files))
        strangers = [name for name in re.findall(r"`(\w+)`", cell) if name not in known]
        assert not strangers, f"docs/differences.md, row {point}: {', '.join(files)} has no {strangers[0]}"


def module_of(file: str) -> str:
    return ".".join(["minadv", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


def defines(source: str) -> bool:
    """Whether a source text has functions or classes of its own."""
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(source).body)


def test_each_module_is_in_the_api() -> None:
    named = set(re.findall(r"^\.\. automodule:: (\S+)$", read("api.md"), re.MULTILINE))
    modules = {module_of(file) for file, source in SOURCES.items() if not file.endswith("__.py") or defines(source)}
    modules.discard("minadv")
    assert not modules - named, f"docs/api.md lacks {', '.join(sorted(modules - named))}"
    assert not named - modules, f"docs/api.md has {', '.join(sorted(named - modules))}, which is not in minadv/"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "code").glob("*.md")), ids=lambda page: page.stem)
def test_each_note_names_a_line(page: Path) -> None:
    """Each line `@@ TEXT` of docs/code/NAME.md is about the next line of NAME.py that holds TEXT."""
    lines, at = SOURCES.get(f"{page.stem}.py", "").splitlines(), 0
    for anchor in re.findall(r"^@@ +(.*?) *$", page.read_text(), re.MULTILINE):
        rest = [n for n in range(at, len(lines)) if anchor in lines[n]]
        assert rest, f"docs/code/{page.name}: minadv/{page.stem}.py has no {anchor!r} after line {at}: correct the note"
        at = rest[0] + 1


def test_a_test_that_is_skipped_names_files_that_are_there() -> None:
    """Its reason may say which tests stand in for it."""
    sources = [path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))]
    reasons = [reason for source in sources for reason in re.findall(r'pytest\.skip\(f?"(.*?)"\)', source)]
    named = [name for reason in reasons for name in re.findall(r"[\w/]*test_\w+\.py", reason)]
    assert len(named) >= 6
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        ("x = 1  # Eq. 6\n", ["Eq. 6"]),
        ("x = 1  # type: ignore[x]  # Eq. 6\n", ["Eq. 6"]),
        ("x = 1  # Eq. 5, Remark 1\n", ["Eq. 5", "Remark 1"]),
        ("x = 1  # as in Eq. 6\n", []),
        ('x = "# Eq. 6"\n', []),
        ("x = 1  # Eq. 12: a sum\n", ["Eq. 12"]),
    ],
)
def test_what_counts_as_a_tag(source: str, tags: list[str]) -> None:
    assert [tag for tag, _ in tags_in(source)] == tags


def test_what_counts_as_a_note() -> None:
    source = f'x = 1  # {NOTE} a\n\n\ndef f():\n    """{NOTE} b."""\n    return 1  # {NOTE} c\n'
    assert notes_in(source) == [("", 1), ("f", 5), ("f", 6)]
