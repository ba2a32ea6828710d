r"""Threads of one process that share each batch.

Python runs one thread at a time, but a matrix product and a compiled step let go of its lock. Where a step of the
network is little else, because it is compiled (`minadv.fast.numba_pass`) or because its weights are large, threads are
as fast as worker processes, and share one Python and all that it has loaded; of their own they have the buffers of
their passes, packed weights among them. Elsewhere `minadv.training.parallel.processes` is faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial, reduce
from typing import Any, TypeVar

from minadv.base.trees import tree_add
from minadv.fast import limit_threads, reusing
from minadv.training.parallel.workers import (
    Inference,
    Part,
    Readers,
    Step,
    Workers,
    counting,
    gather,
    most_readers,
    sums,
)

Made = TypeVar("Made")


class Threads(Readers):
    """Threads, ``n`` of them, with one BLAS thread each; the one that asks for something is the first of them."""

    def __init__(self, n: int) -> None:
        self._n, self._held = n, ExitStack()
        self._held.enter_context(limit_threads(1))
        pool = ThreadPoolExecutor(n, "minadv", initializer=partial(limit_threads, None))
        self._others = self._held.enter_context(pool)

    def share(self, inference: Inference[Made]) -> list[Made]:
        return self.run(lambda: counting(inference), len(inference), most_readers(inference))

    def run(self, begin: Callable[[], Callable[[int], Made]], count: int, at_once: int) -> list[Made]:
        """The results of 0, ..., count-1, in this order, of functions that ``begin`` makes, one in each thread."""
        made: dict[int, Made] = {}
        left = deque(range(count))

        def work() -> None:
            try:
                make = begin()
                while True:
                    try:
                        number = left.popleft()
                    except IndexError:
                        return
                    made[number] = make(number)
            except BaseException:
                left.clear()  # the others end what they have begun
                raise

        # each in a copy of this thread's context, in which NumPy keeps what it is to do about overflow
        asked = [self._others.submit(copy_context().run, work) for _ in range(min(self._n, at_once) - 1)]
        try:
            work()
        finally:
            wait(asked)
        for one in asked:
            one.result()
        return [made[number] for number in range(count)]

    def close(self) -> None:
        self._held.close()


class ThreadWorkers(Threads, Workers):
    """Threads that share each batch in ``n`` parts, ``at_once`` of them at a time (default: all)."""

    def __init__(self, task: Any, n: int, at_once: int | None = None) -> None:
        if n < 2:
            raise ValueError(f"workers is {n}, expected at least 2 to share a batch")
        super().__init__(min(n, at_once or n))
        self._task = task
        self._members = [(Part(index, n), reusing(task.model)) for index in range(n)]

    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        def contribution(index: int) -> Any:
            part, model = self._members[index]
            return self._task.term(params, step, weight=weight, carry=carry, part=part, model=model)

        made = self.run(lambda: contribution, len(self._members), len(self._members))
        grads = reduce(tree_add, [term.grads for term, _ in made])
        return gather(grads, [sums(term, own_carry) for term, own_carry in made])
