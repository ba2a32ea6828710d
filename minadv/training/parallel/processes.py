r"""Worker processes on one machine that share each batch: parameters and gradients lie in shared memory.

The parent is the first worker; the others run `serve`, are sent the task once and then, for each step, its number. Each
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
import tempfile
from functools import reduce
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np

from minadv.backend import Array
from minadv.base.trees import leaves, tree_add, tree_map
from minadv.fast import limit_threads, reusing
from minadv.training.parallel.members import Batches, Member, WorkerError, end_all, share_by
from minadv.training.parallel.workers import Inference, Part, Step, Workers, gather, sums

Made = TypeVar("Made")


class ProcessWorkers(Workers):
    """Processes that share each batch in ``n`` parts, ``at_once`` of them at a time (default: all).

    This process is the first of them; with fewer than ``n`` processes, each has several parts.
    """

    def __init__(self, task: Any, n: int, params: Any, at_once: int | None = None) -> None:
        if n < 2:
            raise ValueError(f"workers is {n}, expected at least 2 to share a batch")
        count = min(n, at_once or n)
        self._task, self._n = task, n
        self._own = [(part, reusing(task.model)) for part in _parts(0, count, n)]
        try:
            message = pickle.dumps(task)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise WorkerError(f"the task cannot be sent to worker processes ({error}): train with workers=1") from error
        self._memory = Shared.make(params, n - 1)
        self._members: list[Member] = []
        self._threads = contextlib.ExitStack()
        self._threads.enter_context(limit_threads(1))
        try:
            for index in range(1, count):
                self._members.append(_start(self._memory, index, count, n))
            for member in self._members:
                member.send(message)
            for member in self._members:
                member.receive()
        except BaseException:
            self.close()
            raise

    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        self._memory.write(self._memory.params, params)
        for member in self._members:
            member.send(pickle.dumps((step, weight, carry)))
        grads, said = {}, {}
        for part, model in self._own:
            term, own = self._task.term(params, step, weight=weight, carry=carry, part=part, model=model)
            grads[part.index], said[part.index] = term.grads, sums(term, own)
        for member in self._members:
            said.update(member.receive())
        for index in said.keys() - grads.keys():
            grads[index] = self._memory.read(self._memory.grads[index - 1], params)
        total = reduce(tree_add, [grads[index] for index in range(self._n)])
        return gather(total, [said[index] for index in range(self._n)])

    def share(self, inference: Inference[Made]) -> list[Made]:
        return share_by(self._members, inference)

    def close(self) -> None:
        end_all(self._members)
        self._members = []
        self._memory.close()
        self._threads.close()


def _parts(index: int, count: int, n: int) -> list[Part]:
    """The parts of process ``index`` of ``count``, of a batch of ``n`` parts."""
    return [Part(part, n) for part in range(index, n, count)]


class Shared:
    """Flat arrays in memory that all workers see: the parameters, and the gradient of each worker but the first."""

    def __init__(self, fd: int, size: int, dtype: str) -> None:
        self.fd: int | None = fd
        self.size, self.dtype = size, dtype
        whole = np.frombuffer(mmap.mmap(fd, 0), dtype)  # all of the file
        self.params, *self.grads = whole.reshape(-1, size)

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
            file.truncate((1 + others) * size * np.dtype(dtype).itemsize)
            return cls(os.dup(file.fileno()), size, dtype)

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


def _start(memory: Shared, index: int, count: int, n: int) -> Member:
    assert memory.fd is not None
    numbers = [memory.fd, memory.size, index, count, n]
    name, arguments = f"worker {index} of {count}", [memory.dtype, *numbers]
    return Member(name, serve, arguments, [memory.fd], remedy="resume the run")


def serve(connection: Connection, dtype: str, *numbers: str) -> None:
    """The life of a worker: a task, then steps and batches to read, until the parent is gone."""
    fd, size, index, count, n = map(int, numbers)
    memory, parts = Shared(fd, size, dtype), _parts(index, count, n)
    task = pickle.loads(connection.recv_bytes())  # from our own parent, over a socket that nobody else has
    like, model = task.init(), reusing(task.model)
    connection.send(None)
    while True:
        message = connection.recv_bytes()
        try:
            asked = pickle.loads(message)
            if isinstance(asked, Batches):
                connection.send(asked.read())
                continue
            step, weight, carry = asked
            params, said = memory.read(memory.params, like), {}
            for part in parts:
                term, own = task.term(params, step, weight=weight, carry=carry, part=part, model=model)
                memory.write(memory.grads[part.index - 1], _filled(term.grads, like))
                said[part.index] = sums(term, own)
            connection.send(said)
        except Exception as error:
            connection.send(error)


def _filled(grads: Any, like: Any) -> Any:
    """Gradients with zeros where a part contributes nothing."""
    found = dict(leaves(grads))
    names = iter([name for name, _ in leaves(like)])
    return tree_map(lambda leaf: found.get(next(names), np.zeros_like(leaf)), like)
