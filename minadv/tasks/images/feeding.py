r"""Classification of sequences that come batch by batch: the task over a `minadv.data.feed.Feed`.

A step reads the batch of its number, whole and in its order. One worker reads them; a run that goes on reads what came
before it once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minadv.backend import Array
from minadv.data.split import expect_classes
from minadv.tasks.images.task import Classify, Reading
from minadv.training.parallel.workers import Part
from minadv.training.task import Load


@dataclass(frozen=True)
class Whole:
    """A batch that is read as it came."""

    size: int

    def rows(self, step: int) -> Array:
        return np.arange(self.size)


@dataclass(frozen=True)
class ClassifyFed(Classify):
    """`Classify` whose training data are a feed of batches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size != len(self.data.train):
            raise ValueError(
                f"batch_size is {self.batch_size}, and the batches that are given have their own: leave it out"
            )
        if self.regularizer.remembers(self.model):
            raise ValueError(
                "the search remembers examples, and batches of a feed do not say which they hold: use Relax()"
            )

    @property
    def per_epoch(self) -> int:
        """Batches that are read before they begin anew."""
        feed: Any = self.data.train
        return int(feed.per_epoch)

    def _term(
        self, reading: Reading, params: Any, step: int, weight: float, carry: Any, part: Part, model: Any
    ) -> tuple[Any, Any]:
        feed: Any = self.data.train
        split = feed.at(step)
        if (n_classes := getattr(self.model, "n_classes", None)) is not None:
            expect_classes(split, n_classes, f"train (batch {step})")
        now: Any = Whole(len(split))
        return super()._term(replace(reading, split=split, batches=now), params, step, weight, carry, part, model)

    @property
    def load(self) -> Load:
        return replace(super().load, examples=1)
