"""Threads that share a batch: what worker processes do, to the bit, in one process."""

import threading
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from minadv.base.machine import CORE_CACHE
from minadv.base.trees import tree_map
from minadv.fast import choice
from minadv.regularizers import AdD, Plain
from minadv.tasks.images.task import Classify
from minadv.training.loop import Recipe, train
from minadv.training.parallel.choose import start_workers
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.threads import ThreadWorkers
from minadv.training.parallel.workers import OneWorker, Part
from tests.support.compare import assert_close, assert_same_bits
from tests.support.problems import task


@pytest.fixture(autouse=True)
def host(device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("threads share a batch on the host; several GPUs go over MPI")


def trained(toy: Any, workers: Any) -> Any:
    try:
        return train(toy, Recipe(steps=8), workers=workers)[0]
    finally:
        workers.close()


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_train_as_processes_do(n: int, dtype: Any, put: Any) -> None:
    toy = task(put, AdD(delta=0.4), dtype=dtype)
    state = trained(toy, ThreadWorkers(toy, n))
    assert_same_bits(trained(toy, ThreadWorkers(toy, n)).params, state.params)
    assert_same_bits(trained(toy, ProcessWorkers(toy, n, toy.init())).params, state.params)
    alone = trained(toy, OneWorker(toy))
    assert_close(state.params, alone.params, 1e-4 if dtype == np.float32 else 1e-12)
    assert state.tally[:2] == pytest.approx(alone.tally[:2], rel=1e-5)


@dataclass(frozen=True)
class Failing(Classify):
    def term(self, params: Any, step: int, *, part: Part, **given: Any) -> Any:
        if part.index == step:
            raise FloatingPointError(f"no luck for {part.index}")
        return super().term(params, step, part=part, **given)


@pytest.mark.parametrize("index", [0, 1])
def test_an_error_of_any_is_raised_here(index: int, put: Any) -> None:
    toy = Failing(**vars(task(put)))
    workers = ThreadWorkers(toy, 2)
    with pytest.raises(FloatingPointError, match=f"no luck for {index}"):
        workers.step(toy.init(), index, weight=0.0, carry=None)
    workers.step(toy.init(), 2, weight=0.0, carry=None)  # and the workers is as good as before
    workers.close()


def test_what_numpy_is_to_do_about_overflow_holds_in_all_threads(put: Any) -> None:
    toy = task(put, Plain())
    huge = tree_map(lambda a: np.full_like(a, 3e38), toy.init())
    workers = ThreadWorkers(toy, 2)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        workers.step(huge, 0, weight=0.0, carry=None)
    workers.close()


def test_a_closed_team_leaves_no_thread(put: Any) -> None:
    before = threading.active_count()
    toy = task(put)
    workers = ThreadWorkers(toy, 3)
    workers.step(toy.init(), 0, weight=0.0, carry=None)
    assert threading.active_count() > before
    workers.close()
    assert threading.active_count() == before


def test_one_is_no_team(put: Any) -> None:
    with pytest.raises(ValueError, match="workers is 1, expected at least 2"):
        ThreadWorkers(task(put), 1)


@dataclass(frozen=True)
class Loaded(Classify):
    """A task that says that it is another load."""

    says: Any = None

    @property
    def load(self) -> Any:
        return replace(super().load, **self.says)


@pytest.mark.parametrize(
    ("load", "workers"),
    [
        ({"compiled": True}, ThreadWorkers),
        ({"compiled": False}, ProcessWorkers),
        ({"compiled": False, "weights": CORE_CACHE + 1}, ThreadWorkers),
    ],
    ids=["compiled", "small", "large"],
)
def test_who_shares_a_batch(load: dict[str, Any], workers: type, put: Any) -> None:
    toy = task(put)
    with start_workers(Loaded(**vars(toy), says=load), 2) as found:
        assert type(found) is workers
        found.step(toy.init(), 0, weight=0.0, carry=None)
    with start_workers(toy, 1) as found:
        assert type(found) is OneWorker


def test_a_load_says_whether_its_steps_are_compiled(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(choice.COMPILED, raising=False)
    toy = task(put)
    assert toy.load.compiled == (choice.by_numba()[0] is not None)
    assert not replace(toy, model=replace(toy.model, cell="gru")).load.compiled
    assert not task(put, dtype=np.float64).load.compiled
    monkeypatch.setenv(choice.COMPILED, "0")
    assert not toy.load.compiled
