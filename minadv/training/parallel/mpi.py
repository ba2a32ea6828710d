r"""Training over MPI: every rank runs the same loop on its part of each batch, and one sum a step makes them one.

::

    mpiexec -n 4 minadv train smnist          # or: mpiexec -n 4 python my_script.py, with a call of fit

Each rank computes the contribution of its rows, with the masks that one process would draw for them, and writes it into
a flat buffer; one Allreduce of that buffer gives all ranks the gradient of the whole batch. All of them make the same
update, so that the parameters need not travel. Rank 0, the chief, evaluates, and alone writes and prints.
"""

from __future__ import annotations

import os
import signal
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from minadv.backend import is_device, namespace, same_place, to_host
from minadv.base.trees import any_array, leaves, tree_map
from minadv.fast import reusing
from minadv.training.loop import TrainingError
from minadv.training.parallel.ranks import ProcessGroup
from minadv.training.parallel.workers import Part, Step, Sums, Workers, contribution, gather

Made = TypeVar("Made")

CUDA_AWARE = "MINADV_CUDA_AWARE_MPI"
"""Environment variable: 1 if the MPI library takes device buffers; otherwise they are copied to the host and back."""


class RankWorkers(Workers):
    """All ranks of a group of processes; ``params`` are any of the structure that will be trained.

    Buffers on a GPU are copied to the host for the sum, unless ``cuda_aware`` (default: the variable `CUDA_AWARE`).
    Every ``check_every`` steps the parameters of all ranks are compared by a checksum. Ctrl-C on any of them ends the
    step for all and is then raised on each; a second one is raised at once.
    """

    def __init__(
        self, task: Any, group: ProcessGroup, params: Any, *, cuda_aware: bool | None = None, check_every: int = 100
    ) -> None:
        if task.load.examples < group.size:
            raise ValueError(
                f"{group.size} ranks, expected at most {task.load.examples}, the examples of a batch: "
                "start fewer, or give a larger batch"
            )
        if cuda_aware is None:
            cuda_aware = os.environ.get(CUDA_AWARE, "0") not in ("", "0")
        self._task, self._group, self._part = task, group, Part(group.rank, group.size)
        self._sum = Sum(group.comm, params, cuda_aware)
        self._check_every, self._unchecked = check_every, True
        self._interrupted = False
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        self.model = reusing(task.model)

    @property
    def chief(self) -> bool:
        return self._group.chief

    def agree(self, make: Callable[[], Made]) -> Made:
        return self._group.agree(make)

    def step(self, params: Any, step: int, *, weight: float, carry: Any) -> Step:
        mine = {"part": self._part, "model": self.model}
        term, said = contribution(self._task, params, step, weight=weight, carry=carry, **mine)
        own = said.carry
        compare = self._unchecked or step % self._check_every == 0
        mark = checksum(params) if compare else 0
        beside = (said.nll, said.n_nll, said.value, said.n_value, said.zero_maps, mark, self._interrupted)
        grads, (nll, n_nll, value, n_value, zero_maps, marks, interrupted) = self._sum(term.grads, params, beside)
        if interrupted:
            raise KeyboardInterrupt
        if marks != self._part.count * mark:
            raise TrainingError(
                f"the parameters of the ranks differ at step {step}: their machines compute differently"
            )
        self._unchecked = False
        if own is not None:
            parts = self._group.comm.allgather(to_host(own))
            whole = tree_map(lambda *rows: np.concatenate(rows), *parts)
            own = tree_map(same_place, whole, own)
        return gather(grads, [Sums(nll, int(n_nll), value, int(n_value), own, int(zero_maps))])

    def _interrupt(self, *_: object) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def close(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


class Sum:
    """Gradients and a few numbers beside them, added up over the ranks by one Allreduce of a flat buffer.

    The result lies in that buffer: it is good until the next sum.
    """

    BESIDE = 7

    def __init__(self, comm: Any, params: Any, cuda_aware: bool) -> None:
        like = any_array(params)
        found = [leaf for _, leaf in leaves(params)]
        dtypes = sorted({str(leaf.dtype) for leaf in found})
        if len(dtypes) > 1:
            raise ValueError(f"the parameters have dtypes {dtypes}, expected one for all of them")
        self._comm, self._size = comm, sum(leaf.size for leaf in found)
        self._on_gpu, self._staged = is_device(like), is_device(like) and not cuda_aware
        self._flat = namespace(like).empty(self._size + self.BESIDE, like.dtype)
        self._given = _pinned(self._flat) if self._staged else self._flat
        self._total = _pinned(self._flat) if self._staged else namespace(like).empty_like(self._flat)

    def __call__(self, grads: Any, like: Any, beside: Sequence[float]) -> tuple[Any, list[float]]:
        """The sums over all ranks of ``grads``, a tree like ``like`` with None for zeros, and of the numbers."""
        _write(self._flat, grads, like)
        self._flat[self._size :] = same_place(np.asarray(beside, self._flat.dtype), self._flat)
        if self._staged:
            self._flat.get(out=self._given)
        elif self._on_gpu:
            namespace(self._flat).cuda.get_current_stream().synchronize()  # MPI does not wait for the kernels
        self._comm.Allreduce(self._given, self._total)
        numbers: list[float] = to_host(self._total[self._size :]).tolist()
        if self._staged:
            self._flat.set(self._total)
        return _read(self._flat if self._staged else self._total, like), numbers


def _pinned(like: Any) -> Any:
    """Host memory that a GPU copies to and from at full speed, of the size of a flat array on it."""
    return np.frombuffer(namespace(like).cuda.alloc_pinned_memory(like.nbytes), like.dtype, like.size)


def _write(flat: Any, tree: Any, like: Any) -> None:
    """The leaves of a tree, one after the other; zeros where ``like`` has one and the tree has none."""
    found, start = dict(leaves(tree)), 0
    for name, leaf in leaves(like):
        flat[start : start + leaf.size] = found[name].reshape(-1) if name in found else 0
        start += leaf.size


def _read(flat: Any, like: Any) -> Any:
    """A tree like another, whose leaves are views of the flat array."""
    start = 0

    def view(leaf: Any) -> Any:
        nonlocal start
        start += leaf.size
        return flat[start - leaf.size : start].reshape(leaf.shape)

    return tree_map(view, like)


def checksum(params: Any) -> int:
    """A number below 4096 that almost surely differs for different parameters; float32 adds 4096 of them exactly."""
    crc = 0
    for _, leaf in leaves(params):
        crc = zlib.crc32(np.ascontiguousarray(to_host(leaf)).data, crc)
    return crc & 0xFFF
