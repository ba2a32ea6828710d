"""Which examples of a batch are each worker's, what it reports of them, and what all reports together are."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minadv.base import pulse
from minadv.training.parallel import workers
from minadv.training.parallel.workers import OneWorker, Part, Readers, Sums, gather, most_readers, sums
from tests.support.problems import task


def test_rows_that_are_not_many_enough_are_refused() -> None:
    for part, n, said in (
        (Part(0, 2), 1, "a batch of 1 examples cannot be shared by 2 workers"),
        (Part(4, 5), 4, "a batch of 4 examples cannot be shared by 5 workers"),
        (Part(0, 3, group=2), 5, "a batch of 5 examples, in groups of 2, cannot be shared by 3 workers"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            part.rows(n)
    assert Part(1, 2).rows(2) == slice(1, 2)
    assert Part(group=4).rows(3) == slice(0, 3)  # one worker has them all


def test_neighbours_have_one_worker_and_the_last_has_those_that_are_left_over() -> None:
    assert [Part(n, 3, group=2).rows(9) for n in range(3)] == [slice(0, 2), slice(2, 4), slice(4, 9)]
    assert [Part(n, 2, group=2).of_group(7, 5) for n in range(2)] == [slice(0, 2), slice(2, 5)]


def test_a_group_that_is_too_small_goes_to_whoever_comes_next() -> None:
    assert [Part(n, 3).of_group(4, 2) for n in range(3)] == [slice(0, 0), slice(0, 1), slice(1, 2)]
    assert [Part(n, 3).of_group(4, 3) for n in range(3)] == [slice(0, 1), slice(1, 2), slice(2, 3)]  # not too small
    assert [Part(n, 4, group=2).of_group(2, 3) for n in range(4)] == [
        slice(0, 0),
        slice(0, 3),
        slice(0, 0),
        slice(0, 0),
    ]


def test_each_example_counts_alike() -> None:
    assert [Part(n, 3).share(10) for n in range(3)] == [0.3, 0.3, 0.4]


def test_one_worker_draws_as_it_is_told_and_several_draw_their_rows() -> None:
    rng = np.random.default_rng(0)
    assert Part().rng(rng, 10) is rng
    assert Part(0, 2).rng(rng, 10) is not rng


def term(nll: Any, value: Any, zero: Any = None) -> Any:
    return SimpleNamespace(nll=nll, value=value, trace=None if zero is None else SimpleNamespace(zero=zero))


def test_a_worker_reports_sums_and_counts(put: Any) -> None:
    nll, value, zero = put(np.array([0.5, 1.0])), put(np.array([2.0, 3.0, 4.0])), put(np.array([True, True, False]))
    assert sums(term(nll, value, zero), "carry") == Sums(1.5, 2, 9.0, 3, "carry", 2)
    assert sums(term(None, value), None) == Sums(0.0, 0, 9.0, 3, None, 0)  # of unlabelled examples, without a search


def test_means_are_over_the_examples_of_all_workers(put: Any) -> None:
    row = put(np.array([[1.0]]))
    both = gather("grads", [Sums(3.0, 2, 2.0, 1, row, 1), Sums(6.0, 1, 3.0, 3, 2 * row, 4)])
    assert (both.grads, both.nll, both.value, both.zero_maps) == ("grads", 3.0, 1.25, 5)
    assert both.carry.tolist() == [[1.0], [2.0]]
    one = gather(None, [Sums(0.0, 0, 0.0, 0, "carry")])
    assert (one.nll, one.value, one.carry, one.zero_maps) == (0.0, 0.0, "carry", 0)
    assert gather(None, [Sums(1.0, 1, 0.0, 1, None)] * 2).carry is None


def test_one_process_is_the_chief_and_makes_what_all_are_told(put: Any) -> None:
    one = OneWorker(task(put))
    assert one.chief
    assert one.agree(lambda: "made") == "made"


@dataclass(frozen=True)
class Batches:
    """Batches whose number is what is read of them, and each of which takes some memory."""

    count: int
    memory: int = 0
    counts_itself: bool = False

    @property
    def load(self) -> Any:
        return SimpleNamespace(memory=self.memory)

    def __len__(self) -> int:
        return self.count

    def reader(self) -> Any:
        return lambda number: number


@pytest.mark.parametrize(
    ("count", "memory", "free", "most"),
    [(9, 10, 79, 3), (9, 10, 80, 4), (2, 10, 80, 2), (1, 10, 80, 1), (9, 10, 0, 1), (9, 10, None, 9), (9, 0, 5, 9)],
)
def test_as_many_readers_as_half_of_the_memory_has_room_for(
    count: int, memory: int, free: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "available_memory", lambda: free)
    assert most_readers(Batches(count, memory)) == most


def test_batches_are_counted_unless_they_count_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(pulse, "advance", done.append)
    assert Readers().share(Batches(3)) == [0, 1, 2]
    assert done == [1, 1, 1]
    assert Readers().share(Batches(3, counts_itself=True)) == [0, 1, 2]
    assert done == [1, 1, 1]
