r"""Folders of text files, a document a file, and how such folders are cut into parts where they are not cut already.

::

    folder(Path("films"))       # films/train/CLASS/*.txt, films/test/CLASS/*.txt; unlabelled: films/train/unsup/*.txt
    own(Path("mine"), 0.2)      # the same; or mine/CLASS/*.txt; or a table of texts and labels: a fifth is for the test

Files end in ``.txt`` or ``.md``. `minadv.data.texts.tables` reads tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from minadv.base.errors import DataError
from minadv.base.streams import permutation, stream
from minadv.data.files import content, expect_folder, expect_no_nul, tell_links
from minadv.data.texts import encoded, tables
from minadv.data.texts.documents import Part, Source, Text, expect_classes

UNLABELLED = "unsup"
SUFFIXES = (".txt", ".md")
FEWEST = 3  # documents of a class: one each to train, to validate and to test
EXPECTED = (
    "CLASS/*.txt, train/CLASS/*.txt and test/CLASS/*.txt, or one table, .csv, .tsv or .jsonl, of texts and labels"
)

PartAndClass: TypeAlias = tuple[Part, str | None]


def folder(root: Path, name: str = "folder") -> Source:
    """``train/{class}/*.txt``, ``test/{class}/*.txt`` and, without labels, ``train/unsup/*.txt`` of a folder."""
    counts: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    documents: dict[str, PartAndClass] = {}
    expect_folder(root)
    for part in ("train", "test"):
        if not (root / part).is_dir():
            raise DataError(f"{root} lacks the folder {part}, expected there with a folder for each class")
        for path in (root / part).iterdir():
            if path.is_dir() and not path.name.startswith("."):
                files = [f"{part}/{path.name}/{file.name}" for file in path.iterdir()]
                here = {file: where for file in files if (where := part_and_class(file)) is not None}
                documents.update(here)
                if f"{part}/{path.name}" != f"train/{UNLABELLED}":
                    counts[part][path.name] = len(here)
    tell_links(root, [root / file for file in documents])
    expect_classes(counts["train"], counts["test"], str(root))

    def texts() -> Iterator[Text]:
        for file, where in sorted(documents.items()):
            yield Text(*where, file, decode(content(root / file), root / file))

    return Source(name, str(root), "words", lambda: encoded.of_files({file: root / file for file in documents}), texts)


def own(root: Path, test_share: float) -> Source:
    """The texts of a user's own folder or table; without a part for the test, ``test_share`` of each class is it."""
    if root.is_file() or tables.inside(root):
        return _of_tables(root, test_share)
    expect_folder(root)
    if (root / "train").is_dir() and (root / "test").is_dir():
        return folder(root)
    below = root / "train" if (root / "train").is_dir() else root
    tell_links(root, _below(below))
    found = [(path.parent.name, path) for path in documents_below(below)]
    labelled = [(label, path) for label, path in found if label != UNLABELLED]
    if not labelled:
        raise DataError(f"{root} holds no texts by class: expected {EXPECTED}")
    tested = test_rows([label for label, _ in labelled], test_share, str(root))

    def texts() -> Iterator[Text]:
        for n, (label, path) in enumerate(labelled):
            held = decode(content(path), path)
            yield Text("test" if n in tested else "train", label, path.relative_to(root).as_posix(), held)
        for label, path in found:
            if label == UNLABELLED:
                yield Text("unlabelled", None, path.relative_to(root).as_posix(), decode(content(path), path))

    files = {path.relative_to(root).as_posix(): path for _, path in found}
    return Source("folder", str(root), "words", lambda: f"{encoded.of_files(files)} test {test_share!r}", texts)


def documents_below(root: Path) -> list[Path]:
    """The text files in the folders below a folder, by their names; hidden ones are left out."""
    return sorted(path for path in _below(root) if path.is_file())


def _below(root: Path) -> list[Path]:
    """The folders in a folder, and what has the name of a text file in them; hidden ones are left out."""
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    inside = (path for folder in folders for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    return [*folders, *(path for path in inside if not path.name.startswith("."))]


def test_rows(labels: Sequence[str], share: float, where: str) -> set[int]:
    """Which of these documents are for the test: the same share of each class, at least one, and two are left."""
    chosen: set[int] = set()
    for number, label in enumerate(sorted(set(labels))):
        rows = [n for n, other in enumerate(labels) if other == label]
        if len(rows) < FEWEST:
            had = f"{len(rows)} text{'s' * (len(rows) > 1)} of the class {label!r}"
            raise DataError(f"{where} has {had}, expected at least {FEWEST}: to train, to validate and to test")
        n = min(max(round(share * len(rows)), 1), len(rows) - 2)
        chosen.update(rows[k] for k in permutation(stream(0, "test share", number), len(rows))[:n].tolist())
    return chosen


def part_and_class(file: str) -> PartAndClass | None:
    """The part and class of ``train/pos/0_9.txt``; None for a file that is no document."""
    names = file.split("/")
    if len(names) != 3 or names[0] not in ("train", "test") or not names[2].lower().endswith(SUFFIXES):
        return None
    if names[1].startswith(".") or names[2].startswith("."):  # what file managers leave behind
        return None
    if names[:2] == ["train", UNLABELLED]:
        return "unlabelled", None
    return "train" if names[0] == "train" else "test", names[1]


def decode(held: bytes, where: str | Path) -> str:
    """The text of UTF-8 bytes, without the mark that some editors put at its beginning."""
    expect_no_nul(held, where)
    try:
        return held.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8: byte 0x{held[error.start]:02x} at offset {error.start}") from error


def _of_tables(root: Path, test_share: float) -> Source:
    """The texts of one table, or of a table ``train`` and one ``test``."""
    paths = {root.name: root} if root.is_file() else tables.inside(root)
    by_stem = {path.stem.lower(): path for path in paths.values()}
    if len(paths) > 1 and by_stem.keys() != {"train", "test"}:
        raise DataError(f"{root} holds the tables {', '.join(sorted(paths))}, expected one, or train and test")

    def texts() -> Iterable[Text]:
        if len(paths) > 1:
            for part in ("train", "test"):
                for text in tables.read(by_stem[part]):
                    yield text if text.label is None else replace(text, part="test" if part == "test" else "train")
            return
        [path] = paths.values()
        rows = list(tables.read(path))
        labelled = [n for n, text in enumerate(rows) if text.label is not None]
        some = test_rows([str(rows[n].label) for n in labelled], test_share, str(path))
        tested = {labelled[k] for k in some}
        for n, text in enumerate(rows):
            yield replace(text, part="test") if n in tested else text

    return Source("folder", str(root), "words", lambda: f"{encoded.of_files(paths)} test {test_share!r}", texts)
