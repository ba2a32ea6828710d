"""What a recipe is where it is not told."""

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
