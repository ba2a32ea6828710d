r"""The content of files, plain or compressed by gzip, and the text of those that hold UTF-8."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from minadv.base.errors import DataError

_GZIP = b"\x1f\x8b"


def expect_folder(path: Path) -> None:
    """Raise DataError unless the path is a folder."""
    if path.is_file():
        raise DataError(f"{path} is a file, expected the folder that holds the data")
    if not path.is_dir():
        raise DataError(f"the data directory {path} does not exist: say where the data are, with --data-dir say")


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed if they begin as gzip does, whatever the file is called."""
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not stored.startswith(_GZIP):
        if path.suffix == ".gz":
            raise DataError(f"{path} is not a gzip file: it begins with {stored[:4]!r}, expected {_GZIP!r}")
        return stored
    try:
        return gzip.decompress(stored)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a corrupt gzip file: {error}") from error


def text(path: Path) -> str:
    """The text of a UTF-8 file, without the mark that some editors put at its beginning."""
    stored = content(path)
    try:
        return stored.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = stored.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{stored[error.start]:02x} at offset {error.start}, line {line}"
        raise DataError(f"{path} is not UTF-8: {byte}; convert it, with iconv say") from error
