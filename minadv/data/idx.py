r"""The idx format of MNIST: a magic number, the sizes, then the bytes; plain or compressed by gzip.

====== ======= =======================================================
offset type    meaning
====== ======= =======================================================
0      2 bytes zero
2      1 byte  type of the entries: 0x08 for unsigned bytes
3      1 byte  number of axes: 3 for images, 1 for labels
4      uint32  size of each axis, big-endian, one after the other
====== ======= =======================================================
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.data import files

_IMAGES, _LABELS = 0x0803, 0x0801


def read_images(path: Path, size: tuple[int, int] = (28, 28)) -> Array:
    """The images of an idx file: uint8 ``(N, rows, columns)``; ``size`` is what the last two must be."""
    images = _read(path, _IMAGES, "images")
    if images.shape[1:] != size:
        rows, columns = images.shape[1:]
        raise DataError(f"{path} holds images of {rows} x {columns} pixels, expected {size[0]} x {size[1]}")
    return images


def read_labels(path: Path, classes: int = 10) -> Array:
    """The labels of an idx file: uint8 ``(N,)``, all below ``classes``."""
    labels = _read(path, _LABELS, "labels")
    if labels.size and int(labels.max()) >= classes:
        raise DataError(f"{path} holds the label {int(labels.max())}, expected labels from 0 to {classes - 1}")
    return labels


def read_pair(images: Path, labels: Path, size: tuple[int, int] = (28, 28), classes: int = 10) -> tuple[Array, Array]:
    """Images and their labels; raises DataError unless each image has a label and there is at least one image."""
    x, y = read_images(images, size), read_labels(labels, classes)
    if len(x) != len(y):
        raise DataError(f"{labels} holds {len(y)} labels, expected {len(x)}, one for each image of {images.name}")
    if len(x) == 0:
        raise DataError(f"{images} holds no images")
    return x, y


def _read(path: Path, magic: int, what: str) -> Array:
    """The array of an idx file of unsigned bytes."""
    content = files.content(path)
    begins_with = int.from_bytes(content[:4], "big")
    if len(content) < 4 or begins_with != magic:
        shown = f"0x{begins_with:08x}" if len(content) >= 4 else f"only {len(content)} bytes"
        raise DataError(f"{path} is not an idx file of {what}: magic number {shown}, expected 0x{magic:08x}")
    axes = magic & 0xFF
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{path} is truncated: {len(content)} bytes, expected {start} for the sizes alone")
    shape = tuple(int.from_bytes(content[n : n + 4], "big") for n in range(4, start, 4))
    expected = start + math.prod(shape)
    if len(content) != expected:
        state = "is truncated" if len(content) < expected else "has something after its end"
        sizes = " x ".join(map(str, shape))
        raise DataError(f"{path} {state}: {len(content)} bytes, expected {expected} for {sizes} {what}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
