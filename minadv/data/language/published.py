r"""The corpora that have a name: the names of their files, where these lie, and their published checksums and counts.

Files may be plain or compressed by gzip. They lie in the data directory (see `minadv.data.fetch`)
or in its folder of the corpus' name; in that folder they may also be called ``train.txt``, ``valid.txt`` and
``test.txt``. `check` compares them with their published checksums and counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minadv.base.checks import expect_choice
from minadv.base.errors import DataError
from minadv.data import fetch, files
from minadv.data.fetch import Checked, locate
from minadv.data.language.lines import count_words, lines_of

PARTS = ("train", "valid", "test")
PLAIN = "{}.txt"  # the names that any folder may use


@dataclass(frozen=True)
class PublishedCorpus:
    """A corpus: its file names, the folders it may lie in, and the SHA-256 of each plain file, N and V.

    N (``tokens``) is the number of a part's tokens with one ``<eos>`` a line, V the number of words with ``<eos>`` and
    ``<unk>``.
    """

    pattern: str
    folders: tuple[str, ...]
    sha256: dict[str, str]
    tokens: dict[str, int]
    V: int


PUBLISHED = {
    "ptb": PublishedCorpus(
        "ptb.{}.txt",
        ("ptb", "penn"),
        {
            "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
        {"train": 929_589, "valid": 73_760, "test": 82_430},
        10_000,
    ),
    "wikitext2": PublishedCorpus(
        "wiki.{}.tokens",
        ("wikitext2", "wikitext-2"),
        {
            "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        {"train": 2_088_628, "valid": 217_646, "test": 245_569},
        33_278,
    ),
}


@dataclass(frozen=True)
class Files:
    """The three files of a corpus in a folder; ``pattern`` is their name there, with {} for the part."""

    folder: Path
    pattern: str

    def path(self, part: str) -> Path | None:
        return locate(self.folder, self.pattern.format(part))

    @property
    def lacks(self) -> list[str]:
        return [self.pattern.format(part) for part in PARTS if self.path(part) is None]

    def paths(self) -> dict[str, Path]:
        """The three files; an error names those that are missing."""
        if self.lacks:
            raise DataError(f"{self.folder} lacks {', '.join(self.lacks)}, expected there, plain or with .gz")
        return {part: path for part in PARTS if (path := self.path(part)) is not None}


def find(name: str, data_dir: str | Path | None = None) -> dict[str, Path]:
    """The three files of a named corpus; without ``data_dir``, missing files are downloaded first."""
    expect_choice("name", name, PUBLISHED)
    root = fetch.data_root(data_dir)
    here = _best(name, root)
    if not here.lacks:
        return here.paths()
    if data_dir is None:
        fetch.get(name)
        return _best(name, root).paths()
    files.expect_folder(root)
    if len(here.lacks) == len(PARTS):
        lacks, folders = ", ".join(here.lacks), " or ".join(PUBLISHED[name].folders)
        raise DataError(f"{root} lacks {lacks}, expected there or in its folder {folders}, plain or with .gz")
    return here.paths()


def there(name: str, data_dir: str | Path | None = None) -> bool:
    """Whether all files of a named corpus are in the data directory; looks at their names only."""
    expect_choice("name", name, PUBLISHED)
    return not _best(name, fetch.data_root(data_dir)).lacks


def recognise(folder: Path) -> tuple[str, dict[str, Path]]:
    """The name of the corpus that a folder holds, by its file names ("folder" for plain ones), and its three files."""
    files.expect_folder(folder)
    kinds = {name: Files(folder, facts.pattern) for name, facts in PUBLISHED.items()}
    kinds["folder"] = Files(folder, PLAIN)
    name = min(kinds, key=lambda name: len(kinds[name].lacks))
    if len(kinds[name].lacks) == len(PARTS):
        patterns = ", or ".join(", ".join(here.lacks) for here in kinds.values())
        raise DataError(f"{folder} holds no corpus: expected {patterns}, plain or with .gz")
    return name, kinds[name].paths()


def lacks(folder: Path) -> bool:
    """Whether a folder has no corpus by the names of its files, nor a part of a published one."""
    files.expect_folder(folder)
    named = all(len(Files(folder, facts.pattern).lacks) == len(PARTS) for facts in PUBLISHED.values())
    return named and bool(Files(folder, PLAIN).lacks)


def in_folder(folder: Path) -> dict[str, Path]:
    """The files train.txt, valid.txt and test.txt of a folder."""
    files.expect_folder(folder)
    return Files(folder, PLAIN).paths()


def check(name: str, data_dir: str | Path | None = None) -> list[Checked]:
    """Compare files and vocabulary of a named corpus with the published checksums and counts; downloads nothing."""
    expect_choice("name", name, PUBLISHED)
    facts, here = PUBLISHED[name], _best(name, fetch.data_root(data_dir))
    results = [_check(facts, here, part) for part in PARTS]
    if results[0].sound:
        V = len(count_words(lines_of(files.text(here.paths()["train"]))))
        says = f"{V:,} words" if facts.V == V else f"{V:,} words, expected {facts.V:,}"
        results.append(Checked("vocabulary", None, facts.V == V, says))
    return results


def _check(facts: PublishedCorpus, here: Files, part: str) -> Checked:
    file, path = here.pattern.format(part), here.path(part)
    if path is None:
        return Checked(file, None, False, f"missing from {here.folder}")
    try:
        digest = hashlib.sha256(files.content(path)).hexdigest()
        if digest != facts.sha256[part]:
            return Checked(file, path, False, f"sha256 of the plain file is {digest}, expected {facts.sha256[part]}")
        N = sum(len(line.split()) + 1 for line in lines_of(files.text(path)))
    except DataError as error:
        return Checked(file, path, False, str(error))
    says = "sha256 as published" if facts.tokens[part] == N else f"expected {facts.tokens[part]:,}"
    return Checked(file, path, facts.tokens[part] == N, f"{N:,} tokens, {says}")


def _best(name: str, root: Path) -> Files:
    """The files of a named corpus in the one of its possible folders that lacks the fewest of them."""
    return min(_candidates(name, root), key=lambda here: len(here.lacks))


def _candidates(name: str, root: Path) -> Iterator[Files]:
    facts = PUBLISHED[name]
    yield Files(root, facts.pattern)
    for folder in facts.folders:
        yield Files(root / folder, facts.pattern)
        yield Files(root / folder, PLAIN)
