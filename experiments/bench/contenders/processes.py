r"""Starts contenders in processes of their own, and asks them for results, steps and memory."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.contenders import memory
from experiments.bench.contenders.problem import Given, Outcome, Size, merge
from experiments.bench.contenders.registry import Family, Setting
from minadv.base.machine import BLAS_VARIABLES

ROOT = Path(__file__).parents[3]
PATIENCE = 1800
"""Seconds that a contender may take for anything: compiling is the longest."""


class ContenderError(RuntimeError):
    """A contender cannot do what it was asked for; the message says why in a line."""


class Process:
    """A worker process."""

    def __init__(self, threads: int | None, fds: tuple[int, ...] = ()) -> None:
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.bench.contenders.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *fds),
            env=environment(threads),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.connection = Connection(ours.detach())

    def send(self, method: str, *arguments: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((method, arguments))

    def receive(self) -> Any:
        try:
            if not self.connection.poll(PATIENCE):
                raise ContenderError(f"it gave no answer in {PATIENCE} s")
            what, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise ContenderError(f"its process is gone (exit code {self.process.wait()})") from None
        if what != "done":
            raise ContenderError(what.splitlines()[0][:300]) from RuntimeError(value)
        return value

    def close(self) -> None:
        self.connection.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(threads: int | None) -> dict[str, str]:
    """The environment of a worker process: ``threads`` threads in every library, or (None) each library's choice."""
    kept = {name: value for name, value in os.environ.items() if name not in BLAS_VARIABLES}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    kept["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of compilers beside the contender
    if threads is not None:
        kept.update(dict.fromkeys(BLAS_VARIABLES, str(threads)))
    if threads == 1:
        kept["XLA_FLAGS"] = f"{kept.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    return kept


class Runner:
    """A contender at one setting: one process, or two that share each batch and sum their gradients."""

    def __init__(self, family: Family, setting: Setting, size: Size, seed: int = 0, dtype: str = "float32") -> None:
        self.family, self.setting, self.size = family, setting, size
        self.processes: list[Process] = []
        self.ranks = setting.processes
        with contextlib.ExitStack() as stack:
            fds: list[tuple[int, int] | None] = [None] * self.ranks
            if self.ranks > 1 and family.compares:
                fds = list(stack.enter_context(_between(size, dtype)))
            try:
                for rank in range(self.ranks):
                    self.processes.append(Process(setting.threads, fds[rank] or ()))
                for rank, process in enumerate(self.processes):
                    process.send(
                        *("make", family.maker, dict(setting.options), size, seed, dtype, setting.pin),
                        *(rank, self.ranks, fds[rank]),
                    )
                self.imported = sum(process.receive() for process in self.processes)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def outcome(self, K: int, given: Given) -> Outcome:
        """The results for the whole batch."""
        for rank, process in enumerate(self.processes):
            rows = slice(self.size.B * rank // self.ranks, self.size.B * (rank + 1) // self.ranks)
            process.send("outcome", K, None if given is None else [masks[rows] for masks in given])
        return merge(self._answers())

    def step(self, K: int) -> float:
        """Seconds from the first process's start to the last one's end."""
        for process in self.processes:
            process.send("step", K)
        times = self._answers()
        return float(max(end for _, end in times) - min(start for start, _ in times))

    def _answers(self) -> list[Any]:
        """The answers of all processes, in order; raises the first error at once: others may wait for that process."""
        waiting = {process.connection: n for n, process in enumerate(self.processes)}
        found: dict[int, Any] = {}
        while waiting:
            ready = connection.wait(list(waiting), PATIENCE)
            if not ready:
                raise ContenderError(f"it gave no answer in {PATIENCE} s")
            for one in ready:
                n = waiting.pop(one)  # type: ignore[call-overload]
                found[n] = self.processes[n].receive()
        return [found[n] for n in range(len(self.processes))]

    def memory(self, K: int) -> dict[str, float]:
        """MB after the import, at the peak of a warm step, and at that peak with shared pages counted once.

        ``ever`` includes compilation and the first step.
        """
        pids = [process.process.pid for process in self.processes]
        self.step(K)
        ever = memory.peak(pids)
        memory.reset(pids)
        with memory.Sampler(pids) as sampler:
            for _ in range(2):
                self.step(K)
        peak = memory.peak(pids)
        return {"imported": self.imported, "peak": peak, "sampled": sampler.largest, "ever": max(ever, peak)}

    def close(self) -> None:
        for process in self.processes:  # told together: one may wait for another
            process.connection.close()
        for process in self.processes:
            process.close()


def call(name: str, *, threads: int | None = None, **arguments: Any) -> Any:
    """The result of a function, from a process of its own."""
    process = Process(threads)
    try:
        process.send("call", name, arguments)
        return process.receive()
    finally:
        process.close()


@contextmanager
def _between(size: Size, dtype: str) -> Iterator[list[tuple[int, int]]]:
    """Shared memory for two gradients and a socket between two processes: for each, its two file descriptors."""
    count = (size.I + size.H + 1) * 4 * size.H + (size.H + 1) * size.C
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    one, two = socket.socketpair()
    with tempfile.TemporaryFile(dir=folder) as file, one, two:
        file.truncate(2 * count * np.dtype(dtype).itemsize)
        yield [(file.fileno(), one.fileno()), (file.fileno(), two.fileno())]
