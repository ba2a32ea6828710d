r"""A contender in a process of its own: ``python -m experiments.bench.contenders.worker FD``, as `processes` starts it.

Threads are set by the environment before anything is imported, so that no contender's setting touches another's. The
process then does what it is told over a socket, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from experiments.bench.contenders import memory, registry
from experiments.bench.contenders.problem import Given, Outcome, Size, draw
from minadv.backend import Array


class Exchange:
    """Sums gradients over two processes: each writes its own into shared memory and reads the other's.

    A process writes again only after its parent has heard from both, so nothing is overwritten before it is read.
    """

    def __init__(self, fd: int, peer: Connection, rank: int, size: int, dtype: str) -> None:
        both = np.frombuffer(mmap.mmap(fd, 2 * size * np.dtype(dtype).itemsize), dtype)
        self.own, self.parts = both[rank * size : (rank + 1) * size], (both[:size], both[size:])
        self.peer = peer

    def __call__(self, grads: Sequence[Array]) -> list[Array]:
        np.concatenate([g.reshape(-1) for g in grads], out=self.own)
        self.peer.send_bytes(b".")
        self.peer.recv_bytes()
        total = self.parts[0] + self.parts[1]
        ends = np.cumsum([g.size for g in grads])[:-1]
        return [part.reshape(g.shape) for part, g in zip(np.split(total, ends), grads, strict=True)]


class Server:
    """The calls that the parent process may ask this process for."""

    def make(
        self,
        maker: str,
        options: Mapping[str, Any],
        size: Size,
        seed: int,
        dtype: str,
        pin: bool,
        rank: int,
        ranks: int,
        fds: tuple[int, int] | None,
    ) -> float:
        """Import the library and build the contender; returns MB resident after the import."""
        if pin:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[rank % len(cores)]})
        registry.load(maker)
        imported = memory.resident()
        problem = draw(size, seed, dtype)
        self.exchange = None
        if fds is not None:
            count = sum(w.size for w in problem.weights)
            self.exchange = Exchange(fds[0], Connection(fds[1]), rank, count, dtype)
        self.contender = registry.make(maker, problem.share(rank, ranks), options)
        return imported

    def outcome(self, K: int, given: Given) -> Outcome:
        return self.contender.outcome(K, given)

    def step(self, K: int) -> tuple[float, float]:
        """When the step began and ended, by a clock that all processes share."""
        gc.collect()
        started = time.perf_counter()
        self.contender.step(K, self.exchange)
        return started, time.perf_counter()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Any function, for the parts of the benchmark that need no contender kept alive."""
        return registry.load(name)(**arguments)

    def close(self) -> None:
        getattr(getattr(self, "contender", None), "close", lambda: None)()


def serve(connection: Connection) -> None:
    server = Server()
    gc.disable()  # the loop collects between steps instead
    with contextlib.closing(server):
        while True:
            method, arguments = connection.recv()
            try:
                connection.send(("done", getattr(server, method)(*arguments)))
            except Exception as error:
                connection.send((f"{type(error).__name__}: {error}", traceback.format_exc()))


if __name__ == "__main__":
    os.dup2(2, 1)  # what libraries print goes to standard error, with the progress
    warnings.simplefilter("ignore")
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))
