r"""How many workers share each batch of a task, and of which kind they are: threads, processes, or the ranks of MPI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minadv.backend import Device
from minadv.base import launch
from minadv.base.machine import CORE_CACHE
from minadv.base.notices import say_once
from minadv.base.numbers import Few
from minadv.base.schema import expect_type
from minadv.fast import limit_threads
from minadv.training.parallel.inference import WORTH, blas_threads, by_threads_of, lend, more_than_cores
from minadv.training.parallel.mpi import RankWorkers
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.ranks import ProcessGroup, one_process, process_group
from minadv.training.parallel.threads import ThreadWorkers
from minadv.training.parallel.workers import OneWorker, Workers
from minadv.training.task import Task


@contextmanager
def start_workers(
    task: Task, workers: int, ranks: ProcessGroup | None = None, *, cuda_aware_mpi: bool | None = None
) -> Iterator[Workers]:
    """Workers for a task's steps and evaluations, with as many BLAS threads as suit its weights and the cores.

    They end with this context. Of more workers than cores, which share a batch in as many parts, only as many compute
    at a time as there are cores.
    """
    ranks = process_group() if ranks is None else ranks
    load = task.load  # read first: it loads the compiler of passes and its BLAS, whose threads are limited below
    at_once = min(workers, ranks.cores)
    if workers > at_once:
        say_once(more_than_cores(workers, at_once))
    if len(ranks.near) > ranks.together:
        few = "1 core" if ranks.together == 1 else f"{ranks.together} cores"
        say_once(f"{len(ranks.near)} ranks on this machine share {few}: start fewer, each has one BLAS thread")
    with limit_threads(blas_threads(load.weights, workers, ranks.cores)):
        sharing: Workers
        if ranks.size > 1:
            sharing = RankWorkers(task, ranks, task.init(), cuda_aware=cuda_aware_mpi)
        elif workers == 1:
            sharing = OneWorker(task)
        elif by_threads_of(load):
            sharing = ThreadWorkers(task, workers, at_once)
        else:
            sharing = ProcessWorkers(task, workers, task.init(), at_once)
        try:
            with lend(sharing):
                yield sharing
        finally:
            sharing.close()


def choose_workers(task: Task, asked: int | None, ranks: int = 1) -> int:
    """The number of workers that share each batch: as asked for, or as many as there are cores where that pays."""
    load = task.load  # read first: it loads the compiler of passes and its BLAS, before any threads are limited
    if ranks > 1:
        if asked not in (None, 1):
            raise ValueError(f"workers is {asked}, expected 1 under mpiexec: its {ranks} ranks share the batch already")
        return 1
    if asked is not None:
        expect_type("workers", asked, Few)
        if asked > load.examples:
            raise ValueError(f"workers is {asked}, expected at most {load.examples}, the examples of a batch")
        if asked > 1 and load.on_gpu:
            raise ValueError(f"workers is {asked}, expected 1 on a GPU: for several GPUs use mpiexec")
        return asked
    if load.on_gpu or load.weights > CORE_CACHE or load.products < WORTH:
        return 1
    return min(one_process().cores, load.examples)


def same_workers(config: dict[str, Any], device: Device) -> int | None:
    """The number of workers that a run was begun with, to get the same bits; None on a GPU and under mpiexec."""
    alone = launch.this_process().size == 1 and device.name == "cpu"
    return config.get("workers") if alone else None
