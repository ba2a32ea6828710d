r"""Divergence: a loss that grows without bound is called so, and the message says what to change."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from minadv.base.trees import leaves
from minadv.training.recipe import Recipe

GROWN = 10.0
"""A loss this many times that of the first step has diverged: guessing costs no more than the first step does."""

LARGE = 1e4
"""A weight larger than this has left every scale that networks are trained at."""


class DivergenceWarning(UserWarning):
    """The loss grows without bound; the message says from what to what, and what to change."""


class Losses:
    """The loss of the first step that this process knows, and of the last."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        told = [(r["step"], r["train_loss"]) for r in records if r.get("train_loss") is not None]
        self.first: tuple[int, float] | None = told[0] if told else None
        self.last: tuple[int, float] | None = told[-1] if told else None
        self._warned = False

    def add(self, step: int, loss: float) -> None:
        """Remember the loss of a step."""
        self.first = self.first or (step, loss)
        self.last = (step, loss)

    def warn(self, recipe: Recipe, record: dict[str, Any]) -> None:
        """Warn, once, if the mean loss since the last evaluation is far above that of the first step."""
        loss = record.get("train_loss")
        grown = self._grown(loss)
        if grown and not self._warned:
            self._warned = True
            said = f"training diverges: {grown} and is {loss:.3g} now; {remedies(recipe)}"
            warnings.warn(said, DivergenceWarning, stacklevel=4)

    def said(self, recipe: Recipe, params: Any) -> str:
        """What to say before the error of a number that is not finite: nothing, unless training had diverged."""
        weights = [(float(abs(a).max()), n) for n, a in leaves(params) if getattr(a, "size", 0) and a.dtype.kind == "f"]
        size, name = max(weights, default=(0.0, ""))
        step, loss = self.last or (0, None)
        grown = self._grown(loss)
        if not grown and size <= LARGE:
            return ""
        said = f"{grown} and {loss:.3g} at {step}, " if grown else ""
        return f"training has diverged: {said}the largest weight is {size:.3g} ({name}); {remedies(recipe)}: "

    def _grown(self, loss: float | None) -> str:
        """What the first loss was, if this one is far above it; else nothing."""
        if self.first is None or loss is None or not loss > GROWN * max(self.first[1], 0.1):
            return ""
        return f"the loss was {self.first[1]:.3g} at step {self.first[0]}"


def remedies(recipe: Recipe) -> str:
    """What to change in a recipe whose training diverges; not what it has already."""
    rate = getattr(recipe.optimizer, "lr", None)
    now = "" if rate is None else f", which is {rate:g}"
    clip = "limit the gradient (clip=Clip(1.0), --clip 1)"
    if recipe.clip is not None:
        clip = f"clip the gradient below {recipe.clip.limit:g}"
    return f"lower the learning rate (lr, --lr){now}, or {clip}"
