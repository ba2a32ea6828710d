"""Workers have one BLAS thread each, from their start until they are closed, and all are at work at the same time."""

import threading
import time
from concurrent.futures import wait
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from minadv.base import machine
from minadv.fast import threads
from minadv.tasks.images.task import Classify
from minadv.training.parallel import members, processes
from minadv.training.parallel.members import Processes
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.threads import Threads, ThreadWorkers
from minadv.training.parallel.workers import Part
from tests.support.problems import task
from tests.support.threaded import ThreadMember

MAIN = threading.main_thread()


class Library(threading.local):
    """A BLAS that has two threads to begin with, and a number of its own in each Python thread, as OpenMP has."""

    filepath, num_threads = "libblas.so", 2

    def set_num_threads(self, n: int) -> None:
        self.num_threads = n


@pytest.fixture(autouse=True)
def host(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.name != "cpu":
        pytest.skip("workers share batches on the host; several GPUs go over MPI")
    for module in (members, processes):
        monkeypatch.setattr(module, "Member", ThreadMember)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    for name in machine.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found = Library()
    monkeypatch.setattr(threads, "_libraries", lambda: [found])
    return found


@pytest.mark.parametrize("kind", [Threads, Processes, ThreadWorkers, ProcessWorkers])
def test_workers_have_one_blas_thread_until_they_are_closed(kind: Any, library: Library, put: Any) -> None:
    toy = task(put)
    given = {ThreadWorkers: (toy, 2), ProcessWorkers: (toy, 2, toy.init())}.get(kind, (2,))
    workers = kind(*given)
    assert library.num_threads == 1
    workers.close()
    assert library.num_threads == 2


def test_all_threads_are_at_work_at_once_and_each_has_one_blas_thread(library: Library) -> None:
    team, gate, begun = Threads(3), threading.Barrier(3, timeout=60), []

    def begin() -> Any:
        begun.append(True)
        return read

    def read(number: int) -> int:
        gate.wait()  # until each of the three reads one
        return library.num_threads

    assert team.run(begin, 6, 3) == [1] * 6
    assert len(begun) == 3
    team.close()


def test_batches_that_threads_read_come_back_in_their_order() -> None:
    team = Threads(2)
    assert team.share(Numbers()) == list(range(7))
    team.close()


class Numbers:
    """Seven batches whose number is what is read of them."""

    load = SimpleNamespace(memory=0)

    def __len__(self) -> int:
        return 7

    def reader(self) -> Any:
        return lambda number: number


def test_after_an_error_the_others_end_what_they_have_begun_and_begin_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    team, begun, asked, read = Threads(2), threading.Event(), [], []
    submit = team._others.submit
    monkeypatch.setattr(team._others, "submit", lambda *given: asked.append(submit(*given)) or asked[-1])

    def fail_in_the_other(number: int) -> None:
        if threading.current_thread() is not MAIN:
            assert begun.wait(60)
            raise FloatingPointError("no luck")
        begun.set()
        wait(asked)  # until the other has failed
        read.append(number)

    with pytest.raises(FloatingPointError, match="no luck"):
        team.run(lambda: fail_in_the_other, 10, 2)
    assert len(read) == 1
    team.close()


def test_an_error_is_raised_when_the_others_have_ended() -> None:
    team, begun, read = Threads(2), threading.Event(), []

    def fail_here(number: int) -> None:
        if threading.current_thread() is MAIN:
            assert begun.wait(60)
            raise FloatingPointError("no luck")
        begun.set()
        time.sleep(0.1)
        read.append(number)

    with pytest.raises(FloatingPointError, match="no luck"):
        team.run(lambda: fail_here, 10, 2)
    assert read
    team.close()


@dataclass(frozen=True)
class Noting(Classify):
    """A task that notes the model which computes each part."""

    def term(self, params: Any, step: int, *, part: Part, model: Any, **given: Any) -> Any:
        NOTED.setdefault(part.index, []).append(model)
        return super().term(params, step, part=part, model=model, **given)


NOTED: dict[int, list[Any]] = {}


@pytest.mark.parametrize("kind", [ThreadWorkers, ProcessWorkers])
def test_a_part_is_computed_in_the_same_buffers_at_each_step(kind: Any, put: Any) -> None:
    toy = Noting(**vars(task(put)))
    workers = ThreadWorkers(toy, 3) if kind is ThreadWorkers else ProcessWorkers(toy, 3, toy.init())
    NOTED.clear()
    for step in range(2):
        workers.step(toy.init(), step, weight=0.0, carry=None)
    workers.close()
    assert sorted(NOTED) == [0, 1, 2]
    assert all(first.buffers is second.buffers for first, second in NOTED.values())
    assert len({id(first.buffers) for first, _ in NOTED.values()} - {id(toy.model.buffers)}) == 3
