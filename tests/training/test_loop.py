"""The loop learns, repeats itself bit for bit, remembers the best weights, and stops where a number is not finite."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.errors import NotFiniteError
from minadv.base.trees import leaves, tree_map
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.loop import (
    Recipe,
    TrainingError,
    advance,
    evaluation,
    finished,
    start,
    train,
    weights,
)
from minadv.training.optimizers import ASGD, SGD, Adam, RMSProp
from minadv.training.parallel.workers import OneWorker
from minadv.training.runs import checkpoints, log
from minadv.training.schedules import Constant, ExponentialDecay, RampDown, RampUp
from tests.support.compare import assert_same_bits, pairs
from tests.support.problems import Around, Poisoned, Scripted, task

METHODS = [Plain(), VD(p=0.2), EL(p=0.2), FD(p=0.2), Pi(p=0.2), AdD(delta=0.4), AT(norm=0.1), VAT(norm=0.1)]


@pytest.mark.many_passes
@pytest.mark.parametrize("regularizer", METHODS, ids=lambda r: type(r).__name__)
def test_training_learns(regularizer: Any, put: Any) -> None:
    toy = task(put, regularizer)
    before = toy.evaluate(toy.init(), "test")
    state, records = train(toy, Recipe(steps=24, optimizer=Adam(0.05)))
    after = toy.evaluate(state.params, "test")
    assert before["error"] > 20
    assert after["error"] < 5
    assert after["loss"] < before["loss"] / 4
    assert [record["step"] for record in records] == [6, 12, 18, 24]


@pytest.mark.parametrize("optimizer", [SGD(1.0, momentum=0.5), RMSProp(0.05), ASGD(3.0, interval=None)])
def test_every_optimizer_learns(optimizer: Any, put: Any) -> None:
    toy, recipe = task(put), Recipe(steps=24, optimizer=optimizer)
    state, records = train(toy, recipe)
    assert toy.evaluate(weights(recipe, state), "test")["error"] < 10
    assert records[-1]["valid_loss"] < records[0]["valid_loss"] / 2


def test_same_seed_same_bits(put: Any) -> None:
    recipe = Recipe(steps=8, optimizer=Adam(0.03), ema=EMA(0.9))
    one, other, apart = (train(task(put, AdD(delta=0.4), seed=seed), recipe)[0] for seed in (3, 3, 4))
    assert_same_bits(one, other)
    assert all((a != b).any() for _, a, b in pairs(one.params.cells, apart.params.cells))


def test_what_a_record_says(put: Any) -> None:
    """Training losses are means over the steps since the last evaluation; the last step is always evaluated."""
    toy, recipe, seen = task(put, AdD(delta=0.4)), Recipe(steps=10, eval_every=4), []
    state, records = train(toy, recipe, on_evaluation=seen.append)
    assert seen == records
    again, shown = start(toy, recipe), []
    for _ in range(10):
        again, values = advance(toy, recipe, again, OneWorker(toy))
        shown.append(values)
    assert_same_bits(again.params, state.params)
    assert state.tally == (0, 0, 0, 0)
    for record, steps in zip(records, (shown[:4], shown[4:8], shown[8:]), strict=True):
        assert record["kind"] == "evaluation"
        assert record["train_loss"] == pytest.approx(np.mean([s["loss"] for s in steps]))
        assert record["regularizer"] == pytest.approx(np.mean([s["regularizer"] for s in steps]))
    assert [(r["step"], r["epoch"]) for r in records] == [(4, 4 / 6), (8, 8 / 6), (10, 10 / 6)]
    assert records[-1]["valid_error"] == toy.evaluate(state.params, "valid")["error"]
    json.dumps(records, allow_nan=False)


def test_before_the_first_step_nothing_is_the_best(put: Any) -> None:
    toy, recipe = task(put), Recipe(steps=1)
    state = start(toy, recipe)
    assert (state.step, state.best_score, state.best_step, state.stale, state.ema) == (0, math.inf, 0, 0, None)
    assert state.tally == (0, 0, 0, 0)
    assert_same_bits((state.params, state.best), (toy.init(), toy.init()))


def test_the_best_weights_are_kept(put: Any) -> None:
    toy = Scripted(task(put), [5, 3, 4, 3, 6])
    state, _ = train(toy, Recipe(steps=5, eval_every=1))
    assert (state.best_score, state.best_step, state.stale) == (3, 2, 3)  # the first of two equals
    assert_same_bits(state.best, toy.shown[1])
    assert_same_bits(state.params, toy.shown[4])


def test_patience(put: Any) -> None:
    recipe = Recipe(steps=50, eval_every=2, patience=2)
    state, records = train(Scripted(task(put), [5, 6, 4, 4, 7, 1, 1]), recipe)
    assert [record["valid_error"] for record in records] == [5, 6, 4, 4, 7]
    assert (state.step, state.best_step) == (10, 6)
    assert finished(recipe, state)
    assert not finished(recipe, start(task(put), recipe))


def test_evaluated_with_the_moving_average(put: Any) -> None:
    toy = Scripted(task(put), range(4, 0, -1))
    recipe = Recipe(steps=4, eval_every=1, optimizer=SGD(0.5), ema=EMA(0.9))
    state, _ = train(toy, recipe)
    assert_same_bits(toy.shown[-1], state.ema.average)
    assert state.ema.updates == 4
    assert_same_bits(state.best, state.ema.average)
    assert all((a != b).any() for _, a, b in pairs(state.ema.average, state.params))


def test_evaluated_with_the_average_of_asgd(put: Any) -> None:
    """Until the loss stops falling the iterate itself is evaluated, and the mean of the iterates from then on."""
    toy = Scripted(task(put), [4, 3, 2, 3, 2.5, 2.5])
    state, _ = train(toy, Recipe(steps=6, eval_every=1, optimizer=ASGD(0.5, interval=1)))
    assert state.optimizer.averaged == 1  # 2.5 > 2 after the fifth step
    assert_same_bits(toy.shown[-1], state.params)
    toy = Scripted(task(put), [4, 3, 2, 3, 2.5, 2.5, 2.5])
    state, _ = train(toy, Recipe(steps=7, eval_every=1, optimizer=ASGD(0.5, interval=1)))
    assert_same_bits(toy.shown[-1], state.optimizer.average)
    assert all((a != b).any() for _, a, b in pairs(toy.shown[-1], state.params))


def test_schedules_are_functions_of_the_epoch(put: Any) -> None:
    seen = []

    class Asked(Around):
        def term(self, params: Any, step: int, *, weight: float, **given: Any) -> Any:
            seen.append(weight)
            return self.task.term(params, step, weight=weight, **given)

    recipe = Recipe(steps=12, weight=2.0, weight_schedule=RampUp(2), optimizer=SGD(0.1), lr_schedule=RampDown(2, 1))
    state, _ = train(Asked(task(put)), recipe)
    assert seen == [2 * RampUp(2)(step / 6) for step in range(12)]
    last, _ = train(Asked(task(put)), Recipe(steps=11, optimizer=SGD(0.1), lr_schedule=RampDown(2, 1)))
    moved = max(float(np.abs(a - b).max()) for _, a, b in pairs(state.params, last.params))
    assert 0 < moved <= 0.1 * RampDown(2, 1)(11 / 6)  # the rate, its factor, and a gradient clipped to norm 1


def test_the_rate_of_a_step_is_that_of_its_epoch_its_number_and_its_task(put: Any) -> None:
    """Step n, counted from 0, is given the factors of n: a first step is not decayed."""
    scales = []

    class Long(Around):
        def rate(self, step: int) -> float:
            return 1 + step / 10

    class Watched(SGD):
        def step(self, params: Any, grads: Any, state: Any, *, lr_scale: float = 1.0) -> Any:
            scales.append(lr_scale)
            return super().step(params, grads, state, lr_scale=lr_scale)

    schedules: dict[str, Any] = {"lr_schedule": RampDown(2, 1), "step_schedule": ExponentialDecay(0.5)}
    train(Long(task(put)), Recipe(steps=12, optimizer=Watched(0.1), **schedules))
    assert scales == pytest.approx([RampDown(2, 1)(n / 6) * 0.5**n * (1 + n / 10) for n in range(12)], rel=1e-12)


def test_a_run_without_a_checkpoint_begins_its_log_anew(put: Any, tmp_path: Path) -> None:
    """A run that was stopped before its first checkpoint has logged evaluations that will be made again."""
    pytest.importorskip("safetensors")
    log.start(tmp_path / "log.jsonl", {"kind": "header", "step": 0})
    recipe = Recipe(steps=5, eval_every=1, checkpoint_every=5)
    with pytest.raises(TrainingError):
        train(Poisoned(task(put), 3, "V", math.nan), recipe, tmp_path)
    assert [r["step"] for r in log.read(tmp_path / "log.jsonl")] == [0, 1, 2, 3]
    _, records = train(task(put), recipe, tmp_path)
    assert [r["step"] for r in records] == [1, 2, 3, 4, 5]
    assert [r["step"] for r in log.read(tmp_path / "log.jsonl")] == [0, 1, 2, 3, 4, 5]


def test_a_run_that_goes_on_says_so_in_its_log_unless_it_is_finished(put: Any, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    log.start(tmp_path / "log.jsonl", {"kind": "header", "step": 0})
    recipe, resumed = Recipe(steps=4, eval_every=2), {"kind": "resumed"}
    train(task(put), recipe, tmp_path)
    train(task(put), replace(recipe, steps=6), tmp_path, resumed=resumed)
    train(task(put), replace(recipe, steps=6), tmp_path, resumed=resumed)
    said = [(r["kind"], r["step"]) for r in log.read(tmp_path / "log.jsonl")][1:]
    assert said == [("evaluation", 2), ("evaluation", 4), ("resumed", 4), ("evaluation", 6)]


def test_an_evaluation_before_the_first_step_is_told(put: Any) -> None:
    seen: list[Any] = []
    _, records = train(task(put), Recipe(steps=2, eval_every=2, eval_first=True), on_evaluation=seen.append)
    assert [record["step"] for record in seen] == [0, 2]
    assert seen == records


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("clip", [Clip(1.0), Clip(1.0, "value"), Clip(1.0, only=("V",)), None])
def test_a_bad_gradient_stops_the_run(bad: float, clip: Any, put: Any, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    recipe = Recipe(steps=20, clip=clip, checkpoint_every=2, eval_every=50)
    toy = Poisoned(task(put), 7, "cells.0.U", bad)
    (tmp_path / "log.jsonl").touch()
    with pytest.raises(
        TrainingError,
        match=r"the gradient is not finite at step 7 \(cells\.0\.U\); the last good .*step-00000006\.json",
    ):
        train(toy, recipe, tmp_path)
    state, _ = checkpoints.load(tmp_path / "checkpoints" / "step-00000006.json", like=start(toy, recipe))
    assert all(np.isfinite(a).all() for _, a in leaves(to_host(state.params)))


def poisoned(put: Any) -> Any:
    """Weights with a bad number in the last layer."""
    params = task(put).init()
    return replace(params, b=params.b * math.nan)


def test_other_numbers_that_stop_a_run(put: Any) -> None:
    with pytest.raises(TrainingError, match=r"update is not finite at step 0 \(params\.cells\.0\.W, .*; .* is none"):
        train(task(put), Recipe(steps=3, optimizer=SGD(1.0), lr_schedule=Constant(1e300)))
    said = r"the norm of the gradient is not finite at step 1 \(all entries are: the largest is 1e\+200, in V\);"
    with pytest.raises(TrainingError, match=said):  # finite, and its square is not
        train(Poisoned(task(put, dtype=np.float64), 1, "V", 1e200), Recipe(steps=3))
    said = r"the validation loss is not finite at step 2 \(all weights are: the largest is [0-9.]+, in [\w.]+\);"
    with pytest.raises(TrainingError, match=said):
        train(Scripted(task(put), [1, math.nan]), Recipe(steps=3, eval_every=1))
    for clip in (Clip(1.0), Clip(1.0, "value")):  # what is clipped may be as large as it likes
        assert train(Poisoned(task(put), 1, "V", 1e30), Recipe(steps=3, clip=clip))[0].step == 3

    class Lost(Around):
        def term(self, params: Any, step: int, **given: Any) -> Any:
            term, carry = self.task.term(params, step, **given)
            term.nll[0] = math.inf
            return term, carry

    with pytest.raises(TrainingError, match=r"the loss is not finite at step 0 \(all weights are: the largest"):
        train(Lost(task(put)), Recipe(steps=3))

    class Blind(Around):
        def term(self, params: Any, step: int, **given: Any) -> Any:
            raise NotFiniteError("the distance is not finite")

    with pytest.raises(TrainingError, match=r"^the distance is not finite \(at step 0\); the last good"):
        train(Blind(task(put)), Recipe(steps=3))
    spoilt = replace(start(task(put), Recipe(steps=3)), params=poisoned(put))
    with pytest.raises(TrainingError, match=r"the validation loss is not finite at step 0 \(b\)$"):
        evaluation(task(put), Recipe(steps=3), spoilt, OneWorker(task(put)))
    huge = replace(spoilt, params=tree_map(lambda a: a * 0 + np.float32(3e38), task(put).init()))
    with pytest.raises(TrainingError, match=r"the validation loss is not finite"):  # and no warning of NumPy's
        evaluation(task(put), Recipe(steps=3), huge, OneWorker(task(put)))


def test_a_carry_goes_from_step_to_step(put: Any, tmp_path: Path) -> None:
    """A state that is carried from batch to batch is part of the checkpoint."""
    pytest.importorskip("safetensors")

    class Counting(Around):
        def first_carry(self) -> Any:
            return {"seen": put(np.zeros(2))}

        def term(self, params: Any, step: int, *, carry: Any, **given: Any) -> Any:
            assert float(carry["seen"][0]) == step
            return self.task.term(params, step, carry=None, **given)[0], {"seen": carry["seen"] + 1}

    (tmp_path / "log.jsonl").touch()
    train(Counting(task(put)), Recipe(steps=3), tmp_path)
    state, _ = train(Counting(task(put)), Recipe(steps=6), tmp_path)
    assert to_host(state.carry["seen"]).tolist() == [6, 6]


@pytest.mark.parametrize("name", ["steps", "eval_every", "checkpoint_every", "keep", "patience"])
def test_bad_recipes(name: str) -> None:
    given: dict[str, Any] = {"steps": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0, expected a whole number of at least 1"):
        Recipe(**given)


def test_nothing_leaves_the_device(put: Callable[[Any], Any], xp: Any) -> None:
    toy = task(put, AdD(delta=0.4))
    recipe = Recipe(steps=3, ema=EMA(0.9), optimizer=RMSProp(0.01))
    state, _ = train(toy, recipe)
    arrays = [(name, a) for name, a in leaves(state) if not isinstance(a, bool | int | float)]
    assert len(arrays) == 4 * 5  # W, U, b, V, b: the weights, the optimizer's squares, the average, the best
    assert all(isinstance(a, xp.ndarray) for _, a in arrays)
