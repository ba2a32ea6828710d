"""A small problem that trains in a moment, and tasks that do something on purpose."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minadv.base.trees import leaves, tree_map
from minadv.data.images import Images, Split
from minadv.models.classifier import Classifier
from minadv.regularizers import Plain, Regularizer
from minadv.tasks.images.task import Classify

MODEL = Classifier(2, 6, 3)


def sequences(dtype: Any = np.float32, *, n: int = 60, T: int = 4) -> Images:
    """Three classes, each a sequence of its own with a little noise."""
    rng = np.random.default_rng(1)
    kinds = rng.standard_normal((3, T, 2))

    def split(n: int) -> Split:
        y = np.arange(n) % 3
        return Split((kinds[y] + 0.3 * rng.standard_normal((n, T, 2))).astype(dtype), y)

    return Images("toy", 3, split(n), split(21), split(24))


def task(
    put: Callable[[Any], Any], regularizer: Regularizer | None = None, *, seed: int = 0, dtype: Any = np.float32
) -> Classify:
    data = sequences(dtype)
    placed = replace(data, train=put(data.train), valid=put(data.valid), test=put(data.test))
    return Classify(MODEL, placed, regularizer or Plain(), batch_size=10, seed=seed)


class Around:
    """A task that is another one but for what a subclass changes."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)


class Scripted(Around):
    """A task whose validation errors are given; remembers the weights that it was shown."""

    def __init__(self, task: Any, errors: Sequence[float]) -> None:
        super().__init__(task)
        self.errors, self.shown = iter(errors), []

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        assert part == "valid"
        self.shown.append(params)
        error = float(next(self.errors))
        return {"loss": error, "error": error}


class Poisoned(Around):
    """A task with one bad number in one leaf of the gradient of one step."""

    def __init__(self, task: Any, step: int, leaf: str, bad: float) -> None:
        super().__init__(task)
        self.at, self.leaf, self.bad = step, leaf, bad

    def term(self, params: Any, step: int, **given: Any) -> Any:
        term, carry = self.task.term(params, step, **given)
        if step == self.at:
            names = iter([name for name, _ in leaves(term.grads)])
            grads = tree_map(lambda g: self._with_bad(g) if next(names) == self.leaf else g, term.grads)
            term = replace(term, grads=grads)
        return term, carry

    def _with_bad(self, g: Any) -> Any:
        g = g.copy()
        g.ravel()[0] = self.bad
        return g
