r"""A run that is to make more steps than it was begun with: its configuration is written anew, in one instant.

The new configuration has the SHA-256 of those that it replaces, so that the run's checkpoints are still known as its
own. A learning rate that falls at the end of the run falls at the new end.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from minadv.base.files import flush_directory, seal, write_whole
from minadv.tasks.config import build_recipe, describe_recipe, today
from minadv.tasks.run import blank
from minadv.tasks.schema import read_config
from minadv.training.loop import Recipe
from minadv.training.runs import checkpoints, folder
from minadv.training.runs.folder import CONFIG, FORMAT, only_writer
from minadv.training.schedules import RampDown


def extend(run: Path, steps: int, patience: int | None = None) -> None:
    """Let a run go on to ``steps`` steps in all; raises ValueError unless these are more than it has.

    ``patience`` replaces the run's; without it, a run that its own patience has ended goes on without one.
    """
    config = today(read_config(run))
    recipe = build_recipe(config["recipe"])
    if steps <= recipe.steps:
        raise ValueError(f"--train-steps is {steps}, and {run} is for {recipe.steps} already: give more than these")
    with only_writer(run):
        if patience is None and recipe.patience is not None and checkpoints.latest(run) is not None:
            ended = folder.restore(run, blank(config), recipe).stale >= recipe.patience
            patience = None if ended else recipe.patience
        before = [*config.get("before", []), hashlib.sha256((run / CONFIG).read_bytes()).hexdigest()]
        longer = describe_recipe(replace(_longer(recipe, steps), patience=patience))
        content = {"format": FORMAT, "config": {**config, "recipe": longer, "before": before}}
        write_whole(run / CONFIG, seal(content))
        flush_directory(run)


def _longer(recipe: Recipe, steps: int) -> Recipe:
    falling = recipe.lr_schedule
    if isinstance(falling, RampDown):
        falling = replace(falling, epochs=falling.epochs * steps / recipe.steps)
    return replace(recipe, steps=steps, lr_schedule=falling)
