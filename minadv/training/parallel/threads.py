r"""Threads of one process that share each batch.

Python runs one thread at a time, but a matrix product and a compiled step let go of its lock. Where a step of the
network is little else, because it is compiled (`minadv.fast.numba_pass`) or because its weights are large, threads are
as fast as worker processes, and share one Python and all that it has loaded; of their own they have the buffers of
their passes, packed weights among them. Elsewhere `minadv.training.parallel.processes` is faster.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from typing import Any

from minadv.base.trees import tree_add
from minadv.fast import limit_threads, reusing
from minadv.regularizers import Term
from minadv.training.parallel.workers import Part, Step, Workers, gather, sums


class ThreadWorkers(Workers):
    """Threads, ``n`` of them, with one BLAS thread each; the one that asks for a step is the first of them."""

    def __init__(self, task: Any, n: int) -> None:
        if n < 2:
            raise ValueError(f"workers is {n}, expected at least 2 to share a batch")
        self._task = task
        self._members = [(Part(index, n), reusing(task.model)) for index in range(n)]
        self._held = ExitStack()
        self._held.enter_context(limit_threads(1))
        pool = ThreadPoolExecutor(n - 1, "minadv", initializer=partial(limit_threads, 1, this_thread=True))
        self._others = self._held.enter_context(pool)

    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        def contribution(part: Part, model: Any) -> tuple[Term, Any]:
            made: tuple[Term, Any] = self._task.term(params, step, weight=weight, carry=carry, part=part, model=model)
            return made

        # each in a copy of this thread's context, in which NumPy keeps what it is to do about overflow
        asked = [self._others.submit(copy_context().run, partial(contribution, *other)) for other in self._members[1:]]
        try:
            own = contribution(*self._members[0])
        finally:
            wait(asked)
        made = [own, *(one.result() for one in asked)]
        grads: Any = None
        for term, _ in made:
            grads = tree_add(grads, term.grads)
        return gather(grads, [sums(term, own_carry) for term, own_carry in made])

    def close(self) -> None:
        self._held.close()
