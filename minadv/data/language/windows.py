r"""Windows on a text for truncated back-propagation through time, by number.

::

    windows = Windows(corpus.train, batch_size=20, bptt=70, seed=0)
    for step in range(start, stop):
        x, y, scale = windows.window(step)  # (T, B), (T, B), T / bptt
        state = None if windows.first(step) else state

The text is cut into B columns of equal length, which are read side by side from the top to the bottom in every epoch:
column b of one window goes on where column b of the window before stopped, so that a state can be carried over, and
the target of a token is the token after it. With N tokens a column has L = (N - 1) // B steps and reads the tokens
b L to b L + L - 1; its last target is the first token of the next column. Every token but the first and the last
(N - 1) % B is a target, once an epoch.

Windows are of random length, as in AWD-LSTM, so that the cuts fall elsewhere in every epoch:

    T ~ N(bptt, 5), with probability 0.05 N(bptt / 2, 5), rounded down, at least 5

and the learning rate of a step is scaled by T / bptt, because a short window has fewer errors to average. AWD-LSTM
draws the lengths anew in every epoch, so that epochs differ in their number of steps; here one list of lengths, whose
sum is L, is drawn for the run, and every epoch uses it in an order of its own, from the stream (seed, "lengths",
epoch). So all epochs have the same number of steps, and what a step reads depends on the seed and its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.base.errors import DataError
from minadv.base.streams import permutation, stream

SPREAD = 5  # the standard deviation of the lengths, and the shortest
P_HALF = 0.05


class Window(NamedTuple):
    """``x (T, B)`` and the tokens that follow them ``y (T, B)``, time-major; ``scale`` is T / bptt."""

    x: Array
    y: Array
    scale: float


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of a text ``tokens (N,)``, B = ``batch_size`` columns wide and about ``bptt`` steps long.

    Windows are on the device of the tokens. With ``random=False`` every window is ``bptt`` long, except that the last
    one of an epoch may be shorter.
    """

    tokens: Array
    batch_size: int
    bptt: int
    seed: int = 0
    random: bool = True

    def __post_init__(self) -> None:
        expect_text(self.tokens, self.batch_size, self.bptt)
        stream(self.seed, "lengths")  # raises for a bad seed

    @property
    def length(self) -> int:
        """L, the number of steps of a column."""
        return (len(self.tokens) - 1) // self.batch_size

    @property
    def lengths(self) -> Array:
        """The lengths of the windows of an epoch, which are the same in all epochs but for their order: int64."""
        return random_lengths(self.length, self.bptt, self.seed) if self.random else cut(self.length, self.bptt)

    @property
    def per_epoch(self) -> int:
        """The number of windows in an epoch."""
        return len(self.lengths)

    @property
    def tokens_per_epoch(self) -> int:
        """How many tokens are predicted in an epoch."""
        return self.length * self.batch_size

    @property
    def longest(self) -> int:
        """The length of the longest window of all epochs."""
        return int(self.lengths.max())

    def epoch_and_number(self, step: int) -> tuple[int, int]:
        """The epoch that a step belongs to and the window's number within it, both from 0."""
        return divmod(step, self.per_epoch)

    def first(self, step: int) -> bool:
        """Whether a step begins an epoch, at the top of the columns, where the carried state starts anew."""
        return step % self.per_epoch == 0

    def window(self, step: int, part: slice | None = None) -> Window:
        """The window of a step; with ``part``, only these of its columns."""
        epoch, n = self.epoch_and_number(step)
        bounds = epoch_bounds(self.length, self.bptt, self.seed, epoch if self.random else None)
        first, last = int(bounds[n]), int(bounds[n + 1])
        columns = slice(None) if part is None else part
        x, y = (self._columns(shift)[columns, first:last].T for shift in (0, 1))
        if x.shape[1] == 0:
            raise ValueError(f"part is {part}, expected at least one of the {self.batch_size} columns")
        xp = namespace(tokens=self.tokens)
        return Window(xp.ascontiguousarray(x), xp.ascontiguousarray(y), (last - first) / self.bptt)

    def _columns(self, shift: int) -> Array:
        """The columns of the text from token ``shift`` on: a view ``(B, L)``."""
        return self.tokens[shift : shift + self.tokens_per_epoch].reshape(self.batch_size, self.length)


@lru_cache(maxsize=8)
def random_lengths(total: int, bptt: int, seed: int) -> Array:
    """Random lengths of windows whose sum is ``total``: int64, read-only because it is kept for the next call.

    The last window takes all that is left, as soon as another one after it would be shorter than is allowed.
    """
    rng = stream(seed, "lengths")
    shortest = min(SPREAD, bptt)
    lengths: list[int] = []
    left = total
    while left:
        # uniform in the open interval (0, 1), from raw bits: NumPy promises only these in all its versions
        coin, u = ((np.asarray(rng.bit_generator.random_raw(2)) >> np.uint64(12)) + 0.5) / 2**52
        mean = bptt / 2 if coin < P_HALF else bptt
        length = max(shortest, int(NormalDist(mean, SPREAD).inv_cdf(float(u))))
        lengths.append(length if left - length >= shortest else left)
        left -= lengths[-1]
    return _read_only(lengths)


def cut(total: int, length: int) -> Array:
    """Equal lengths whose sum is ``total``, the last smaller if need be: int64."""
    return np.diff(np.append(np.arange(0, total, length), total))


@lru_cache(maxsize=8)
def epoch_bounds(total: int, bptt: int, seed: int, epoch: int | None) -> Array:
    """Where the windows of an epoch begin, and where the last ends: int64, read-only. ``epoch=None``: equal lengths."""
    if epoch is None:
        return _read_only([0, *np.cumsum(cut(total, bptt))])
    lengths = random_lengths(total, bptt, seed)
    order = permutation(stream(seed, "lengths", epoch), len(lengths))
    return _read_only([0, *np.cumsum(lengths[order])])


def expect_text(tokens: Array, batch_size: int, length: int) -> None:
    """Raise unless the tokens are integers ``(N,)``, two or more for each column, and the sizes positive."""
    expect_shape("tokens", tokens, ("N",))
    if tokens.dtype.kind not in "iu":
        raise TypeError(f"tokens has dtype {tokens.dtype}, expected integers")
    for name, size in (("batch_size", batch_size), ("the length of a window", length)):
        if size < 1:
            raise ValueError(f"{name} is {size}, expected 1 or more")
    expect_columns("the text", tokens, batch_size, "choose a smaller batch")


def expect_columns(what: str, tokens: Array, columns: int, remedy: str) -> None:
    """Raise DataError unless the text that is called ``what`` has more tokens than ``columns``, as reading it needs."""
    if len(tokens) <= columns:
        each = f", one for each of the {columns} columns and one more" if columns > 1 else ""
        n = f"{len(tokens)} token{'' if len(tokens) == 1 else 's'}"
        raise DataError(f"{what} is too short: it has {n}, expected at least {columns + 1}{each}; {remedy}")


def _read_only(numbers: list[int]) -> Array:
    array = np.array(numbers, dtype=np.int64)
    array.flags.writeable = False
    return array
