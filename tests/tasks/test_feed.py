"""Training on batches that come one after the other: generators, lists, loaders."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base.errors import DataError
from minadv.data.feed import EPOCH, Feed
from minadv.models.classifier import Classifier
from minadv.regularizers import AdD
from minadv.searches import Memory
from minadv.training.loop import Interrupted
from tests.support.compare import assert_same_bits
from tests.support.problems import MODEL, sequences

DATA = sequences(n=60)
X, Y = DATA.train.x, DATA.train.y
PARTS: dict[str, Any] = {"valid": (DATA.valid.x, DATA.valid.y), "test": (DATA.test.x, DATA.test.y)}
HOW: dict[str, Any] = {**PARTS, "lr": 0.03, "progress": False}
LIST = [(X[n : n + 10], Y[n : n + 10]) for n in range(0, 60, 10)]


def endless() -> Iterator[Any]:
    """Batches of different sizes and lengths."""
    for n in itertools.count():
        rows = np.arange(n, n + 7 + n % 3) % 60
        yield X[rows], Y[rows], np.full(len(rows), 3 + n % 2)


def test_a_list_of_batches() -> None:
    run = minadv.fit(MODEL, LIST, epochs=8, **HOW)
    assert (run.step, len(run.records)) == (48, 8)
    assert run.test()["error"] < 10


def test_a_generator() -> None:
    run = minadv.fit(MODEL, endless(), steps=60, regularizer=AdD(), eval_every=20, **HOW)
    assert [record["step"] for record in run.records] == [20, 40, 60]
    assert run.records[0]["epoch"] == 20 / EPOCH
    assert run.test()["error"] < 10


def test_a_run_on_batches_goes_on(tmp_path: Any) -> None:
    """It reads what came before once more."""
    pytest.importorskip("safetensors")

    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 4:
            raise KeyboardInterrupt

    how = {**HOW, "steps": 9, "eval_every": 2, "out": tmp_path / "run"}
    with pytest.raises(Interrupted):
        minadv.fit(MODEL, endless(), on_evaluation=stop, **how)
    again = minadv.fit(MODEL, endless(), resume=True, **how)
    assert_same_bits(again.last, minadv.fit(MODEL, endless(), **{**how, "out": None}).last)


def test_batches_by_their_step() -> None:
    feed = Feed(LIST)
    assert (len(feed), feed.per_epoch, feed.lengths) == (10, 6, None)
    np.testing.assert_array_equal(feed.at(0).x, X[:10])
    np.testing.assert_array_equal(feed.at(4).x, X[40:50])
    np.testing.assert_array_equal(feed.at(4).x, X[40:50])
    np.testing.assert_array_equal(feed.at(7).y, Y[10:20])
    with pytest.raises(DataError, match="the batches have been read up to step 7: step 6 cannot be read again"):
        feed.at(6)
    np.testing.assert_array_equal(feed.x, X[:10])


def test_batches_that_are_gone_when_they_are_read_again() -> None:
    class Once:
        """It can be asked for an iterator again, which then has nothing."""

        def __init__(self) -> None:
            self.left = iter(LIST[:2])

        def __iter__(self) -> Iterator[Any]:
            yield from self.left

    said = "the batches ended after 2 and had none when they were read again: give a list"
    with pytest.raises(DataError, match=said):
        minadv.fit(MODEL, Once(), steps=6, **HOW)


@pytest.mark.parametrize(
    ("data", "how", "kind", "said"),
    [
        (LIST, {"valid": None}, ValueError, r"data are batches, which cannot be parted: give valid=\(x, y\) and test="),
        (
            LIST,
            {"batch_size": 5},
            ValueError,
            "batch_size is 5, and the batches that are given have their own: leave it",
        ),
        (LIST, {"regularizer": AdD(search=Memory())}, ValueError, r"the search remembers examples, .*: use Relax\(\)"),
        (LIST, {"workers": 2}, ValueError, "workers is 2, expected at most 1"),
        ([], {}, DataError, "the batches ended after 0, and step 1 needs one more"),
        (
            iter(LIST),
            {"steps": 7},
            DataError,
            "the batches ended after 6, and step 7 needs one more: give fewer steps, or",
        ),
        (iter([X, Y]), {}, TypeError, r"batch 0 is a ndarray, expected arrays \(x, y\)"),
        ([X, Y], {}, TypeError, r"data is a list of 2 arrays, expected a tuple \(x, y\)"),
        ([X, Y], {"valid": None, "test": None}, TypeError, r"a list of batches: give fit\(model, \(x, y\)\)"),
        ([*LIST[:2], (X[:9], Y[:8])], {}, DataError, r"batch 2: x has 9 rows and y has shape \(8,\)"),
        ([*LIST[:1], (np.nan * X[:9], Y[:9])], {}, DataError, "batch 1: x is nan in row 0"),
        ([*LIST[:1], (X[:9, :, :1], Y[:9])], {}, DataError, "batch 1 has 1 inputs a step, expected 2, as the first"),
        (
            [*LIST[:1], (X[:9], 3 + Y[:9])],
            {},
            DataError,
            r"y of the train \(batch 1\) part is 3 in row 0, expected 0 to 2",
        ),
    ],
)
def test_bad_batches(data: Any, how: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        minadv.fit(MODEL, data, **{**HOW, "steps": 6, **how})


def test_the_first_batch_says_what_the_model_must_take() -> None:
    with pytest.raises(ValueError, match="n_in is 5, expected 2"):
        minadv.fit(Classifier(5, 6, 3), LIST, steps=1, **HOW)
