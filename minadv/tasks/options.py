r"""What options stand for in every family: the value of one that is not given, and the common part of a recipe."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from minadv.training.clip import Clip
from minadv.training.loop import Recipe


def chosen(options: Namespace, name: str) -> Any:
    """An option, or the value that the preset has in its place."""
    value = getattr(options, name)
    return options.preset.values[name] if value is None else value


def hidden_of(options: Namespace) -> tuple[int, ...]:
    """The units of each layer of a language model: --hidden, or as many layers as --layers says.

    One size is that of every layer; of the preset's sizes the first is that of all layers but the last.
    """
    hidden, layers = tuple(chosen(options, "hidden")), options.layers
    if layers is None or layers == len(hidden):
        return hidden
    if options.hidden is not None and len(hidden) > 1:
        shown = " ".join(map(str, hidden))
        raise ValueError(f"layers is {layers} and hidden is {shown}: give one size, or one for each layer")
    return (*hidden[:1] * (layers - 1), hidden[-1])


def steps(options: Namespace, per_epoch: int) -> int:
    """How many steps to train: as --train-steps or --epochs say, else as the preset says in steps or epochs."""
    epochs = options.preset.values.get("epochs") if options.epochs is None else options.epochs
    if options.train_steps is None and epochs is not None:
        return max(1, round(float(epochs) * per_epoch))
    return int(chosen(options, "train_steps"))


def recipe(options: Namespace, per_epoch: int, *, clip: Clip | None = None, **particular: Any) -> Recipe:
    """A recipe of the options that all families have, and of a family's ``particular`` fields; --clip 0 is no clip."""
    return Recipe(
        steps=steps(options, per_epoch),
        clip=None if options.clip == 0 else clip or Clip(options.clip),
        eval_every=options.eval_every,
        checkpoint_every=options.checkpoint_every,
        patience=options.preset.values.get("patience") if options.patience is None else options.patience,
        watch_adversary=getattr(options, "watch_adversary", None),
        **particular,
    )
