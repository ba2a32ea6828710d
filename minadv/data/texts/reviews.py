r"""Corpora of labelled and unlabelled documents: folders of text files, IMDB, Elec, and docstrings.

::

    corpus = load("imdb", data_dir="data")          # data/imdb/aclImdb_v1.tar.gz, or as `fetch.find` finds it
    corpus = load("folder", data_dir="mine")        # mine/train/{class}/*.txt, mine/test/{class}/*.txt, and,
                                                    # without labels, mine/train/unsup/*.txt
    corpus = load("elec", data_dir="data")          # data/elec/elec-25k-train.txt.tok and the rest of its files
    corpus = load("docstrings")                     # needs no file: see minadv.data.texts.docstrings

An archive is read from beginning to end and never unpacked (`minadv.data.archives`). The error for a malformed file
names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from minadv.base.checks import expect_choice
from minadv.base.errors import DataError, DataWarning
from minadv.data.archives import members
from minadv.data.fetch import REMOTES, data_root, find, locate
from minadv.data.files import content, expect_folder, expect_no_nul
from minadv.data.texts import docstrings, encoded
from minadv.data.texts.documents import Corpus, Options, Part, Source, Text, expect_classes
from minadv.data.vocabulary import Vocabulary

NAMES = ("docstrings", "imdb", "elec", "folder")
UNLABELLED = "unsup"
ELEC_FILES = ("elec-25k-train.txt.tok", "elec-25k-train.cat", "elec-test.txt.tok", "elec-test.cat")
ELEC_CLASSES = ("1", "2")
BOM = "\ufeff".encode()  # the mark that some editors put at the beginning of a file

PartAndClass: TypeAlias = tuple[Part, str | None]


def load(
    name: str,
    *,
    data_dir: str | Path | None = None,
    options: Options | None = None,
    vocabulary: Vocabulary | None = None,
    cache: bool = True,
) -> Corpus:
    """The corpus of that name, its words numbered by ``vocabulary`` if given; ``cache=False`` uses no kept corpus."""
    options = Options() if options is None else options
    return encoded.corpus_of(source(name, data_dir), options, vocabulary, cache=cache)


def source(name: str, data_dir: str | Path | None = None) -> Source:
    """Where the texts of that corpus are; raises DataError if they are not there."""
    expect_choice("name", name, NAMES)
    if name == "docstrings":
        return docstrings.source()
    if name == "elec":
        return elec(_elec_folder(data_dir))
    if name == "imdb":
        path = _imdb(data_dir)
        return folder(path, "imdb") if path.is_dir() else archive(path)
    if data_dir is None:
        raise DataError("no folder is given: name the one that holds train/ and test/ with --data-dir")
    return folder(data_root(data_dir))


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
                here = {file: where for file in files if (where := _part_and_class(file)) is not None}
                documents.update(here)
                if f"{part}/{path.name}" != f"train/{UNLABELLED}":
                    counts[part][path.name] = len(here)
    expect_classes(counts["train"], counts["test"], str(root))

    def texts() -> Iterator[Text]:
        for file, part_and_class in sorted(documents.items()):
            yield Text(*part_and_class, file, _decode(content(root / file), root / file))

    return Source(name, str(root), "words", lambda: encoded.of_files({file: root / file for file in documents}), texts)


def archive(path: Path, name: str = "imdb", root: str = "aclImdb") -> Source:
    """The documents of a tar archive, compressed by gzip or not: the files that `folder` reads, below ``root``."""

    def texts() -> Iterator[Text]:
        for member, held in members(path):
            file = member.removeprefix(f"{root}/")
            part_and_class = _part_and_class(file) if file != member else None
            if part_and_class is not None:
                yield Text(*part_and_class, file, _decode(held, f"{path}: {member}"))

    return Source(name, str(path), "words", lambda: encoded.of_file(path), texts)


def elec(root: Path) -> Source:
    """Elec: a review a line, cut into words already, in UTF-8 or else Latin-1; a label a line; unlabelled lines.

    Unlabelled reviews that are among the labelled ones, of training or test, or that come again, are removed. Without
    files of unlabelled reviews there is a warning.
    """
    unlabelled = sorted(path.name for path in root.glob("elec-25k-unlab*.txt.tok"))
    lacks = [file for file in ELEC_FILES if not (root / file).is_file()]
    if lacks:
        raise DataError(f"{root} lacks {', '.join(lacks)}, expected there for elec")
    if not unlabelled:
        warnings.warn(
            f"{root} has no elec-25k-unlab*.txt.tok: there are no unlabelled reviews to learn from",
            DataWarning,
            stacklevel=2,
        )

    def texts() -> Iterator[Text]:
        parts: tuple[tuple[Part, str], ...] = (("train", "elec-25k-train"), ("test", "elec-test"))
        for part, name in parts:
            lines, labels = _lines(root / f"{name}.txt.tok"), _lines(root / f"{name}.cat")
            if len(lines) != len(labels):
                raise DataError(
                    f"{root / name}.cat holds {len(labels)} labels, expected {len(lines)}, one for each line of "
                    f"{name}.txt.tok"
                )
            for n, (line, label) in enumerate(zip(lines, labels, strict=True), 1):
                if label.strip() not in ELEC_CLASSES:
                    raise DataError(f"line {n} of {root / name}.cat is {label!r}, expected a label, 1 or 2")
                yield Text(part, label.strip(), f"{name}.txt.tok", line, n)
        for file in unlabelled:
            for n, line in enumerate(_lines(root / file), 1):
                yield Text("unlabelled", None, file, line, n)

    files = {file: root / file for file in (*ELEC_FILES, *unlabelled)}
    return Source("elec", str(root), "spaces", lambda: encoded.of_files(files), texts, unique=True)


def _part_and_class(file: str) -> PartAndClass | None:
    """The part and class of ``train/pos/0_9.txt``; None for a file that is no document."""
    names = file.split("/")
    if len(names) != 3 or names[0] not in ("train", "test") or not names[2].endswith(".txt"):
        return None
    if names[1].startswith(".") or names[2].startswith("."):  # what file managers leave behind
        return None
    if names[:2] == ["train", UNLABELLED]:
        return "unlabelled", None
    return "train" if names[0] == "train" else "test", names[1]


def _decode(held: bytes, where: str | Path) -> str:
    """The text of UTF-8 bytes, without the mark that some editors put at its beginning."""
    expect_no_nul(held, where)
    try:
        return held.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8: byte 0x{held[error.start]:02x} at offset {error.start}") from error


def _lines(path: Path) -> list[str]:
    """The lines of a file, which end at newlines only, each read as UTF-8, or as Latin-1 if it is not UTF-8."""
    held = content(path).removeprefix(BOM)
    expect_no_nul(held, path)
    return [_line(line.removesuffix(b"\r")) for line in held.removesuffix(b"\n").split(b"\n")] if held else []


def _line(held: bytes) -> str:
    try:
        return held.decode()
    except UnicodeDecodeError:
        return held.decode("latin-1")


def _imdb(data_dir: str | Path | None) -> Path:
    """The archive of IMDB or the folder that was unpacked from it."""
    root = data_root(data_dir)
    if data_dir is not None and (root / "train").is_dir():
        return root  # --data-dir aclImdb
    here = find("imdb", data_dir)
    remote = REMOTES["imdb"]
    packed = [path for file in remote.files if (path := locate(here, file)) is not None]
    return [*packed, *(here / name for name in remote.instead if (here / name).exists())][0]


def _elec_folder(data_dir: str | Path | None) -> Path:
    root = data_root(data_dir)
    for here in (root, root / "elec"):
        if (here / ELEC_FILES[0]).is_file():
            return here
    raise DataError(
        f"neither {root} nor {root / 'elec'} holds {ELEC_FILES[0]}: get {', '.join(ELEC_FILES)} and "
        "elec-25k-unlab*.txt.tok of Elec (Johnson and Zhang) and name their folder with --data-dir"
    )
