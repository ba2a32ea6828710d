r"""The family of language models that a classifier of texts begins with: its presets, and what is particular to it.

Settings of `minadv.fit` beside those of every family: ``batch_size`` streams of text are read side by side, ``T`` words
at a time; evaluations read about ``held_out`` tokens of the texts that validate.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np

from minadv.backend import Device, to_device
from minadv.data.texts.buckets import steps_of
from minadv.data.texts.documents import Corpus
from minadv.models.pretraining import TextLM
from minadv.regularizers import Regularizer
from minadv.tasks import fitting
from minadv.tasks.family import Family, Preset
from minadv.tasks.options import chosen
from minadv.tasks.pretrain.task import PretrainTask, evaluate, zero_states
from minadv.tasks.reports import Report, best_record
from minadv.tasks.run import Run
from minadv.tasks.text import corpus as corpora
from minadv.tasks.text.saying import describe
from minadv.tasks.text.sizes import ABOUT, CORPORA, EMBEDDINGS, SIZES, encoder_of, recipe_of
from minadv.training.clip import Clip
from minadv.training.optimizers import Adam
from minadv.training.schedules import ExponentialDecay

PAPER: dict[str, Any] = {"train_steps": 100_000, "batch": 256, "window": 400, "lr": 1e-3, "lr_decay": 0.9999}
PAPER |= {"candidates": 1024}
QUICK = {"train_steps": 2000, "batch": 32, "window": 35, "lr": 3e-3, "lr_decay": 0.9995, "candidates": 500}
VALUES = {
    "docstrings": PAPER | QUICK,
    "text": PAPER | QUICK | {"epochs": 20.0, "patience": 5},
    "imdb": PAPER,
    "elec": PAPER,
}
OPTIONS = {
    "the run": "out overwrite resume config seed seeds dtype device tf32 engine workers cuda-aware-mpi "
    "eval-every checkpoint-every patience",
    "data": "data-dir vocab-size min-count min-documents valid-share test-share",
    "model": "embed hidden layers cell dropout forget-bias candidates",
    "optimisation": "epochs train-steps lr lr-decay clip batch window held-out",
}
CHANGES = {
    "out": {"help": "folder to write (default: runs/TEXT-lm-seedN, with a number behind it if it is there)"},
    "batch": {"help": "streams of text side by side"},
}


def arguments(options: Namespace, data: Corpus) -> dict[str, Any]:
    """Arguments of `fit` from the options; without --candidates at most half of the vocabulary is candidates."""
    n_words = len(data.vocabulary)
    n = options.candidates or min(options.preset.values["candidates"], max(1, n_words // 2))
    return {
        "model": TextLM(n_words, n_candidates=n, **encoder_of(options)),
        "recipe": recipe_of(options, monitor="loss"),
        "batch_size": chosen(options, "batch"),
        "T": chosen(options, "window"),
        "held_out": options.held_out,
        "dtype": options.dtype,
    }


def fitted(options: Namespace, data: Corpus) -> dict[str, Any]:
    """The streams and windows, and the length of training, that suit a user's own texts."""
    if options.preset.data != "folder":
        return {}
    words = int(steps_of(data.train.join(data.unlabelled)).sum())
    values = options.preset.values
    batch, window = fitting.window_of(words, values["batch"], values["window"])
    batch, window = options.batch or batch, options.window or window
    return {"batch": batch, "window": window, "epochs": fitting.epochs_of(words // (batch * window), values["epochs"])}


def make_task(
    model: TextLM, data: Corpus, *, regularizer: Regularizer, seed: int, device: Device, **settings: Any
) -> tuple[PretrainTask, dict[str, Any]]:
    return PretrainTask(corpora.with_words(model, data.vocabulary, device), data, seed=seed, **settings), {}


def evaluate_run(run: Run, data: Corpus, part: str, params: Any, device: Device) -> dict[str, Any]:
    data.vocabulary.expect(run.vocabulary.fingerprint, str(run.path or "the run"))
    model, _ = corpora.place(run.model, data, device)
    params = to_device(params, device)
    return evaluate(model, params, getattr(data, part), tokens=run.config["held_out"])


def report(run: Run, device: Device) -> Report:
    best = best_record(run, "loss")
    return Report(
        f"held-out perplexity {best['valid_perplexity']:.2f} (loss {best['valid_loss']:.4f}), the best, at step "
        f"{best['step']} of {run.step}; run in {run.path}"
    )


def size(run: Run, part: str) -> str:
    return f"about {min(run.config['held_out'], int(steps_of(getattr(run.data, part)).sum())):,} words"


FAMILY = Family(
    kind="pretrain",
    model=TextLM,
    data=Corpus,
    task=PretrainTask,
    config=corpora.OfPretraining,
    described=corpora.About,
    presets={name: Preset(ABOUT[name], CORPORA[name], SIZES[name] | VALUES[name]) for name in SIZES},
    metrics=("perplexity", "loss"),
    options=OPTIONS,
    changes=CHANGES,
    methods=(),
    check=lambda options: None,
    about=corpora.about,
    arguments=arguments,
    summary=lambda plan: f"{describe(plan.data)}; {plan.task.streams.tokens:,} words to learn from",
    report=report,
    fitted=fitted,
    in_force=lambda options, arguments: {"candidates": arguments["model"].n_candidates},
    open_data=corpora.open_data,
    identify=corpora.identify,
    expect_data=corpora.expect_corpus,
    complete=corpora.with_words,
    size=size,
    settings={"batch_size": 256, "T": 400, "held_out": 100_000, "dtype": "float32"},
    recipe={
        "optimizer": Adam(1e-3),
        "step_schedule": ExponentialDecay(0.9999),
        "monitor": "loss",
        "clip": Clip(1.0, but=EMBEDDINGS),
    },
    make_task=make_task,
    evaluate=evaluate_run,
    place=corpora.place,
    carry=lambda model, config: zero_states(model, config["batch_size"], config["dtype"], like=np.zeros(0)),
    instead="train a classifier that begins with it (pretrained=, --pretrained)",
)
