r"""The corpus that needs no download: tell which library a docstring comes from.

The classes are NumPy, SciPy and four groups of modules of Python's standard library, all of which every installation of
minadv has. Docstrings are read from the source files, which are parsed and not imported. Most of their labels are
hidden: these are the unlabelled part.

What would give the answer away is taken out: the names of the libraries and of their modules become ``NAME``, wherever
they stand. A docstring that repeats others, with more than half of its runs of five words in docstrings that are kept
already, is left out, so that boilerplate is not in training and test at once. A docstring's part is a function of the
SHA-256 of its text: a new version of a library moves no docstring that stays as it is.

The text depends on the versions of Python, NumPy and SciPy; results on it can be compared only where the fingerprint of
the vocabulary is the same.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from minadv.base.errors import DataError
from minadv.data.texts import encoded
from minadv.data.texts.documents import Part, Source, Text
from minadv.data.vocabulary import words

CLASSES = {
    "numpy": "numpy",
    "scipy": "scipy.cluster scipy.fft scipy.integrate scipy.interpolate scipy.linalg scipy.ndimage scipy.optimize "
    "scipy.signal scipy.spatial",
    "concurrency": "asyncio concurrent contextvars multiprocessing queue sched selectors signal subprocess threading",
    "files": "base64 bz2 codecs configparser csv encodings filecmp fileinput fnmatch glob gzip json logging lzma "
    "ntpath os pathlib pickle pickletools plistlib posixpath _pyio shelve shutil stat tarfile tempfile xml zipfile",
    "internet": "cgi cgitb email ftplib html http imaplib ipaddress mailbox mimetypes netrc nntplib poplib smtplib "
    "socket socketserver ssl telnetlib urllib uuid webbrowser wsgiref xmlrpc",
    "language": "ast bdb cmd code codeop compileall copy dis doctest enum functools importlib inspect keyword lib2to3 "
    "modulefinder opcode pdb pkgutil pyclbr pydoc reprlib runpy symtable timeit token tokenize trace traceback types "
    "typing unittest weakref zipimport",
}
"""The packages and modules of each class; those that a version of Python lacks are passed over."""

SKIPPED = {"tests", "test", "distutils", "f2py", "testing", "__pycache__", "_vendor"}
SHORTEST = 10  # words
MOST = 1500  # docstrings of a class
RUN = 5  # words
TEST, LABELLED = 0.2, 0.25  # shares of all; the rest is unlabelled
MASK = "NAME"

NAMES = {"np", *(name.strip("_") for modules in CLASSES.values() for name in re.split(r"[ .]", modules))}
"""What becomes ``NAME``: every name of a library or module among the classes, in any case, and ``np``."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_PIECE = re.compile(r"[^\W_]+")
_UNDERLINE = re.compile(r"^\s*([-=~^*#+])\1{2,}\s*$", re.MULTILINE)


def source() -> Source:
    """The docstrings of the installed libraries as a source of texts."""
    files = {f"{label}/{name}": path for label in CLASSES for name, path in _files(label).items()}

    def fingerprint() -> str:
        return encoded.of_files(files)

    return Source("docstrings", "the installed libraries", "words", fingerprint, lambda: choose(_read(files)))


def choose(found: list[Text], most: int = MOST) -> Iterator[Text]:
    """The docstrings that are long enough and repeat no other, at most ``most`` of a class, each in its part.

    They are looked at in the order of their SHA-256, so that which are kept depends on nothing but the texts.
    """
    masked = [replace(text, text=mask(text.text)) for text in found if _is_long(text.text)]
    kept: Counter[str | None] = Counter()
    seen: set[bytes] = set()
    for digest, text in sorted(((_digest(text.text), text) for text in masked), key=lambda pair: pair[0]):
        if kept[text.label] < most and _is_new(words(text.text.lower()), seen):
            kept[text.label] += 1
            part = part_of(digest)
            yield replace(text, part=part, label=None if part == "unlabelled" else text.label)


def part_of(digest: bytes) -> Part:
    """The part of the docstring with this SHA-256, which is read as a number in [0, 1)."""
    fraction = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if fraction < TEST else "train" if fraction < TEST + LABELLED else "unlabelled"


def mask(text: str) -> str:
    """The text with ``NAME`` for each name of a library or module, and without the lines that underline headings."""
    return _PIECE.sub(lambda found: MASK if found[0].lower() in NAMES else found[0], _UNDERLINE.sub("", text))


def docstrings(content: bytes) -> list[tuple[int, str]]:
    """The docstrings of a source file, each with the line of its owner; none if the file cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of bad escapes in strings, which others wrote
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node)
            if text:
                found.append((getattr(node, "lineno", 1), text))
    return sorted(found)


def _read(files: dict[str, Path]) -> list[Text]:
    return [
        Text("train", name.split("/")[0], name, text, line)
        for name, path in files.items()
        for line, text in docstrings(path.read_bytes())
    ]


def _files(label: str) -> dict[str, Path]:
    """The source files of a class by their paths below the library's root, sorted; raises DataError for none."""
    found: dict[str, Path] = {}
    for module in CLASSES[label].split():
        root = _root(module.split(".")[0])
        path = root / Path(*module.split("."))
        inside = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        names = {file.relative_to(root).as_posix(): file for file in inside if file.is_file()}
        found.update((name, file) for name, file in names.items() if not SKIPPED & set(name.split("/")))
    if not found:
        raise DataError(f"the source files of {label} ({CLASSES[label]}) are not installed with this Python")
    return dict(sorted(found.items()))


def _root(package: str) -> Path:
    """The folder that a package or a module of the standard library lies in; the package is not imported."""
    if package not in ("numpy", "scipy"):
        return Path(sysconfig.get_paths()["stdlib"])
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"{package} is not installed, expected as a part of minadv's installation")
    return Path(spec.origin).parent.parent


def _digest(text: str) -> bytes:
    return hashlib.sha256(" ".join(words(text)).encode()).digest()


def _is_long(text: str) -> bool:
    return sum(word[0].isalpha() for word in text.split()) >= SHORTEST


def _is_new(tokens: list[str], seen: set[bytes]) -> bool:
    """Whether at most half of a docstring's runs of `RUN` words are in ``seen``; if so, all of them are added to it."""
    runs = {
        hashlib.blake2b(" ".join(tokens[n : n + RUN]).encode(), digest_size=8).digest()
        for n in range(max(1, len(tokens) - RUN + 1))
    }
    if 2 * len(runs & seen) > len(runs):
        return False
    seen |= runs
    return True
