"""Arrays that come in are checked: lengths, emptiness and finiteness, each with the row."""

import math
from typing import Any

import numpy as np
import pytest

from minadv.backend import is_host, to_host
from minadv.base.errors import DataError
from minadv.data.arrays import from_arrays, in_parts
from minadv.data.split import Split, as_split, expect_classes, padded
from tests.support.compare import assert_same_bits

X, Y = np.arange(24.0).reshape(4, 3, 2), np.array([0, 1, 2, 0])


def changed(at: tuple[int, ...], value: float) -> Any:
    x = X.copy()
    x[at] = value
    return x


BAD: list[tuple[tuple[Any, ...], str]] = [
    ((X[0], Y), r"x has shape \(3, 2\), expected sequences \(N, T, I\) or images"),
    ((X, Y[:3]), r"x has 4 rows and y has shape \(3,\): expected one label for each row of x"),
    ((X, Y[:, None]), r"x has 4 rows and y has shape \(4, 1\): expected one label for each row of x"),
    ((X, Y[0]), r"x has 4 rows and y has shape \(\): expected one label"),
    ((X[:0], Y[:0]), r"x has shape \(0, 3, 2\): expected at least one example, step and input"),
    ((X[:, :0], Y), r"x has shape \(4, 0, 2\): expected at least one example"),
    ((X, Y, np.array([1, 2, 3])), r"lengths is int64 of shape \(3,\), expected whole numbers \(4,\)"),
    ((X, Y, np.ones(4)), r"lengths is float64 of shape \(4,\), expected whole numbers \(4,\)"),
    ((X, Y, np.array([1, 3, 0, 9])), r"lengths\[2\] is 0, expected 1 to 3, the steps of x"),
    ((X, Y, np.array([1, 3, 4, 0])), r"lengths\[2\] is 4, expected 1 to 3, the steps of x"),
    (
        (changed((2, 1, 0), math.nan), Y),
        "x is nan in row 2, step 1, input 0: expected finite numbers; leave the row",
    ),
    ((changed((0, 2, 1), -math.inf), Y), "x is -inf in row 0, step 2, input 1: expected finite"),
    (
        (changed((1, 2, 0), math.nan), Y, np.array([3, 2, 3, 3])),
        "row 1, step 2, .*; the sequence has 2 steps, fill",
    ),
    (
        (X, np.array([0, 1, math.nan, 1])),
        "y is nan in row 2: expected finite numbers; leave the row out, or fill",
    ),
]


@pytest.mark.parametrize(("given", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_arrays(given: tuple[Any, ...], said: str, put: Any) -> None:
    with pytest.raises(DataError, match=said):
        Split(*put(given))


def test_two_infinities_do_not_hide_each_other() -> None:
    x = changed((3, 0, 0), math.inf)
    x[1, 2, 1] = -math.inf
    with pytest.raises(DataError, match="x is -inf in row 1, step 2, input 1"):
        Split(x, Y)


def test_large_numbers_are_finite() -> None:
    """Their sum is not, and that is no reason to refuse them."""
    assert len(Split(np.full((4, 3, 2), 1.7e308), Y)) == 4


def test_lists_are_no_arrays() -> None:
    with pytest.raises(TypeError, match="y is a list, expected a NumPy or CuPy array"):
        Split(X, [0, 1, 2, 0])  # type: ignore[arg-type]


def test_rows(put: Any) -> None:
    split = put(Split(X, Y, np.array([1, 2, 3, 1])))
    assert_same_bits(to_host(split[1:3]), Split(X[1:3], Y[1:3], np.array([2, 3])))
    assert split[2:].lengths is not None and Split(X, Y)[2:].lengths is None


def test_lengths_are_kept_on_the_host(put: Any) -> None:
    split = put(Split(X, Y, np.array([1, 2, 3, 1])))
    for one in (split, split[put(np.array([2, 0]))], split[[1]]):
        assert type(one.lengths) is np.ndarray and is_host(one.x) == is_host(split.x)
    np.testing.assert_array_equal(split[put(np.array([2, 0]))].lengths, [3, 1])
    with pytest.raises(TypeError, match="lengths is a list, expected a NumPy or CuPy array"):
        Split(X, Y, [1, 2, 3, 1])  # type: ignore[arg-type]


def test_padded() -> None:
    x, lengths = padded([[1.0, 2.0, 3.0], [4.0]])
    np.testing.assert_array_equal(x, [[[1], [2], [3]], [[4], [0], [0]]])
    np.testing.assert_array_equal(lengths, [3, 1])
    for sequences, said in (
        (
            [np.ones((2, 3)), np.ones((2, 2))],
            r"sequence 1 has shape \(2, 2\), expected \(T, 3\), with at least one step",
        ),
        ([np.ones((2, 3)), np.ones((0, 3))], r"sequence 1 has shape \(0, 3\), expected \(T, 3\)"),
        ([np.ones((2, 3, 1))], r"sequence 0 has shape \(2, 3, 1\), expected \(T, I\)"),
        ([np.array(["a"])], "sequence 0 has dtype <U1, expected numbers"),
        ([], "x holds no sequences: expected at least one"),
    ):
        with pytest.raises(DataError, match=said):
            padded(sequences)


@pytest.mark.parametrize(
    ("x", "shape"),
    [(X, (4, 3, 2)), (X[..., 0], (4, 3, 1)), (np.ones((4, 3, 2, 3)), (4, 3, 6)), (X.tolist(), (4, 3, 2))],
    ids=["sequences", "series", "images with channels", "lists"],
)
def test_what_x_may_be(x: Any, shape: tuple[int, ...]) -> None:
    split = as_split((x, Y.tolist()))
    assert (split.x.shape, split.x.dtype, split.y.dtype, split.lengths) == (shape, np.float32, np.int64, None)
    np.testing.assert_array_equal(split.x.ravel(), np.ravel(x))


def test_sequences_of_different_lengths() -> None:
    split = as_split(([X[0], X[1, :1], X[2, :2]], Y[:3]))
    assert split.lengths is not None
    np.testing.assert_array_equal(split.lengths, [3, 1, 2])
    assert not split.x[1, 1:].any()
    assert as_split(split) is split


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        (X, TypeError, r"data is a ndarray, expected arrays \(x, y\) or \(x, y, lengths\), or a Split"),
        ((X,), TypeError, r"data is a tuple, expected arrays \(x, y\)"),
        (([X[0], X[1, :1]], [0, 1], [3, 1]), ValueError, "data has lengths, and x is a list of sequences"),
        ((X.astype(str), Y), DataError, "x of data has dtype <U.*, expected numbers"),
        ((X, Y.astype(str)), DataError, r"y has dtype <U.*, expected classes 0, 1, 2, ...: np.unique\(y"),
        ((X, Y + 0.5), DataError, "y is 0.5 in row 0, expected a class: 0, 1, 2"),
        ((X, Y - 1), DataError, "y is -1 in row 0, expected a class: 0, 1, 2"),
        ((X, Y[:2]), DataError, r"data: x has 4 rows and y has shape \(2,\)"),
    ],
)
def test_bad_data(data: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        as_split(data)


def test_masked_numbers_are_not_read() -> None:
    masked = np.ma.masked_array(X, mask=X == 3)
    for data, name in (
        ((masked, Y), "x of data"),
        ((list(masked), Y), "x of data"),
        (([masked[0], X[1, :2]], Y[:2]), "sequence 0"),
        ((X, np.ma.masked_array(Y, mask=Y == 2)), "y"),
    ):
        with pytest.raises(DataError, match=f"{name} has masked numbers: leave their rows out, or fill them in"):
            as_split(data)
    assert as_split((np.ma.masked_array(X), Y)).x.shape == X.shape


def test_labels() -> None:
    np.testing.assert_array_equal(as_split((X, Y.astype(float)[:, None])).y, Y)
    split = Split(X, Y)
    expect_classes(split, 3, "train")
    with pytest.raises(DataError, match="y of the train part is 2 in row 2, expected 0 to 1: the model has n_classes"):
        expect_classes(split, 2, "train")


def test_parts_are_drawn_once_and_for_all() -> None:
    x, y = np.arange(60.0).reshape(20, 3, 1), np.arange(20) % 4
    data = from_arrays(x, y)
    assert [len(part) for part in (data.train, data.valid, data.test)] == [16, 2, 2]
    assert (data.classes, data.name) == (4, "arrays")
    rows = np.concatenate([part.x[:, 0, 0] for part in (data.train, data.valid, data.test)]) / 3
    assert sorted(rows) == list(range(20))
    assert list(rows) != list(range(20))
    assert_same_bits(in_parts(Split(x.astype(np.float32), y)).valid, data.valid)
    apart = from_arrays(x, y, np.full(20, 2), valid=0.25, test=(x[:3], y[:3]), dtype=np.float64)
    assert [len(part) for part in (apart.train, apart.valid, apart.test)] == [15, 5, 3]
    assert apart.train.x.dtype == np.float64
    assert (apart.train.lengths == 2).all() and (apart.valid.lengths == 2).all() and apart.test.lengths is None
    given = from_arrays(x, y, valid=(x[:2], y[:2]), test=(x[:3], y[:3]))
    np.testing.assert_array_equal(given.train.x, x)


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        (
            {"valid": 0.5, "test": 0.5},
            DataError,
            "data has 4 rows, too few for valid to have 2 and test to",
        ),
        ({"valid": 1.5}, ValueError, "valid is 1.5, expected more than 0 and less than 1"),
        ({"test": 0}, ValueError, "test is 0, expected more than 0 and less than 1"),
        ({"test": (X[..., :1], Y)}, DataError, "x of test has 1 inputs a step, expected 2, as x has"),
        ({"valid": (X, Y[:2])}, DataError, r"valid: x has 4 rows and y has shape \(2,\)"),
    ],
)
def test_bad_parts(how: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        from_arrays(X, Y, **how)
