"""A task's steps are functions of the seed and the step, the same on the host and on a device."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.data.images import Split
from minadv.data.images.batches import Batches, take
from minadv.layers import log_softmax
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import FD, VD, AdD, Plain
from minadv.searches import Greedy, Memory, Random, Relax, Reselect
from minadv.tasks.images.task import Classify, evaluate, mean_adversarial_mask
from minadv.tasks.run import Run
from minadv.training.ema import EMA
from minadv.training.loop import Recipe, train
from minadv.training.memory import handed
from minadv.training.optimizers import Adam
from minadv.training.parallel.workers import Part
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Watched
from tests.support.problems import MODEL, sequences, task


class Noted(Watched):
    """A model that remembers the batches too."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.batches: list[Any] = []

    def body(self, params: Any, batch: Any, **given: Any) -> Any:
        self.batches.append(batch)
        return super().body(params, batch, **given)


def term(toy: Any, params: Any, step: int) -> Any:
    return toy.term(params, step, weight=0.5, carry=None)[0]


@pytest.mark.parametrize("regularizer", [Plain(), VD(p=0.3), FD(p=0.3), AdD(delta=0.4)])
def test_a_step_depends_on_its_number_alone(regularizer: Any, put: Any) -> None:
    toy = task(put, regularizer)
    params = toy.init()
    in_order = [term(toy, params, step) for step in range(8)]
    assert_same_bits(term(task(put, regularizer), params, 7).grads, in_order[7].grads)
    assert_same_bits(term(toy, params, 7).nll, in_order[7].nll)
    assert (to_host(in_order[7].nll) != to_host(in_order[6].nll)).any()


def test_a_step_sees_its_batch(put: Any) -> None:
    toy = replace(task(put, VD(p=0.3)), model=Noted(MODEL))
    assert (toy.per_epoch, toy.units_per_step, toy.unit, toy.first_carry()) == (6, 10, "sequence", None)
    term(toy, toy.init(), 8)
    rows, data = Batches(60, 10, 0).rows(8), sequences()
    [batch] = toy.model.batches
    assert_same_bits(batch.x, data.train.x[rows].transpose(1, 0, 2))
    assert_same_bits(batch.targets, data.train.y[rows])
    kept = stream(0, "masks", 8).random((10, 6)) >= 0.3
    assert_close(toy.model.forward[0]["masks"]["layer0"], kept / np.float32(0.7), 1e-6)


@pytest.mark.parametrize("regularizer", [VD(p=0.3), FD(p=0.3), AdD(delta=0.4), AdD(delta=0.4, search=Reselect(K=1))])
def test_host_and_device_draw_the_same(regularizer: Any, put: Any) -> None:
    """Same batches and masks to the last bit, the adversary's too, and weights that differ by rounding only."""
    recipe = Recipe(steps=8, optimizer=Adam(0.03), ema=EMA(0.9))
    here, there = (
        replace(task(where, regularizer, dtype=np.float64), model=Noted(Classifier(2, 6, 3, input_dropout=0.2)))
        for where in (lambda tree: tree, put)
    )
    state, _ = train(here, recipe)
    other, _ = train(there, recipe)
    assert len(here.model.forward) == len(there.model.forward) >= 8
    for mine, theirs in zip(here.model.forward, there.model.forward, strict=True):
        assert_same_bits(theirs["masks"], mine["masks"])
        assert_same_bits(theirs["noise"], mine["noise"])
    assert_same_bits(there.model.batches, here.model.batches)
    assert_close(other, state, 1e-9)


@pytest.mark.parametrize("size", [4, 21, 100])
def test_evaluate(size: int, put: Any) -> None:
    toy = task(put)
    params = toy.init()
    split = sequences().valid
    metrics = evaluate(toy.model, params, toy.data.valid, batch_size=size)
    batch = Batch(split.x.transpose(1, 0, 2).copy(), split.y)
    features, _, _ = MODEL.body(to_host(params), batch, masks={}, noise=None)
    log_p = log_softmax(MODEL.logits(to_host(params), features)[-1])
    assert metrics["loss"] == pytest.approx(-log_p[np.arange(21), split.y].mean(), rel=1e-5)
    assert metrics["error"] == pytest.approx(100 * (log_p.argmax(axis=1) != split.y).mean())
    assert toy.evaluate(params, "valid") == evaluate(toy.model, params, toy.data.valid, batch_size=toy.batch_size)
    assert toy.evaluate(params, "test") == evaluate(toy.model, params, toy.data.test, batch_size=toy.batch_size)


@pytest.mark.parametrize("door", ["evaluate", "predict"])
def test_evaluation_has_the_memory_of_a_training_batch(door: str) -> None:
    """However many examples there are: the buffers of the first batch serve the others."""
    data, peaks = sequences(n=60, T=40), []
    for n in (10, 200):
        split = Split(np.tile(data.train.x, (4, 1, 1))[:n], np.tile(data.train.y, 4)[:n])
        toy = Classify(MODEL, replace(data, valid=split), batch_size=10)
        params = toy.init()
        run = Run(MODEL, params, params, {"batch_size": 10}, [], 0)
        tracemalloc.start()
        if door == "evaluate":
            toy.evaluate(params, "valid")
        else:
            run.predict(split.x)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_the_mean_adversarial_mask(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = task(put)
    params = toy.init()
    search = {"budgets": 2, "search": Random()}
    found = mean_adversarial_mask(toy.model, params, toy.data.test, rng=np.random.default_rng(0), n=1000, **search)
    assert found.keys() == {"layer0"}
    assert np.mean(found["layer0"]) == pytest.approx(1 - 2 / 6)  # a random search flips exactly two units of six
    assert all(24 * share == pytest.approx(round(24 * share)) for share in found["layer0"])
    by_hand = []
    for batch in (3, 7, 100):  # random numbers are drawn for ten examples at a time, however many pass together
        monkeypatch.setattr("minadv.tasks.images.task.DRAWN", 10)
        given: dict[str, Any] = {"rng": np.random.default_rng(0), "n": 20, "batch_size": batch}
        by_hand.append(mean_adversarial_mask(toy.model, params, toy.data.test, **given, **search))
    assert by_hand[0] == by_hand[1] == by_hand[2]
    rng = np.random.default_rng(0)
    blocks = [Batch(*take(toy.data.test, slice(first, first + 10))) for first in (0, 10)]
    eps = [to_host(find_adversary(toy.model, params, b, rng=rng, **search).eps["layer0"]) for b in blocks]
    assert by_hand[0]["layer0"] == pytest.approx(np.concatenate(eps).mean(axis=0))
    monkeypatch.setattr("minadv.tasks.images.task.DRAWN", 24)
    given = {"rng": None, "n": 24, "budgets": 2, "search": Relax(borrow=2)}
    together, apart = (mean_adversarial_mask(toy.model, params, toy.data.test, batch_size=b, **given) for b in (100, 5))
    assert together == apart  # neighbours that borrow from each other stay together
    tracked = replace(toy, track={"budgets": 2, "search": Greedy(K=2)}).evaluate(params, "valid")
    assert tracked["error"] == toy.evaluate(params, "valid")["error"]
    assert tracked == replace(toy, track={"budgets": 2, "search": Greedy(K=2)}).evaluate(params, "valid")
    assert 0.66 < np.mean(tracked["mean_mask"]["layer0"]) < 1


def with_unlabelled(put: Any, regularizer: Any, n: int = 24) -> Classify:
    """The toy task with further examples, whose labels are wrong: nobody may read them."""
    toy = task(put, regularizer)
    x = put(sequences().test.x[:n] + np.float32(0.1))
    others = Split(x, put(np.full(n, 10**6)))
    return replace(toy, data=replace(toy.data, unlabelled=others))


@pytest.mark.parametrize("regularizer", [FD(p=0.3), AdD(delta=0.4), AdD(delta=0.4, search=Memory())])
def test_a_step_with_unlabelled_examples_is_the_loss_that_is_documented(regularizer: Any, put: Any) -> None:
    toy = with_unlabelled(put, regularizer)
    params, step = toy.init(), 3
    carry = handed(toy, toy.first_carry(), step)
    both, _ = toy.term(params, step, weight=0.5, carry=carry)
    assert len(both.value) == 20 and len(both.nll) == 10 and toy.units_per_step == 20
    alone = []
    for reading, likelihood in zip(toy.readings, (1.0, 0.0), strict=True):
        rows = reading.batches.rows(step)
        batch = Batch(*take(reading.split, rows))
        more = {} if carry is None else {"memory": carry.of(reading.before + rows, like=batch.x)}
        rng = stream(toy.seed, reading.masks, step)
        alone.append(regularizer(MODEL, params, batch, rng=rng, weight=0.5 / 2, likelihood=likelihood, **more))
    assert_close(both.value, np.concatenate([to_host(term.value) for term in alone]))
    assert_close(both.grads, tree_map(lambda a, b: a + b, alone[0].grads, alone[1].grads))


def test_what_is_remembered_of_unlabelled_examples_stands_behind_the_others(put: Any) -> None:
    toy = with_unlabelled(put, AdD(delta=0.4, search=Memory()))
    table = toy.first_carry()
    assert table is not None and len(table.visits) == 60 + 24
    ids = toy.ids(0)
    assert (ids[:10] < 60).all() and (ids[10:] >= 60).all() and len(set(ids)) == 20
    state, _ = train(toy, Recipe(steps=4, optimizer=Adam(1e-2)), progress=False)
    assert state.carry.visits[:60].sum() == state.carry.visits[60:].sum() == 40


@pytest.mark.parametrize("regularizer", [Plain(), VD(p=0.3)])
def test_a_method_without_a_regularizer_reads_labelled_examples_only(regularizer: Any, put: Any) -> None:
    toy = with_unlabelled(put, regularizer)
    assert len(toy.readings) == 1
    params = toy.init()
    assert_same_bits(term(toy, params, 2).grads, term(task(put, regularizer), params, 2).grads)


def test_workers_share_labelled_and_unlabelled_examples(put: Any) -> None:
    toy = with_unlabelled(put, AdD(delta=0.4))
    params = toy.init()
    whole = term(toy, params, 5)
    parts = [toy.term(params, 5, weight=0.5, carry=None, part=Part(k, 2))[0] for k in range(2)]
    assert_close(tree_map(lambda a, b: a + b, parts[0].grads, parts[1].grads), whole.grads, tol=1e-6)
    assert sum(len(part.value) for part in parts) == 20
