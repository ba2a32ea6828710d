"""Windows are a function of the seed and the step; every epoch reads all columns from the top to the bottom."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.backend import to_host
from minadv.base.errors import DataError
from minadv.data.language.windows import Windows


@st.composite
def some_windows(draw: Any) -> Windows:
    """Texts in which every token is another, so that a token tells its place."""
    B = draw(st.integers(1, 6))
    N = draw(st.integers(B + 1, 400))
    seed, random = draw(st.integers(0, 99)), draw(st.booleans())
    return Windows(np.arange(N, dtype=np.int32), B, draw(st.integers(1, 30)), seed, random)


def epoch_of(windows: Windows, epoch: int, part: slice | None = None) -> tuple[Any, Any]:
    """All windows of an epoch, one under the other."""
    steps = range(epoch * windows.per_epoch, (epoch + 1) * windows.per_epoch)
    found = [windows.window(step, part) for step in steps]
    return np.concatenate([w.x for w in found]), np.concatenate([w.y for w in found])


@given(windows=some_windows(), epoch=st.integers(0, 5))
def test_every_epoch_reads_the_whole_text(windows: Windows, epoch: int) -> None:
    x, y = epoch_of(windows, epoch)
    N, B = len(windows.tokens), windows.batch_size
    L = (N - 1) // B
    np.testing.assert_array_equal(x.T.ravel(), np.arange(B * L))  # column after column is the text
    np.testing.assert_array_equal(y, x + 1)
    assert x.dtype == y.dtype == np.int32
    assert windows.tokens_per_epoch == y.size == len(set(y.ravel().tolist()))
    assert N - 1 - y.size < B  # what is left out fills no row
    steps = range(epoch * windows.per_epoch, (epoch + 1) * windows.per_epoch)
    assert [windows.epoch_and_number(step) for step in steps] == [(epoch, n) for n in range(windows.per_epoch)]
    assert [windows.first(step) for step in steps] == [True] + [False] * (windows.per_epoch - 1)


@given(windows=some_windows(), data=st.data())
def test_any_step_can_be_asked_for_alone(windows: Windows, data: Any) -> None:
    step = data.draw(st.integers(0, 3 * windows.per_epoch))
    straight = [windows.window(n) for n in range(step + 1)][-1]
    again = Windows(windows.tokens.copy(), windows.batch_size, windows.bptt, windows.seed, windows.random).window(step)
    np.testing.assert_array_equal(again.x, straight.x)
    np.testing.assert_array_equal(again.y, straight.y)
    assert again.scale == straight.scale == len(again.x) / windows.bptt


@given(windows=some_windows(), data=st.data())
def test_workers_share_the_columns(windows: Windows, data: Any) -> None:
    step, B = data.draw(st.integers(0, 20)), windows.batch_size
    at = sorted(data.draw(st.sets(st.integers(1, B - 1)))) if B > 1 else []
    parts = [slice(first, last) for first, last in zip([0, *at], [*at, B], strict=True)]
    whole, pieces = windows.window(step), [windows.window(step, part) for part in parts]
    np.testing.assert_array_equal(np.concatenate([piece.x for piece in pieces], axis=1), whole.x)
    np.testing.assert_array_equal(np.concatenate([piece.y for piece in pieces], axis=1), whole.y)
    assert {piece.scale for piece in pieces} == {whole.scale}


@given(windows=some_windows(), epoch=st.integers(0, 5))
def test_lengths(windows: Windows, epoch: int) -> None:
    steps = range(epoch * windows.per_epoch, (epoch + 1) * windows.per_epoch)
    found = [len(windows.window(step).x) for step in steps]
    assert sorted(found) == sorted(windows.lengths.tolist())
    assert sum(found) == windows.length
    assert max(found) == windows.longest
    if windows.random:
        assert min(found) >= min(5, windows.bptt, windows.length)
    else:
        assert found[:-1] == [windows.bptt] * (len(found) - 1)
        assert found[-1] <= windows.bptt


def test_the_distribution_of_lengths() -> None:
    lengths = Windows(np.zeros(1_000_001, dtype=np.int32), 1, 70, seed=3).lengths
    short = lengths < 52  # 3.6 standard deviations from either mean
    assert short.mean() == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / len(lengths)))
    for chosen, mean in ((~short, 70), (short, 35)):
        error = 5 / np.sqrt(chosen.sum())
        assert lengths[chosen].mean() == pytest.approx(mean - 0.5, abs=4 * error)  # rounded down
        assert lengths[chosen].std() == pytest.approx(5, abs=4 * error)


def test_lengths_never_change() -> None:
    """Pinned: a run must be repeatable with another version."""
    windows = Windows(np.zeros(2001, dtype=np.int32), 4, 20, seed=1)
    assert [len(windows.window(step).x) for step in range(8)] == [11, 9, 21, 13, 24, 16, 19, 24]


def test_orders_differ_by_epoch_and_lists_by_seed() -> None:
    windows, other = (Windows(np.zeros(20_001, dtype=np.int32), 4, 20, seed=seed) for seed in (0, 1))
    one, two = ([len(windows.window(e * windows.per_epoch + n).x) for n in range(windows.per_epoch)] for e in (0, 1))
    assert one != two
    assert one != windows.lengths.tolist()
    assert windows.lengths.tolist() != other.lengths.tolist()


def test_lengths_cannot_be_changed_for_the_next_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Windows(np.zeros(100, dtype=np.int32), 4, 20).lengths[0] = 3


def test_windows_lie_where_the_text_lies(put: Any, xp: Any) -> None:
    tokens = np.arange(100, dtype=np.int32) % 7
    windows = Windows(put(tokens), 4, 6, random=False)
    for step, part in ((0, slice(None)), (3, slice(1, 3)), (6, slice(2, 3))):
        window = windows.window(step, part)
        assert isinstance(window.x, xp.ndarray)
        assert window.x.flags.c_contiguous and window.y.flags.c_contiguous
        x, y = to_host((window.x, window.y))
        expected = np.arange(96).reshape(4, 24)[part, step % 4 * 6 : step % 4 * 6 + 6].T
        np.testing.assert_array_equal(x, tokens[expected])
        np.testing.assert_array_equal(y, tokens[expected + 1])


def test_bad_input() -> None:
    tokens = np.zeros(20, dtype=np.int32)
    message = (
        "^the text is too short: it has 20 tokens, expected at least 21, one for each of the 20 columns and one more"
    )
    with pytest.raises(DataError, match=message):
        Windows(tokens, 20, 5)
    assert Windows(tokens, 19, 5).per_epoch == 1
    for batch_size, bptt, said in ((0, 5, "batch_size is 0"), (2, 0, "the length of a window is 0")):
        with pytest.raises(ValueError, match=f"{said}, expected 1 or more"):
            Windows(tokens, batch_size, bptt)
    with pytest.raises(TypeError, match="tokens has dtype float64, expected integers"):
        Windows(np.zeros(20), 2, 5)
    with pytest.raises(ValueError, match=r"tokens has shape \(10, 2\), expected \(N,\)"):
        Windows(tokens.reshape(10, 2), 2, 5)
    with pytest.raises(ValueError, match="seed is -1"):
        Windows(tokens, 2, 5, seed=-1)
    with pytest.raises(ValueError, match=r"part is slice\(4, 4, None\), expected at least one of the 4 columns"):
        Windows(tokens, 4, 5).window(0, slice(4, 4))
