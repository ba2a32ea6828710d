r"""How many workers share each batch of a task, and of which kind they are: threads, processes, or the ranks of MPI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minadv.backend import Device
from minadv.base import launch
from minadv.base.machine import CORE_CACHE, cores
from minadv.fast import describe, limit_threads
from minadv.training.parallel.mpi import Ranks
from minadv.training.parallel.processes import Workers
from minadv.training.parallel.ranks import World, world
from minadv.training.parallel.teams import Alone, Team
from minadv.training.parallel.threads import Threads
from minadv.training.task import Task


@contextmanager
def team_of(
    task: Task, workers: int, ranks: World | None = None, *, cuda_aware_mpi: bool | None = None
) -> Iterator[Team]:
    """The team that computes a task's steps, with as many BLAS threads as suit its weights; closed at the end."""
    ranks = world() if ranks is None else ranks
    load = (
        task.load
    )  # asking whether passes are compiled loads what compiles them, and its BLAS, before that is limited
    with limit_threads(1 if load.weights <= CORE_CACHE else ranks.threads):
        team: Team
        if ranks.size > 1:
            team = Ranks(task, ranks, task.init(), cuda_aware=cuda_aware_mpi)
        elif workers == 1:
            team = Alone(task)
        elif (load.compiled or load.weights > CORE_CACHE) and describe().limits_threads:
            team = Threads(task, workers)
        else:
            team = Workers(task, workers, task.init())
        try:
            yield team
        finally:
            team.close()


WORTH = 1e8
"""Multiplications a pass below which a second process is not worth the while of starting it."""


def choose_workers(task: Task, asked: int | None, ranks: int = 1) -> int:
    """The number of workers that share each batch: as asked for, or as many as there are cores where that pays."""
    load = task.load  # this loads what compiles passes, and its BLAS, before the threads of that are limited
    if ranks > 1:
        if asked not in (None, 1):
            raise ValueError(f"workers is {asked}, expected 1 under mpiexec: its {ranks} ranks share the batch already")
        return 1
    if asked is not None:
        if asked < 1:
            raise ValueError(f"workers is {asked}, expected at least 1")
        if asked > load.examples:
            raise ValueError(f"workers is {asked}, expected at most {load.examples}, the examples of a batch")
        if asked > 1 and load.on_gpu:
            raise ValueError(f"workers is {asked}, expected 1 on a GPU: for several GPUs use mpiexec")
        return asked
    if load.on_gpu or load.weights > CORE_CACHE or load.products < WORTH:
        return 1
    return min(cores(), load.examples)


def same_workers(config: dict[str, Any], device: Device) -> int | None:
    """The number of workers that a run was begun with, for bit-equal results, where it can be had: else None."""
    alone = launch.place().size == 1 and device.name == "cpu"
    return config.get("workers") if alone else None
