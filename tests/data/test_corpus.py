"""Corpora in files and without: what is read, what is refused, and what is known of the named ones."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base.errors import DataError
from minadv.data import fetch
from minadv.data.language import published
from minadv.data.language.corpus import load
from tests.support.corpora import TEXTS, write_corpus


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user's, and no network."""
    monkeypatch.delenv("MINADV_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_network(url: str, checksum: str, path: Path) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(fetch, "_retrieve", no_network)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    ("name", "folder", "pattern"),
    [
        ("folder", ".", "{}.txt"),
        ("ptb", ".", "ptb.{}.txt"),
        ("ptb", "ptb", "ptb.{}.txt"),
        ("ptb", "penn", "{}.txt"),
        ("wikitext2", ".", "wiki.{}.tokens"),
        ("wikitext2", "wikitext2", "{}.txt"),
        ("wikitext2", "wikitext-2", "wiki.{}.tokens"),
    ],
)
def test_what_is_read(
    name: str, folder: str, pattern: str, compress: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name == "folder" or not published.there(name, tmp_path)
    write_corpus(tmp_path / folder, pattern, compress)
    assert name == "folder" or published.there(name, tmp_path)
    corpus = load(name, tmp_path)
    words = corpus.vocabulary
    assert corpus.name == name
    assert corpus.train.dtype == corpus.valid.dtype == corpus.test.dtype == np.int32
    assert " ".join(words.decode(corpus.train)) == (
        "the cat sat <eos> <eos> the <unk> sat on the mat <eos> the end <eos>"
    )
    assert " ".join(words.decode(corpus.valid)) == "the <unk> sat <eos>"
    assert " ".join(words.decode(corpus.test)) == "<eos> on the mat <eos>"
    assert words.words == ("<eos>", "the", "sat", "<unk>", "cat", "end", "mat", "on")
    if folder == ".":
        assert load(None, tmp_path).name == name
        assert load(None, tmp_path).fingerprint == corpus.fingerprint
    if name != "folder":
        monkeypatch.setenv("MINADV_DATA", str(tmp_path))
        assert load(name).fingerprint == corpus.fingerprint


def test_the_plain_names_in_the_data_directory_itself_are_no_named_corpus(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    with pytest.raises(
        DataError, match=r"lacks ptb\.train\.txt, .* expected there or in its folder ptb or penn, plain"
    ):
        load("ptb", tmp_path)


def test_rare_words(tmp_path: Path) -> None:
    corpus = load("folder", write_corpus(tmp_path), min_count=2)
    assert set(corpus.vocabulary.words) == {"<eos>", "<unk>", "the", "sat"}
    assert " ".join(corpus.vocabulary.decode(corpus.train[:4])) == "the <unk> sat <eos>"
    with pytest.raises(ValueError, match="min_count is 0, expected 1 or more"):
        load("folder", tmp_path, min_count=0)
    with pytest.raises(DataError, match=r"min_count \(--min-count\) is 1,000, and no word of the training"):
        load("folder", tmp_path, min_count=1000)


def test_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    plain = load("folder", write_corpus(tmp_path))
    other = write_corpus(tmp_path / "windows", train="\ufeff" + TEXTS["train"].replace("\n", "\r\n"))
    assert load("folder", other).fingerprint == plain.fingerprint
    assert load("folder", write_corpus(tmp_path / "c", valid="the cat\n")).fingerprint != plain.fingerprint


def refused(folder: Path, message: str, name: str | None = "folder") -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(name, folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_word_outside_the_vocabulary_without_unk(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path, train="a b a\nc\n", valid="a\nb c\n", test="a\n\nb dog\n")
    refused(folder, r"test\.txt, line 3: 'dog' is not among the 4 words of the training text, and there is no <unk>")
    assert len(load("folder", folder, min_count=2).vocabulary) == 3
    folder = write_corpus(tmp_path / "gz", "wiki.{}.tokens", True, train="a b\n", valid="x\n")
    refused(folder, r"wiki\.valid\.tokens\.gz, line 1: 'x' is not among the 3 words", "wikitext2")


@pytest.mark.parametrize("text", ["", "\n\n", " \n\t"])
def test_empty_files(tmp_path: Path, text: str) -> None:
    for part in TEXTS:
        texts: Any = {part: text}
        refused(write_corpus(tmp_path / part, **texts), rf"{part}\.txt is empty, expected lines of words")
    refused(write_corpus(tmp_path / "gz", compress=True, valid=text), r"valid\.txt\.gz is empty")


def test_missing_files(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "the data directory .*nowhere does not exist")
    refused(tmp_path / "nowhere", "the data directory .*nowhere does not exist", None)
    refused(tmp_path / "nowhere", "the data directory .*nowhere does not exist", "ptb")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", r"empty lacks train\.txt, valid\.txt, test\.txt, expected there, plain or with \.gz")
    refused(
        tmp_path / "empty",
        r"empty holds no corpus: expected ptb\.train\.txt, .*, or wiki\.train\.tokens, .*, or train\.txt, .*test\.txt",
        None,
    )
    refused(tmp_path / "empty", r"lacks wiki\.train\.tokens, .* in its folder wikitext2 or wikitext-2", "wikitext2")
    write_corpus(tmp_path / "part", "ptb.{}.txt")
    (tmp_path / "part" / "ptb.valid.txt").unlink()
    refused(tmp_path / "part", r"part lacks ptb\.valid\.txt, expected there, plain or with \.gz", "ptb")
    refused(tmp_path / "part", r"part lacks ptb\.valid\.txt, expected there, plain or with \.gz", None)
    with pytest.raises(DataError, match="a folder of text needs data_dir"):
        load("folder")
    with pytest.raises(ValueError, match="name is 'brown', expected one of 'pydoc', 'ptb', 'wikitext2', 'folder'"):
        load("brown", tmp_path)


def test_not_utf_8(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path)
    (folder / "valid.txt").write_bytes(b"the\ncat\xe9 sat\n")
    refused(folder, r"valid\.txt is not UTF-8: byte 0xe9 at offset 7, line 2")


def test_bad_gzip(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path, compress=True)
    path = folder / "test.txt.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    refused(folder, r"test\.txt\.gz is a corrupt gzip file: ")
    path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 0xFF]) + whole[-5:])
    refused(folder, r"test\.txt\.gz is a corrupt gzip file: ")
    path.write_bytes(b"<html>not found</html>")
    refused(folder, r"test\.txt\.gz is not a gzip file: it begins with b'<htm'")
    path.unlink()
    path.mkdir()
    refused(folder, r"lacks test\.txt")


def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named corpus that is nowhere is fetched into the cache, and a directory that was given is only read."""
    asked = []

    def get(name: str, data_dir: Any = None) -> Path:
        asked.append(name)
        return write_corpus(fetch.data_root(data_dir) / name, "ptb.{}.txt")

    monkeypatch.setattr(fetch, "get", get)
    (tmp_path / "given").mkdir()
    with pytest.raises(DataError, match="given lacks"):
        load("ptb", tmp_path / "given")
    assert asked == []
    assert len(load("ptb").train) == len(load("ptb").train) == 15
    assert asked == ["ptb"]


def test_known_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check, on a corpus of ours under the name and in the place of a published one."""
    sums = {part: hashlib.sha256(text.encode()).hexdigest() for part, text in TEXTS.items()}
    ours = replace(published.PUBLISHED["ptb"], sha256=sums, tokens={"train": 15, "valid": 4, "test": 5}, V=8)
    monkeypatch.setitem(published.PUBLISHED, "ptb", ours)
    for compress in (True, False):
        write_corpus(tmp_path / "ptb", "ptb.{}.txt", compress)
        found = published.check("ptb", tmp_path)
        assert [c.sound for c in found] == [True] * 4
        assert [c.says for c in found] == [
            "15 tokens, sha256 as published",
            "4 tokens, sha256 as published",
            "5 tokens, sha256 as published",
            "8 words",
        ]
    monkeypatch.setitem(published.PUBLISHED, "ptb", replace(ours, tokens={"train": 15, "valid": 5, "test": 5}, V=9))
    found = published.check("ptb", tmp_path)
    assert [c.sound for c in found] == [True, False, True, False]
    assert (found[1].says, found[3].says) == ("4 tokens, expected 5", "8 words, expected 9")
    (tmp_path / "ptb" / "ptb.train.txt").write_text("other text\n")
    (tmp_path / "ptb" / "ptb.valid.txt").unlink()
    (tmp_path / "ptb" / "ptb.valid.txt.gz").write_bytes(gzip.compress(b"cut")[:-3])
    (tmp_path / "ptb" / "ptb.test.txt").unlink()
    (tmp_path / "ptb" / "ptb.test.txt.gz").unlink()
    train, valid, test = published.check("ptb", tmp_path)
    assert not train.sound and train.says.startswith("sha256 of the plain file is ")
    assert train.says.endswith(f"expected {sums['train']}")
    assert not valid.sound and "is a corrupt gzip file" in valid.says
    assert (test.sound, test.path, test.says) == (False, None, f"missing from {tmp_path / 'ptb'}")
    with pytest.raises(ValueError, match="name is 'pydoc', expected one of 'ptb', 'wikitext2'"):
        published.check("pydoc")


PUBLISHED = {
    "ptb": (
        *(10_000, "ptb.{}.txt"),
        ("train", 929_589, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
        ("valid", 73_760, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
        ("test", 82_430, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
    ),
    "wikitext2": (
        *(33_278, "wiki.{}.tokens"),
        ("train", 2_088_628, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
        ("valid", 217_646, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
        ("test", 245_569, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
    ),
}
"""V, the names of the files, and of each part the number of tokens and the SHA-256 of the plain file."""


def test_the_published_facts() -> None:
    assert set(PUBLISHED) == set(published.PUBLISHED)
    for name, (V, pattern, *parts) in PUBLISHED.items():
        facts = published.PUBLISHED[name]
        assert (facts.V, facts.pattern) == (V, pattern)
        assert facts.tokens == {part: N for part, N, _ in parts}
        assert facts.sha256 == {part: digest for part, _, digest in parts}
        assert sorted(facts.tokens) == sorted(published.PARTS)


@pytest.mark.parametrize(("name", "pattern"), [("ptb", "ptb.{}.txt"), ("wikitext2", published.PLAIN)])
def test_what_is_downloaded_is_what_is_checked(name: str, pattern: str) -> None:
    facts, remote = published.PUBLISHED[name], fetch.REMOTES[name]
    assert remote.files == {pattern.format(part): f"sha256:{digest}" for part, digest in facts.sha256.items()}
    assert " + ".join(f"{N:,}" for N in facts.tokens.values()) in remote.about
