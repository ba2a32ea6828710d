"""What training remembers of each example: a table that workers share, and that a checkpoint brings back to the bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.objective import Remembered
from minadv.regularizers import VAT, AdD, Sum
from minadv.searches import Memory, Relax
from minadv.tasks.fit import fit
from minadv.tasks.resume import resume
from minadv.terms import Term
from minadv.training.loop import Interrupted, Recipe, train
from minadv.training.memory import LENT, Table, handed, kept, rows_of
from minadv.training.parallel.mpi import RankWorkers
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.ranks import ProcessGroup
from minadv.training.parallel.threads import ThreadWorkers
from minadv.training.parallel.workers import OneWorker, Part
from minadv.training.runs import checkpoints
from tests.support.compare import assert_close, assert_same_bits
from tests.support.problems import MODEL, sequences, task
from tests.support.threaded import run_ranks

REMEMBERS = AdD(delta=0.4, search=Memory())


def found(rng: Any, ids: Any, H: int = 11) -> Any:
    """What a search might have found for some examples."""
    n = len(ids)
    memory = Remembered({"a": rng.random((n, H)) < 0.3}, rng.random(n).astype(np.float32), rng.integers(1, 9, n))
    term: Any = replace(Term(memory.d, None), trace=type("Trace", (), {"memory": memory})())
    return rows_of(ids, term), memory


def test_what_is_put_is_recalled(rng: Any) -> None:
    table = Table.empty(20, {"a": 11})
    rows, memory = found(rng, np.array([7, 3, 12]))
    recall = table.put(rows).recall(np.array([12, 3, 5]), rng)
    again = recall.of(np.array([5, 12, 3]), like=np.zeros(0))
    assert again.visits.tolist() == [0, memory.visits[2], memory.visits[1]]
    assert again.d.tolist() == [0, memory.d[2], memory.d[1]]
    assert (again.flips["a"][1:] == memory.flips["a"][[2, 1]]).all()
    assert not again.flips["a"][0].any()
    assert again.lent is not None
    assert (again.lent["a"] == memory.flips["a"][[1, 0, 2]]).all()  # those of 3, 7 and 12
    assert table.visits.sum() == 0  # the table itself is as it was


def test_a_table_takes_a_bit_for_each_unit() -> None:
    table = Table.empty(5, {"a": 8, "b": 9})
    assert {name: bits.shape for name, bits in table.flips.items()} == {"a": (5, 1), "b": (5, 2)}
    assert table.nbytes == 5 * (1 + 2 + 4 + 4)
    assert LENT == 64  # a run that goes on, to the same bits, lends as many as before


def test_lent_masks_are_those_of_other_seen_examples(rng: Any) -> None:
    ids = rng.permutation(500)[:200]
    rows, memory = found(rng, ids, H=40)  # so many units that no two masks are the same
    table = Table.empty(500, {"a": 40}).put(rows)
    one, same, other = (table.recall(ids[:5], np.random.default_rng(seed)).lent["a"] for seed in (0, 0, 1))
    assert len(one) == len({row.tobytes() for row in one}) == LENT
    assert (one == same).all()
    assert (one != other).any()
    assert {row.tobytes() for row in one} <= {row.tobytes() for row in np.packbits(memory.flips["a"], axis=1)}
    assert Table.empty(5, {"a": 11}).recall(np.arange(2), rng).of(np.arange(2), like=np.zeros(0)).lent is None


def test_a_carry_that_is_no_table_is_handed_on_as_it_is() -> None:
    state = object()
    assert handed(None, state, 3) is state
    assert kept(None, state) is state


def test_the_order_of_the_workers_rows_makes_no_difference(rng: Any) -> None:
    rows, _ = found(rng, np.arange(6))
    order = rng.permutation(6)
    mixed = type(rows)(rows.ids[order], {"a": rows.flips["a"][order]}, rows.d[order], rows.visits[order])
    table = Table.empty(6, {"a": 11})
    assert_same_bits(table.put(rows), table.put(mixed))


def test_examples_are_counted_and_masks_stay_within_the_budget(put: Any) -> None:
    toy = task(put, REMEMBERS)
    state, _ = train(toy, Recipe(steps=15))  # 6 steps an epoch
    table = state.carry
    assert sorted(set(table.visits.tolist())) == [2, 3]
    assert table.visits.sum() == 15 * 10
    flips = np.unpackbits(table.flips["layer0"], axis=1, count=MODEL.n_hidden).sum(axis=1)
    assert flips.max() == 2  # 0.4 of 6 units
    assert (table.d > 0).all()
    assert table.nbytes == 60 * (1 + 4 + 4)


def test_the_next_visit_is_handed_what_the_last_one_found(put: Any) -> None:
    toy, seen = task(put, REMEMBERS), []
    state, _ = train(toy, Recipe(steps=6))
    toy = replace(toy, regularizer=Watching(delta=0.4, search=Memory(), seen=seen))
    recall = handed(toy, state.carry, 6)
    toy.term(state.params, 6, weight=1.0, carry=recall)
    ids = toy.ids(6)
    assert (to_host(seen[0].visits) == 1).all()
    packed = np.packbits(to_host(seen[0].flips["layer0"]), axis=1)
    assert (packed == state.carry.flips["layer0"][ids]).all()


class Watching(AdD):
    """An AdD that notes the memory that it is given."""

    def __init__(self, seen: list[Any], **given: Any) -> None:
        super().__init__(**given)
        object.__setattr__(self, "seen", seen)

    def term(self, on: Any) -> Any:
        self.seen.append(on.memory)
        return super().term(on)


@pytest.mark.parametrize("regularizer", [REMEMBERS, AdD(delta=0.4, search=Memory(fresh=0, tries=3))])
def test_the_masks_do_not_depend_on_the_number_of_workers(regularizer: Any, put: Any, device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("workers share a batch on the host; several GPUs go over MPI")
    toy = task(put, regularizer, dtype=np.float64)
    alone = end(toy, OneWorker(toy))
    for workers in (ThreadWorkers(toy, 2), ProcessWorkers(toy, 3, toy.init())):
        shared = end(toy, workers)
        assert_same_bits(shared.carry.flips, alone.carry.flips)
        assert_same_bits(shared.carry.visits, alone.carry.visits)
        assert_close(shared.params, alone.params, 1e-12)


def end(toy: Any, workers: Any) -> Any:
    try:
        return train(toy, Recipe(steps=14), workers=workers)[0]
    finally:
        workers.close()


@pytest.mark.many_passes
def test_ranks_gather_what_each_of_them_found(put: Any) -> None:
    toy = task(put, REMEMBERS, dtype=np.float64)
    alone, _ = train(toy, Recipe(steps=14))

    def rank(comm: Any) -> Any:
        group = ProcessGroup(comm)
        return end(toy, RankWorkers(toy, group, toy.init()))

    for state in run_ranks(rank, 2):
        assert_same_bits(state.carry.flips, alone.carry.flips)
        assert_same_bits(state.carry.visits, alone.carry.visits)


def test_a_run_that_goes_on_ends_in_the_same_bits(tmp_path: Path) -> None:
    given: dict[str, Any] = {"regularizer": REMEMBERS, "steps": 20, "eval_every": 4, "batch_size": 10}
    fit(MODEL, sequences(), out=tmp_path / "whole", **given)

    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 12:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        fit(MODEL, sequences(), out=tmp_path / "stopped", on_evaluation=stop, **given)
    resume(tmp_path / "stopped", sequences())
    one, other = (checkpoints.load(checkpoints.latest(tmp_path / name))[0] for name in ("whole", "stopped"))
    assert {"carry.flips.layer0", "carry.visits", "carry.d"} <= set(one)
    assert_same_bits(one, other)


def test_only_one_adversary_of_a_sum_remembers() -> None:
    assert Sum((REMEMBERS, VAT())).remembers(MODEL) == {"layer0": 6}
    assert Sum((VAT(), AdD(delta=0.4))).remembers(MODEL) == {}
    with pytest.raises(ValueError, match=r"expected one adversary that remembers at most"):
        Sum((REMEMBERS, REMEMBERS)).remembers(MODEL)


def test_neighbours_that_borrow_from_each_other_have_one_worker(put: Any) -> None:
    assert [Part(n, 2, group=16).rows(100) for n in (0, 1)] == [slice(0, 48), slice(48, 100)]
    assert [Part(n, 3).rows(100) for n in range(3)] == [slice(0, 33), slice(33, 66), slice(66, 100)]
    dealt = [[Part(n, 2, group=16).of_group(first, 24) for n in (0, 1)] for first in (0, 24)]
    assert dealt == [[slice(0, 24), slice(0, 0)], [slice(0, 0), slice(0, 24)]]
    with pytest.raises(ValueError, match=r"a batch of 20 examples, in groups of 16, cannot be shared by 2 workers"):
        Part(0, 2, group=16).rows(20)
    toy = task(put, AdD(delta=0.4, search=Relax(borrow=1)))
    assert toy.load.examples == 1  # a batch of 10
