"""Archives and compressed files that stand for more than a machine holds are refused before they are read whole."""

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from minadv.base.errors import DataError
from minadv.commands.predict import read_lines
from minadv.data import archives, files
from minadv.data.language import corpus, own
from minadv.data.texts import folders, reviews

ZEROS = bytes(2**20)


def pack(path: Path, *members: tuple[str, int | bytes], tail: int = 0, packed: bool = True, **how: Any) -> Path:
    """An archive; a member of a size instead of bytes has only the header that says so."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", **how) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = content if isinstance(content, int) else len(content)
            tar.addfile(info, None if isinstance(content, int) else io.BytesIO(content))
    path.write_bytes((gzip.compress if packed else bytes)(held.getvalue() + bytes(tail)))
    return path


def refused(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        list(archives.members(path))
    assert str(error.value).startswith(f"{path} is refused: ")


def test_members_come_as_they_are(tmp_path: Path) -> None:
    for packed in (True, False):
        path = pack(tmp_path / "a.tar", ("a/b.txt", b"one"), ("c", b""), packed=packed)
        assert list(archives.members(path)) == [("a/b.txt", b"one"), ("c", b"")]


@pytest.mark.parametrize("packed", [True, False])
def test_members_behind_a_damaged_header_are_not_left_out_in_silence(packed: bool, tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", *((name, b"text") for name in "abc"), packed=False)
    held = bytearray(path.read_bytes())
    held[1024:1030] = b"broken"  # the header of the second member
    path.write_bytes(gzip.compress(held) if packed else bytes(held))
    with pytest.raises(DataError, match=r"a\.tar is a corrupt archive: something that is no member follows its first"):
        list(archives.members(path))


def test_a_sparse_file_without_its_map(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = {"GNU.sparse.map": "a,b", "GNU.sparse.size": "3"}
        tar.addfile(info, io.BytesIO())
    with pytest.raises(DataError, match=r"a\.tar is a corrupt archive: invalid literal"):
        list(archives.members(path))


@pytest.mark.parametrize("how", [{}, {"format": tarfile.GNU_FORMAT}, {"format": tarfile.PAX_FORMAT}])
def test_a_member_of_eight_gibibytes_is_refused_by_its_header(how: Any, tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar.gz", ("small", b"x"), ("large", 2**33), **how)
    refused(path, r"its member 'large' has 8,589,934,592 bytes, expected at most 268,435,456$")


def test_limits_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "a.tar.gz", *((f"{n}", b"0123456789") for n in range(20)))
    assert len(list(archives.members(path))) == 20
    monkeypatch.setattr(archives, "MEMBERS", 19)
    refused(path, "it has more than 19 members")
    monkeypatch.setattr(archives, "MEMBERS", 20)
    monkeypatch.setattr(archives, "WHOLE", 199)
    refused(path, "its members have more than 199 bytes together")


def test_no_bytes_without_a_member(tmp_path: Path) -> None:
    """Neither behind the last member nor in a header, which tarfile reads whole before it says a size."""
    path = pack(tmp_path / "a.tar.gz", ("a", b"x"), tail=3 * archives.BETWEEN)
    tracemalloc.start()
    try:
        refused(path, "more than 16 MiB lie between two of its members")
        assert tracemalloc.get_traced_memory()[1] < 2 * archives.BETWEEN
    finally:
        tracemalloc.stop()
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**33
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(4 * archives.BETWEEN)))
    refused(path, "more than 16 MiB lie between two of its members")


def test_gzip_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(64):
            file.write(ZEROS)
    assert path.stat().st_size < 2**17
    assert files.UNPACKED == archives.MEMBER < files.LIMIT
    monkeypatch.setattr(files, "LIMIT", 4 * 2**20)
    monkeypatch.setattr(files, "UNPACKED", 3 * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"bomb.gz holds more than 3 MiB, unpacked: unpack it first"):
            files.content(path)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    (tmp_path / "plain").write_bytes(ZEROS * 5)
    with pytest.raises(DataError, match=r"plain holds more than 4 MiB, expected no more$"):
        files.content(tmp_path / "plain")
    (tmp_path / "plain").write_bytes(ZEROS * 4)
    assert files.content(tmp_path / "plain") == ZEROS * 4


def test_a_device_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("there is no /dev/zero here")
    monkeypatch.setattr(files, "LIMIT", 2**20)
    with pytest.raises(DataError, match="/dev/zero holds more than 1 MiB"):
        files.content(Path("/dev/zero"))
    assert files.content(Path("/dev/null")) == b""


def test_nul_bytes_are_refused(tmp_path: Path) -> None:
    says = r"holds a NUL byte at offset 3, expected text: remove it, with tr -d '\\000' say"
    for part in ("train", "test"):
        for label in ("a", "b"):
            folder = tmp_path / part / label
            folder.mkdir(parents=True)
            for n in range(2):
                (folder / f"{n}.txt").write_bytes(b"one two")
    (tmp_path / "train" / "a" / "0.txt").write_bytes(b"one\0two")
    with pytest.raises(DataError, match=rf"train/a/0\.txt {says}"):
        reviews.load("folder", data_dir=tmp_path, cache=False)
    path = pack(tmp_path / "a.tar", ("aclImdb/train/pos/0_9.txt", b"one\0two"))
    with pytest.raises(DataError, match=rf"0_9\.txt {says}"):
        list(reviews.archive(path).texts())
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_bytes(b"one\0two\n")
    with pytest.raises(DataError, match=rf"train\.txt {says}"):
        corpus.load("folder", tmp_path)
    with pytest.raises(DataError, match=f"standard input {says}"):
        read_lines(b"one\0two", "standard input")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a table.csv"
    path.write_bytes("text,label\n".encode(encoding))
    with pytest.raises(DataError) as caught:
        files.text(path)
    way = f"convert it, with iconv -f UTF-16 -t UTF-8 '{path}' say"
    assert str(caught.value) == f"{path} looks like UTF-16, expected UTF-8: {way}"


def test_symbolic_links_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "outside.txt").write_text("one two\n\n" * 60)
    for label in ("a", "b"):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for n in range(3):
            (tmp_path / "texts" / label / f"{n}.txt").write_text("one two")
    for name, there in (("l.txt", "outside.txt"), ("gone.txt", "nowhere.txt")):
        (tmp_path / "texts" / "a" / name).symlink_to(tmp_path / there)
    reads: Any = {tmp_path / "texts": lambda root: folders.own(root, 0.2), tmp_path / "texts" / "a": own.lines}
    for root, read in reads.items():
        read(root)
        said = f"minadv: {root} has symbolic links: 1 followed, 1 broken and left out\n"
        assert capsys.readouterr().err == said
