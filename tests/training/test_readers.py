"""Who reads batches, with how many BLAS threads, and what is said of it, with stand-ins that start nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minadv.base import machine, notices, pulse
from minadv.base.machine import CORE_CACHE
from minadv.training.parallel import inference
from minadv.training.parallel.inference import (
    WORTH,
    WORTH_A_PROCESS,
    alone,
    ask_for,
    by_threads_of,
    lend,
    share,
    start_readers,
)
from minadv.training.parallel.workers import Readers
from minadv.training.task import Load

LOAD = Load(WORTH_A_PROCESS, CORE_CACHE, 10)
COMPILED, LARGE = replace(LOAD, products=WORTH, compiled=True), replace(LOAD, weights=CORE_CACHE + 1)


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user's, nothing said yet, and BLAS that can be limited."""
    for name in (*machine.BLAS_VARIABLES, machine.CORES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(notices, "_said", set())
    monkeypatch.setattr(inference, "one_process", lambda: SimpleNamespace(cores=3))
    monkeypatch.setattr(inference, "describe", lambda: SimpleNamespace(limits_threads=True))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is started, and ended: in the place of readers of each kind and of a limit of BLAS threads."""
    told: list[Any] = []

    class Limit:
        def __init__(self, n: int) -> None:
            told.append(("BLAS", n))

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def kind(name: str) -> Callable[..., Any]:
        def start(*given: Any) -> Any:
            told.append((name, *given))
            return SimpleNamespace(close=lambda: told.append("closed"))

        return start

    for name in ("Readers", "Threads", "Processes"):
        monkeypatch.setattr(inference, name, kind(name))
    monkeypatch.setattr(inference, "limit_threads", Limit)
    return told


@dataclass(frozen=True)
class Batches:
    """Batches whose number is what is read of them; ``seen`` notes what is going on meanwhile."""

    load: Load
    seen: list[str]

    def __len__(self) -> int:
        return 4

    def reader(self) -> Callable[[int], int]:
        def read(number: int) -> int:
            assert pulse._pulse is not None
            self.seen.extend(work.told(0) for work in pulse._pulse.work)
            return number

        return read


class Counting(Batches):
    """Batches that say themselves how far they are."""

    counts_itself = True


@pytest.mark.parametrize(
    ("load", "asked", "blas", "kind"),
    [
        (COMPILED, None, 1, ("Threads", 3)),
        (COMPILED, 2, 1, ("Threads", 2)),
        (COMPILED, 1, 1, ("Readers",)),
        (replace(COMPILED, products=WORTH - 1), None, 1, ("Readers",)),
        (replace(COMPILED, on_gpu=True), None, 1, ("Readers",)),
        (replace(COMPILED, on_gpu=True), 3, 1, ("Readers",)),
        (LOAD, None, 1, ("Processes", 3)),
        (LOAD, 2, 1, ("Processes", 2)),
        (replace(LOAD, products=WORTH_A_PROCESS - 1), None, 1, ("Readers",)),
        (LARGE, None, 3, ("Readers",)),
        (LARGE, 2, 1, ("Threads", 2)),
    ],
)
def test_who_reads(load: Load, asked: int | None, blas: int, kind: tuple[Any, ...], started: list[Any]) -> None:
    with ask_for(asked), start_readers(Batches(load, [])):
        assert started == [("BLAS", blas), kind]
    assert started[2:] == ["closed"]


def test_what_cannot_be_sent_is_read_here_alone(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what other processes are to read is looked at, which takes time: it is pickled."""
    looked: list[Any] = []
    monkeypatch.setattr(inference, "can_be_sent", lambda given: looked.append(given.load))
    for load, asked in ((LOAD, None), (LOAD, 2), (LOAD, 1), (COMPILED, None)):
        with ask_for(asked), start_readers(Batches(load, [])):
            pass
    assert looked == [LOAD, LOAD]
    assert [kind for kind in started if kind not in (("BLAS", 1), "closed")] == [("Readers",)] * 3 + [("Threads", 3)]


def test_workers_are_threads_where_they_can_have_one_blas_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (by_threads_of(COMPILED), by_threads_of(LARGE), by_threads_of(LOAD)) == (True, True, False)
    monkeypatch.setattr(inference, "describe", lambda: SimpleNamespace(limits_threads=False))
    assert not any(map(by_threads_of, (COMPILED, LARGE, LOAD)))


@pytest.mark.usefixtures("started")
def test_as_many_workers_as_cores_are_not_too_many(capsys: Any) -> None:
    for asked in (1, 3):
        with ask_for(asked), start_readers(Batches(COMPILED, [])):
            assert capsys.readouterr().err == ""
    with ask_for(4), start_readers(Batches(COMPILED, [])):
        assert "workers is 4, more than the 3 cores" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("params", "n"),
    [
        ({"U": np.zeros(CORE_CACHE + 1, np.uint8)}, 3),
        ({"one": {"U": np.zeros(1, np.uint8)}, "other": {"U": np.zeros(CORE_CACHE + 1, np.uint8)}}, 3),
        ({"one": {"U": np.zeros(CORE_CACHE, np.uint8), "W": np.zeros(CORE_CACHE + 1, np.uint8)}}, 1),
        ({"embedding": np.zeros(CORE_CACHE + 1, np.uint8)}, 1),  # no recurrent weight at all
    ],
)
def test_passes_that_nobody_shares(params: Any, n: int, started: list[Any], capsys: Any, monkeypatch: Any) -> None:
    alone(params)
    assert (started, capsys.readouterr().err) == ([("BLAS", n)], "")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    alone(params)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    alone(params)
    said = capsys.readouterr().err
    assert said.startswith("minadv: OMP_NUM_THREADS=4 and 1 worker would be 4 threads on 3 cores: each worker has ")
    assert said.endswith("3 BLAS threads\n" if n == 3 else "1 BLAS thread\n")


def test_whoever_waits_is_told_how_many_batches_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "_pulse", pulse.Pulse(print))
    with ask_for(1):
        assert share(work := Batches(LOAD, [])) == [0, 1, 2, 3]
        assert work.seen == [f"reading: {n} of 4 batches" for n in range(4)]
        share(work := Counting(LOAD, []))
        assert work.seen == []
    with lend(Readers()):
        share(work := Batches(LOAD, []))
        assert work.seen[-1] == "reading: 3 of 4 batches"
