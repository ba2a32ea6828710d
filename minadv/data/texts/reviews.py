r"""Corpora of labelled and unlabelled documents: folders of text files, IMDB, Elec, and docstrings.

::

    corpus = load("imdb", data_dir="data")          # data/imdb/aclImdb_v1.tar.gz, or as `fetch.find` finds it
    corpus = load("folder", data_dir="mine")        # texts of one's own: see minadv.data.texts.folders
    corpus = load("elec", data_dir="data")          # data/elec/elec-25k-train.txt.tok and the rest of its files
    corpus = load("docstrings")                     # needs no file: see minadv.data.texts.docstrings

An archive is read from beginning to end and never unpacked (`minadv.data.archives`). The error for a malformed file
names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from minadv.base.checks import expect_choice
from minadv.base.errors import DataError, DataWarning
from minadv.data.archives import members
from minadv.data.fetch import REMOTES, data_root, find, locate
from minadv.data.files import content, expect_no_nul
from minadv.data.texts import docstrings, encoded
from minadv.data.texts.documents import Corpus, Options, Part, Source, Text
from minadv.data.texts.folders import decode, folder, own, part_and_class
from minadv.data.vocabulary import Vocabulary

NAMES = ("docstrings", "imdb", "elec", "folder")
ELEC_FILES = ("elec-25k-train.txt.tok", "elec-25k-train.cat", "elec-test.txt.tok", "elec-test.cat")
ELEC_CLASSES = ("1", "2")
BOM = "\ufeff".encode()  # the mark that some editors put at the beginning of a file


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
    return encoded.corpus_of(source(name, data_dir, options.test_share), options, vocabulary, cache=cache)


def source(name: str, data_dir: str | Path | None = None, test_share: float = 0.2) -> Source:
    """Where the texts of that corpus are; raises DataError if they are not there.

    ``test_share`` is for a folder of one's own that has no part for the test.
    """
    expect_choice("name", name, NAMES)
    if name == "docstrings":
        return docstrings.source()
    if name == "elec":
        return elec(_elec_folder(data_dir))
    if name == "imdb":
        path = _imdb(data_dir)
        return folder(path, "imdb") if path.is_dir() else archive(path)
    if data_dir is None:
        raise DataError("no folder is given: name the one that holds the texts with --data-dir")
    return own(data_root(data_dir), test_share)


def archive(path: Path, name: str = "imdb", root: str = "aclImdb") -> Source:
    """The documents of a tar archive, compressed by gzip or not: the files that `folder` reads, below ``root``."""

    def texts() -> Iterator[Text]:
        for member, held in members(path):
            file = member.removeprefix(f"{root}/")
            where = part_and_class(file) if file != member else None
            if where is not None:
                yield Text(*where, file, decode(held, f"{path}: {member}"))

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
