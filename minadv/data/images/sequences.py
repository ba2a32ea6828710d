r"""Images read as sequences, pixel by pixel or row by row.

::

    data = as_sequences(images.load("digits"), by="row", permute=True)

An image becomes a sequence in three steps: average blocks of ``pool`` by ``pool`` pixels; put the pixels in one fixed
random order, if asked to (``p`` in the paper, which calls the scanline order ``s``); cut that row of pixels into steps
of one pixel or of one image row. The order is the same in every run, on every machine: it is part of the task.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias

from minadv.backend import Array, same_place
from minadv.base.checks import expect_choice, expect_shape
from minadv.base.errors import DataError
from minadv.base.streams import permutation, stream
from minadv.data.fetch import data_root
from minadv.data.images import Images, Split, load, own

By: TypeAlias = Literal["pixel", "row"]


def as_sequences(images: Images, *, by: By = "pixel", pool: int = 1, permute: bool = False) -> Images:
    """All parts with ``x (N, T, I)`` in place of the images; `batches.take` makes time-major batches of them."""

    def cut(split: Split) -> Split:
        return replace(split, x=sequences(split.x, by=by, pool=pool, permute=permute))

    parts: dict[str, Any] = {name: cut(part) for name, part in images.parts.items()}
    return replace(images, **parts)


def from_description(about: dict[str, Any]) -> Images:
    """The sequences that a run's configuration describes: images, data_dir, dtype, by, pool, permuted.

    Of a user's own folder, also the shares that validate and test.
    """
    if "images" not in about:
        raise ValueError("this run was made in Python and does not say where its data is: go on with it there")
    if about["images"] == "folder":
        if about["data_dir"] is None:
            raise DataError("no folder is given: name the one that holds the examples with --data-dir")
        shares = {name: about[name] for name in ("valid_share", "test_share")}
        loaded = own.load(data_root(about["data_dir"]), dtype=about["dtype"], **shares)
    else:
        loaded = load(about["images"], data_dir=about["data_dir"], dtype=about["dtype"])
    return as_sequences(loaded, by=about["by"], pool=about["pool"], permute=about["permuted"])


def sequences(x: Array, *, by: By = "pixel", pool: int = 1, permute: bool = False) -> Array:
    """Images ``(N, rows, columns)`` as sequences ``(N, T, I)``: T = pixels and I = 1, or T = rows and I = columns."""
    expect_choice("by", by, ("pixel", "row"))
    expect_shape("x", x, ("N", "rows", "columns"))
    x = pooled(x, pool)
    N, rows, columns = x.shape
    pixels = x.reshape(N, rows * columns)
    if permute:
        pixels = pixels[:, same_place(pixel_order(rows * columns), x)]
    return pixels.reshape(N, -1, 1 if by == "pixel" else columns)


def pooled(x: Array, factor: int) -> Array:
    """The mean of each block of ``factor`` by ``factor`` pixels."""
    N, rows, columns = x.shape
    if factor < 1 or rows % factor or columns % factor:
        raise ValueError(f"pool is {factor}, expected a divisor of both sides of {rows} x {columns} pixels")
    if factor == 1:
        return x
    blocks = x.reshape(N, rows // factor, factor, columns // factor, factor)
    means: Array = blocks.mean(axis=(2, 4))
    return means


def pixel_order(n: int) -> Array:
    """The one fixed permutation of n pixels: position t of the sequence shows pixel ``pixel_order(n)[t]``."""
    return permutation(stream(0, "pixel order", n), n)
