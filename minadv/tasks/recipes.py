r"""The recipe that `fit` trains with: one that is given, or made of its fields and, beside them, the family's defaults.

The defaults are those of the command line: Adam with 0.005 over 40 epochs for classifiers of sequences, a weight of the
regularizer that rises over the first quarter, and a learning rate that falls over the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minadv.base.numbers import Rate
from minadv.base.schema import expect_type
from minadv.tasks.family import Family
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam


def choose_recipe(
    family: Family,
    per_epoch: int,
    recipe: Recipe | Callable[[int], Recipe] | None,
    epochs: float | None,
    options: dict[str, Any],
) -> Recipe:
    """The recipe given, or one made of ``epochs`` and ``options``; it must monitor a metric of the family."""
    if recipe is None:
        recipe = _recipe(family, per_epoch, epochs, dict(options))
    elif options or epochs is not None:
        raise ValueError(f"a recipe was given, and {sorted(options) or 'epochs'} besides: expected one or the other")
    else:
        recipe = recipe if isinstance(recipe, Recipe) else _made(recipe, per_epoch)
        if recipe.monitor == Recipe.monitor:
            recipe = replace(recipe, monitor=family.recipe.get("monitor", recipe.monitor))
    if recipe.monitor not in family.metrics:
        raise ValueError(f"monitor is {recipe.monitor!r}, expected one of {', '.join(map(repr, family.metrics))}")
    return recipe


def _recipe(family: Family, per_epoch: int, epochs: float | None, options: dict[str, Any]) -> Recipe:
    if epochs is None and "steps" not in options:
        epochs = family.epochs
    if (epochs is None) == ("steps" not in options):
        raise ValueError("give epochs, steps or a recipe, one of them: how long to train")
    steps = options.pop("steps") if epochs is None else max(1, round(epochs * per_epoch))
    lr = options.pop("lr", None)
    if lr is not None:
        expect_type("lr", lr, Rate)
        if "optimizer" in options:
            raise ValueError(f"lr is {lr} and optimizer is {options['optimizer']}: give one of the two")
        options["optimizer"] = replace(family.recipe.get("optimizer", Adam(1e-3)), lr=lr)
    made = Recipe(**{"steps": steps, **family.recipe, **options})
    scheduled = family.schedules(made.steps / per_epoch)
    return replace(made, **{name: value for name, value in scheduled.items() if name not in options})


def _made(recipe: Any, per_epoch: int) -> Recipe:
    made = recipe(per_epoch) if callable(recipe) else recipe
    if not isinstance(made, Recipe):
        said = "recipe makes" if callable(recipe) else "recipe is"
        raise TypeError(f"{said} {made!r}, expected a minadv.training.loop.Recipe, or a function of the steps an epoch")
    return made
