r"""Who computes a step: one worker, or several that share its batch.

Each worker takes a `Part` of the batch and makes its contribution to the gradient; the contributions are added up.
Workers draw the masks of the whole batch and keep their rows (`minadv.base.shared_draws`), so that the result does not
depend on how many they are, but for the order of the sums; for a given number it is the same to the bit.

`OneWorker` is this process alone. On one machine `minadv.training.parallel.threads.ThreadWorkers` are threads and
`minadv.training.parallel.processes.ProcessWorkers` processes; `minadv.training.parallel.mpi.RankWorkers` are the ranks
of MPI.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from minadv.backend import namespace
from minadv.base import pulse, readings
from minadv.base.machine import available_memory
from minadv.base.shared_draws import Rng, Share
from minadv.base.trees import tree_map
from minadv.fast import reusing
from minadv.regularizers import Term

Made = TypeVar("Made")
Read = TypeVar("Read", covariant=True)


@dataclass(frozen=True)
class Part:
    """Worker ``index`` of ``count``: which examples of a batch are its own.

    ``group`` neighbours, counted from the batch's first example, stay together: they may see each other's masks.
    """

    index: int = 0
    count: int = 1
    group: int = 1

    def rows(self, n: int) -> slice:
        """Its rows of a batch of ``n`` examples: neighbours, as even in number as can be."""
        groups = n // self.group
        if groups < self.count > 1:
            said = f", in groups of {self.group}," if self.group > 1 else ""
            raise ValueError(
                f"a batch of {n} examples{said} cannot be shared by {self.count} workers: give fewer workers"
            )
        first, last = (index * groups // self.count * self.group for index in (self.index, self.index + 1))
        return slice(first, n if self.index + 1 == self.count else last)

    def of_group(self, first: int, n: int) -> slice:
        """Its rows of a group of ``n`` examples that follows ``first`` others of the batch; there may be none.

        A group of fewer examples than workers is dealt out from where the groups before it ended, so that in a batch of
        as many examples as workers each has one. Neighbours that stay together may leave a worker without any.
        """
        if n // self.group >= self.count:
            return self.rows(n)
        mine = (self.index - first // self.group) % self.count
        if self.group > 1:  # too few to part: all are one worker's
            return slice(0, n) if mine == 0 else slice(0, 0)
        return slice(mine, mine + 1) if mine < n else slice(0, 0)

    def rng(self, generator: np.random.Generator, n: int) -> Rng:
        """The random numbers of its rows of a batch of ``n`` examples."""
        if self.count == 1:
            return generator
        mine = self.rows(n)
        return Share(generator, mine.start, mine.stop, n)

    def share(self, n: int) -> float:
        """What part of the batch's mean its examples are: the factor of its weight and likelihood."""
        mine = self.rows(n)
        return float((mine.stop - mine.start) / n)


WHOLE = Part()


@dataclass(frozen=True)
class Sums:
    """What a worker reports beside its gradient: sums of NLL and regularizer over its examples, and their number.

    ``zero_maps`` is the number of its examples of which the adversary's influence map was zero.
    """

    nll: float
    n_nll: int
    value: float
    n_value: int
    carry: Any
    zero_maps: int = 0


@dataclass(frozen=True)
class Step:
    """The result of a step over all workers: the gradient of the whole batch's loss, and the means to show."""

    grads: Any
    nll: float
    value: float
    carry: Any
    zero_maps: int


class Inference(Protocol[Read]):
    """Batches that are read without gradients: each alone, in any order, by any worker."""

    @property
    def load(self) -> Any:
        """How much work all of them are: a `minadv.training.task.Load`, whose ``examples`` are the batches."""
        ...

    def __len__(self) -> int:
        """How many batches there are."""
        ...

    def reader(self) -> Callable[[int], Read]:
        """A function that reads a batch, by its number, in memory of its own: one for each worker."""
        ...


class Readers:
    """Who reads the batches of an inference: this process alone, unless a subclass says otherwise."""

    def share(self, inference: Inference[Made]) -> list[Made]:
        """What is read of each batch, in their order: the batches are the same however many workers share them."""
        read = counting(inference)
        return [read(number) for number in range(len(inference))]

    def close(self) -> None:
        """End the workers other than this process."""
        return


class Workers(Readers, ABC):
    """Who computes the steps. Where several processes run the training loop, one of them is the chief of all."""

    @property
    def chief(self) -> bool:
        """Whether this process writes the run's files and shows its progress."""
        return True

    def agree(self, make: Callable[[], Made]) -> Made:
        """What the chief makes; all processes that run the loop are told it."""
        return make()

    @abstractmethod
    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        """The gradient of a step."""
        ...


class OneWorker(Workers):
    """One process, whose passes reuse their buffers."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.model = reusing(task.model)

    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        term, said = contribution(self._task, params, step, weight=weight, carry=carry, model=self.model)
        return gather(term.grads, [said])


def counting(inference: Inference[Made], each: int = 1) -> Callable[[int], Made]:
    """A reader of an inference that says of each batch that it, or ``each`` that are read meanwhile, is done."""
    read = inference.reader()

    def counted(number: int) -> Made:
        made = read(number)
        if not getattr(inference, "counts_itself", False):
            pulse.advance(each)
        return made

    return counted


def most_readers(inference: Inference[Any]) -> int:
    """How many workers can read batches at the same time: one a batch, in no more than half of the free memory."""
    each, free = inference.load.memory, available_memory()
    room = len(inference) if not each or free is None else free // (2 * each)
    return max(1, min(len(inference), room))


def contribution(task: Any, params: Any, step: int, **given: Any) -> tuple[Term, Sums]:
    """A worker's term of a step, and its sums; what a device finds wrong on the way is read together with them."""
    with readings.at_once() as later:
        term, carry = task.term(params, step, **given)
        return term, sums(term, carry, later)


def sums(term: Term, carry: Any, later: readings.Readings | None = None) -> Sums:
    """The sums of a worker's term, read from a device together with the checks that ``later`` has noted."""
    zero = None if term.trace is None else term.trace.zero
    found = {"nll": term.nll, "value": term.value, "zero_maps": zero}
    arrays = {name: array.sum() for name, array in found.items() if array is not None}
    read = dict(zip(arrays, (later or readings.Readings()).numbers(*arrays.values()), strict=True))
    n = 0 if term.nll is None else len(term.nll)
    return Sums(read.get("nll", 0.0), n, read["value"], len(term.value), carry, int(read.get("zero_maps", 0)))


def gather(grads: Any, parts: Sequence[Sums]) -> Step:
    """A step from the sum of the gradients and the reports of the workers, in their order."""
    n_nll, n_value = sum(p.n_nll for p in parts), sum(p.n_value for p in parts)
    carry = parts[0].carry
    if len(parts) > 1 and carry is not None:
        carry = tree_map(lambda *rows: namespace(rows[0]).concatenate(rows), *(p.carry for p in parts))
    return Step(
        grads=grads,
        nll=sum(p.nll for p in parts) / n_nll if n_nll else 0.0,
        value=sum(p.value for p in parts) / n_value if n_value else 0.0,
        carry=carry,
        zero_maps=sum(p.zero_maps for p in parts),
    )
