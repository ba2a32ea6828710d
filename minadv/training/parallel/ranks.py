r"""The ranks that mpiexec started, as training needs them: who is the chief, what all agree on, how they end together.

`process_group` finds them, `ProcessGroup` has what they do, and mpi4py is imported only in a process that a launcher
started together with others (`minadv.base.launch`). `minadv.training.parallel.mpi` shares a batch among them,
`share_out` independent tasks.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, TypeVar

from minadv.base import launch
from minadv.base.machine import affinity, cores
from minadv.fast import limit_threads

Given = TypeVar("Given")
Made = TypeVar("Made")

PATIENCE = 3.0
"""Seconds that a rank that failed waits for all others to fail as well; if they do not, it ends them."""


class ProcessGroup:
    """The ranks of a communicator; without one, this process alone."""

    def __init__(self, comm: Any = None, near: Sequence[frozenset[int]] | None = None) -> None:
        self.comm = comm
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size
        self._distress: Any = (
            None if comm is None else comm.Dup()
        )  # apart, so that its barrier cannot be mistaken for another call
        here, own = platform.node(), affinity()
        there = [] if comm is None else comm.allgather((here, own))
        self.near = near or [theirs for node, theirs in there if node == here] or [own]
        """The cores of each process on this machine that was started with this one, and of this one."""

    @property
    def chief(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    @property
    def together(self) -> int:
        """The cores of this machine that its ranks may use together."""
        return cores(frozenset().union(*self.near))

    @property
    def cores(self) -> int:
        """The share of them that this rank has for its workers and their BLAS threads."""
        return max(1, min(cores(), self.together // len(self.near)))

    def meet(self) -> None:
        """Wait for all ranks, without keeping a core busy: the chief may evaluate for minutes."""
        if self.comm is not None:
            request = self.comm.Ibarrier()
            while not request.Test():
                time.sleep(0.001)

    def agree(self, make: Callable[[], Made]) -> Made:
        """What the chief makes, once all ranks have come this far; it is told to all of them."""
        if self.comm is None:
            return make()
        self.meet()
        made = make() if self.chief else None
        self.meet()
        told: Made = self.comm.bcast(made)
        return told

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Within it, an error of all ranks is raised on each; a rank that fails alone says why, and ends them all."""
        try:
            yield
        except BaseException as error:
            if self.comm is not None and not self._all_in_distress():
                said = "".join(traceback.format_exception(error))
                end = f"minadv: rank {self.rank} of {self.size} failed and ends the others: {error or repr(error)}"
                print(f"{said}\n{end}", file=sys.__stderr__, flush=True)
                self.comm.Abort(1)
            raise

    def _all_in_distress(self) -> bool:
        request, last = self._distress.Ibarrier(), time.monotonic() + PATIENCE
        while not (came := bool(request.Test())) and time.monotonic() < last:
            time.sleep(0.01)
        return came


_alone = threading.local()


@contextmanager
def each_alone() -> Iterator[None]:
    """Within it every rank is a group of one process: for independent runs, one on each rank."""
    before, _alone.on = getattr(_alone, "on", False), True
    try:
        yield
    finally:
        _alone.on = before


def process_group() -> ProcessGroup:
    """The processes that a launcher started together, this one included; raises ImportError where MPI is missing."""
    if getattr(_alone, "on", False) or launch.this_process().size == 1:
        return one_process()
    return _launched()


_near: list[frozenset[int]] = []  # the cores of the ranks on this machine, once they have told each other


def one_process() -> ProcessGroup:
    """A group of this process alone, with its share of the cores; nothing is asked of other ranks.

    Before ranks have told each other where they are, all of them are taken to be on this machine.
    """
    return ProcessGroup(near=_near or [affinity()] * launch.this_process().size)


@cache
def _launched() -> ProcessGroup:
    size = launch.this_process().size
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py raises the second if it finds no MPI library
        raise ImportError(
            f"{size} processes were started together and need mpi4py to share the work ({error}): "
            "pip install minadv[mpi], and mpich where there is no MPI library; or start one process"
        ) from error
    if MPI.COMM_WORLD.size != size:
        raise ImportError(
            f"{size} processes were started together, but mpi4py sees {MPI.COMM_WORLD.size}: it uses another MPI "
            f"library ({MPI.Get_library_version().splitlines()[0]}) than the mpiexec that started them"
        )
    ours = ProcessGroup(MPI.COMM_WORLD)
    _near[:] = ours.near
    return ours


@contextmanager
def only_first_prints() -> Iterator[None]:
    """Within it the ranks other than 0 print nothing; only `ProcessGroup.fail_together` lets them say why they end."""
    if launch.this_process().rank == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def share_out(work: Callable[[Given], Made], tasks: Sequence[Given]) -> list[Made]:
    """Do independent tasks, the ranks taking turns, one BLAS thread each; every rank has all results, in order."""
    ours = process_group()
    with ours.fail_together():
        with each_alone(), limit_threads(1):
            mine = [work(task) for task in tasks[ours.rank :: ours.size]]
        ours.meet()
        made = [mine] if ours.comm is None else ours.comm.allgather(mine)
        return [made[n % ours.size][n // ours.size] for n in range(len(tasks))]
