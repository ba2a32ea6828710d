r"""A data set from arrays: parts for training, validation and test, given or drawn once and for all.

::

    fit(model, (x, y))                                     # a tenth of the rows validates, a tenth tests
    data = from_arrays(x, y, test=(x_test, y_test))        # a tenth of x validates
    data = from_arrays(list_of_sequences, y, valid=0.2)    # sequences of different lengths

Which rows are drawn depends on their number alone: it is the same in every run, on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.base.numbers import Share
from minadv.base.schema import expect_type
from minadv.base.streams import permutation, stream
from minadv.data.feed import Feed
from minadv.data.images import Images
from minadv.data.split import Split, as_split

TENTH = 0.1


def accept(data: Any, *, valid: Any = None, test: Any = None) -> Any:
    """Data of any form that `fit` takes: a data set, or arrays whose parts are given or drawn."""
    if isinstance(data, Split | tuple):
        return in_parts(data, valid=valid, test=test)
    if isinstance(data, list) and any(hasattr(one, "shape") for one in data):
        said = f"data is a list of {len(data)} arrays, expected a tuple (x, y) or (x, y, lengths), or a list of batches"
        raise TypeError(f"{said}: give fit(model, (x, y))")
    if isinstance(data, Iterable) and not hasattr(data, "shape") and not isinstance(data, str | bytes | Mapping):
        return in_batches(data, valid=valid, test=test)
    if valid is not None or test is not None:
        raise ValueError(f"valid and test are parts of arrays (x, y), and data is a {type(data).__name__}")
    return data


def whole(data: Any, dtype: npt.DTypeLike) -> Any:
    """Arrays as a data set whose every part is all of them, to evaluate on; a data set is left as it is."""
    if not isinstance(data, Split | tuple):
        return data
    given = (data.x, data.y, data.lengths) if isinstance(data, Split) else data
    split = as_split(given, "data", dtype=dtype)
    return in_parts(split, valid=split, test=split)


def from_arrays(
    x: Any,
    y: Any,
    lengths: Any = None,
    *,
    valid: Any = TENTH,
    test: Any = TENTH,
    classes: int | None = None,
    name: str = "arrays",
    dtype: npt.DTypeLike = np.float32,
) -> Images:
    """The data set of these sequences; ``valid`` and ``test`` are shares of the rows, or arrays (x, y[, lengths]).

    ``x``, ``y`` and ``lengths`` are as in `minadv.data.split.as_split`; ``classes`` defaults to the largest label
    and one. Raises DataError, which names the row, for arrays that do not fit each other or are not finite.
    """
    return in_parts((x, y, lengths), valid=valid, test=test, classes=classes, name=name, dtype=dtype)


def in_parts(
    data: Any,
    *,
    valid: Any = None,
    test: Any = None,
    classes: int | None = None,
    name: str = "arrays",
    dtype: npt.DTypeLike = np.float32,
) -> Images:
    """What `from_arrays` makes of (x, y[, lengths]) or a `Split`; a share that is None is a tenth."""
    whole = as_split(data, "data", dtype=dtype)
    parts: dict[str, Split] = {}
    sizes: dict[str, int] = {}
    for part, value in (("valid", valid), ("test", test)):
        if value is None or isinstance(value, int | float):
            value = TENTH if value is None else value
            expect_type(part, value, Share)
            sizes[part] = max(1, round(value * len(whole)))
        else:
            parts[part] = as_split(value, part, dtype=dtype)
    left = len(whole) - sum(sizes.values())
    if left < 1:
        raise DataError(f"data has {len(whole)} rows, too few for {_said(sizes)}: give valid and test as arrays")
    order = permutation(stream(0, "split arrays", len(whole)), len(whole))
    for part, size in sizes.items():
        parts[part], order = whole[np.sort(order[:size])], order[size:]
    train = whole[np.sort(order)] if sizes else whole
    for part, split in parts.items():
        if split.x.shape[2] != whole.x.shape[2]:
            raise DataError(f"x of {part} has {split.x.shape[2]} inputs a step, expected {whole.x.shape[2]}, as x has")
    every = (whole, *parts.values())
    return Images(name, classes or _classes([split.y for split in every]), train, parts["valid"], parts["test"])


def in_batches(
    batches: Iterable[Any], *, valid: Any = None, test: Any = None, dtype: npt.DTypeLike = np.float32
) -> Images:
    """A data set whose training part is a feed of batches (`minadv.data.feed`); the other parts must be given."""
    if valid is None or test is None:
        raise ValueError("data are batches, which cannot be parted: give valid=(x, y) and test=(x, y) as well")
    valid, test = (as_split(value, name, dtype=dtype) for name, value in (("valid", valid), ("test", test)))
    feed: Any = Feed(batches, dtype=dtype)
    return Images("batches", _classes([feed.y, valid.y, test.y]), feed, valid, test)


def _classes(labels: list[Array]) -> int:
    return max(2, 1 + max(int(y.max()) for y in labels))


def _said(sizes: dict[str, int]) -> str:
    return " and ".join(f"{part} to have {size}" for part, size in sizes.items())
