r"""Language models: the doors to train one and to open a run, `fit_language` and `load_language`.

::

    corpus = load()  # minadv.data.language.corpus: CPython's documentation, no download
    model = LanguageModel(len(corpus.vocabulary), 100, (100, 100), word_dropout=0.1)
    run = fit_language(model, corpus, regularizer=AdD(delta=0.06), epochs=10, out="runs/lm")
    run = load_language("runs/lm", corpus)
    run.test()  # {'loss': ..., 'perplexity': ...}
    " ".join(run.generate(20, prompt="the statement"))

A run's folder is that of `minadv.training.runs.folder`; its configuration also holds the vocabulary and the fingerprint
of the text, so that a run is never resumed or evaluated on another one without a word. `finetune` trains a run's best
weights on, with averaged SGD and without the regularizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Device, DeviceName, choose_device, to_device, to_host
from minadv.data.language.corpus import Corpus
from minadv.data.language.windows import Windows
from minadv.data.vocabulary import Vocabulary
from minadv.models.language.model import LanguageModel, Params
from minadv.regularizers import Plain, Regularizer
from minadv.tasks.config import build, build_recipe, describe_recipe, today
from minadv.tasks.language.config import blank, corpus_of, describe_task, expect_corpus, read_language, settings_of
from minadv.tasks.language.generation import generate
from minadv.tasks.language.task import LanguageTask, evaluate, expect_lengths
from minadv.training.loop import Recipe, weights
from minadv.training.optimizers import ASGD, SGD
from minadv.training.runs import folder as folders
from minadv.training.runs.folder import read_config, restore, run_task

__all__ = ["LanguageRun", "LanguageTask", "evaluate", "finetune", "fit_language", "load_language", "open_language"]


@dataclass(frozen=True)
class LanguageRun:
    """A trained language model, with where it came from."""

    model: LanguageModel
    params: Params = field(repr=False)  # the weights of the best validation loss, on the host
    last: Params = field(repr=False)  # those of the last step; averaged, as in the evaluations, if the recipe does that
    config: dict[str, Any] = field(repr=False)  # as it stands in the run's file, empty if there is none
    records: list[dict[str, Any]] = field(repr=False)  # one an evaluation
    step: int
    vocabulary: Vocabulary = field(repr=False)
    path: Path | None = None
    corpus: Corpus | None = field(default=None, repr=False)

    def evaluate(
        self, part: str = "test", *, columns: int = 1, last: bool = False, device: DeviceName | Device = "cpu"
    ) -> dict[str, float]:
        """Mean NLL and perplexity on a part of the run's corpus, the state carried over the whole of it."""
        if self.corpus is None:
            raise ValueError("the run was opened without its corpus: load_language(run, corpus)")
        params, tokens = to_device((self.last if last else self.params, getattr(self.corpus, part)), device)
        return evaluate(self.model, params, tokens, columns=columns, window=int(self.config.get("bptt", 70)))

    def test(self) -> dict[str, float]:
        """Mean NLL and perplexity on the test part."""
        return self.evaluate("test")

    def generate(
        self, words: int, *, prompt: str | Sequence[str] = (), temperature: float = 1.0, seed: int = 0
    ) -> Iterator[str]:
        """Words that the model puts after a prompt; see `minadv.tasks.language.generation.generate`."""
        given = prompt.split() if isinstance(prompt, str) else prompt
        how: dict[str, Any] = {"prompt": given, "temperature": temperature, "seed": seed}
        return generate(self.model, self.params, self.vocabulary, words=words, **how)


def fit_language(
    model: LanguageModel,
    corpus: Corpus,
    *,
    regularizer: Regularizer | None = None,
    recipe: Recipe | None = None,
    epochs: float | None = None,
    batch_size: int = 20,
    bptt: int = 70,
    seed: int = 0,
    dtype: str = "float32",
    random_lengths: bool = True,
    fresh: Sequence[str] = ("words",),
    every: int = 1,
    columns: int = 1,
    start: Params | None = None,
    device: DeviceName | Device = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    about: dict[str, Any] | None = None,
    workers: int | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> LanguageRun:
    """Train a language model on a corpus.

    Give a `Recipe`, or ``epochs`` (or ``steps``) and any of its fields by name; it monitors the validation loss, or
    perplexity. ``batch_size`` columns of text are read side by side, ``bptt`` words at a time, or about as many
    with ``random_lengths``. ``fresh``, ``every`` and ``columns`` are those of `LanguageTask`, ``start`` the first
    weights (default: drawn). The other arguments are those of `minadv.tasks.images.runs.fit`.
    """
    chosen = device if isinstance(device, Device) else choose_device(device)
    expect_lengths(corpus, batch_size, columns, corpus.called)
    train, valid, test = (to_device(part, chosen) for part in (corpus.train, corpus.valid, corpus.test))
    if len(corpus.vocabulary) != model.n_words:
        raise ValueError(f"n_words is {model.n_words}, expected {len(corpus.vocabulary)}, the words of the corpus")
    task = LanguageTask(
        *(model, train, valid, test, regularizer or Plain(), batch_size, bptt, seed, str(np.dtype(dtype))),
        random_lengths=random_lengths,
        fresh=tuple(fresh),
        every=every,
        columns=columns,
        start=start,
    )
    recipe = _recipe(task, recipe, epochs, options)
    path = None if out is None else Path(out)
    if path is not None and resume and (path / folders.CONFIG).exists():
        expect_corpus(read_language(path), corpus, str(path))
    described = {} if path is None else describe_task(task, corpus, chosen, about)
    state, records = run_task(
        task,
        recipe,
        config={**described, "recipe": describe_recipe(recipe), "seed": seed},
        seed=seed,
        out=path,
        resume=resume,
        today=today,
        workers=workers,
        title=type(task.regularizer).__name__,
        progress=progress,
        on_evaluation=on_evaluation,
    )
    config = {"bptt": bptt} if path is None else read_config(path)
    best, last = to_host(state.best), to_host(weights(recipe, state))
    return LanguageRun(model, best, last, config, records, state.step, corpus.vocabulary, path, corpus)


def load_language(run: str | Path, corpus: Corpus | None = None) -> LanguageRun:
    """A run from its folder, at its newest sound checkpoint; raises RunError if the corpus is not the run's own."""
    path = Path(run)
    config = read_language(path)
    recipe = build_recipe(config["recipe"])
    state = restore(path, blank(config), recipe)
    if corpus is not None:
        expect_corpus(config, corpus, str(path))
    words = tuple(config["vocabulary"].split(" "))
    vocabulary = corpus.vocabulary if corpus is not None else Vocabulary(words, np.zeros(len(words), np.int64), "lines")
    model, records = build(config["model"], "model"), folders.records(path, state.step)
    best = folders.best_weights(path, recipe, state)
    return LanguageRun(model, best, weights(recipe, state), config, records, state.step, vocabulary, path, corpus)


def open_language(run: str | Path, data_dir: str | None = None) -> LanguageRun:
    """A run with its corpus, found where the run found it, or in ``data_dir``."""
    about = read_language(Path(run))["about"]
    return load_language(run, corpus_of(about if data_dir is None else {**about, "data_dir": data_dir}))


def finetune(
    run: LanguageRun,
    corpus: Corpus,
    *,
    epochs: float | None = None,
    lr: float | None = None,
    seed: int | None = None,
    patience: int | None = None,
    **options: Any,
) -> LanguageRun:
    """Train the best weights of a run on: averaged SGD from the first step, the run's noise, no regularizer.

    The first evaluation is of these weights themselves, so that what comes out is no worse on validation data.
    ``epochs`` defaults to as many as the run made, ``lr`` to the run's own where that was made by SGD or ASGD, and to
    30, the paper's, otherwise; ``seed`` to the run's plus one. ``options`` are those of `fit_language`, with the run's
    own settings where they are not given.
    """
    if not run.config.get("recipe"):
        raise ValueError("the run has no folder, so that its settings are not known: train it with out=...")
    before, settings = build_recipe(run.config["recipe"]), {**settings_of(run.config), **options}
    seed = int(run.config["seed"]) + 1 if seed is None else seed
    names = ("batch_size", "bptt", "random_lengths")
    batch_size, bptt, random_lengths = (settings[name] for name in names)
    expect_lengths(corpus, batch_size, settings["columns"], corpus.called)
    per_epoch = Windows(corpus.train, batch_size, bptt, seed, random_lengths).per_epoch
    own = before.optimizer.lr if isinstance(before.optimizer, SGD | ASGD) else 30.0
    decay = getattr(before.optimizer, "weight_decay", 0.0)
    recipe = Recipe(
        steps=run.step if epochs is None else max(1, round(epochs * per_epoch)),
        optimizer=ASGD(own if lr is None else lr, decay, interval=None),
        clip=before.clip,
        eval_every=before.eval_every,
        checkpoint_every=before.checkpoint_every,
        eval_first=True,  # the weights of the run are the best until tuned ones are better
        monitor="loss",
        patience=patience,
    )
    if run.path is not None:  # a run that is killed before its first checkpoint begins with it again
        settings["about"] = {**(settings.get("about") or {}), "start": str(run.path.resolve())}
    return fit_language(run.model, corpus, recipe=recipe, seed=seed, start=run.params, **settings)


def _recipe(task: LanguageTask, recipe: Recipe | None, epochs: float | None, options: dict[str, Any]) -> Recipe:
    """The recipe that was given, or made of what was given."""
    if recipe is None:
        if (epochs is None) == ("steps" not in options):
            raise ValueError("give epochs, steps or a recipe, one of them: how long to train")
        steps = options.pop("steps") if epochs is None else max(1, round(epochs * task.per_epoch))
        return _monitoring(Recipe(**{"steps": steps, "monitor": "loss", **options}))
    if options or epochs is not None:
        raise ValueError(f"a recipe was given, and {sorted(options) or 'epochs'} besides: expected one or the other")
    return _monitoring(replace(recipe, monitor="loss") if recipe.monitor == Recipe.monitor else recipe)


def _monitoring(recipe: Recipe) -> Recipe:
    """The recipe; raises ValueError if it watches what a language model does not have."""
    if recipe.monitor not in ("loss", "perplexity"):
        raise ValueError(f"monitor is {recipe.monitor!r}, expected 'loss' or 'perplexity' of a language model")
    return recipe
