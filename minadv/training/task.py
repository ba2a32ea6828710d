r"""What the training loop asks of a task.

A task knows its model, its data and its regularizer. The loop knows none of them: it asks for the gradients of a step
and for an evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from minadv.regularizers import Term
from minadv.training.parallel.workers import WHOLE, Part


@dataclass(frozen=True)
class Load:
    """How much work a step is."""

    products: float  # multiplications in a forward pass over the whole batch
    weights: int  # bytes of the largest recurrent weight, which is read at every time step
    examples: int  # in a batch
    on_gpu: bool = False
    memory: int = 0  # bytes that one worker's passes over a batch keep, if that is known and much
    compiled: bool = False  # whether whole passes are compiled: see `minadv.fast.numba_pass`


class Task(Protocol):
    """What the training loop asks of a task."""

    @property
    def per_epoch(self) -> int:
        """Steps in an epoch."""
        ...

    @property
    def unit(self) -> str:
        """What progress is counted in: "sequence", "word"."""
        ...

    def init(self) -> Any:
        """Initial parameters, on the task's device."""
        ...

    @property
    def units_per_step(self) -> int:
        """How many units, such as images or words, a step sees."""
        ...

    def rate(self, step: int) -> float:
        """What a step's learning rate is multiplied by: 1, but where steps differ in length."""
        ...

    def first_carry(self) -> Any:
        """What is carried from step to step, before the first: a recurrent state, a table of what was found, or None.

        A task whose carry is a `minadv.training.memory.Table` has ``ids(step)`` too, the rows of the step's examples.
        """
        ...

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, Any]:
        """The loss of a step, and what it hands to the next step.

        With a part of the batch, its contribution: gradients that add up, over all parts, to those of the whole batch,
        the NLL and the regularizer of the part's examples, and the carry of its rows. ``carry`` is whole, arrays with
        the batch's axis first; of a table it is a `minadv.training.memory.Recall`, for which
        `minadv.training.memory.Rows` are handed back.
        """
        ...

    @property
    def load(self) -> Load:
        """How much work a step is, to judge what a worker is worth."""
        ...

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        """Metrics on ``"valid"`` or ``"test"``; smaller is better for all."""
        ...
