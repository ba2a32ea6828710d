r"""Worker processes on one machine that share each batch: parameters and gradients lie in shared memory.

The parent is the first worker; the others run `main`, are sent the task once and then, for each step, its number. Each
has one BLAS thread: two processes on half a batch each are faster than two threads on every product, as long as the
weights are small enough to stay in each core's own cache. They are for steps that are not compiled: compiled steps
let other threads run, and `minadv.training.parallel.threads` needs less memory. The processes end with their parent,
however it ends, and nothing is left behind: the shared memory is a file without a name.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Array
from minadv.base import machine
from minadv.base.trees import leaves, tree_add, tree_map
from minadv.fast import limit_threads, reusing
from minadv.training.loop import TrainingError
from minadv.training.parallel.workers import Part, Step, Sums, Workers, gather, sums


class WorkerError(TrainingError):
    """A worker process cannot go on, or is gone; the message says which and why."""


class ProcessWorkers(Workers):
    """Processes, ``n`` of them, this one included."""

    def __init__(self, task: Any, n: int, params: Any) -> None:
        if n < 2:
            raise ValueError(f"workers is {n}, expected at least 2 to share a batch")
        self._task, self._part = task, Part(0, n)
        self.model = reusing(task.model)
        try:
            message = pickle.dumps(task)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise WorkerError(f"the task cannot be sent to worker processes ({error}): train with workers=1") from error
        self._memory = Shared.make(params, n - 1)
        self._members: list[tuple[Connection, subprocess.Popen[bytes]]] = []
        self._threads = contextlib.ExitStack()
        self._threads.enter_context(limit_threads(1))
        try:
            for index in range(1, n):
                self._members.append(_start(self._memory, Part(index, n)))
            for connection, _ in self._members:
                connection.send_bytes(message)
            for index in range(1, n):
                self._receive(index)
        except BaseException:
            self.close()
            raise

    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        self._memory.write(self._memory.params, params)
        for index, (connection, _) in enumerate(self._members, start=1):
            try:
                connection.send((step, weight, carry))
            except OSError:
                raise self._gone(index) from None
        term, own = self._task.term(params, step, weight=weight, carry=carry, part=self._part, model=self.model)
        said = [sums(term, own)] + [self._receive(index) for index in range(1, self._part.count)]
        theirs = [self._memory.read(flat, params) for flat in self._memory.grads]
        grads = term.grads
        for other in theirs:
            grads = tree_add(grads, other)
        return gather(grads, said)

    def _receive(self, index: int) -> Sums:
        connection, _ = self._members[index - 1]
        try:
            said = connection.recv()
        except (EOFError, OSError):
            raise self._gone(index) from None
        if isinstance(said, BaseException):
            raise said
        return said  # type: ignore[no-any-return]

    def _gone(self, index: int) -> WorkerError:
        code = self._members[index - 1][1].wait()
        return WorkerError(f"worker {index} of {self._part.count} is gone (exit code {code}): resume the run")

    def close(self) -> None:
        for connection, _ in self._members:
            connection.close()
        for _, process in self._members:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._members = []
        self._memory.close()
        self._threads.close()


class Shared:
    """Flat arrays in memory that all workers see: the parameters, and the gradient of each worker but the first."""

    def __init__(self, fd: int, size: int, dtype: str, others: int) -> None:
        self.fd: int | None = fd
        self.size, self.dtype, self.others = size, dtype, others
        whole = np.frombuffer(mmap.mmap(fd, max(1, (1 + others) * size * np.dtype(dtype).itemsize)), dtype)
        self.params = whole[:size]
        self.grads = [whole[n * size : (n + 1) * size] for n in range(1, 1 + others)]

    def close(self) -> None:
        """Give the file back, and with the last view of it the memory."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    @classmethod
    def make(cls, params: Any, others: int) -> Shared:
        """Memory for these parameters."""
        found = [leaf for _, leaf in leaves(params)]
        size, dtypes = sum(leaf.size for leaf in found), {str(leaf.dtype) for leaf in found}
        if len(dtypes) != 1:
            raise ValueError(f"the parameters have dtypes {sorted(dtypes)}, expected one for all of them")
        dtype = dtypes.pop()
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryFile(dir=folder) as file:  # it has no name, and is gone with the last who has it open
            file.truncate(max(1, (1 + others) * size * np.dtype(dtype).itemsize))
            return cls(os.dup(file.fileno()), size, dtype, others)

    @staticmethod
    def write(flat: Array, tree: Any) -> None:
        """The leaves of a tree, one after the other."""
        np.concatenate([leaf.reshape(-1) for _, leaf in leaves(tree)], out=flat)

    @staticmethod
    def read(flat: Array, like: Any) -> Any:
        """A tree like another, whose leaves are views of the flat array."""
        start = 0

        def view(leaf: Array) -> Array:
            nonlocal start
            start += leaf.size
            return flat[start - leaf.size : start].reshape(leaf.shape)

        return tree_map(view, like)


def _start(memory: Shared, part: Part) -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    assert memory.fd is not None
    fds = (theirs.fileno(), memory.fd)
    numbers = [*fds, memory.size, memory.others, part.index, part.count]
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()", memory.dtype, *map(str, numbers)],
        pass_fds=fds,
        env={**machine.one_blas_thread(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        cwd=Path.cwd(),
        process_group=0,  # Ctrl-C is for the parent, with which this process ends
    )
    theirs.close()
    return Connection(ours.detach()), process


def serve(connection: Connection, memory: Shared, part: Part) -> None:
    """The life of a worker: a task, then steps, until the parent is gone."""
    task = pickle.loads(connection.recv_bytes())  # from our own parent, over a socket that nobody else has
    like, model = task.init(), reusing(task.model)
    connection.send(None)
    while True:
        step, weight, carry = connection.recv()
        try:
            params = memory.read(memory.params, like)
            term, own = task.term(params, step, weight=weight, carry=carry, part=part, model=model)
            memory.write(memory.grads[part.index - 1], _filled(term.grads, like))
            connection.send(sums(term, own))
        except Exception as error:
            connection.send(error)


def _filled(grads: Any, like: Any) -> Any:
    """Gradients with zeros where a part contributes nothing."""
    found = dict(leaves(grads))
    names = iter([name for name, _ in leaves(like)])
    return tree_map(lambda leaf: found.get(next(names), np.zeros_like(leaf)), like)


def main() -> None:
    """A worker process; its arguments are the dtype, file descriptors, sizes and part that `_start` gives it."""
    dtype = sys.argv[1]
    connection, fd, size, others, index, count = map(int, sys.argv[2:])
    warnings.simplefilter("ignore", UserWarning)  # the parent process computes a part of the batch as well, and warns
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), limit_threads(1):
        serve(Connection(connection), Shared(fd, size, dtype, others), Part(index, count))
