r"""Semi-supervised text classification: the doors to pre-train, to train, to resume and to open a run.

::

    corpus = reviews.load("docstrings")  # minadv.data.texts.reviews: no download
    words, classes = len(corpus.vocabulary), len(corpus.classes)
    before = pretrain_text(TextLM(words, 64, 128), corpus, epochs=5, batch_size=32, T=50)
    model = TextClassifier(words, 64, 128, n_classes=classes)
    run = fit_text(model, corpus, regularizer=AdD(delta=0.04), pretrained=before, epochs=10, out="runs/text")
    run = load_text("runs/text", corpus)
    run.test()  # {'loss': ..., 'error': ...}
    run.predict(["Return the sum of two arrays."])  # (1, C) probabilities

A run's folder is that of `minadv.training.runs.folder`; `minadv.tasks.text.runs` has what is in it beside.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Device, DeviceName, choose_device
from minadv.data.texts.documents import Corpus
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.regularizers import Plain, Regularizer
from minadv.tasks.config import build, build_recipe, describe, describe_recipe, today
from minadv.tasks.pretrain.task import PretrainTask
from minadv.tasks.text.runs import (
    Take,
    TextRun,
    begin_again,
    describe_vocabulary,
    digest,
    expect_corpus,
    expect_kind,
    identity,
    load_text,
    opened,
    weights_of,
    with_words,
)
from minadv.tasks.text.task import TextTask
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam
from minadv.training.parallel.choose import same_workers
from minadv.training.runs import checkpoints
from minadv.training.runs import folder as folders
from minadv.training.runs.folder import read_config, run_task
from minadv.training.schedules import ExponentialDecay

__all__ = ["PretrainTask", "TextRun", "TextTask", "fit_text", "load_text", "pretrain_text", "resume_text"]

EMBEDDINGS = ("encoder.E",)
CLASSIFIER = ("batch_size", "unlabelled_size", "max_tokens", "dtype")
LANGUAGE_MODEL = ("batch_size", "T", "held_out", "dtype")
"""What a run's configuration says of its task under the name that the task has for it."""


def text_recipe(steps: int, **options: Any) -> Recipe:
    """The paper's for the classifier, any field of it replaced by the options.

    Adam at 5e-4, times 0.9998 a step; the gradient clipped to norm 1 but for the embeddings; averaged weights (0.999,
    begun as TensorFlow does when it is told the step) for evaluation.
    """
    fixed = {"optimizer": Adam(5e-4), "step_schedule": ExponentialDecay(0.9998), "ema": EMA(0.999, warm=True)}
    return Recipe(steps=steps, **{**fixed, "clip": Clip(1.0, but=EMBEDDINGS), **options})


def pretrain_recipe(steps: int, **options: Any) -> Recipe:
    """The paper's for the language model: Adam at 1e-3, times 0.9999 a step, clipped alike; monitors the loss."""
    fixed = {"optimizer": Adam(1e-3), "step_schedule": ExponentialDecay(0.9999), "monitor": "loss"}
    return Recipe(steps=steps, **{**fixed, "clip": Clip(1.0, but=EMBEDDINGS), **options})


def fit_text(
    model: TextClassifier,
    corpus: Corpus,
    *,
    regularizer: Regularizer | None = None,
    recipe: Recipe | None = None,
    epochs: float | None = None,
    pretrained: TextRun | str | Path | None = None,
    take: Take = "all",
    batch_size: int = 64,
    unlabelled_size: int = 64,
    max_tokens: int | None = None,
    seed: int = 0,
    dtype: str = "float32",
    device: DeviceName | Device = "cpu",
    about: dict[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> TextRun:
    """Train a classifier on the labelled and unlabelled texts of a corpus.

    Give a `Recipe`, or ``epochs`` (or ``steps``) and any other field of `text_recipe` by name. ``pretrained`` is a run
    of `pretrain_text`, or its folder, with the same vocabulary and sizes; ``take="embeddings"`` begins with its
    embeddings and fresh cells. The last ``max_tokens`` tokens of a text are read (None: all). ``batch_size`` labelled
    and ``unlabelled_size`` unlabelled texts make a step. The other arguments are those of
    `minadv.tasks.images.runs.fit`.
    """
    chosen, began, about = _chosen(device), None, dict(about or {})
    if pretrained is not None:
        began = weights_of(pretrained, model, corpus.vocabulary, dtype=dtype, seed=seed, take=take)
        where = pretrained.path if isinstance(pretrained, TextRun) else pretrained
        about.setdefault("pretrained", None if where is None else str(Path(where).resolve()))
    task = TextTask(
        with_words(model, corpus.vocabulary, chosen),
        corpus,
        regularizer or Plain(),
        batch_size=batch_size,
        unlabelled_size=unlabelled_size,
        max_tokens=max_tokens,
        seed=seed,
        dtype=str(np.dtype(dtype)),
        encoder=began,
    )
    config = {
        **_config(task, "text", CLASSIFIER, chosen, about),
        "regularizer": describe(task.regularizer, "regularizer"),
        "pretrained": None if began is None else digest(began),
        "take": take,
    }
    recipe = _recipe(text_recipe, task.per_epoch, recipe, epochs, options)
    how = {"workers": workers, "progress": progress, "on_evaluation": on_evaluation}
    return _train(task, recipe, config, out=out, resume=resume, **how)


def pretrain_text(
    model: TextLM,
    corpus: Corpus,
    *,
    recipe: Recipe | None = None,
    epochs: float | None = None,
    batch_size: int = 256,
    T: int = 400,
    held_out: int = 100_000,
    seed: int = 0,
    dtype: str = "float32",
    device: DeviceName | Device = "cpu",
    about: dict[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> TextRun:
    """Train a language model on the training and unlabelled texts of a corpus, for a classifier to begin with.

    Give a `Recipe`, or ``epochs`` (or ``steps``) and any other field of `pretrain_recipe` by name. ``batch_size``
    streams of text are read side by side, ``T`` words at a time; evaluations read about ``held_out`` tokens of the
    texts that validate. The other arguments are those of `minadv.tasks.images.runs.fit`.
    """
    chosen = _chosen(device)
    model = with_words(model, corpus.vocabulary, chosen)
    task = PretrainTask(model, corpus, batch_size, T, seed, str(np.dtype(dtype)), held_out)
    config = _config(task, "pretrain", LANGUAGE_MODEL, chosen, about)
    recipe = _recipe(pretrain_recipe, task.per_epoch, recipe, epochs, options)
    recipe = replace(recipe, monitor="loss") if recipe.monitor == "error" else recipe
    how = {"workers": workers, "progress": progress, "on_evaluation": on_evaluation}
    return _train(task, recipe, config, out=out, resume=resume, **how)


def resume_text(
    run: str | Path,
    corpus: Corpus,
    *,
    device: DeviceName | Device | None = None,
    workers: int | None = None,
    **how: Any,
) -> TextRun:
    """Train a run of either kind, which was stopped or killed, to its end, on the text that it was begun on.

    ``device`` and ``workers`` default to the run's own. A classifier that has no checkpoint yet begins once more with
    the run that it was to begin with.
    """
    path = Path(run)
    config = read_config(path)
    expect_kind(config, str(path))
    expect_corpus(config, corpus, str(path))
    chosen = _chosen(config["device"] if device is None else device)
    model = with_words(build(config["model"], "model"), corpus.vocabulary, chosen)
    workers = same_workers(config, chosen) if workers is None else workers
    task: TextTask | PretrainTask
    if isinstance(model, TextLM):
        task = PretrainTask(model, corpus, seed=config["seed"], **{name: config[name] for name in LANGUAGE_MODEL})
    else:
        began = None
        if config["pretrained"] is not None and checkpoints.latest(path) is None:
            began = begin_again(config, model, corpus.vocabulary, path)
        regularizer = build(config["regularizer"], "regularizer")
        settings = {name: config[name] for name in CLASSIFIER}
        task = TextTask(model, corpus, regularizer, seed=config["seed"], encoder=began, **settings)
    return _train(task, build_recipe(config["recipe"]), config, out=path, resume=True, workers=workers, **how)


def _train(
    task: TextTask | PretrainTask,
    recipe: Recipe,
    config: dict[str, Any],
    *,
    out: str | Path | None,
    resume: bool,
    **how: Any,
) -> TextRun:
    path = None if out is None else Path(out)
    if path is not None and resume and (path / folders.CONFIG).exists():
        expect_corpus(read_config(path), task.corpus, str(path))
    config = {**config, "recipe": describe_recipe(recipe), "seed": task.seed}
    title = type(task.regularizer).__name__ if isinstance(task, TextTask) else "language model"
    state, records = run_task(
        task, recipe, config=config, seed=task.seed, out=path, resume=resume, today=today, title=title, **how
    )
    held = config if path is None else read_config(path)
    return opened(state, recipe, held, records, path, task.corpus)


def _config(
    task: TextTask | PretrainTask, kind: str, settings: tuple[str, ...], device: Device, about: dict[str, Any] | None
) -> dict[str, Any]:
    """What a run's folder says of it, beside its recipe and its seed."""
    return {
        "kind": kind,
        "about": about or {},
        "model": describe(task.model, "model"),
        **{name: getattr(task, name) for name in settings},
        "device": device.name,
        "classes": list(task.corpus.classes),
        "corpus": identity(task.corpus),
        "vocabulary": describe_vocabulary(task.corpus.vocabulary),
    }


def _recipe(make: Any, per_epoch: int, recipe: Recipe | None, epochs: float | None, options: dict[str, Any]) -> Recipe:
    """The recipe that was given, or made of what was given."""
    if recipe is None:
        if (epochs is None) == ("steps" not in options):
            raise ValueError("give epochs, steps or a recipe, one of them: how long to train")
        steps = options.pop("steps") if epochs is None else max(1, round(epochs * per_epoch))
        made: Recipe = make(steps, **options)
        return made
    if options or epochs is not None:
        raise ValueError(f"a recipe was given, and {sorted(options) or 'epochs'} besides: expected one or the other")
    return recipe


def _chosen(device: DeviceName | Device) -> Device:
    return device if isinstance(device, Device) else choose_device(device)
