"""All documents as streams of text: what a window reads, and that it is a function of the seed and the step."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.base.errors import DataError
from minadv.data.texts.counting import EOS_TOKEN
from minadv.data.texts.text_streams import Streams
from tests.data.test_buckets import documents


def text_of(streams: Streams, epoch: int) -> list[int]:
    """The text of an epoch as far as its streams go, put together from its windows."""
    first = epoch * streams.per_epoch
    windows = [streams.window(step) for step in range(first, first + streams.per_epoch)]
    columns = np.concatenate([w.inputs for w in windows])  # (L, B)
    tail = windows[-1].targets[-1:, -1]
    return np.concatenate([columns.T.ravel(), tail]).tolist()


@given(data=st.data(), n=st.integers(1, 12), B=st.integers(1, 4), T=st.integers(1, 5))
def test_windows_are_the_documents_one_after_the_other(data: Any, n: int, B: int, T: int) -> None:
    part = documents(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)))
    flat = np.concatenate([[*part[k], EOS_TOKEN] for k in range(n)])
    if len(flat) < B + 1:
        return
    streams = Streams(part, B, T, seed=None, partial=True)
    L = (len(flat) - 1) // B
    assert (streams.tokens, streams.length, streams.per_epoch) == (len(flat), L, -(-L // T))
    for step in range(2 * streams.per_epoch):
        k = step % streams.per_epoch
        rows = np.arange(k * T, min((k + 1) * T, L))[:, None] + L * np.arange(B)
        window = streams.window(step)
        np.testing.assert_array_equal(window.inputs, flat[rows])
        np.testing.assert_array_equal(window.targets, flat[rows + 1])
        assert streams.first(step) == (k == 0)
        assert streams.epoch_and_number(step) == divmod(step, streams.per_epoch)


def test_every_epoch_reads_every_document_in_an_order_of_its_own(rng: Any) -> None:
    part = documents(rng.integers(1, 20, 40))
    streams = Streams(part, 1, 6, seed=3, partial=True)
    orders = []
    for epoch in range(3):
        text = text_of(streams, epoch)
        assert text[-1] == EOS_TOKEN
        ends = [0, *(n + 1 for n, token in enumerate(text) if token == EOS_TOKEN)]
        read = [text[a : b - 1] for a, b in pairwise(ends)]
        by_first = {int(part[n][0]): n for n in range(40)}
        order = [by_first[document[0]] for document in read]
        assert sorted(order) == list(range(40))
        assert [part[n].tolist() for n in order] == read
        orders.append(tuple(order))
    assert len(set(orders)) == 3
    assert text_of(Streams(part, 1, 6, seed=4, partial=True), 0) != text_of(streams, 0)


def test_a_state_can_be_carried(rng: Any) -> None:
    """Within an epoch, a column's next input is its last target."""
    streams = Streams(documents(rng.integers(1, 30, 50)), 4, 7, seed=0)
    for step in range(2 * streams.per_epoch):
        window = streams.window(step)
        assert window.inputs.shape == window.targets.shape == (7, 4)
        assert (window.inputs.dtype, window.targets.dtype) == (np.int64, np.int64)
        np.testing.assert_array_equal(window.inputs[1:], window.targets[:-1])
        if not streams.first(step):
            np.testing.assert_array_equal(window.inputs[0], streams.window(step - 1).targets[-1])


def test_any_step_can_be_asked_for_alone_and_shared(rng: Any) -> None:
    part = documents(rng.integers(1, 30, 50))
    straight = [Streams(part, 4, 7, seed=2).window(step) for step in range(60)]
    for step in (59, 0, 31, 30, 31):
        again = Streams(part, 4, 7, seed=2)
        np.testing.assert_array_equal(again.window(step).inputs, straight[step].inputs)
        for share in (slice(0, 1), slice(1, 4)):
            window = again.window(step, share)
            np.testing.assert_array_equal(window.inputs, straight[step].inputs[:, share])
            np.testing.assert_array_equal(window.targets, straight[step].targets[:, share])


def test_what_fills_no_window() -> None:
    part = documents([5, 5, 5])  # 18 tokens, 17 targets
    whole, cut = Streams(part, 2, 3, seed=None, partial=True), Streams(part, 2, 3, seed=None)
    assert (whole.length, whole.per_epoch, cut.per_epoch) == (8, 3, 2)
    assert [whole.window(step).inputs.shape for step in range(3)] == [(3, 2), (3, 2), (2, 2)]
    np.testing.assert_array_equal(cut.window(2).inputs, whole.window(0).inputs)  # the next epoch


def test_bad_input() -> None:
    part = documents([5, 5])
    with pytest.raises(DataError, match="the documents have 12 tokens, expected at least 13 for 4 streams of 3 steps"):
        Streams(part, 4, 3, seed=0)
    with pytest.raises(DataError, match="expected at least 13 for 12 streams"):
        Streams(part, 12, 3, seed=0, partial=True)
    for name, sizes in (("batch_size", (0, 3)), ("T", (3, 0))):
        with pytest.raises(ValueError, match=f"{name} is 0, expected at least 1"):
            Streams(part, *sizes, seed=0)
    with pytest.raises(ValueError, match="seed is -2"):
        Streams(part, 1, 3, seed=-2)
    with pytest.raises(ValueError, match=r"part is slice\(2, 3, None\), expected at least one of the 2 streams"):
        Streams(part, 2, 3, seed=0).window(0, slice(2, 3))
