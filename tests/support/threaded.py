"""Ranks and worker processes that are threads of one process.

Ranks have as much of a communicator as minadv uses, and one of them runs at a time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from types import SimpleNamespace
from typing import Any

from minadv.training.parallel.members import Member

TURN = threading.Lock()


@contextmanager
def others_turn() -> Iterator[None]:
    TURN.release()
    try:
        yield
    finally:
        TURN.acquire()


class Line:
    """What the ranks of one communicator have in common."""

    def __init__(self, size: int) -> None:
        self.size, self.slots, self.arrivals = size, [None] * size, [0] * size
        self.barrier = threading.Barrier(size, timeout=600)


class Comm:
    def __init__(self, line: Line, rank: int) -> None:
        self.line, self.rank, self.size = line, rank, line.size
        self.kinds: set[type] = set()  # of the buffers that were summed
        self.aborted: int | None = None

    def Dup(self) -> "Comm":
        return Comm(self.allgather(Line(self.size))[0], self.rank)

    def allgather(self, value: Any) -> list[Any]:
        self.line.slots[self.rank] = value
        with others_turn():
            self.line.barrier.wait()
        found = list(self.line.slots)
        with others_turn():
            self.line.barrier.wait()
        return found

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]

    def Allreduce(self, given: Any, total: Any) -> None:
        self.kinds |= {type(given), type(total)}
        total[...] = sum(self.allgather(given.copy()))

    def Ibarrier(self) -> "Request":
        self.line.arrivals[self.rank] += 1
        return Request(self.line, self.line.arrivals[self.rank])

    def Abort(self, code: int) -> None:
        self.aborted = code


class Request:
    def __init__(self, line: Line, arrivals: int) -> None:
        self.line, self.arrivals, self.tests = line, arrivals, 0

    def Test(self) -> bool:
        with others_turn():
            time.sleep(0.001)
        self.tests += 1
        if self.line.barrier.broken or self.tests > 20_000:
            raise threading.BrokenBarrierError("another rank has failed, or does not come")
        return min(self.line.arrivals) >= self.arrivals


def run_ranks(work: Callable[[Comm], Any], n: int) -> list[Any]:
    """``work(comm)`` on n ranks; their results, or the error of the first that raised one."""
    line, results, errors = Line(n), [None] * n, []

    def run(rank: int) -> None:
        with TURN:
            try:
                results[rank] = work(Comm(line, rank))
            except BaseException as error:
                errors.append(error)
                line.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class ThreadMember(Member):
    """A worker that is a thread where it would be a process, and takes a moment to start."""

    def __init__(
        self, name: str, main: Any, arguments: Sequence[object] = (), fds: Sequence[int] = (), *, remedy: str
    ) -> None:
        self.name, self._remedy = name, remedy
        self.connection, theirs = Pipe()
        self.process: Any = SimpleNamespace(wait=self.wait)
        self.thread = threading.Thread(target=self.live, args=(main, theirs, *map(str, arguments)))
        self.thread.start()

    @staticmethod
    def live(main: Any, theirs: Connection, *arguments: str) -> None:
        with theirs, suppress(EOFError, BrokenPipeError, ConnectionResetError, SystemExit):
            main(theirs, *arguments)

    def wait(self, timeout: float | None = None) -> int:
        self.thread.join(timeout)
        return 0
