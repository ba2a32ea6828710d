r"""A run that is to make more steps than it was begun with: its configuration is written anew, in one instant.

The new configuration has the SHA-256 of those that it replaces, so that the run's checkpoints are still known as its
own. A learning rate that falls at the end of the run falls at the new end.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from minadv.base.files import flush_directory, seal, write_whole
from minadv.tasks.config import build_recipe, describe_recipe, today
from minadv.tasks.run import blank
from minadv.tasks.schema import read_config
from minadv.training.loop import Recipe, finished
from minadv.training.runs import checkpoints, folder
from minadv.training.runs.folder import CONFIG, FORMAT, only_writer
from minadv.training.schedules import RampDown


def extend(run: Path, steps: int, patience: int | None = None) -> None:
    """Let a run go on to ``steps`` steps in all; raises ValueError unless there is something left to do then.

    ``patience`` replaces the run's; without it, a run that its own patience has ended goes on without one. A run that
    is for these steps already, and was stopped before them, stays as it is.
    """
    with only_writer(run):
        config = extended(run, steps, patience)
        if config is not None:
            write_whole(run / CONFIG, seal({"format": FORMAT, "config": config}))
            flush_directory(run)


def extended(run: Path, steps: int, patience: int | None = None) -> dict[str, Any] | None:
    """The configuration that `extend` writes, None if the run's own is that; raises as `extend` does."""
    config = today(read_config(run))
    recipe = build_recipe(config["recipe"])
    too_few = f"--train-steps is {steps}, and {run} is for {recipe.steps} already: give more than these"
    if steps < recipe.steps:
        raise ValueError(too_few)
    begun = checkpoints.latest(run) is not None
    state = folder.restore(run, blank(run, config, recipe), recipe) if begun else None
    wished = replace(_longer(recipe, steps), patience=recipe.patience if patience is None else patience)
    if steps == recipe.steps and state is not None and finished(wished, state):
        raise ValueError(too_few)
    if patience is None and state is not None and finished(wished, state):  # by its own patience
        wished = replace(wished, patience=None)
    if wished == recipe:
        return None
    before = [*config.get("before", []), hashlib.sha256((run / CONFIG).read_bytes()).hexdigest()]
    return {**config, "recipe": describe_recipe(wished), "before": before}


def _longer(recipe: Recipe, steps: int) -> Recipe:
    falling = recipe.lr_schedule
    if isinstance(falling, RampDown) and steps != recipe.steps:
        falling = replace(falling, epochs=falling.epochs * steps / recipe.steps)
    return replace(recipe, steps=steps, lr_schedule=falling)
