r"""The files of a tar archive, plain or compressed by gzip, in one pass and within limits.

An archive is never unpacked, so that nothing in it can be written anywhere; one with a member that points outside of it
is refused all the same. The sizes of members are in their headers, before their bytes: what is too large is refused
before it is read, and no header is believed further than the bytes that follow it.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from minadv.base.errors import DataError
from minadv.data.files import UNPACKED, Readable

MEMBER = UNPACKED  # the largest member of IMDB's archive, which is no document, has 41 million
WHOLE = 2**33  # bytes of all members together
MEMBERS = 10**6  # IMDB's archive has 100,000
BETWEEN = 2**24  # bytes of headers, padding and the like before a member


class Bounded:
    """A stream that may be read up to a place, ``allowed``, and raises DataError beyond it."""

    def __init__(self, stream: Readable, path: Path) -> None:
        self._stream, self._path, self.at, self.allowed = stream, path, 0, BETWEEN

    def read(self, size: int) -> bytes:
        """The next bytes."""
        held = self._stream.read(size)
        self.at += len(held)
        if self.at > self.allowed:
            raise DataError(f"{self._path} is refused: more than {BETWEEN >> 20} MiB lie between two of its members")
        return held


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a tar archive with their contents; raises DataError for what is outside of it, or too large."""
    whole = n = 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(max(0, path.stat().st_size - 1024))
            if not packed and file.read() != bytes(1024):  # gzip notices a missing end by itself
                raise EOFError("it does not end as a tar archive does")
        with gzip.open(path) if packed else path.open("rb") as stream:
            bounded = Bounded(stream, path)
            with tarfile.open(fileobj=bounded, mode="r|") as tar:  # type: ignore[call-overload]
                for member in tar:
                    name, n, whole = _inside(path, member), n + 1, whole + member.size
                    _expect_limits(path, member, n, whole)
                    bounded.allowed = bounded.at + member.size + BETWEEN
                    if member.isfile():
                        held = tar.extractfile(member)
                        assert held is not None  # it is None for links and folders only
                        yield name, held.read()
                    tar.members.clear()  # tarfile keeps all members in memory otherwise
                while rest := tar.fileobj.read(1 << 20):  # to the end, where gzip's checksum stands
                    if rest.strip(b"\0"):  # tarfile takes a header that it cannot read for the end of the archive
                        raise EOFError(f"something that is no member follows its first {n:,}")
    except DataError:
        raise
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:  # the last: of sparse files
        raise DataError(f"{path} is a corrupt archive: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _expect_limits(path: Path, member: tarfile.TarInfo, n: int, whole: int) -> None:
    """Raise DataError for one member, or members up to it, that are more than is read."""
    if not 0 <= member.size <= MEMBER:
        said = f"its member {member.name!r} has {member.size:,} bytes, expected at most {MEMBER:,}"
    elif n > MEMBERS:
        said = f"it has more than {MEMBERS:,} members"
    elif whole > WHOLE:
        said = f"its members have more than {WHOLE:,} bytes together"
    else:
        return
    raise DataError(f"{path} is refused: {said}")


def _inside(path: Path, member: tarfile.TarInfo) -> str:
    """The name of a member; raises DataError for a path that leads outside, a link or a device."""
    read_as = (PurePosixPath(member.name), PureWindowsPath(member.name))
    if any(name.is_absolute() or name.drive or ".." in name.parts for name in read_as):
        raise DataError(f"{path} is refused: its member {member.name!r} points outside of the archive")
    if not (member.isfile() or member.isdir()):
        kind = f"a link to {member.linkname!r}" if member.issym() or member.islnk() else "a device"
        raise DataError(f"{path} is refused: its member {member.name!r} is {kind}, expected files and folders only")
    return str(read_as[0])
