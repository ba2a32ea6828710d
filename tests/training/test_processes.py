"""Worker processes that share a batch: the same masks and, up to the order of sums, the same gradients however many."""

import gc
import os
import signal
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv import masks
from minadv.base import shared_draws
from minadv.base.machine import CORE_CACHE
from minadv.base.streams import stream
from minadv.base.trees import leaves, tree_add, tree_map
from minadv.models.classifier import Classifier
from minadv.regularizers import EL, FD, VAT, VD, AdD, Plain, Sum
from minadv.searches import Greedy, Random, Reselect
from minadv.tasks.images.task import Classify
from minadv.training.loop import Recipe, train
from minadv.training.parallel.choose import choose_workers
from minadv.training.parallel.inference import WORTH
from minadv.training.parallel.members import WorkerError
from minadv.training.parallel.processes import ProcessWorkers, Shared
from minadv.training.parallel.workers import OneWorker, Part, Sums, gather
from minadv.training.task import Load
from tests.support.compare import assert_close, assert_same_bits
from tests.support.problems import task

ALL = [
    Plain(),
    VD(p=0.3),
    EL(p=0.3),
    FD(p=0.3),
    AdD(delta=0.4, search=Greedy(K=2, keep="last")),
    AdD(delta=0.4, search=Reselect(K=1)),
]
MORE = [AdD(delta=0.4, search=Random()), VAT(norm=0.5), Sum((AdD(delta=0.4), VAT(norm=0.5)))]


@pytest.fixture
def host(device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("worker processes are for the host; several GPUs go over MPI")


def noisy(toy: Any) -> Any:
    """The toy task with dropout on its inputs: a noise of the model's own."""
    return replace(toy, model=replace(toy.model, input_dropout=0.3))


@pytest.mark.parametrize("regularizer", ALL + MORE, ids=repr)
@pytest.mark.parametrize("count", [2, 3])
def test_the_contributions_of_all_parts_are_the_whole(regularizer: Any, count: int, put: Any) -> None:
    toy = noisy(task(put, regularizer))
    params = tree_map(lambda a: a.astype(np.float64), toy.init())
    train_part = replace(toy.data.train, x=toy.data.train.x.astype(np.float64))
    toy = replace(toy, data=replace(toy.data, train=train_part))
    whole, _ = toy.term(params, 4, weight=0.7, carry=None)
    parts = [toy.term(params, 4, weight=0.7, carry=None, part=Part(n, count))[0] for n in range(count)]
    total = None
    for part in parts:
        total = tree_add(total, part.grads)
    assert_close(total, whole.grads, 1e-12)
    said = gather(None, [Sums(float(t.nll.sum()), len(t.nll), float(t.value.sum()), len(t.value), None) for t in parts])
    assert said.nll == pytest.approx(float(whole.nll.mean()), rel=1e-12)
    assert said.value == pytest.approx(float(whole.value.mean()), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [(5,), (4, 1), (1, 1, 1, 1, 1), (2, 1, 6), (1, 2, 2), (3, 3, 1)])
def test_groups_are_dealt_out_evenly(count: int, sizes: tuple[int, ...]) -> None:
    """Each example to one member, and at least one to each."""
    mine, first = [0] * count, 0
    for n in sizes:
        found = [Part(k, count).of_group(first, n) for k in range(count)]
        assert sorted(row for rows in found for row in range(n)[rows]) == list(range(n))
        assert max(rows.stop - rows.start for rows in found) <= -(-n // count)
        mine = [so_far + rows.stop - rows.start for so_far, rows in zip(mine, found, strict=True)]
        first += n
    assert min(mine) >= 1


def test_a_share_draws_its_rows_of_the_whole_batchs_masks(put: Any) -> None:
    like = put(np.zeros(1))
    whole = masks.bernoulli(stream(0, "masks", 3), 0.4, (10, 7), like=like)
    rows = [Part(n, 3).rows(10) for n in range(3)]
    assert [(r.start, r.stop) for r in rows] == [(0, 3), (3, 6), (6, 10)]
    for n, mine in enumerate(rows):
        rng = Part(n, 3).rng(stream(0, "masks", 3), 10)
        assert_same_bits(masks.bernoulli(rng, 0.4, (mine.stop - mine.start, 7), like=like), whole[mine])
        assert shared_draws.whole(rng) is not rng
    with pytest.raises(ValueError, match="4 rows were asked for of a share of 3"):
        masks.bernoulli(Part(0, 3).rng(stream(0, "masks", 3), 10), 0.4, (4, 7), like=like)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("n", [2, 3])
def test_workers_train_as_one_process_does(n: int, put: Any) -> None:
    toy, recipe = task(put, AdD(delta=0.4)), Recipe(steps=8)
    alone, _ = train(toy, recipe)
    ends = []
    for _ in range(2):
        workers = ProcessWorkers(toy, n, toy.init())
        try:
            state, _ = train(toy, recipe, workers=workers)
        finally:
            workers.close()
        ends.append(state)
    assert_same_bits(ends[0].params, ends[1].params)
    assert_close(ends[0].params, alone.params, 1e-4)
    assert ends[0].tally[:2] == pytest.approx(alone.tally[:2], rel=1e-5)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("at_once", [1, 2])
def test_fewer_processes_than_parts_compute_the_same(at_once: int, put: Any) -> None:
    toy, ends = task(put, AdD(delta=0.4)), []
    for n in (None, at_once):
        workers = ProcessWorkers(toy, 3, toy.init(), n)
        assert len(workers._members) == (n or 3) - 1
        try:
            ends.append(train(toy, Recipe(steps=4), workers=workers)[0])
        finally:
            workers.close()
    assert_same_bits(ends[0].params, ends[1].params)
    assert ends[0].tally == ends[1].tally


@pytest.mark.usefixtures("host")
def test_a_worker_that_dies_ends_the_run_with_a_message(put: Any) -> None:
    toy = task(put)
    workers = ProcessWorkers(toy, 2, toy.init())
    os.kill(workers._members[0].process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"worker 1 of 2 is gone \(exit code -9\): resume the run"):
        workers.step(toy.init(), 0, weight=0.0, carry=None)
    workers.close()


@dataclass(frozen=True)
class Failing(Classify):
    def term(self, params: Any, step: int, *, part: Part, **given: Any) -> Any:
        if part.index == 1:
            raise FloatingPointError("no such luck")
        return super().term(params, step, part=part, **given)


@pytest.mark.usefixtures("host")
def test_an_error_in_a_worker_is_raised_here(put: Any) -> None:
    toy = Failing(**vars(task(put)))
    workers = ProcessWorkers(toy, 2, toy.init())
    with pytest.raises(FloatingPointError, match="no such luck"):
        workers.step(toy.init(), 0, weight=0.0, carry=None)
    workers.close()
    assert workers._members == []


@pytest.mark.usefixtures("host")
def test_what_cannot_be_sent_is_said(put: Any) -> None:
    toy = replace(task(put), track={"budgets": 1, "rule": lambda: None})
    with pytest.raises(WorkerError, match=r"cannot be sent to worker processes .*workers=1"):
        ProcessWorkers(toy, 2, toy.init())


@pytest.mark.usefixtures("host")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
def test_workers_leave_no_file_open(put: Any) -> None:
    toy = task(put)
    unsendable = replace(toy, track={"budgets": 1, "rule": lambda: None})

    def files() -> int:
        gc.collect()  # files that earlier tests left to the collector do not count
        return len(list(Path("/proc/self/fd").iterdir()))

    ProcessWorkers(toy, 2, toy.init()).close()
    before = files()
    workers = ProcessWorkers(toy, 2, toy.init())
    assert files() > before
    workers.close()
    workers.close()
    del workers  # and with it the memory itself
    with pytest.raises(WorkerError):
        ProcessWorkers(unsendable, 2, toy.init())
    assert files() == before


@pytest.mark.usefixtures("host")
def test_a_warning_is_said_once(put: Any, capfd: Any) -> None:
    """By the parent, which has a part of each batch too."""
    toy = task(put, AdD(budgets=1))
    workers = ProcessWorkers(toy, 2, toy.init())
    with pytest.warns(UserWarning, match="a budget of 1"):
        workers.step(toy.init(), 0, weight=1.0, carry=None)
    workers.close()
    assert "a budget of 1" not in capfd.readouterr().err  # where Numba compiles, that is said there


def test_flat_memory_holds_a_tree() -> None:
    params = Classifier(2, 3, 4).init(np.random.default_rng(0))
    memory = Shared.make(params, 2)
    memory.write(memory.grads[1], params)
    assert_same_bits(memory.read(memory.grads[1], params), params)
    assert all(float(np.abs(a).max()) == 0 for _, a in leaves(memory.read(memory.grads[0], params)))


def test_flat_memory_is_as_large_as_its_arrays_and_is_given_back() -> None:
    memory = Shared.make({"W": np.ones((2, 3), np.float32), "b": np.ones(5, np.float32)}, 2)
    fd = memory.fd
    assert os.fstat(fd).st_size == 3 * 11 * 4
    assert [flat.size for flat in (memory.params, *memory.grads)] == [11] * 3
    for _ in range(2):
        memory.close()
        assert memory.fd is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(ValueError, match=r"dtypes \['float32', 'float64'\], expected one"):
        Shared.make({"W": np.ones(2, np.float32), "b": np.ones(2)}, 1)


@pytest.mark.parametrize("writable", [True, False])
def test_flat_memory_is_a_file_on_disk_only_where_it_must_be(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, make = [], tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: folders.append(given) or make(dir=tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: writable and (path, mode) == ("/dev/shm", os.W_OK))
    Shared.make({"W": np.ones(2)}, 1).close()
    assert folders == [{"dir": "/dev/shm" if writable else None}]


@dataclass(frozen=True)
class Loaded:
    load: Load


def test_how_many_workers(monkeypatch: Any, put: Any) -> None:
    monkeypatch.setattr("minadv.training.parallel.ranks.cores", lambda *_: 4)
    heavy = Loaded(Load(2 * WORTH, CORE_CACHE, 100))
    assert choose_workers(heavy, None) == 4
    assert choose_workers(heavy, 3) == 3
    assert choose_workers(Loaded(replace(heavy.load, examples=2)), None) == 2
    for change in ({"products": WORTH / 2}, {"weights": CORE_CACHE + 1}, {"on_gpu": True}):
        assert choose_workers(Loaded(replace(heavy.load, **change)), None) == 1
    for asked, said in ((0, "a whole number of at least 1"), (101, "at most 100")):
        with pytest.raises(ValueError, match=f"workers is {asked}, expected {said}"):
            choose_workers(heavy, asked)
    with pytest.raises(ValueError, match="expected 1 on a GPU"):
        choose_workers(Loaded(replace(heavy.load, on_gpu=True)), 2)
    assert choose_workers(task(put), None) == 1


def test_alone_reuses_its_buffers(put: Any) -> None:
    toy = task(put, AdD(delta=0.4))
    workers = OneWorker(toy)
    params = toy.init()
    workers.step(params, 0, weight=1.0, carry=None)
    work = workers.model.buffers
    held, slots = work.nbytes, len(work)
    workers.step(params, 1, weight=1.0, carry=None)
    assert (work.nbytes, len(work)) == (held, slots)
    assert slots == 2  # the base pass keeps its slot while probe and adversarial pass take turns in the other
    assert work.taken == frozenset()
