r"""Fine-tuning of a language model: averaged SGD from the best weights of a run, without its regularizer."""

from __future__ import annotations

from typing import Any

from minadv.data.language.corpus import Corpus
from minadv.tasks.config import build, build_recipe
from minadv.tasks.fit import Plan, plan
from minadv.tasks.run import Run
from minadv.training.loop import Recipe
from minadv.training.optimizers import ASGD, SGD


def finetune(
    run: Run,
    corpus: Corpus,
    *,
    workers: int | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> Run:
    """Train the best weights of a run on; ``options`` are those of `plan_finetuning`, the others those of `fit`."""
    planned = plan_finetuning(run, corpus, **options)
    return planned.train(workers=workers, progress=progress, on_evaluation=on_evaluation)


def plan_finetuning(
    run: Run,
    corpus: Corpus,
    *,
    epochs: float | None = None,
    lr: float | None = None,
    seed: int | None = None,
    patience: int | None = None,
    **options: Any,
) -> Plan:
    """What `finetune` will train: averaged SGD from the first step, the run's noise, no regularizer.

    The first evaluation is of these weights themselves, so that what comes out is no worse on validation data.
    ``epochs`` defaults to as many as the run made, ``lr`` to the run's own where that was made by SGD or ASGD, and to
    30, the paper's, otherwise; ``seed`` to the run's plus one. ``options`` are those of `minadv.tasks.fit.plan`, with
    the run's own settings where they are not given.
    """
    if run.path is None:
        raise ValueError("the run has no folder, so that its settings are not known: train it with out=...")
    before, config = build_recipe(run.config["recipe"]), run.config
    settings = {name: build(config[name], name) for name in run.family.settings if name not in ("start", "draws")}
    own = before.optimizer.lr if isinstance(before.optimizer, SGD | ASGD) else 30.0
    decay = getattr(before.optimizer, "weight_decay", 0.0)

    def recipe(per_epoch: int) -> Recipe:
        return Recipe(
            steps=run.step if epochs is None else max(1, round(epochs * per_epoch)),
            optimizer=ASGD(own if lr is None else lr, decay, interval=None),
            clip=before.clip,
            eval_every=before.eval_every,
            checkpoint_every=before.checkpoint_every,
            eval_first=True,  # the weights of the run are the best until tuned ones are better
            monitor="loss",
            patience=patience,
        )

    given = {**settings, **options, "seed": int(config["seed"]) + 1 if seed is None else seed}
    return plan(run.model, corpus, recipe=recipe, start=run, **given)
