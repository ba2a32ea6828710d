"""What a recipe is where it is not told."""

from typing import Any

import pytest

from minadv.training.clip import Clip
from minadv.training.optimizers import Adam
from minadv.training.recipe import Recipe
from minadv.training.schedules import Constant


def test_what_is_not_told() -> None:
    same = {name: Constant(1.0) for name in ("lr_schedule", "step_schedule", "weight_schedule")}
    never = dict.fromkeys(("ema", "eval_every", "checkpoint_every", "patience", "watch_adversary"))
    told = Recipe(
        steps=7, optimizer=Adam(1e-3), clip=Clip(1.0), weight=1.0, keep=3, monitor="error", eval_first=False,
        **same, **never,
    )  # fmt: skip
    assert Recipe(steps=7) == told


@pytest.mark.parametrize("name", ["lr_schedule", "step_schedule", "weight_schedule"])
def test_a_schedule_is_a_function_of_one_number(name: str) -> None:
    given: dict[str, Any] = {name: lambda: 1.0}
    with pytest.raises(ValueError, match=rf"{name} is .*, expected a function of one number"):
        Recipe(steps=7, **given)


def test_a_weight_has_an_upper_end() -> None:
    assert Recipe(steps=7, weight=10**6).weight == 10**6
    with pytest.raises(ValueError, match="weight is 2000000, expected at most 1,000,000"):
        Recipe(steps=7, weight=2 * 10**6)
