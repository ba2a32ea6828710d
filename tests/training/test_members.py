"""What worker processes are asked and answer, by threads that stand for them; test_processes.py starts real ones."""

import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest

from minadv.base import notices, pulse
from minadv.regularizers import AdD
from minadv.tasks.images.task import Classify
from minadv.training.loop import Recipe, train
from minadv.training.parallel import members, processes
from minadv.training.parallel.inference import lend, share
from minadv.training.parallel.members import Processes, WorkerError, can_be_sent
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.threads import ThreadWorkers
from minadv.training.parallel.workers import Part, Readers
from minadv.training.task import Load
from tests.support.compare import assert_same_bits
from tests.support.problems import task
from tests.support.threaded import ThreadMember

MAIN = threading.main_thread()


@pytest.fixture(autouse=True)
def threads(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.name != "cpu":
        pytest.skip("worker processes are for the host; several GPUs go over MPI")
    for module in (members, processes):
        monkeypatch.setattr(module, "Member", ThreadMember)
    monkeypatch.setattr(notices, "_said", set())


def trained(toy: Any, workers: Any) -> Any:
    try:
        return train(toy, Recipe(steps=4), workers=workers)[0]
    finally:
        workers.close()


@pytest.mark.parametrize(("n", "at_once"), [(2, None), (3, None), (3, 2), (3, 1), (5, 3), (2, 7)])
def test_parts_are_computed_as_threads_compute_them(n: int, at_once: int | None, put: Any) -> None:
    toy = task(put, AdD(delta=0.4))
    workers = ProcessWorkers(toy, n, toy.init(), at_once)
    assert [m.name for m in workers._members] == [
        f"worker {k} of {min(n, at_once or n)}" for k in range(1, min(n, at_once or n))
    ]
    assert len(workers._memory.grads) == n - 1
    ours, theirs = trained(toy, workers), trained(toy, ThreadWorkers(toy, n))
    assert_same_bits(ours.params, theirs.params)
    assert ours.tally == theirs.tally
    assert workers._members == []
    assert workers._memory.fd is None


def test_one_is_no_team(put: Any) -> None:
    with pytest.raises(ValueError, match="workers is 1, expected at least 2"):
        ProcessWorkers(task(put), 1, None)


@dataclass(frozen=True)
class Failing(Classify):
    def term(self, params: Any, step: int, *, part: Part, **given: Any) -> Any:
        if part.index == step:
            raise FloatingPointError(f"no luck for {part.index}")
        return super().term(params, step, part=part, **given)


def test_an_error_of_a_worker_is_raised_here(put: Any) -> None:
    toy = Failing(**vars(task(put)))
    workers = ProcessWorkers(toy, 3, toy.init())
    with pytest.raises(FloatingPointError, match="no luck for 2"):
        workers.step(toy.init(), 2, weight=0.0, carry=None)
    workers.close()


@dataclass(frozen=True)
class Ending(Classify):
    """A task that ends the worker which begins it, or is asked for a step."""

    at_once: bool = False

    def init(self) -> Any:
        if self.at_once and threading.current_thread() is not MAIN:
            raise SystemExit
        return super().init()

    def term(self, params: Any, step: int, *, part: Part, **given: Any) -> Any:
        if part.index == 1:
            raise SystemExit
        return super().term(params, step, part=part, **given)


def test_a_worker_that_is_gone_is_named(put: Any) -> None:
    toy = Ending(**vars(task(put)))
    workers = ProcessWorkers(toy, 2, toy.init())
    for _ in range(2):  # it does not answer; it cannot be asked
        with pytest.raises(WorkerError, match=r"^worker 1 of 2 is gone \(exit code 0\): resume the run$"):
            workers.step(toy.init(), 0, weight=0.0, carry=None)
    workers.close()


def test_a_worker_that_cannot_begin_leaves_no_other(put: Any) -> None:
    toy, before = Ending(**vars(task(put)), at_once=True), threading.active_count()
    with pytest.raises(WorkerError, match=r"^worker 1 of 3 is gone"):
        ProcessWorkers(toy, 3, toy.init())
    assert threading.active_count() == before


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_batches_are_read_in_turns(n: int, put: Any) -> None:
    """The 21 examples are five batches, in their order, and no more workers are asked than there are batches."""
    toy = replace(task(put), batch_size=5)
    alone = toy.evaluate(toy.init(), "valid")
    readers = Processes(n)
    assert [m.name for m in readers._members] == [f"worker {k} of {n}" for k in range(1, n)]
    with lend(readers):
        for _ in range(2):
            assert toy.evaluate(toy.init(), "valid") == alone
            work = Squares()
            assert share(work) == [number**2 for number in range(5)]
            assert work.readers == 1
    readers.close()
    assert readers._members == []


@dataclass
class Squares:
    """Five batches, of which some cannot be read."""

    bad: tuple[int, ...] = ()
    readers: int = 0

    @property
    def load(self) -> Load:
        return Load(0, 0, 5)

    def __len__(self) -> int:
        return 5

    def reader(self) -> Any:
        self.readers += 1

        def read(number: int) -> int:
            if number in self.bad:
                raise FloatingPointError(f"no luck with {number}")
            return number**2

        return read


def test_workers_of_a_training_read_batches_between_its_steps(put: Any) -> None:
    toy = task(put)
    workers = ProcessWorkers(toy, 2, toy.init())
    nll = workers.step(toy.init(), 0, weight=0.0, carry=None).nll
    for _ in range(2):
        assert workers.share(Squares()) == [0, 1, 4, 9, 16]
        assert workers.step(toy.init(), 0, weight=0.0, carry=None).nll == nll
    workers.close()


@dataclass
class Noted(Squares):
    """Five batches that note who reads them."""

    def reader(self) -> Any:
        NOTED.append(threading.current_thread())
        return super().reader()


NOTED: list[threading.Thread] = []


def test_no_more_workers_read_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "most_readers", lambda given: 2)
    readers = Processes(4)
    NOTED.clear()
    assert readers.share(Noted()) == [0, 1, 4, 9, 16]
    assert len(set(NOTED)) == len(NOTED) == 2
    readers.close()


def test_readers_that_cannot_all_begin_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(name: str, *given: Any, **remedy: Any) -> Any:
        if name == "worker 2 of 4":
            raise OSError("no more processes")
        return ThreadMember(name, *given, **remedy)

    monkeypatch.setattr(members, "Member", start)
    before = threading.active_count()
    with pytest.raises(OSError, match="no more processes"):
        Processes(4)
    assert threading.active_count() == before


def test_what_another_process_can_read() -> None:
    assert can_be_sent(Squares())
    assert not can_be_sent(type("Nameless", (Squares,), {})())
    assert not can_be_sent(lambda: None)


@pytest.mark.parametrize("bad", [(0,), (1,), (4,), (2, 3)])
def test_what_cannot_be_read_is_raised_once_all_have_answered(bad: tuple[int, ...]) -> None:
    readers = Processes(3)
    with pytest.raises(FloatingPointError, match=f"no luck with {bad[-1]}"):
        readers.share(Squares(bad))
    assert readers.share(Squares()) == [0, 1, 4, 9, 16]  # nothing of the failure is left
    readers.close()


def test_of_batches_that_are_read_at_the_same_time_one_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    ours = lambda n: done.append(n) if threading.current_thread() is MAIN else None  # noqa: E731 - as in a process
    monkeypatch.setattr(pulse, "advance", ours)
    for n, readers in ((1, Readers()), (2, Processes(2)), (3, Processes(3))):
        readers.share(Squares())
        readers.close()
        assert done == [n] * -(-5 // n)
        done.clear()
