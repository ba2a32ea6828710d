r"""Images: scikit-learn's digits, and MNIST and whatever shares its format.

The split into training, validation and test images is the same in every run, on every machine: it is part of the data,
not of a run's seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.errors import DataError
from minadv.base.streams import permutation, stream
from minadv.data.fetch import find, locate
from minadv.data.idx import read_pair
from minadv.data.images.scaling import Scaling
from minadv.data.split import Split as Split

NAMES = ("digits", "mnist", "fashion")


@dataclass(frozen=True)
class Images:
    """A data set of images or sequences: its name, the number of classes, parts for training, validation and test.

    `minadv.data.arrays.from_arrays` makes one of arrays. ``unlabelled`` are further examples to train with, whose
    labels are never read: regularizers that need none take them too.
    """

    name: str
    classes: int
    train: Split
    valid: Split
    test: Split
    unlabelled: Split | None = None
    names: tuple[str, ...] = ()  # of the classes, where they are not just numbers
    scaling: Scaling | None = None  # of a user's own arrays

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that there are, by name."""
        named = {"train": self.train, "valid": self.valid, "test": self.test, "unlabelled": self.unlabelled}
        return {name: part for name, part in named.items() if part is not None}


def load(name: str, *, data_dir: str | Path | None = None, dtype: npt.DTypeLike = np.float32) -> Images:
    """The images of that name: values in [0, 1] of the dtype, labels int64; ``data_dir`` is that of `fetch.find`."""
    expect_choice("name", name, NAMES)
    return digits(dtype) if name == "digits" else from_idx(find(name, data_dir), name, dtype)


def digits(dtype: npt.DTypeLike = np.float32) -> Images:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, no download: 1,257 to train, 180 to validate, 360 to test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("digits need scikit-learn: pip install minadv[experiments]") from error
    loaded = load_digits()
    x, y = (loaded.images / 16).astype(dtype), loaded.target.astype(np.int64)
    order = permutation(stream(0, "split digits"), len(y))
    train, valid, test = (_take(x, y, rows) for rows in np.split(order, [1257, 1437]))
    return Images("digits", 10, train, valid, test)


def from_idx(folder: Path, name: str = "mnist", dtype: npt.DTypeLike = np.float32) -> Images:
    """The images of a folder's four idx files; one training image in twelve validates: 5,000 of MNIST's 60,000."""
    (x, y), test = (_read(folder, part, dtype) for part in ("train", "t10k"))
    if len(y) < 12:
        raise DataError(f"the training file of {folder} holds {len(y)} images, expected at least 12")
    order = permutation(stream(0, "split idx"), len(y))
    valid, train = (_take(x, y, rows) for rows in np.split(order, [len(y) // 12]))
    return Images(name, 10, train, valid, Split(*test))


def _read(folder: Path, part: str, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """One pair of files: images scaled to [0, 1], labels."""
    images, labels = (
        _expect_file(folder, f"{part}-{file}") for file in ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
    )
    x, y = read_pair(images, labels)
    scaled: Array = x.astype(dtype)
    scaled /= 255
    return scaled, y.astype(np.int64)


def _expect_file(folder: Path, file: str) -> Path:
    path = locate(folder, file)
    if path is None:
        raise DataError(f"{folder} lacks {file}, expected there, compressed or not")
    return path


def _take(x: Array, y: Array, rows: Array) -> Split:
    """The images of these rows with their labels, in ascending order of the rows."""
    rows = np.sort(rows)
    return Split(x[rows], y[rows])
