r"""Files that are whole or not there, and JSON files in which any change can be seen.

`write_whole` writes under a temporary name, flushes to the disk, and renames: whoever opens the name sees the old bytes
or the new ones, never a part, whatever moment the power fails. `seal` puts the SHA-256 of a JSON text at its head.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np

_SEALED = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n"content": (.*)\}\n', re.DOTALL)


CONFIG = "config.json"
"""The file of a run's folder that has its configuration."""

MOST = 2**28
"""Bytes that a sealed file has at most: what is larger is none, and is not read into memory."""


class SealError(ValueError):
    """A sealed file is missing, damaged, or was not written by minadv."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no part of it is ever seen alone; on any error the old file stays and no temporary one.

    The new name is sure to be on the disk only after `flush_directory`. An OSError names the file itself.
    """
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:  # an interrupt from the keyboard too
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # that of a full disk names no file at all
            error.filename, error.filename2 = str(path), None
        raise


def read_regular(path: Path, most: int = MOST) -> bytes:
    """The bytes of a file; raises OSError for one of more than ``most`` bytes, or a pipe, for which one would wait."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):  # the system has a word for folders
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"it has {about.st_size:,} bytes, expected at most {most:,}", str(path))
    return path.read_bytes()


def temporary_name(path: Path) -> Path:
    """Where `write_whole` writes first: always the same name, so that what a killed process left is overwritten."""
    return path.with_name(f".{path.name}.tmp")


def flush_directory(folder: Path) -> None:
    """Make the names in a folder, new and removed, reach the disk."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(content: dict[str, Any]) -> bytes:
    """A JSON text, ``{"sha256": ..., "content": ...}``, whose checksum is that of the bytes of its content.

    NumPy's numbers become Python's. Raises TypeError for what JSON cannot hold.
    """
    body = json.dumps(content, sort_keys=True, indent=1, default=plain).encode()
    return b'{"sha256": "%s",\n"content": %s}\n' % (hashlib.sha256(body).hexdigest().encode(), body)


def unseal(path: Path) -> dict[str, Any]:
    """The content of a sealed file, if every byte of it is as it was written; raises SealError if not."""
    try:
        text = read_regular(path)
    except OSError as error:
        raise SealError(f"cannot read {path}: {error.strerror}") from error
    match = _SEALED.fullmatch(text)
    if match is None:
        raise SealError(f"{path} is truncated or was not written by minadv ({len(text)} bytes)")
    digest, body = match[1].decode(), match[2]
    if hashlib.sha256(body).hexdigest() != digest:
        raise SealError(f"{path} is damaged: its content does not have the SHA-256 at its head")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SealError(f"{path} holds no JSON: {error}") from error
    if not isinstance(content, dict):
        raise SealError(f"{path} holds a {type(content).__name__}, expected a table of values by name")
    return content


def plain(value: object) -> Any:
    """NumPy's scalars, and paths, as JSON can hold them: the ``default`` of json.dumps."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"JSON cannot hold {value!r}, a {type(value).__name__}")
