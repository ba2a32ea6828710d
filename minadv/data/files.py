r"""The content of files, plain or compressed by gzip, and the text of those that hold UTF-8.

Files are read in pieces, and no further than `LIMIT`: a device such as ``/dev/zero`` has no end. The same limit holds
for all arrays of a .npz file together. A few bytes of gzip can stand for more than any memory holds: of them no more
than `UNPACKED` is made.
"""

from __future__ import annotations

import gzip
import io
import shlex
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.base.notices import say_once

_GZIP = b"\x1f\x8b"
_PIECE = 2**20
LIMIT = 2**31  # bytes of one file
UNPACKED = 2**28  # bytes of one file that was compressed


class Readable(Protocol):
    """Whatever bytes can be read from, so many at a time."""

    def read(self, size: int, /) -> bytes: ...


def expect_folder(path: Path) -> None:
    """Raise DataError unless the path is a folder."""
    if path.is_file():
        raise DataError(f"{path} is a file, expected the folder that holds the data")
    if not path.is_dir():
        raise DataError(f"the data directory {path} does not exist: say where the data are, with --data-dir say")


def tell_links(root: Path, paths: Iterable[Path]) -> None:
    """Say how many of these are symbolic links, which may lead out of the folder or nowhere."""
    links = [path for path in paths if path.is_symlink()]
    if links:
        lost = sum(not path.exists() for path in links)
        say_once(f"{root} has symbolic links: {len(links) - lost} followed, {lost} broken and left out")


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed if they begin as gzip does, whatever the file is called."""
    try:
        with path.open("rb") as file:
            begins = file.peek(4)[:4]  # a pipe cannot go back to its beginning
            if begins.startswith(_GZIP):
                with gzip.open(file) as unpacked:
                    return bounded(unpacked, path, UNPACKED)
            if path.suffix == ".gz":
                raise DataError(f"{path} is not a gzip file: it begins with {begins!r}, expected {_GZIP!r}")
            return bounded(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:  # the last is an OSError
        raise DataError(f"{path} is a corrupt gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def bounded(file: Readable, where: str | Path, most: int | None = None) -> bytes:
    """All bytes of an open file, read in pieces; raises DataError if there are more than ``most``, or else `LIMIT`."""
    held, limit = bytearray(), most or LIMIT
    while piece := file.read(_PIECE):
        held += piece
        if len(held) > limit:
            remedy = ": unpack it first if it is meant to be so large" if most else ", expected no more"
            raise DataError(f"{where} holds more than {limit >> 20:,} MiB{', unpacked' if most else ''}{remedy}")
    return bytes(held)


def expect_no_nul(held: bytes, where: str | Path) -> None:
    """Raise DataError for a byte 0, which no text has and which some programs take for its end; UTF-16 has many."""
    if held.startswith((b"\xff\xfe", b"\xfe\xff")) or bytes(4) in (held[:8:2], held[1:8:2]):
        way = f"convert it, with iconv -f UTF-16 -t UTF-8 {shlex.quote(str(where))} say"
        raise DataError(f"{where} looks like UTF-16, expected UTF-8: {way}")
    if (at := held.find(0)) >= 0:
        raise DataError(f"{where} holds a NUL byte at offset {at}, expected text: remove it, with tr -d '\\000' say")


def text(path: Path) -> str:
    """The text of a UTF-8 file, without the mark that some editors put at its beginning."""
    stored = content(path)
    expect_no_nul(stored, path)
    try:
        return stored.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = stored.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{stored[error.start]:02x} at offset {error.start}, line {line}"
        raise DataError(f"{path} is not UTF-8: {byte}; convert it, with iconv say") from error


def arrays(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by their names; the one of a .npy file is ``x``."""
    stored = io.BytesIO(content(path))
    try:
        if zipfile.is_zipfile(stored):
            with zipfile.ZipFile(stored) as packed:
                whole = sum(member.file_size for member in packed.infolist())
            if whole > LIMIT:
                raise DataError(f"{path} holds {whole:,} bytes, unpacked: expected at most {LIMIT >> 20:,} MiB")
        stored.seek(0)
        held = np.load(stored, allow_pickle=False)
        several = {"x": held} if isinstance(held, np.ndarray) else dict(held)
        return {name: one for name, one in several.items() if isinstance(one, np.ndarray)}
    except DataError:
        raise
    except Exception as error:  # NumPy, zipfile, zlib and the tokenizer of a header each have their own for damage
        said = f"cannot read {path} as arrays: {error or type(error).__name__}"
        raise DataError(f"{said}; expected a file that numpy.save or numpy.savez wrote") from error
