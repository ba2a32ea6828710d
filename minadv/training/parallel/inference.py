r"""Evaluations, attacks and predictions: who reads the batches, and with how many BLAS threads.

`share` reads the batches of an `minadv.training.parallel.workers.Inference`. While a run is trained, the workers of its
training read them; otherwise workers are started for the purpose, where that pays. The batches are the same however
many workers there are, and what is read of them comes back in their order, so that no number depends on the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from minadv.base.machine import CORE_CACHE, blas_most, blas_setting
from minadv.base.notices import say_once
from minadv.base.numbers import Few
from minadv.base.pulse import doing
from minadv.base.schema import expect_type
from minadv.base.trees import leaves
from minadv.fast import describe, limit_threads
from minadv.training.parallel.members import Processes, can_be_sent
from minadv.training.parallel.ranks import one_process
from minadv.training.parallel.threads import Threads
from minadv.training.parallel.workers import Inference, Readers, most_readers
from minadv.training.task import Load

Made = TypeVar("Made")

WORTH = 1e8
"""Multiplications of a forward pass below which a second worker takes more time to start than it saves."""

WORTH_A_PROCESS = 2e10
"""The same for a worker process, which imports NumPy first and is sent the data."""

_lent: ContextVar[tuple[Readers, ...]] = ContextVar("lent", default=())  # the last is in use
_asked: ContextVar[int | None] = ContextVar("asked", default=None)


def share(inference: Inference[Made]) -> list[Made]:
    """What is read of each batch, in their order."""
    with ExitStack() as held:
        if not getattr(inference, "counts_itself", False):
            held.enter_context(doing("reading", len(inference)))
        lent = _lent.get()
        readers = lent[-1] if lent else held.enter_context(start_readers(inference))
        return readers.share(inference)


@contextmanager
def lend(workers: Readers) -> Iterator[None]:
    """Within it, `share` uses these workers, in the Python thread that lends them.

    Contexts that overlap may end in any order: the last that has not ended lends.
    """
    _lent.set((*_lent.get(), workers))
    try:
        yield
    finally:
        _lent.set(tuple(other for other in _lent.get() if other is not workers))


@contextmanager
def ask_for(workers: int | None) -> Iterator[None]:
    """Within it, `share` starts this many workers, or none; None leaves their number to `share`."""
    expect_type("workers", workers, Few | None)
    before = _asked.set(workers)
    try:
        yield
    finally:
        _asked.reset(before)


@contextmanager
def start_readers(inference: Inference[Any]) -> Iterator[Readers]:
    """Workers that read the batches of an inference; they end with this context."""
    load, cores = inference.load, one_process().cores
    n = choose_readers(load, most_readers(inference), cores)
    if n > 1 and not by_threads_of(load) and not can_be_sent(inference):
        n = 1
    with limit_threads(blas_threads(load.weights, n, cores)):
        workers: Readers = Readers() if n == 1 else Threads(n) if by_threads_of(load) else Processes(n)
        try:
            yield workers
        finally:
            workers.close()


def choose_readers(load: Load, most: int, cores: int) -> int:
    """How many workers read batches, at most ``most``: all cores where that pays, or as many as `ask_for` says.

    Large weights are read by one worker with all BLAS threads instead.
    """
    asked = _asked.get()
    if asked is not None and asked > cores:
        say_once(more_than_cores(asked, cores))
    if load.on_gpu:
        return 1
    if asked is not None:
        return min(asked, cores, most)
    least = WORTH if by_threads_of(load) else WORTH_A_PROCESS
    if load.weights > CORE_CACHE or load.products < least:
        return 1
    return min(cores, most)


def by_threads_of(load: Load) -> bool:
    """Whether workers are threads: their passes let go of Python's lock, and BLAS can be told its number of threads."""
    return (load.compiled or load.weights > CORE_CACHE) and describe().limits_threads


def blas_threads(weights: int, workers: int, cores: int) -> int:
    """BLAS threads of each worker: one, but all cores for one worker whose largest recurrent weight is large."""
    small, setting = weights <= CORE_CACHE, blas_most()
    n = 1 if small or workers > 1 else cores
    if setting is not None and setting * min(workers, cores) > cores:
        those = f"{workers} worker{'s' * (workers > 1)}"
        say_once(
            f"{blas_setting()} and {those} would be {setting * workers} threads on {cores} core{'s' * (cores > 1)}: "
            f"each worker has {min(n, setting)} BLAS thread{'s' * (min(n, setting) > 1)}"
        )
    return n


def more_than_cores(workers: int, cores: int) -> str:
    """A line about more workers than cores."""
    return (
        f"workers is {workers}, more than the {cores} core{'s' * (cores > 1)} that this process may use: "
        f"{cores} compute{'s' * (cores == 1)} at a time"
    )


def alone(params: Any) -> AbstractContextManager[None]:
    """A context for passes that nobody shares: one BLAS thread, or all cores if a recurrent weight is large."""
    heaviest = max((leaf.nbytes for name, leaf in leaves(params) if name.rpartition(".")[2] == "U"), default=0)
    return limit_threads(blas_threads(heaviest, 1, one_process().cores))
