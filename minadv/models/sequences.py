r"""What a classifier of sequences reads, knows, draws and keeps: its batch, parameters, noise and cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape


@dataclass(frozen=True)
class Batch:
    x: Array  # (T, B, I)
    targets: Array | None = None  # (B,) classes; None for unlabelled examples
    valid: Array | None = None  # (T, B), False on padding

    def __post_init__(self) -> None:
        namespace(x=self.x, targets=self.targets, valid=self.valid)
        expect_shape("x", self.x, ("T", "B", "I"), "time first: minadv.data.images.batches.take makes such batches")
        T, B, _ = self.x.shape
        if self.targets is not None:
            expect_shape("targets", self.targets, (B,), f"x has B = {B} examples, time first")
        if self.valid is not None:
            expect_shape("valid", self.valid, (T, B), f"x has T = {T}, B = {B}")

    def __len__(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True)
class Params:
    cells: tuple[Any, ...]  # one cell's Params a layer
    V: Array | None  # (H, C)
    b: Array | None  # (C,)


@dataclass(frozen=True)
class Noise:
    """The dropout on the inputs, the same at every step: scaled masks (B, I)."""

    inputs: Array


@dataclass(frozen=True)
class Cache:
    batch: Batch
    caches: tuple[Any, ...]
    h: Array  # (N, B, H), the clean states that the softmax reads
    masks: Mapping[str, Array]
    noise: Noise | None
