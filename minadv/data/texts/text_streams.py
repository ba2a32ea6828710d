r"""All documents of a corpus as B streams of text side by side, by number: what a language model is pre-trained on.

::

    streams = Streams(corpus.train.join(corpus.unlabelled), batch_size=256, T=400, seed=0)
    for step in range(start, stop):
        window = streams.window(step)  # inputs (T, B), and the tokens after them, targets (T, B)
        state = None if streams.first(step) else state

In an epoch the documents stand one after the other in an order of their own, drawn from the stream (seed, "text",
epoch), each with ``<eos>`` after it. That text of N tokens is cut into B streams of L = (N - 1) // B steps, which are
read T steps at a time, so that a state can be carried from window to window. Tokens are looked up where the documents
lie: nothing of the size of the text is copied. What a step reads is a function of the seed and the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from minadv.backend import Array
from minadv.base.errors import DataError
from minadv.base.streams import permutation, stream
from minadv.data.texts.counting import EOS_TOKEN
from minadv.data.texts.documents import Documents


class StreamWindow(NamedTuple):
    """``inputs (T, B)`` and the tokens that follow them ``targets (T, B)``, int64."""

    inputs: Array
    targets: Array


@dataclass(frozen=True, eq=False)
class Streams:
    """The windows of T steps on ``batch_size`` streams.

    The steps at the end of the streams, too few to fill a window, are left out: different text each epoch. With
    ``partial=True`` they make a shorter window. ``seed=None`` leaves the documents in their order, for an evaluation.
    """

    documents: Documents
    batch_size: int
    T: int
    seed: int | None
    partial: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "T"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.seed is not None:
            stream(self.seed, "text")  # raises for a bad seed
        need = self.batch_size * (1 if self.partial else self.T) + 1
        if self.tokens < need:
            raise DataError(
                f"the documents have {self.tokens} tokens, expected at least {need} for {self.batch_size} streams of "
                f"{self.T} steps: choose a smaller batch or fewer steps"
            )

    @cached_property
    def tokens(self) -> int:
        """N, the number of tokens of all documents with an ``<eos>`` each."""
        return int(self.documents.lengths.sum()) + len(self.documents)

    @property
    def length(self) -> int:
        """L, the number of steps of a stream."""
        return (self.tokens - 1) // self.batch_size

    @property
    def per_epoch(self) -> int:
        """The number of windows in an epoch."""
        return -(-self.length // self.T) if self.partial else self.length // self.T

    def epoch_and_number(self, step: int) -> tuple[int, int]:
        """The epoch that a step belongs to and the window's number within it, both from 0."""
        return divmod(step, self.per_epoch)

    def first(self, step: int) -> bool:
        """Whether a step begins an epoch, where the carried state starts anew."""
        return step % self.per_epoch == 0

    def window(self, step: int, part: slice | None = None) -> StreamWindow:
        """The window of a step; with ``part``, only these of its streams."""
        epoch, n = self.epoch_and_number(step)
        columns = np.arange(self.batch_size)[slice(None) if part is None else part]
        if len(columns) == 0:
            raise ValueError(f"part is {part}, expected at least one of the {self.batch_size} streams")
        begin, end = n * self.T, min((n + 1) * self.T, self.length)
        text = self._at(epoch, np.arange(begin, end + 1)[:, None] + self.length * columns)  # (T + 1, B)
        return StreamWindow(text[:-1], text[1:])

    def _at(self, epoch: int, positions: Array) -> Array:
        """The tokens at these positions in the text of an epoch."""
        order, ends = _epoch(self, epoch)
        document = np.searchsorted(ends, positions, side="right")
        back = positions - ends[document]  # -1 at the document's <eos>
        rows = order[document]
        where = self.documents.starts[rows] + self.documents.lengths[rows] + back + 1
        tokens: Array = np.where(back == -1, EOS_TOKEN, self.documents.text[np.where(back == -1, 0, where)]).astype(
            np.int64
        )
        return tokens


@lru_cache(maxsize=4)
def _epoch(streams: Streams, epoch: int) -> tuple[Array, Array]:
    """The order of an epoch's documents, and, in that order, where each ends in the epoch's text: ``(n,)`` both."""
    n = len(streams.documents)
    order = np.arange(n) if streams.seed is None else permutation(stream(streams.seed, "text", epoch), n)
    return order, np.cumsum(streams.documents.lengths[order] + 1)
