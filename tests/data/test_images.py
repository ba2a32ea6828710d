"""Images, their fixed splits, and the ways to read them as sequences."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.errors import DataError
from minadv.data.images import Images, digits, from_idx, load
from minadv.data.images.sequences import as_sequences, pixel_order, pooled, sequences
from tests.support.idxfiles import write_four


def rows_of(images: Images) -> list[bytes]:
    return [x.tobytes() for split in (images.train, images.valid, images.test) for x in split.x]


def test_digits_are_split_once_and_for_all() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    data = digits()
    assert (len(data.train), len(data.valid), len(data.test)) == (1257, 180, 360)
    assert data.train.x.shape == (1257, 8, 8)
    assert data.train.x.dtype == np.float32
    assert data.train.y.dtype == np.int64
    assert data.train.x.min() == 0
    assert data.train.x.max() == 1
    whole = datasets.load_digits()
    labels = {x.tobytes(): y for x, y in zip((whole.images / 16).astype(np.float32), whole.target, strict=True)}
    assert sorted(rows_of(data)) == sorted((x / 16).astype(np.float32).tobytes() for x in whole.images)
    for split in (data.train, data.valid, data.test):
        assert [labels[x.tobytes()] for x in split.x] == split.y.tolist()
        assert set(split.y.tolist()) == set(range(10))
    assert data.test.y[:12].tolist() == [
        6,
        9,
        1,
        5,
        6,
        9,
        0,
        2,
        4,
        5,
        5,
        4,
    ]  # pinned: results of different versions must be comparable
    assert rows_of(load("digits")) == rows_of(data)


def test_idx_folder(tmp_path: Path) -> None:
    write_four(tmp_path)
    data = load("mnist", data_dir=tmp_path, dtype=np.float64)
    assert (len(data.train), len(data.valid), len(data.test)) == (55, 5, 20)
    assert (data.train.x.dtype, data.classes, data.name) == (np.float64, 10, "mnist")
    assert data.train.x.max() == 1
    assert data.test.x[0, 0, 0] * 255 == pytest.approx(round(float(data.test.x[0, 0, 0]) * 255), abs=1e-9)
    assert len(set(rows_of(data))) == 80
    write_four(tmp_path / "plain" / "mnist", compress=False)
    assert rows_of(load("mnist", data_dir=tmp_path / "plain", dtype=np.float64)) == rows_of(data)


def test_folders_that_are_not_right(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks train-images-idx3-ubyte\.gz, expected there, compressed or not"):
        from_idx(tmp_path)
    write_four(tmp_path, n_train=11)
    with pytest.raises(DataError, match="holds 11 images, expected at least 12"):
        from_idx(tmp_path)
    write_four(tmp_path, side=32)
    with pytest.raises(DataError, match="images of 32 x 32 pixels, expected 28 x 28"):
        from_idx(tmp_path)
    with pytest.raises(ValueError, match="name is 'cifar', expected one of 'digits', 'mnist', 'fashion'"):
        load("cifar")


def test_pixel_by_pixel_and_row_by_row(rng: Any, put: Any) -> None:
    x = rng.random((3, 4, 6))
    by_pixel, by_row = to_host((sequences(put(x)), sequences(put(x), by="row")))
    assert by_pixel.shape == (3, 24, 1)
    np.testing.assert_array_equal(by_pixel[1, :, 0], [x[1, r, c] for r in range(4) for c in range(6)])
    np.testing.assert_array_equal(by_row, x)


@pytest.mark.parametrize("by", ["pixel", "row"])
def test_permuted(by: Any, rng: Any, put: Any) -> None:
    x = rng.random((3, 4, 6))
    order = pixel_order(24)
    permuted = to_host(sequences(put(x), by=by, permute=True))
    assert permuted.shape == ((3, 24, 1) if by == "pixel" else (3, 4, 6))
    for n in range(3):
        np.testing.assert_array_equal(permuted[n].ravel(), [x[n, p // 6, p % 6] for p in order])


def test_pixel_order_never_changes() -> None:
    assert sorted(pixel_order(784).tolist()) == list(range(784))
    assert pixel_order(784)[:8].tolist() == [773, 357, 17, 684, 562, 689, 450, 145]
    assert pixel_order(64)[:8].tolist() == [7, 38, 35, 22, 28, 57, 10, 55]


def test_pooled(rng: Any, put: Any) -> None:
    x = rng.random((2, 4, 6)).astype(np.float32)
    found = to_host(pooled(put(x), 2))
    assert found.dtype == np.float32
    for n, r, c in np.ndindex(2, 2, 3):
        block = [x[n, 2 * r + i, 2 * c + j] for i in range(2) for j in range(2)]
        assert found[n, r, c] == pytest.approx(sum(block) / 4, rel=1e-6)
    np.testing.assert_array_equal(to_host(sequences(put(x), pool=2, by="row")), found)
    for factor in (3, 0, -1, 4):
        with pytest.raises(ValueError, match=f"pool is {factor}, expected a divisor of both sides of 4 x 6 pixels"):
            pooled(put(x), factor)


def test_all_splits_alike(tmp_path: Path) -> None:
    write_four(tmp_path)
    data = from_idx(tmp_path)
    made = as_sequences(data, by="pixel", pool=4, permute=True)
    assert made.train.x.shape == (55, 49, 1)
    for before, after in ((data.train, made.train), (data.valid, made.valid), (data.test, made.test)):
        np.testing.assert_array_equal(after.x, sequences(before.x, pool=4, permute=True))
        np.testing.assert_array_equal(after.y, before.y)
    with pytest.raises(ValueError, match="by is 'column', expected one of 'pixel', 'row'"):
        as_sequences(data, by="column")  # type: ignore[arg-type]
