"""Who was started with whom, what all ranks agree on, and how they end."""

import os
import sys
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from minadv.base import launch, machine
from minadv.training.parallel import ranks as module
from minadv.training.parallel.ranks import ProcessGroup, each_alone, only_first_prints, process_group, share_out
from tests.support.threaded import Comm, others_turn, run_ranks

VARIABLES = [name for pair in launch.NUMBERS for name in pair] + list(launch.ON_MACHINE)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no launcher had started the tests."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def started(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("PMI_RANK", str(rank))
    monkeypatch.setenv("PMI_SIZE", str(size))
    module._launched.cache_clear()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, launch.Process(0, 1, 0)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, launch.Process(2, 4, 1)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, launch.Process(0, 1, 0)),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "3"},
            launch.Process(3, 8, 3),
        ),
        ({"SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "5", "SLURM_LOCALID": "1"}, launch.Process(5, 6, 1)),
        ({"SLURM_NTASKS": "6", "SLURM_PROCID": "0"}, launch.Process(0, 1, 0)),  # a batch script, outside of srun
        ({"PMI_SIZE": "4"}, launch.Process(0, 1, 0)),
        ({"PMI_SIZE": "many", "PMI_RANK": "0"}, launch.Process(0, 1, 0)),
    ],
)
def test_what_the_environment_says(variables: dict[str, str], expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launch.this_process() == expected
    assert launch.this_process().command == ("" if expected.size == 1 else f"mpiexec -n {expected.size} ")


def test_neighbours_take_different_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, 5, 8)
    taken = []
    for local in range(4):
        monkeypatch.setenv("MPI_LOCALRANKID", str(local))
        taken.append(launch.own_gpu(2))
    assert taken == [0, 1, 0, 1]
    monkeypatch.delenv("PMI_SIZE")
    assert launch.own_gpu(2) == 0


def test_a_process_alone_needs_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    ours = process_group()
    assert (ours.rank, ours.size, ours.chief, len(ours.near), ours.cores) == (0, 1, True, 1, machine.cores())
    ours.meet()
    assert ours.agree(lambda: 7) == 7
    with pytest.raises(KeyError), ours.fail_together():
        raise KeyError
    assert share_out(abs, [-1, 2, -3]) == [1, 2, 3]


def test_without_mpi4py_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, 0, 4)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"4 processes were started together .* pip install minadv\[mpi\]"):
        process_group()
    with each_alone():
        assert process_group().size == 1
    with pytest.raises(ImportError):
        process_group()


def test_an_mpi4py_of_another_mpi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, 0, 4)
    single = SimpleNamespace(size=1, rank=0)
    fake = SimpleNamespace(COMM_WORLD=single, Get_library_version=lambda: "Some MPI 4.0\nof last year")
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=fake))
    with pytest.raises(ImportError, match=r"mpi4py sees 1: .* \(Some MPI 4.0\) than the mpiexec that started them"):
        process_group()


def test_one_voice(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for rank in range(2):
        started(monkeypatch, rank, 2)
        with only_first_prints():
            print(f"rank {rank}")
            print(f"rank {rank}", file=sys.stderr)
    assert capsys.readouterr() == ("rank 0\n", "rank 0\n")


def test_what_all_agree_on_is_made_once_when_all_are_there() -> None:
    there, made = [], []

    def share(comm: Comm) -> Any:
        ours = ProcessGroup(comm)
        with others_turn():
            time.sleep(0.1 * comm.rank)
        there.append(comm.rank)
        return ours.agree(lambda: made.append(sorted(there)) or "made")

    assert run_ranks(share, 3) == ["made"] * 3
    assert made == [[0, 1, 2]]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The group that `process_group` finds, for each of the threads that stand for ranks."""
    own = threading.local()
    monkeypatch.setattr(module, "process_group", lambda: own.group)
    return own


def test_ranks_take_turns_at_independent_tasks(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blas: list[int] = []
    monkeypatch.setattr(module, "limit_threads", lambda n: nullcontext(blas.append(n)))

    def share(comm: Comm) -> Any:
        groups.group = ProcessGroup(comm)
        return share_out(lambda task: (task**2, comm.rank), range(5))

    assert run_ranks(share, 2) == [[(0, 0), (1, 1), (4, 0), (9, 1), (16, 0)]] * 2
    assert blas == [1, 1]


def test_whoever_waits_for_another_rank_keeps_no_core_busy(groups: Any) -> None:
    """Calls that hand something over wait busily in most MPI libraries: nobody makes one before all have come."""
    waiting: list[int] = []

    def slowly(*_: Any) -> list[int]:
        with others_turn():
            time.sleep(0.05)
        return list(waiting)

    def share(comm: Any) -> Any:
        ours = groups.group = ProcessGroup(comm)
        comm.bcast = lambda value: waiting.append(comm.rank) or Comm.bcast(comm, value)
        agreed = ours.agree(slowly)
        ours.meet()
        waiting.clear()
        ours.meet()
        comm.allgather = lambda value: waiting.append(comm.rank) or Comm.allgather(comm, value)
        return agreed, share_out(slowly if comm.rank == 0 else len, ["a task"] * 2)

    assert run_ranks(share, 2) == [([], [[], 6])] * 2


@pytest.mark.parametrize(
    ("own", "quota", "together", "each"),
    [
        ([range(8)] * 3, None, 8, 2),  # all of them may run anywhere
        ([range(2)] * 3, None, 2, 1),  # more ranks than cores
        ([range(4), range(4, 8), range(8, 12)], None, 12, 4),  # the launcher has bound each to cores of its own
        ([range(1), range(1, 2)], None, 2, 1),
        ([range(4), range(4, 8)], 4.0, 4, 2),  # and a quota is for all of them
    ],
)
def test_the_cores_of_a_machine_are_shared_by_its_ranks(
    own: list[range], quota: Any, together: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(machine.CORES, raising=False)
    monkeypatch.setattr(machine, "quota", lambda: quota)

    here = threading.local()
    for where in (module, machine):
        monkeypatch.setattr(where, "affinity", lambda: frozenset(own[here.rank]))

    def count(comm: Comm) -> Any:
        here.rank = comm.rank
        ours = ProcessGroup(comm)
        return len(ours.near), ours.together, ours.cores

    assert run_ranks(count, len(own)) == [(len(own), together, each)] * len(own)


def test_a_rank_alone_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all ranks that were started, so that independent runs on each do not take all cores for themselves."""
    started(monkeypatch, 0, 3)
    monkeypatch.setattr(module, "cores", lambda *_: 6)
    with each_alone():
        assert process_group().cores == 2
    assert module.one_process().cores == 2  # which asks nothing of the others


def test_ranks_that_know_where_the_others_are_share_the_cores_of_their_own_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started(monkeypatch, 0, 2)
    monkeypatch.setattr(module, "_near", [])
    assert len(module.one_process().near) == 2  # as if both were here
    elsewhere = ("another machine", frozenset({0}))
    comm = SimpleNamespace(size=2, rank=0, Dup=lambda: None, allgather=lambda own: [own, elsewhere])
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=SimpleNamespace(COMM_WORLD=comm)))
    assert process_group().near == [machine.affinity()]
    assert module.one_process().near == [machine.affinity()]


def test_a_rank_that_fails_alone_aborts(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)

    def share(comm: Comm) -> Any:
        ours = ProcessGroup(comm)
        try:
            with ours.fail_together():
                if comm.rank == 1:
                    raise ValueError("bad luck")
        except ValueError:
            pass
        return comm.aborted

    assert run_ranks(share, 2) == [None, 1]
    said = capfd.readouterr().err
    assert "ValueError: bad luck" in said
    assert said.splitlines()[-1] == "minadv: rank 1 of 2 failed and ends the others: bad luck"


def test_what_happens_to_all_is_raised_on_each(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 600.0)

    def share(comm: Comm) -> Any:
        ours = ProcessGroup(comm)
        with others_turn():
            time.sleep(0.1 * comm.rank)
        with pytest.raises(ValueError, match=f"bad luck {comm.rank}"), ours.fail_together(), ours.fail_together():
            raise ValueError(f"bad luck {comm.rank}")
        return comm.aborted

    assert run_ranks(share, 3) == [None] * 3
    assert capfd.readouterr().err == ""


def test_apart_is_of_a_thread_and_of_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, 0, 2)
    monkeypatch.setattr(module, "_launched", lambda: "all")
    with each_alone():
        with each_alone():
            assert process_group().size == 1
        assert process_group().size == 1
        seen: list[Any] = []
        other = threading.Thread(target=lambda: seen.append(process_group()))
        other.start()
        other.join()
        assert seen == ["all"]
    assert process_group() == "all"
    assert os.environ["PMI_SIZE"] == "2"
