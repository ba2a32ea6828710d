"""Data that is wrong: one line that names the file, and nothing is left behind."""

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minadv.base.errors import DataError
from minadv.base.files import temporary_name
from minadv.data.texts import encoded
from minadv.data.texts.reviews import load
from tests.data.test_reviews import same
from tests.support.reviewfiles import REVIEWS, add, write_archive, write_elec, write_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MINADV_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "minadv" / "encoded"


def refused(name: str, data_dir: Path, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        load(name, data_dir=data_dir)
    assert "\n" not in str(caught.value)
    assert not encoded.cache_root().exists()


def test_not_utf8(tmp_path: Path) -> None:
    write_folder(tmp_path / "a")
    (tmp_path / "a" / "train" / "pos" / "1_8.txt").write_bytes(b"A caf\xc3\xa9, a na\xefve film")
    refused("folder", tmp_path / "a", r"a/train/pos/1_8\.txt is not UTF-8: byte 0xef at offset 13$")
    path = write_archive(tmp_path / "b" / "aclImdb.tar.gz", mode="w:gz")
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "aclImdb/train/pos/1_8.txt", b"\xff")
    refused("imdb", path.parent, r"aclImdb\.tar\.gz: aclImdb/train/pos/1_8\.txt is not UTF-8: byte 0xff at offset 0$")


@pytest.mark.parametrize("text", ["", " \n", "<br /><br />", "\ufeff"])
@pytest.mark.parametrize("name", ["train/neg/0_1.txt", "train/unsup/1_0.txt", "test/pos/0_7.txt"])
def test_an_empty_review(tmp_path: Path, text: str, name: str) -> None:
    write_folder(tmp_path / "a", REVIEWS | {name: text})
    refused("folder", tmp_path / "a", rf"a: {name} is empty, expected at least one word")


def test_an_empty_review_in_an_archive(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a" / "aclImdb.tar.gz", REVIEWS | {"train/neg/0_1.txt": ""})
    refused("imdb", path.parent, r"aclImdb\.tar\.gz: train/neg/0_1\.txt is empty")


@pytest.mark.parametrize(
    ("drop", "more", "match"),
    [
        ("test/neg/", {}, r"has no documents in test/neg, expected some of each class: neg, pos$"),
        ("train/neg/", {}, r"has the classes \(pos\) in train, expected at least two$"),
        ("none", {"test/so/1.txt": "So, so"}, r"has so in test, expected the classes of train only: neg, pos$"),
        ("none", {"test/unsup/1.txt": "So"}, r"has unsup in test, expected the classes of train only: neg, pos$"),
        ("train/neg/[12]", {}, r"has one document in train/neg, expected two or more: one of them validates$"),
    ],
)
def test_classes(tmp_path: Path, drop: str, more: dict[str, str], match: str) -> None:
    """The same for a folder and an archive."""
    import re

    reviews = {name: text for name, text in REVIEWS.items() if not re.match(drop, name)} | more
    refused("folder", write_folder(tmp_path / "a", reviews), rf"{tmp_path / 'a'} {match}")
    path = write_archive(tmp_path / "b" / "aclImdb.tar.gz", reviews)
    refused("imdb", path.parent, rf"{path} {match}")


def test_folders(tmp_path: Path) -> None:
    refused("folder", tmp_path / "nowhere", r"the data directory .*nowhere does not exist: say where")
    write_folder(tmp_path / "a", {name: text for name, text in REVIEWS.items() if name.startswith("train")})
    refused("imdb", tmp_path / "a", r"a lacks the folder test, expected there with a folder for each class$")
    write_folder(tmp_path / "b")
    (tmp_path / "b" / "test" / "neg" / "0_4.txt").rename(tmp_path / "b" / "test" / "neg" / "0_4.html")
    refused("folder", tmp_path / "b", r"b has no documents in test/neg, expected some of each class")


@pytest.mark.parametrize(
    ("name", "fields", "match"),
    [
        ("../outside.txt", {}, r"'../outside\.txt' points outside of the archive$"),
        ("aclImdb/../../outside.txt", {}, r"points outside of the archive$"),
        ("/tmp/outside.txt", {}, r"'/tmp/outside\.txt' points outside of the archive$"),
        ("C:\\outside.txt", {}, r"points outside of the archive$"),
        ("aclImdb\\..\\..\\outside.txt", {}, r"points outside of the archive$"),
        (
            "aclImdb/x",
            {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
            r"is a link to '/etc/passwd', expected files",
        ),
        (
            "aclImdb/x",
            {"type": tarfile.LNKTYPE, "linkname": "../x"},
            r"is a link to '../x', expected files and folders",
        ),
        ("aclImdb/x", {"type": tarfile.CHRTYPE}, r"is a device, expected files and folders only$"),
        ("aclImdb/x", {"type": tarfile.FIFOTYPE}, r"is a device, expected files and folders only$"),
    ],
)
def test_a_member_that_points_outside(tmp_path: Path, name: str, fields: dict[str, Any], match: str) -> None:
    path = tmp_path / "a" / "aclImdb.tar"
    write_archive(path, mode="w")
    with tarfile.open(path, "a") as tar:
        add(tar, name, **fields)
    before = sorted(tmp_path.rglob("*"))
    refused("imdb", path.parent, rf"aclImdb\.tar is refused: its member .*{match}")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-4],
        lambda content: content[:-6] + bytes([content[-6] ^ 1]) + content[-5:],
        lambda content: b"\x1f\x8b" + content[12:],
        lambda content: b"not an archive",
        lambda content: b"",
    ],
)
def test_a_compressed_archive_that_is_damaged(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Also one whose checksum alone is wrong."""
    path = write_archive(tmp_path / "a" / "aclImdb.tar.gz")
    path.write_bytes(damage(path.read_bytes()))
    refused("imdb", path.parent, r"aclImdb\.tar\.gz is a corrupt archive: ")


@pytest.mark.parametrize("blocks", [2, 4, 5])
def test_a_plain_archive_that_is_cut(tmp_path: Path, blocks: int) -> None:
    """Within a member, and where one ends: every member takes two blocks of 512 bytes."""
    path = write_archive(tmp_path / "a" / "aclImdb.tar", mode="w")
    path.write_bytes(path.read_bytes()[: 512 * blocks])
    refused("imdb", path.parent, r"aclImdb\.tar is a corrupt archive: it does not end as a tar archive does")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        (
            {"train_cat": b"2\n1\n2\n1\n2\n"},
            r"elec-25k-train\.cat holds 5 labels, expected 6, one for each line of elec-25",
        ),
        ({"test_cat": b"2\n1\n1\n"}, r"elec-test\.cat holds 3 labels, expected 2, one for each line of elec-test\.txt"),
        ({"test_cat": b""}, r"elec-test\.cat holds 0 labels, expected 2"),
        ({"train_cat": b"2\n1\n2\n3\n2\n1\n"}, r"line 4 of .*elec-25k-train\.cat is '3', expected a label, 1 or 2"),
        ({"test_cat": b"2\n\n"}, r"line 2 of .*elec-test\.cat is '', expected a label"),
        ({"unlab01": b"some cable\n\nGood\n"}, r"line 2 of elec-25k-unlab01\.txt\.tok is empty, expected at least one"),
        (
            {"train_cat": b"2\n2\n2\n2\n2\n2\n", "test_cat": b"2\n2\n"},
            r"has the classes \(2\) in train, expected at least",
        ),
        ({"test_cat": None}, r"lacks elec-test\.cat, expected there for elec$"),
        ({"train_tok": None}, r"neither .* nor .*elec holds elec-25k-train\.txt\.tok: get elec-25k-train"),
    ],
)
def test_elec(tmp_path: Path, changed: dict[str, bytes | None], match: str) -> None:
    refused("elec", write_elec(tmp_path / "a", **changed), match)


def test_a_corpus_is_kept_and_found_again(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = write_folder(tmp_path / "a")
    first = load("folder", data_dir=data_dir)
    (kept,) = cache.iterdir()
    asked = []
    build = encoded.build

    def counted(*args: Any) -> Any:
        asked.append(args)
        return build(*args)

    monkeypatch.setattr(encoded, "build", counted)
    again = load("folder", data_dir=data_dir)
    assert same(again, first)
    assert (len(asked), again.name, str(again)) == (0, "folder", str(first))
    assert again.train.text.dtype == first.train.text.dtype
    load("folder", data_dir=data_dir, cache=False)
    assert len(asked) == 1
    (data_dir / "train" / "unsup" / "1_0.txt").write_text("Who liked it?")
    assert not same(load("folder", data_dir=data_dir), first)
    assert len(list(cache.iterdir())) == 2
    assert kept.exists()


@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: c[:200] + b"?" + c[201:], lambda c: b"no"])
def test_a_kept_corpus_that_is_damaged(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    """It is made again, and the sound one kept in its place."""
    data_dir = write_folder(tmp_path / "a")
    first = load("folder", data_dir=data_dir)
    (kept,) = cache.iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert same(load("folder", data_dir=data_dir), first)
    monkeypatch.setattr(encoded, "build", None)
    assert same(load("folder", data_dir=data_dir), first)


def test_a_kept_corpus_of_another_key_is_not_taken(tmp_path: Path, cache: Path) -> None:
    a, b = write_folder(tmp_path / "a"), write_folder(tmp_path / "b", REVIEWS | {"train/pos/0_9.txt": "Other words"})
    load("folder", data_dir=a)
    (kept_a,) = cache.iterdir()
    first = load("folder", data_dir=b)
    (kept_b,) = set(cache.iterdir()) - {kept_a}
    kept_b.write_bytes(kept_a.read_bytes())
    assert same(load("folder", data_dir=b), first)


def test_where_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("folder", data_dir=write_folder(tmp_path / "a"))
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert same(load("folder", data_dir=tmp_path / "a"), first)


def test_a_corpus_is_kept_whole_or_not_at_all(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = write_folder(tmp_path / "a")

    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(KeyboardInterrupt):
        load("folder", data_dir=data_dir)
    assert list(cache.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = load("folder", data_dir=data_dir)
    (kept,) = cache.iterdir()
    assert not temporary_name(kept).exists()
    assert same(load("folder", data_dir=data_dir), first)
