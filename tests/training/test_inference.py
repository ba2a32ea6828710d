"""Who reads the batches of an evaluation: workers whose number times their BLAS threads is at most the cores."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from minadv.base import machine, notices
from minadv.base.machine import CORE_CACHE
from minadv.fast import threads
from minadv.tasks import fit as fitting
from minadv.tasks.images import task as images
from minadv.tasks.images.task import Inference, evaluate
from minadv.training.loop import Recipe
from minadv.training.parallel import inference, workers
from minadv.training.parallel.choose import choose_workers, start_workers
from minadv.training.parallel.inference import WORTH, WORTH_A_PROCESS, ask_for, choose_readers, lend, share
from minadv.training.parallel.members import Processes, WorkerError, can_be_sent
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.threads import Threads, ThreadWorkers
from minadv.training.parallel.workers import OneWorker, Readers
from minadv.training.task import Load
from tests.support.problems import MODEL, sequences, task

threadpoolctl = pytest.importorskip("threadpoolctl")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, device: Any) -> Any:
    """No setting of the user's, nothing said yet, and BLAS with two threads to begin with."""
    if device.name != "cpu":
        pytest.skip("workers share inferences on the host")
    for name in (*machine.BLAS_VARIABLES, machine.CORES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(notices, "_said", set())
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets this process have a number of cores."""
    return lambda n: monkeypatch.setattr("minadv.training.parallel.ranks.cores", lambda *_: n)


def blas() -> int:
    return max(library["num_threads"] for library in threads.libraries())


@dataclass(frozen=True)
class Counted:
    """An inference of ten batches that counts the workers which read them at the same time, and their BLAS threads."""

    load: Load
    lock: Any
    seen: dict[str, Any]

    def __len__(self) -> int:
        return 10

    def reader(self) -> Callable[[int], int]:
        with self.lock:
            self.seen["readers"] = self.seen.get("readers", 0) + 1

        def read(number: int) -> int:
            with self.lock:
                self.seen["blas"] = max(blas(), self.seen.get("blas", 0))
            return number**2

        return read


def counted(**load: Any) -> Counted:
    given = {"products": 2 * WORTH, "weights": CORE_CACHE, "examples": 10, "compiled": True, **load}
    return Counted(Load(**given), threading.Lock(), {})


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    ("load", "readers", "each"),
    [({}, None, 1), ({"products": WORTH / 2}, 1, 1), ({"weights": CORE_CACHE + 1}, 1, None), ({"on_gpu": True}, 1, 1)],
    ids=["small", "not worth it", "large", "on a GPU"],
)
def test_readers_and_their_blas_threads(
    load: dict[str, Any], readers: Any, each: Any, n: int, cores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores(n)
    work = counted(**load)
    assert share(work) == [number**2 for number in range(10)]
    assert work.seen == {"readers": readers or n, "blas": min(2, each or n)}  # BLAS had two threads before
    assert work.seen["readers"] * work.seen["blas"] <= n
    assert blas() == 2


@pytest.mark.parametrize("setting", ["1", "2", "8"])
@pytest.mark.parametrize("weights", [CORE_CACHE, CORE_CACHE + 1], ids=["small", "large"])
def test_the_product_whatever_the_user_sets(
    weights: int, setting: str, cores: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    cores(2)
    for _ in range(2):
        work = counted(weights=weights)
        share(work)
        assert work.seen["readers"] * work.seen["blas"] <= 2
    said = capsys.readouterr().err.splitlines()
    if weights == CORE_CACHE:
        assert work.seen == {"readers": 2, "blas": 1}
        line = (
            f"minadv: OMP_NUM_THREADS={setting} and 2 workers would be {2 * int(setting)} threads on 2 cores: "
            "each worker has 1 BLAS thread"
        )
        assert said == ([line] if setting != "1" else [])
    else:
        assert work.seen == {"readers": 1, "blas": min(2, int(setting))}
        assert len(said) == (setting == "8")


def test_more_workers_than_cores(cores: Any, capsys: Any) -> None:
    cores(2)
    work = counted()
    with ask_for(5):
        share(work)
    assert work.seen == {"readers": 2, "blas": 1}
    said = [line for line in capsys.readouterr().err.splitlines() if "Numba compiles" not in line]
    assert said == ["minadv: workers is 5, more than the 2 cores that this process may use: 2 compute at a time"]
    work = counted()
    with ask_for(1):
        share(work)
    assert work.seen == {"readers": 1, "blas": 1}
    with pytest.raises(ValueError, match="workers is 0, expected a whole number of at least 1"), ask_for(0):
        pass


def test_how_many_readers() -> None:
    uncompiled = Load(2 * WORTH, CORE_CACHE, 10)
    load = replace(uncompiled, compiled=True)
    assert choose_readers(load, 10, 4) == 4
    assert choose_readers(load, 3, 4) == 3
    assert choose_readers(uncompiled, 10, 4) == 1
    assert choose_readers(replace(uncompiled, products=2 * WORTH_A_PROCESS), 10, 4) == 4


def test_as_many_readers_as_there_is_memory_for(monkeypatch: pytest.MonkeyPatch, cores: Any) -> None:
    cores(4)
    for free, readers in ((100, 1), (4000, 2), (10**6, 4), (None, 4)):
        monkeypatch.setattr(workers, "available_memory", lambda free=free: free)
        work = counted(memory=1000)
        share(work)
        assert work.seen["readers"] == readers
        work = counted(memory=1000)
        lent = Threads(4)
        with lend(lent):
            share(work)
        lent.close()
        assert work.seen["readers"] == readers
    monkeypatch.setattr(workers, "available_memory", lambda: 0)
    share(work := counted())  # a load that says nothing of memory needs little
    assert work.seen["readers"] == 4


class Unlucky(Counted):
    def reader(self) -> Callable[[int], int]:
        def read(number: int) -> int:
            with self.lock:
                self.seen[number] = True
            raise FloatingPointError(f"no luck with {number}")

        return read


def test_an_error_ends_all_readers(cores: Any) -> None:
    cores(2)
    work = Unlucky(**vars(counted()))
    before = threading.active_count()
    with pytest.raises(FloatingPointError, match="no luck with"):
        share(work)
    assert len(work.seen) <= 2
    assert threading.active_count() == before and blas() == 2


def metrics(toy: Any, by: Readers) -> dict[str, Any]:
    with lend(by):
        found: dict[str, Any] = toy.evaluate(toy.init(), "valid")
    by.close()
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_numbers_do_not_depend_on_who_reads(dtype: Any, put: Any) -> None:
    toy = replace(task(put, dtype=dtype), batch_size=5)  # the 21 examples are four batches and one of a single example
    alone = metrics(toy, OneWorker(toy))
    for n in (2, 3):
        for by in (Threads(n), Processes(n), ThreadWorkers(toy, n), ProcessWorkers(toy, n, toy.init())):
            assert metrics(toy, by) == alone


def test_worker_processes_read_between_steps(put: Any) -> None:
    toy = task(put)
    by = ProcessWorkers(toy, 2, toy.init())
    params, alone = toy.init(), metrics(toy, OneWorker(toy))
    step = by.step(params, 0, weight=0.0, carry=None).nll
    with lend(by):
        assert toy.evaluate(params, "valid") == alone
        with pytest.raises(ValueError, match="labels"):
            share(Inference(MODEL, params, toy.data.valid, 5, refuse))
        assert toy.evaluate(params, "valid") == alone  # nothing of the failure is left
    assert by.step(params, 0, weight=0.0, carry=None).nll == step
    by.close()


def refuse(model: Any, params: Any, features: Any, batch: Any) -> Any:
    raise ValueError("no labels")


def test_a_reader_that_dies_does_not_speak_of_training() -> None:
    readers = Processes(2)
    os.kill(readers._members[0].process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"^worker 1 of 2 is gone \(exit code -9\): begin again, with fewer workers"):
        readers._members[0].receive()
    readers.close()


def test_what_cannot_be_sent_is_read_here(put: Any, cores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(2)
    monkeypatch.setattr(inference, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(images, "_errors", lambda *given: (1.0, 0.0))  # a function without a name
    toy = task(put, dtype=np.float64)
    assert not can_be_sent(Inference(MODEL, None, toy.data.valid, 5, images._errors))
    assert toy.evaluate(toy.init(), "valid") == {"loss": 3 / 21, "error": 0.0}
    monkeypatch.setattr(refuse, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "refuse", refuse, raising=False)
    assert not can_be_sent(Inference(MODEL, None, toy.data.valid, 5, refuse))


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_training_step_and_its_evaluation(
    compiled: bool, workers: int, put: Any, cores: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As many parts as workers, which decide the bits; no more threads than cores, whatever the user has set."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    cores(2)
    toy, most = Loaded(**vars(task(put)), compiled=compiled), min(workers, 2)
    with start_workers(toy, workers) as found:
        assert blas() == 1
        if workers > 1:
            others = found._n if compiled else len(found._members) + 1
            assert others == most
        got = found.step(toy.init(), 0, weight=0.0, carry=None)
        assert inference._lent.get() == (found,)
    assert inference._lent.get() == () and blas() == 2
    said = capsys.readouterr().err
    assert ("workers is 5, more than the 2 cores" in said) == (workers == 5)
    assert ("OMP_NUM_THREADS=2 and" in said) == (workers > 1)
    cores(16)
    with start_workers(toy, workers) as found:
        assert found.step(toy.init(), 0, weight=0.0, carry=None).nll == got.nll


def test_workers_that_are_lent_may_end_in_any_order() -> None:
    one, other = (type("Lent", (), {"share": lambda self, inference: [self]})() for _ in range(2))
    first, second = inference.lend(one), inference.lend(other)
    first.__enter__()
    second.__enter__()
    assert share(counted()) == [other]
    first.__exit__(None, None, None)
    assert share(counted()) == [other]
    second.__exit__(None, None, None)
    assert inference._lent.get() == ()


@dataclass(frozen=True)
class Loaded(images.Classify):
    compiled: bool = True

    @property
    def load(self) -> Any:
        return replace(super().load, compiled=self.compiled)


def test_workers_by_default(cores: Any, put: Any) -> None:
    cores(3)
    heavy = Load(2 * WORTH, CORE_CACHE, 100)
    assert choose_workers(type("Heavy", (), {"load": heavy})(), None) == 3


def test_two_runs_in_two_python_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trains and evaluates with one BLAS thread until its end, whichever ends first; then there are two again."""
    data, counts, gate = sequences(), [], threading.Barrier(2, timeout=600)
    body = type(MODEL).body

    def watched(*args: Any, **given: Any) -> Any:
        counts.append(blas())
        return body(*args, **given)

    monkeypatch.setattr(type(MODEL), "body", watched)
    found: dict[int, Any] = {}

    def run(steps: int) -> None:
        gate.wait()
        made = fitting.fit(MODEL, data, recipe=Recipe(steps=steps), batch_size=10, progress=False)
        found[steps] = made.params, made.test()

    both = [threading.Thread(target=run, args=(steps,)) for steps in (2, 30)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert set(counts) == {1} and blas() == 2
    for steps in (2, 30):
        assert found[steps][1] == evaluate(MODEL, found[steps][0], data.test, batch_size=10)
