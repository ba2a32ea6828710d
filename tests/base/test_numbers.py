"""Numbers have a type and a range, and values are held against the types in annotations."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
import pytest

from minadv.backend import Array
from minadv.base import numbers
from minadv.base.numbers import (
    Count,
    Decay,
    Epochs,
    Few,
    Positive,
    Probability,
    Seed,
    Size,
    Steps,
    ZeroOrMore,
    number_of,
)
from minadv.base.schema import expect_fields, expect_type, hints

KINDS = [getattr(numbers, name) for name in dir(numbers) if hasattr(getattr(numbers, name), "__metadata__")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(number_of(kind)))
def test_every_number_has_two_ends(kind: Any) -> None:
    number = number_of(kind)
    assert math.isfinite(number.least) and math.isfinite(number.most)
    for value in (number.least, number.most):
        assert number.wrong(number.kind(value)) is None
        assert number.read(repr(number.kind(value))) == value
    for text in ("nan", "inf", "-inf", "", "x", "1e400", "None", "1" + "0" * 400):
        with pytest.raises(ValueError, match=r"is not|too large"):
            number.read(text)
    for wrong in (True, np.True_, "1", None, math.nan, math.inf, -math.inf, 10**400, [1], 1j, {}):
        assert number.wrong(wrong) is not None
    if number.kind is int:
        assert number.wrong(number.least - 1) and number.wrong(number.most + 1) and number.wrong(number.least + 0.5)
        assert number.wrong(np.int64(max(number.least, 1))) is None


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (Few, "1" + "0" * 30, "is too large, expected at most 1,000"),
        (Few, "0", "'0' is not a positive whole number"),
        (Count, "-1", "'-1' is not zero or a positive whole number"),
        (Size, "2.5", "'2.5' is not a positive whole number"),
        (Epochs, "1e10", "'1e10' is too large, expected at most 1,000,000,000"),
        (Positive, "0", "'0' is not a positive number"),
        (Probability, "1", "'1' is not a probability from 0 up to, but not including, 1"),
        (Decay, "-0.1", r"'-0.1' is not a number in \[0, 1\)"),
    ],
)
def test_a_text_that_is_no_such_number(kind: Any, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        number_of(kind).read(text)


class Table(TypedDict):
    name: str
    sizes: dict[str, Size]


class Whole(Table, total=False):
    seed: Seed


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        (1.5, Steps, "it is 1.5, expected a whole number of at least 1"),
        ("x", Few | None, "it is 'x', expected a whole number of at least 1, or None"),
        (1, bool, "it is 1, expected one of True, False"),
        (math.nan, float, "it is nan, expected a finite number"),
        ("c", Literal["a", "b"], "it is 'c', expected one of 'a', 'b'"),
        (True, Literal[1, 2], "it is True, expected one of 1, 2"),
        (("a", 3), tuple[str, ...] | None, r"it\[1\] is 3, expected a text"),
        ("ab", tuple[str, ...], "it is 'ab', expected a list"),
        ({"a": "x"}, float | Mapping[str, float] | None, "it.a is 'x', expected a finite number"),
        (3, Callable[[float], float], "it is 3, expected a function"),
        ({"sizes": {}}, Table, "it.name is missing, expected a text"),
        ({"name": "a", "sizes": {"b": 0}}, Table, "it.sizes.b is 0, expected a whole number of at least 1"),
        ({"name": "a", "sizes": {}, "seed": -1}, Whole, "it.seed is -1, expected a whole number of at least 0"),
        ([], Table, r"it is \[\], expected a table of values by name"),
        (2**2000, float | None, r"it is a whole number of 2001 bits, expected at most 1\.79.*, or None"),
        (-math.inf, float, "it is -inf, expected a finite number"),
        (2**2000, Few, "it is a whole number of 2001 bits, expected at most 1,000"),
        ("y" * 500, Few, "it is 'yyy.*yyy..., expected"),
    ],
)
def test_a_value_of_another_type(value: Any, hint: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}"):
        expect_type("it", value, hint)


def test_values_that_fit() -> None:
    for value, hint in (
        (np.int64(3), Few),
        (3, float),
        (np.float32(0.5), Probability),
        (None, Few | None),
        (["a"], tuple[str, ...]),
        (math.sin, Callable[[float], float]),
        ({"name": "a", "sizes": {"b": 1}, "more": 3}, Whole),
        (np.zeros(3), Array | None),
    ):
        expect_type("it", value, hint)


@dataclass(frozen=True)
class Record:
    n: Size
    weight: ZeroOrMore = 1.0
    data: Array | None = field(default=None, metadata={"config": False})


def test_the_fields_of_a_record() -> None:
    expect_fields(Record(3, data="whatever"))  # type: ignore[arg-type]
    assert hints(Record).keys() == {"n", "weight"}
    with pytest.raises(ValueError, match="weight is -1, expected zero or a positive number"):
        expect_fields(Record(1, -1))
    expect_fields(Record(0), only=("weight",))
    expect_fields(record := Record(np.int64(3), np.float32(0.5)))
    assert (type(record.n), type(record.weight)) == (int, float) and record == Record(3, 0.5)
    expect_fields(record := Record(3, np.longdouble(0.5)))
    assert type(record.weight) is float


def test_a_record_whose_types_are_not_known_here_is_left_alone() -> None:
    @dataclass
    class Mine:
        other: "Unknown"  # type: ignore[name-defined]  # noqa: F821

    expect_fields(Mine(3))
