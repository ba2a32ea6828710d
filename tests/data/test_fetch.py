"""Where data is looked for, and downloads from a mirror that is down, wrong, or right; no network is touched."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base.errors import DataError
from minadv.data import fetch
from minadv.data.fetch import REMOTES, Remote, check, data_root, find, get, locate, there
from tests.support.idxfiles import idx, write_four

FILES = tuple(REMOTES["mnist"].files)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user's, and no network."""
    monkeypatch.delenv("MINADV_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_network(url: str, checksum: str, path: Path) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(fetch, "_retrieve", no_network)


def test_which_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_root() == tmp_path / "cache" / "minadv"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "minadv"
    monkeypatch.setenv("MINADV_DATA", str(tmp_path / "env"))
    assert data_root() == tmp_path / "env"
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root("~/data") == Path.home() / "data"


def test_files_that_are_there_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_four(tmp_path / "a")
    write_four(tmp_path / "b" / "mnist", compress=False)
    assert find("mnist", tmp_path / "a") == tmp_path / "a"
    assert find("mnist", tmp_path / "b") == tmp_path / "b" / "mnist"
    monkeypatch.setenv("MINADV_DATA", str(tmp_path / "b"))
    assert find("mnist") == tmp_path / "b" / "mnist"
    (tmp_path / "a" / FILES[0]).rename(tmp_path / "a" / "train-images.idx3-ubyte.gz")
    assert locate(tmp_path / "a", FILES[0]) == tmp_path / "a" / "train-images.idx3-ubyte.gz"
    assert find("mnist", tmp_path / "a") == tmp_path / "a"


def test_a_given_directory_is_only_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        find("mnist", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=rf"empty lacks {', '.join(FILES)}, expected there for mnist"):
        find("mnist", tmp_path / "empty")
    write_four(tmp_path / "part" / "mnist")
    (tmp_path / "part" / "mnist" / FILES[3]).unlink()
    with pytest.raises(DataError, match=rf"mnist lacks {FILES[3]}, expected there for mnist, compressed or not"):
        find("mnist", tmp_path / "part")
    assert list((tmp_path / "empty").iterdir()) == []


def test_no_network_gives_one_sentence_with_three_ways_out(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        find("mnist")
    said = str(caught.value)
    folder = tmp_path / "cache" / "minadv" / "mnist"
    assert said.startswith(f"mnist is not in {folder} and cannot be downloaded (ossci-datasets.s3.amazonaws.com: Name ")
    for text in ("--data-dir", "MINADV_DATA", f"{REMOTES['mnist'].mirrors[0]} by hand into {folder}", *FILES):
        assert text in said
    assert "\n" not in said


def test_the_first_mirror_that_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mirror is down, the second has other bytes, the third is right: pooch itself fetches and checks."""
    pytest.importorskip("pooch")
    source = tmp_path / "source"
    write_four(source / "right")
    write_four(source / "wrong", n_train=13, n_test=13)
    sums = {name: "sha256:" + hashlib.sha256((source / "right" / name).read_bytes()).hexdigest() for name in FILES}
    mirrors = tuple(f"https://{name}/data/" for name in ("down", "wrong", "right"))
    monkeypatch.setitem(fetch.REMOTES, "mnist", Remote("test", mirrors, sums))
    asked = []

    def retrieve(url: str, checksum: str, path: Path) -> None:
        import pooch

        def copy(url: str, output_file: Any, _: Any) -> None:
            asked.append(url)
            host, name = url.split("/")[2], url.split("/")[-1]
            Path(output_file).write_bytes((source / host / name).read_bytes())  # no folder "down": an OSError

        pooch.get_logger().setLevel("ERROR")
        pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=copy)

    monkeypatch.setattr(fetch, "_retrieve", retrieve)
    folder = find("mnist")
    assert folder == tmp_path / "cache" / "minadv" / "mnist"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert all((folder / name).read_bytes() == (source / "right" / name).read_bytes() for name in FILES)
    assert len(asked) == 12
    assert find("mnist") == get("mnist") == folder
    assert len(asked) == 12
    assert [c.sound for c in check("mnist")] == [True] * 4


def test_check(tmp_path: Path) -> None:
    write_four(tmp_path)
    (tmp_path / FILES[1]).unlink()
    (tmp_path / FILES[2].removesuffix(".gz")).write_bytes(gzip.decompress((tmp_path / FILES[2]).read_bytes()))
    first, second, third, _ = check("mnist", tmp_path)
    assert (first.sound, second.sound, third.sound) == (False, False, False)
    assert first.says.startswith("sha256 is ")
    assert first.says.endswith(f"expected {REMOTES['mnist'].files[FILES[0]].removeprefix('sha256:')}")
    assert (second.path, second.says) == (None, f"missing from {tmp_path}")
    assert third.says.startswith("sha256 of the plain file is ")
    assert third.says.endswith(f"expected {REMOTES['mnist'].contents[FILES[2]]}")
    assert [c.sound for c in check("fashion", tmp_path / "nothing")] == [False] * 4


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("train-images-idx3", b"garbage", "is not an idx file of images: magic number 0x67617262, expected 0x00000803"),
        ("t10k-images-idx3", idx(np.zeros((20, 28, 28)))[:-1], "is truncated: 15695 bytes, expected 15696"),
        ("train-images-idx3", idx(np.zeros((60, 28, 27))), "holds images of 28 x 27 pixels, expected 28 x 28"),
        ("t10k-labels-idx1", idx(np.zeros(19)), "holds 19 labels, expected 20, one for each image"),
        ("train-labels-idx1", idx(np.full(60, 10)), "holds the label 10, expected labels from 0 to 9"),
    ],
)
def test_plain_files_are_read(file: str, content: bytes, says: str, tmp_path: Path) -> None:
    """Where the checksum of the plain file is not known, its form is looked at."""
    write_four(tmp_path, compress=False)
    assert [c.sound for c in check("fashion", tmp_path)] == [None] * 4
    (tmp_path / f"{file}-ubyte").write_bytes(content)
    found = {c.file: c for c in check("fashion", tmp_path)}
    assert found[f"{file}-ubyte.gz"].sound is False
    assert found[f"{file}-ubyte.gz"].says.startswith(says)


def test_the_plain_files_of_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_four(tmp_path, compress=False)
    assert [c.sound for c in check("mnist", tmp_path)] == [False] * 4
    contents = {name: hashlib.sha256((tmp_path / name.removesuffix(".gz")).read_bytes()).hexdigest() for name in FILES}
    monkeypatch.setitem(REMOTES, "mnist", replace(REMOTES["mnist"], contents=contents))
    assert [(c.sound, c.says) for c in check("mnist", tmp_path)] == [(True, "sha256 of the plain file as expected")] * 4


def test_what_is_there_goes_by_names(tmp_path: Path) -> None:
    assert not there("mnist", tmp_path)
    for name in FILES:
        (tmp_path / name).touch()
    assert there("mnist", tmp_path)


def test_a_text_of_ones_own_is_not_wikitext2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files have names that anybody's may have."""
    monkeypatch.setenv("MINADV_DATA", str(tmp_path))
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_text("mine\n")
    assert not there("wikitext2")
    for look in (find, get):
        with pytest.raises(DataError, match="Name or service not known"):
            look("wikitext2")


def test_the_list_of_downloads() -> None:
    lengths = {"sha256": 64, "md5": 32}
    for remote in REMOTES.values():
        assert len(remote.mirrors) >= 2
        assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in remote.mirrors)
        for checksum in remote.files.values():
            kind, digits = checksum.split(":")
            assert len(digits) == lengths[kind]
            assert set(digits) <= set("0123456789abcdef")
    with pytest.raises(ValueError, match="name is 'imagenet', expected one of 'mnist', 'fashion'"):
        find("imagenet")
    files = {name: len(remote.files) for name, remote in REMOTES.items()}
    assert files == {"mnist": 4, "fashion": 4, "imdb": 1, "ptb": 3, "wikitext2": 3}
