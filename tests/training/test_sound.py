"""A state that training cannot have written is passed over, and the field is named."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.training.loop import Recipe, newest, read_state, start, train
from minadv.training.optimizers import Adam
from minadv.training.runs import checkpoints, log
from minadv.training.runs.sound import expect_state
from tests.support.compare import assert_same_bits
from tests.support.problems import task

NAN = np.array([1, math.nan])
BOUNDED = ("best_step", "stale", "optimizer.steps", "optimizer.averaged", "ema.updates", "tally.2")
GOOD: dict[str, Any] = {
    **dict.fromkeys(("step", *BOUNDED), 20),
    "tally.0": -1.5,
    "tally.3": 10**6,
    "best_score": math.inf,
    "optimizer.older": math.inf,
    "optimizer.started": True,
    "of": "a user's",
    "params.W": np.array([-1.0, 1.0]),
    "optimizer.mean_square.W": np.zeros(2),
    "carry.visits": np.array([1]),
    "empty": np.zeros((0, 2)),
}


def test_any_state_that_training_writes() -> None:
    expect_state(20, GOOD)
    expect_state(0, {name: 0 for name, value in GOOD.items() if isinstance(value, int)})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("step", 7, "is 7, expected 20"),
        ("step", 21, "is 21, expected 20"),
        *((name, 21, "is 21, expected a whole number from 0 to 20") for name in BOUNDED),
        ("optimizer.steps", -5, "is -5, expected a whole number from 0 to 20"),
        ("best_step", 1.5, "is 1.5, expected a whole number from 0 to 20"),
        ("best_step", "x", "is x, expected a whole number from 0 to 20"),
        ("tally.3", -1, "is -1, expected zero or more"),
        ("best_score", math.nan, "is nan, expected a number"),
        ("params.W", NAN, "is not finite"),
        ("optimizer.mean_square.W", -np.eye(2)[0], "is negative"),
        ("optimizer.mean_square.W", NAN, "is not finite"),
        ("best.W", np.array([math.inf]), "is not finite"),
    ],
)
def test_no_other(name: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"^its {name} {says}$"):
        expect_state(20, {**GOOD, name: value})


def test_training_goes_on_from_the_one_before(tmp_path: Path, put: Any) -> None:
    pytest.importorskip("safetensors")
    toy, recipe = task(put), Recipe(steps=12, optimizer=Adam(0.05), eval_every=3)
    log.start(tmp_path / "log.jsonl", {"kind": "header", "step": 0})
    whole, _ = train(toy, recipe, tmp_path)
    assert newest(tmp_path) == tmp_path / "checkpoints" / "step-00000012.json"
    state = read_state(tmp_path / "checkpoints" / "step-00000012.json", start(toy, recipe))
    checkpoints.save(tmp_path, 12, replace(state, best_score=math.nan), {})
    with pytest.warns(
        checkpoints.CheckpointWarning, match=r"0012\.json: its best_score is nan, .*; using step-00000009"
    ):
        again, _ = train(toy, recipe, tmp_path)
    assert_same_bits(again.params, whole.params)
    assert newest(tmp_path) == tmp_path / "checkpoints" / "step-00000012.json"
