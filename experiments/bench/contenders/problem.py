r"""The work that is timed: one AdD training step at a size, from arrays that every contender is given alike.

Base pass; K times probe pass, influence map (Eq. 6) and strict flip (Eq. 8); adversarial pass; then the gradient of

.. math:: L = \frac1n \sum_b \big( NLL_b(\epsilon^0) + JS[p_b(\epsilon^0) \,\|\, p_b(\epsilon^{adv})] \big)

through both passes to W, U, b of an LSTM and V, d of its softmax from the last state, and one step of gradient descent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from minadv import masks
from minadv.backend import Array
from minadv.base.streams import stream
from minadv.models.classifier import Classifier

LR = 1e-3
"""The learning rate of plain gradient descent, the update of every contender."""


@dataclass(frozen=True)
class Size:
    """Steps, examples, inputs, units and classes; ``delta`` is the paper's share of flips for this task."""

    name: str
    T: int
    B: int
    I: int
    H: int
    delta: float
    C: int = 10

    @property
    def budget(self) -> int:
        return masks.budget(self.delta, self.H)

    def budgets(self, K: int) -> list[int]:
        """How many units may be flipped in all after each of K maps (Eq. 8)."""
        return [math.ceil((k + 1) * self.budget / K) for k in range(K)]

    def __str__(self) -> str:
        return f"{self.name} (T={self.T}, B={self.B}, I={self.I}, H={self.H})"


@dataclass(frozen=True)
class Problem:
    """The arrays of a batch, or of a share of one: rows ``first`` and following of ``n`` examples in all."""

    size: Size
    seed: int
    weights: tuple[Array, ...]  # W (I, 4H), U (H, 4H), b (4H,), V (H, C), d (C,)
    x: Array  # (T, B, I)
    targets: Array  # (B,)
    start: Array  # (B, H), one random flip an example
    first: int
    n: int

    @property
    def B(self) -> int:
        return int(self.targets.size)

    def share(self, rank: int, ranks: int) -> Problem:
        """The rows of one of several processes that divide the batch."""
        rows = slice(self.n * rank // ranks, self.n * (rank + 1) // ranks)
        x = np.ascontiguousarray(self.x[:, rows])
        return replace(self, x=x, targets=self.targets[rows], start=self.start[rows], first=rows.start)


NAMES = ("W", "U", "b", "V", "d")


def draw(size: Size, seed: int, dtype: npt.DTypeLike = np.float32) -> Problem:
    """Initial weights as `minadv train` draws them, random inputs and classes, drawn on the host in one order.

    One input a step is a pixel, uniform in [0, 1); several are a normalised embedding. The numbers are the same for
    both precisions up to rounding.
    """
    params = Classifier(n_in=size.I, n_hidden=size.H, n_classes=size.C).init(stream(seed, "init"), dtype=np.float32)
    assert params.V is not None and params.b is not None
    cell = params.cells[0]
    rng = stream(seed, "data")
    shape = (size.T, size.B, size.I)
    x = (rng.random(shape) if size.I == 1 else rng.standard_normal(shape)).astype(np.float32)
    targets = rng.integers(size.C, size=size.B)
    start = masks.one_flip(stream(seed, "masks", 0), np.ones((size.B, size.H), dtype))
    weights = tuple(w.astype(dtype) for w in (cell.W, cell.U, cell.b, params.V, params.b))
    return Problem(size, seed, weights, x.astype(dtype), targets, start, 0, size.B)


@dataclass(frozen=True)
class Outcome:
    """What a step found, on the host, for comparison: sums over the batch are divided by ``n``, as the gradients are.

    ``maps[k]`` is taken at the start (k = 0) or at ``used[k - 1]``, ``flipped[k]`` is the mask that the map leads to,
    and ``used[k]`` the mask that the step went on with: the flipped one, or one from outside (`Given`).
    """

    loss: float
    maps: tuple[Array, ...]  # (B, H) each
    flipped: tuple[Array, ...]  # (B, H) each
    used: tuple[Array, ...]  # (B, H) each
    grads: tuple[Array, ...]  # of W, U, b, V, d


Given: TypeAlias = Sequence[Array] | None
"""Masks (B, H), one for each map, that take the place of the flipped ones: so contenders are compared step by step."""

Exchange: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""From the gradients of a share to those of the whole batch: the sum over the processes that share it."""


class Contender(Protocol):
    """What is asked of each contender; its first calls may compile."""

    def outcome(self, K: int, given: Given = None) -> Outcome:
        """What the step finds, with no update; a contender that cannot take masks leaves ``given`` alone."""
        ...

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        """The whole step, update included, done when it returns."""
        ...


def merge(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a whole batch from those of its shares, before any exchange."""

    def rows(parts: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
        return tuple(np.concatenate(several) for several in zip(*parts, strict=True))

    return Outcome(
        loss=sum(o.loss for o in outcomes),
        maps=rows([o.maps for o in outcomes]),
        flipped=rows([o.flipped for o in outcomes]),
        used=rows([o.used for o in outcomes]),
        grads=tuple(np.sum([o.grads[n] for o in outcomes], axis=0) for n in range(len(NAMES))),
    )
