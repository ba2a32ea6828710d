"""The idx reader: right on what is right, one clear line on what is not."""

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base.errors import DataError
from minadv.data.idx import read_images, read_labels, read_pair
from tests.support.idxfiles import idx


@pytest.fixture
def images(rng: Any) -> Any:
    return rng.integers(0, 256, (5, 28, 28)).astype(np.uint8)


def put_file(tmp_path: Path, content: bytes, name: str = "images") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compress", [False, True])
def test_images_and_labels(tmp_path: Path, images: Any, compress: bool) -> None:
    pack = gzip.compress if compress else bytes
    x = put_file(tmp_path, pack(idx(images)))
    y = put_file(tmp_path, pack(idx(np.array([0, 9, 3, 4, 1]))), "labels")
    found, labels = read_pair(x, y)
    np.testing.assert_array_equal(found, images)
    assert labels.tolist() == [0, 9, 3, 4, 1]
    assert found.dtype == labels.dtype == np.uint8


def refused(path: Path, message: str, read: Any = read_images) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [5, 20, -9, -1])
def test_truncated_gzip(tmp_path: Path, images: Any, cut: int) -> None:
    refused(put_file(tmp_path, gzip.compress(idx(images))[:cut]), "is a corrupt gzip file: ")


@pytest.mark.parametrize("at", [2, 3, 30, 1000, -6])
def test_changed_gzip(tmp_path: Path, images: Any, at: int) -> None:
    content = bytearray(gzip.compress(idx(images), mtime=0))
    content[at] ^= 0xFF
    refused(put_file(tmp_path, bytes(content)), "is a corrupt gzip file: ")


def test_wrong_magic_number(tmp_path: Path, images: Any) -> None:
    labels = put_file(tmp_path, idx(np.zeros(5)), "labels")
    refused(labels, "is not an idx file of images: magic number 0x00000801, expected 0x00000803")
    refused(put_file(tmp_path, idx(images)), "is not an idx file of labels: magic number 0x00000803", read_labels)
    refused(put_file(tmp_path, idx(images, 0x0D03)), "magic number 0x00000d03")
    refused(put_file(tmp_path, b"<html>not found</html>"), "magic number 0x3c68746d")
    refused(put_file(tmp_path, b""), "magic number only 0 bytes")


def test_wrong_length(tmp_path: Path, images: Any) -> None:
    whole = idx(images)
    refused(put_file(tmp_path, whole[:10]), "is truncated: 10 bytes, expected 16 for the sizes alone")
    refused(put_file(tmp_path, whole[:-1]), "is truncated: 3935 bytes, expected 3936 for 5 x 28 x 28 images")
    refused(put_file(tmp_path, whole + b"x"), "has something after its end: 3937 bytes, expected 3936")


def test_wrong_size(tmp_path: Path) -> None:
    refused(put_file(tmp_path, idx(np.zeros((2, 32, 30)))), "holds images of 32 x 30 pixels, expected 28 x 28")
    assert read_images(put_file(tmp_path, idx(np.zeros((2, 8, 8)))), size=(8, 8)).shape == (2, 8, 8)


def test_labels(tmp_path: Path, images: Any) -> None:
    refused(put_file(tmp_path, idx(np.array([1, 10]))), "holds the label 10, expected labels from 0 to 9", read_labels)
    x, y = put_file(tmp_path, idx(images)), put_file(tmp_path, idx(np.zeros(4)), "labels")
    with pytest.raises(
        DataError, match=f"{re.escape(str(y))} holds 4 labels, expected 5, one for each image of images"
    ):
        read_pair(x, y)
    empty = put_file(tmp_path, idx(np.zeros((0, 28, 28)))), put_file(tmp_path, idx(np.zeros(0)), "labels")
    with pytest.raises(DataError, match="holds no images"):
        read_pair(*empty)


def test_missing(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "cannot read .*: No such file or directory")
    refused(tmp_path, "cannot read .*: Is a directory")
