"""How many workers share a batch, and of which kind they are, with stand-ins that start nothing."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from minadv.base import machine, notices
from minadv.base.machine import CORE_CACHE
from minadv.training.parallel import choose, inference
from minadv.training.parallel.choose import choose_workers, same_workers, start_workers
from minadv.training.parallel.inference import WORTH
from minadv.training.task import Load

LOAD = Load(2 * WORTH, CORE_CACHE, 100)
SMALL, COMPILED = SimpleNamespace(load=LOAD, init=lambda: "params"), replace(LOAD, compiled=True)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user's, and nothing said yet."""
    for name in (*machine.BLAS_VARIABLES, machine.CORES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(notices, "_said", set())


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is started, with what, and ended: in the place of workers of each kind and of a limit of BLAS threads."""
    told: list[Any] = []

    class Limit:
        def __init__(self, n: int) -> None:
            told.append(("BLAS", n))

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def kind(name: str) -> Callable[..., Any]:
        def start(*given: Any, **named: Any) -> Any:
            told.append((name, *given[1:], *named.values()))
            return SimpleNamespace(close=lambda: told.append("closed"))

        return start

    for name in ("OneWorker", "ThreadWorkers", "ProcessWorkers", "RankWorkers"):
        monkeypatch.setattr(choose, name, kind(name))
    monkeypatch.setattr(choose, "limit_threads", Limit)
    return told


def group(size: int = 1, cores: int = 4, near: int = 1, together: int = 4) -> Any:
    return SimpleNamespace(size=size, cores=cores, near=[frozenset()] * near, together=together)


@pytest.mark.parametrize(
    ("load", "workers", "ranks", "expected"),
    [
        (LOAD, 1, group(), [("BLAS", 1), ("OneWorker",)]),
        (replace(LOAD, weights=CORE_CACHE + 1), 1, group(), [("BLAS", 4), ("OneWorker",)]),
        (LOAD, 3, group(), [("BLAS", 1), ("ProcessWorkers", 3, "params", 3)]),
        (LOAD, 6, group(), [("BLAS", 1), ("ProcessWorkers", 6, "params", 4)]),
        (COMPILED, 3, group(), [("BLAS", 1), ("ThreadWorkers", 3, 3)]),
        (COMPILED, 6, group(), [("BLAS", 1), ("ThreadWorkers", 6, 4)]),
        (replace(LOAD, weights=CORE_CACHE + 1), 2, group(), [("BLAS", 1), ("ThreadWorkers", 2, 2)]),
        (LOAD, 1, group(2, near=2), [("BLAS", 1), ("RankWorkers", "group", "params", True)]),
    ],
)
def test_who_shares_a_batch(load: Load, workers: int, ranks: Any, expected: Any, started: list[Any]) -> None:
    with start_workers(SimpleNamespace(load=load, init=lambda: "params"), workers, ranks, cuda_aware_mpi=True) as own:
        assert inference._lent.get() == (own,)
        assert [["group" if part is ranks else part for part in told] for told in started] == [
            list(told) for told in expected
        ]
    assert started[-1] == "closed"
    assert inference._lent.get() == ()


def test_workers_are_ended_by_an_error(started: list[Any]) -> None:
    with pytest.raises(KeyError), start_workers(SMALL, 2, group()):
        raise KeyError
    assert started[-1] == "closed"


def test_without_a_group_the_process_knows_its_own(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "process_group", lambda: group(cores=2))
    with start_workers(SMALL, 3):
        assert started[-1] == ("ProcessWorkers", 3, "params", 2)


@pytest.mark.parametrize(
    ("workers", "ranks", "said"),
    [
        (4, group(), ""),
        (5, group(), "workers is 5, more than the 4 cores that this process may use: 4 compute at a time"),
        (1, group(4, 1, near=4), ""),
        (1, group(4, 1, 4, together=3), "4 ranks on this machine share 3 cores: start fewer, each has one BLAS thread"),
        (1, group(4, 1, 4, together=1), "4 ranks on this machine share 1 core: start fewer, each has one BLAS thread"),
    ],
)
@pytest.mark.usefixtures("started")
def test_what_is_said_of_more_than_there_are_cores(workers: int, ranks: Any, said: str, capsys: Any) -> None:
    with start_workers(SMALL, workers, ranks):
        assert capsys.readouterr().err == (f"minadv: {said}\n" if said else "")


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "one_process", lambda: group(cores=4))

    def count(*asked: Any, **load: Any) -> int:
        return choose_workers(SimpleNamespace(load=replace(LOAD, **load)), *(asked or (None,)))

    assert (count(), count(examples=3), count(products=WORTH)) == (4, 3, 4)
    assert (count(3), count(100), count(1, on_gpu=True), count(2, products=0)) == (3, 100, 1, 2)
    for change in ({"products": WORTH - 1}, {"weights": CORE_CACHE + 1}, {"on_gpu": True}):
        assert count(**change) == 1
    assert count(None, 2) == count(1, 2) == 1
    for asked, ranks, load, said in (
        (2, 2, {}, "workers is 2, expected 1 under mpiexec: its 2 ranks share the batch already"),
        (0, 1, {}, "workers is 0, expected a whole number of at least 1"),
        (101, 1, {}, "workers is 101, expected at most 100, the examples of a batch"),
        (2, 1, {"on_gpu": True}, "workers is 2, expected 1 on a GPU: for several GPUs use mpiexec"),
    ):
        with pytest.raises(ValueError, match=said):
            count(asked, ranks, **load)


def test_a_run_goes_on_with_its_workers_where_they_decide_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = SimpleNamespace(name="cpu"), SimpleNamespace(name="gpu")
    for size, device, expected in ((1, cpu, 3), (1, gpu, None), (2, cpu, None)):
        monkeypatch.setattr(choose.launch, "this_process", lambda size=size: SimpleNamespace(size=size))
        assert same_workers({"workers": 3}, device) == expected
    assert same_workers({}, cpu) is None
