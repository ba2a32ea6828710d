r"""Labelled arrays and images of one's own, as sequences that a classifier reads.

::

    load(Path("mine.npz"))      # x (N, T, I) or (N, T), y (N,), perhaps lengths (N,); also x_valid, x_test, ...
    load(Path("mine"))          # one such file; or train.npz and test.npz; or CLASS/*.png, train/CLASS/*.png, test/...

Parts that are missing are a share of the training examples, the same share of each class. Every input of arrays is
scaled to the mean 0 and the deviation 1 of the training examples. Images are read in grey, from 0 to 1; that needs
Pillow, which comes with the extra ``experiments``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.base.streams import permutation, stream
from minadv.data.files import arrays, content, expect_folder
from minadv.data.images import Images, Split
from minadv.data.images.scaling import Scaling

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff")
FEWEST = 3  # examples of a class: one each to train, to validate and to test
EXPECTED = "one .npz file with x and y, train.npz and test.npz, or images by class: CLASS/*.png, or train/ and test/"


@dataclass(frozen=True)
class Labelled:
    """Examples, the names of their classes, and, if they differ, the steps of each."""

    x: Array
    y: Array
    lengths: Array | None = None

    @property
    def labels(self) -> list[str]:
        return list(map(str, self.y.tolist()))

    def __getitem__(self, rows: Array) -> Labelled:
        return Labelled(self.x[rows], self.y[rows], None if self.lengths is None else self.lengths[rows])


def load(
    root: Path, *, dtype: npt.DTypeLike = np.float32, valid_share: float = 0.15, test_share: float = 0.2
) -> Images:
    """The examples of a folder or of a file of arrays; images are ``(N, rows, columns)``, arrays ``(N, T, I)``."""
    if not root.is_file():
        expect_folder(root)
    files = arrays_inside(root)
    parts = _of_arrays(root, files) if files else _of_images(root)
    names = tuple(sorted(set(parts["train"].labels), key=_order))
    if len(names) < 2:
        raise DataError(f"{root} has the classes ({', '.join(names)}) to train on, expected at least two")
    for part, labelled in parts.items():
        unknown = sorted(set(labelled.labels) - set(names))
        if unknown:
            raise DataError(
                f"{root} has the class {unknown[0]!r} in {part}, expected those of train: {', '.join(names)}"
            )
    for part, share in (("test", test_share), ("valid", valid_share)):
        if part not in parts:
            whole = parts["train"]
            chosen = some_of_each(whole.labels, share, str(root), 2 if part == "test" else 1)
            parts[part], parts["train"] = whole[chosen], whole[~chosen]
    scaling = _scaling(parts["train"]) if files else None
    found = {part: _split(parts[part], names, dtype, scaling) for part in ("train", "valid", "test")}
    return Images("arrays" if files else "images", len(names), **found, names=names, scaling=scaling)


def arrays_inside(root: Path) -> dict[str, Path]:
    """The files of arrays of a folder, or the one file that is named, by name without the ending."""
    if root.is_file():
        return {root.stem: root}
    return {path.stem: path for path in sorted(root.glob("*.npz")) if not path.name.startswith(".")}


def images_below(root: Path) -> list[Path]:
    """The images in the folders below a folder, by name."""
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    found = (path for folder in folders for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    return sorted(path for path in found if path.is_file() and not path.name.startswith("."))


def some_of_each(labels: Sequence[str], share: float, where: str, left: int) -> Array:
    """Which examples another part takes: bool ``(N,)``, the same share of each class, at least one; ``left`` stay."""
    chosen = np.zeros(len(labels), dtype=bool)
    for number, label in enumerate(sorted(set(labels))):
        rows = np.flatnonzero(np.array([other == label for other in labels]))
        if len(rows) <= left:
            had = f"{len(rows)} example{'s' * (len(rows) > 1)} of the class {label!r}"
            raise DataError(f"{where} has {had}, expected at least {FEWEST}: to train, to validate and to test")
        n = min(max(round(share * len(rows)), 1), len(rows) - left)
        chosen[rows[permutation(stream(left, "share of examples", number), len(rows))[:n]]] = True
    return chosen


def _of_arrays(root: Path, files: dict[str, Path]) -> dict[str, Labelled]:
    if len(files) > 1 and files.keys() not in ({"train", "test"}, {"train", "valid", "test"}):
        raise DataError(f"{root} holds {', '.join(f'{n}.npz' for n in files)}, expected one file, or train and test")
    if len(files) > 1:
        return {part: _pair(path, arrays(path), "") for part, path in files.items()}
    [path] = files.values()
    held = arrays(path)
    named = {"train": "_train" if "x_train" in held else "", "valid": "_valid", "test": "_test"}
    return {p: _pair(path, held, end) for p, end in named.items() if p == "train" or f"x{end}" in held}


def _pair(path: Path, held: dict[str, Array], end: str) -> Labelled:
    """The examples (N, T, I) of a file and their classes."""
    missing = [name for name in (f"x{end}", f"y{end}") if name not in held]
    if missing:
        raise DataError(
            f"{path} lacks {' and '.join(missing)}, expected examples x and classes y; it has {', '.join(held)}"
        )
    x, y = held[f"x{end}"], held[f"y{end}"]
    if x.ndim not in (2, 3) or x.dtype.kind not in "buif" or x.size == 0:
        raise DataError(f"x{end} of {path} is {x.dtype} of shape {x.shape}, expected numbers (N, T, I) or (N, T)")
    if y.shape != (len(x),):
        raise DataError(f"y{end} of {path} has the shape {y.shape}, expected {len(x)} classes, one for each x")
    if y.dtype.kind == "f":
        y = _whole(y, f"y{end} of {path}")
    if y.dtype.kind not in "buiUS":
        raise DataError(f"y{end} of {path} is {y.dtype}, expected classes: whole numbers or texts")
    x, lengths = x if x.ndim == 3 else x[:, :, None], held.get(f"lengths{end}")
    if lengths is not None:
        expect_lengths(lengths, f"lengths{end} of {path}", x)
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x).all(axis=(1, 2)))[0])
        raise DataError(f"x{end}[{row}] of {path} is not finite, expected numbers: leave it out, or mend it")
    return Labelled(x, y.astype(str), lengths)


def _whole(y: Array, name: str) -> Array:
    """Classes such as 3.0 as whole numbers; raises DataError, which names the row, for any other number."""
    bad = np.flatnonzero(~(np.isfinite(y) & (y == np.floor(y)) & (np.abs(y) < 2**53)))
    if len(bad):
        value = f"{y[bad[0]]:g} in row {bad[0]} ({y.dtype})"
        raise DataError(f"{name} is {value}, expected classes: whole numbers or texts")
    return y.astype(np.int64)


def expect_lengths(lengths: Array, name: str, x: Array) -> None:
    """Raise DataError, which names the row, unless these are the steps of each of ``x (N, T, I)``."""
    N, T = x.shape[:2]
    if lengths.shape != (N,) or lengths.dtype.kind not in "ui":
        raise DataError(
            f"{name} is {lengths.dtype} of shape {lengths.shape}, expected {N} whole numbers, one for each x"
        )
    bad = np.flatnonzero((lengths < 1) | (lengths > T))
    if len(bad):
        raise DataError(f"{name} is {lengths[bad[0]]} in row {bad[0]}, expected 1 to {T}, the steps of x")


def _of_images(root: Path) -> dict[str, Labelled]:
    parts = [part for part in ("train", "valid", "test") if (root / part).is_dir() and images_below(root / part)]
    if "train" in parts:
        return {part: _read(images_below(root / part)) for part in parts}
    paths = images_below(root)
    if not paths:
        raise DataError(f"{root} holds no labelled examples: expected {EXPECTED}")
    return {"train": _read(paths)}


def _read(paths: list[Path]) -> Labelled:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images need Pillow: pip install minadv[experiments]") from error
    images: list[Array] = []
    for path in paths:
        try:
            with Image.open(io.BytesIO(content(path))) as image:
                grey = np.asarray(image.convert("L"), dtype=np.float32) / 255
        except DataError:
            raise
        except Exception as error:  # each format has its own for damage
            raise DataError(f"cannot read {path} as an image: {error}") from error
        if images and grey.shape != images[0].shape:
            sizes = [f"{columns} x {rows}" for rows, columns in (grey.shape, images[0].shape)]
            raise DataError(f"{path} has {sizes[0]} pixels, expected {sizes[1]}, the size of {paths[0].name}")
        images.append(grey)
    return Labelled(np.stack(images), np.array([path.parent.name for path in paths]))


def _scaling(train: Labelled) -> Scaling:
    """The mean and the deviation of each input over all examples and steps; a constant input has the deviation 1."""
    wide = train.x.astype(np.float64)
    steps = np.arange(wide.shape[1]) < (wide.shape[1] if train.lengths is None else train.lengths[:, None])
    rows = wide[np.broadcast_to(steps, wide.shape[:2])]  # padding counts for nothing
    spread = rows.std(axis=0)
    return Scaling(tuple(rows.mean(axis=0).tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist()))


def _split(held: Labelled, names: tuple[str, ...], dtype: npt.DTypeLike, scaling: Scaling | None) -> Split:
    index = {name: n for n, name in enumerate(names)}
    x = held.x.astype(dtype) if scaling is None else scaling(held.x).astype(dtype)
    y = np.array([index[label] for label in held.labels], dtype=np.int64)
    return Split(x, y, None if held.lengths is None else held.lengths.astype(np.int64))


def _order(name: str) -> tuple[int, int, str]:
    """Classes that are numbers are in the order of numbers."""
    return (0, int(name), "") if name.isdecimal() and name.isascii() else (1, 0, name)
