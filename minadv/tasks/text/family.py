r"""The family of texts that are classified, with and without labels: its presets, and what is particular to it.

Settings of `minadv.fit` beside those of every family: ``pretrained`` is a run of a language model of the same texts
(`minadv.tasks.pretrain.family`), or its folder, with the same vocabulary and sizes; ``take="embeddings"`` begins with
its embeddings and fresh cells. The last ``max_tokens`` tokens of a text are read (None: all). ``batch_size`` labelled
and ``unlabelled_size`` unlabelled texts make a step.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minadv import masks
from minadv.backend import Array, Device, to_device, to_host
from minadv.base.streams import permutation, stream
from minadv.data.texts.buckets import in_length_order, steps_of
from minadv.data.texts.documents import Corpus, Documents
from minadv.layers import log_softmax
from minadv.models.text import TextClassifier
from minadv.regularizers import Regularizer
from minadv.tasks import fitting, methods
from minadv.tasks.attack import Target, choose_budgets, right_answers, units_flipped
from minadv.tasks.family import Family, Preset
from minadv.tasks.options import chosen
from minadv.tasks.reports import error_report
from minadv.tasks.run import Run, digest
from minadv.tasks.schema import read_config
from minadv.tasks.text import corpus as corpora
from minadv.tasks.text.pretrained import Take, weights_of
from minadv.tasks.text.reading import evaluate, load_of, read, text_batch
from minadv.tasks.text.saying import baseline, summary
from minadv.tasks.text.sizes import ABOUT, CORPORA, EMBEDDINGS, OF_MODEL, SIZES, encoder_of, recipe_of
from minadv.tasks.text.task import TextTask, expect_regularizer
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.optimizers import Adam
from minadv.training.runs.folder import RunError, kind_of
from minadv.training.schedules import ExponentialDecay

PAPER: dict[str, Any] = {"max_tokens": None, "truncate": 400, "train_steps": 15_000, "batch": 64}
PAPER |= {"lr": 5e-4, "lr_decay": 0.9998, "variant": "paper", "norm": 5.0}
QUICK = {"max_tokens": 100, "truncate": 0, "train_steps": 600, "batch": 32, "lr": 5e-3, "lr_decay": 0.999}
OWN = {"batch": 64, "epochs": 30.0, "lr": 2e-3, "lr_decay": 0.9995, "variant": "minadv", "patience": 8}
VALUES = {
    "docstrings": PAPER | QUICK | {"variant": "minadv"},
    "text": PAPER | OWN,
    "imdb": PAPER,
    "elec": PAPER | {"train_steps": 10_000},
}


def preset(name: str) -> Preset:
    told = {size: f"{SIZES[name][size]}, or that of --pretrained" for size in ("embed", "hidden")}
    if CORPORA[name] not in ("imdb", "elec"):
        told["norm"] = "0.0156 for each number that is perturbed"
    if CORPORA[name] == "folder":
        told |= {"batch": "64, fewer for few texts", "epochs": "30, fewer for many texts"}
    return Preset(ABOUT[name], CORPORA[name], SIZES[name] | VALUES[name], told)


OPTIONS = {
    "the run": "out overwrite resume config seed seeds dtype device tf32 engine workers cuda-aware-mpi "
    "eval-every checkpoint-every patience "
    "watch-adversary",
    "data": "data-dir vocab-size min-count min-documents valid-share test-share max-tokens",
    "model": "embed hidden layers cell dropout forget-bias pretrained take relu output truncate",
    "method": "method p delta adv-steps search stages reselect runner-up borrow swaps tries variant rule scale init "
    "noise distance stop-base norm weight",
    "optimisation": "epochs train-steps lr lr-decay clip batch unlabelled ema",
}
CHANGES: dict[str, dict[str, Any]] = {
    "method": {"help": "the regularizer; add: adversarial dropout; last: the same on the last hidden state"},
    "delta": {
        "default": 0.04,
        "help": "share of units that may flip (add, last) (default: 0.04, three units of a small layer)",
    },
    "rule": {"help": "rule by which units are flipped (add) (default: the variant's)"},
    "scale": {"help": "scale of a binary mask (add, last) (default: the variant's)"},
    "distance": {
        "help": "distance between the two predictions (default: the variant's for add and last, js for el, fd, "
        "pi, skl for rdrop)",
    },
    "init": {"help": "where the search starts; base: with --noise independent (default: the variant's)"},
    "weight": {"default": 1.0},
    "batch": {"help": "labelled texts a step"},
}


def before(options: Namespace) -> dict[str, Any] | None:
    """The configuration of the language model that a classifier is to begin with, if it is to begin with one."""
    if options.pretrained is None:
        return None
    config = read_config(Path(options.pretrained))
    if kind_of(config) != "pretrain":
        said = f"{options.pretrained} is a run of the kind {kind_of(config)!r}"
        raise ValueError(f"{said}, expected one of minadv pretrain")
    return config


def model_of(options: Namespace, n_words: int, n_classes: int) -> TextClassifier:
    more = {"n_classes": n_classes, "n_relu": options.relu, "output": options.output}
    return TextClassifier(
        n_words, truncate=chosen(options, "truncate") or None, **more, **encoder_of(options, before(options))
    )


def check(options: Namespace) -> None:
    if options.pretrained is None and options.take != options.defaults["take"]:
        raise ValueError(f"--take {options.take} is about a language model: give one with --pretrained RUN")
    model = model_of(options, 2, 2)
    expect_regularizer(model, methods.regularizer(options, model))


def fitted(options: Namespace, data: Corpus) -> dict[str, Any]:
    """What a preset has for texts of these numbers and lengths; those of the paper have their own."""
    if options.preset.data in ("imdb", "elec"):
        return {}
    steps = steps_of(data.train, max_tokens=chosen(options, "max_tokens")).mean()
    norm = {"norm": fitting.norm_of(float(steps), encoder_of(options, before(options))["n_embedding"])}
    if options.preset.data != "folder":
        return norm
    batch = options.batch or fitting.batch_of(len(data.train), options.preset.values["batch"])
    epochs = fitting.epochs_of(len(data.train) // batch, options.preset.values["epochs"])
    return {**norm, "batch": batch, "epochs": epochs}


def arguments(options: Namespace, data: Corpus) -> dict[str, Any]:
    batch = min(chosen(options, "batch"), len(data.train))
    ema = EMA(options.ema, warm=True) if options.ema else None
    model = model_of(options, len(data.vocabulary), len(data.classes))
    return {
        "model": model,
        "regularizer": methods.regularizer(options, model),
        "recipe": recipe_of(options, weight=options.weight, ema=ema),
        "pretrained": options.pretrained,
        "take": options.take,
        "batch_size": batch,
        "unlabelled_size": batch if options.unlabelled is None else options.unlabelled,
        "max_tokens": chosen(options, "max_tokens"),
        "dtype": options.dtype,
    }


def in_force(options: Namespace, arguments: dict[str, Any]) -> dict[str, Any]:
    """Sizes, which may be those of a language model, and batches, which are no larger than the data."""
    sizes = {name: getattr(arguments["model"], field) for name, field in OF_MODEL.items()}
    batches = {"batch": arguments["batch_size"], "unlabelled": arguments["unlabelled_size"]}
    return {**sizes, **batches, "take": None if options.pretrained is None else options.take}


def make_task(
    model: TextClassifier,
    data: Corpus,
    *,
    regularizer: Regularizer,
    seed: int,
    device: Device,
    pretrained: Run | str | Path | None,
    take: Take,
    dtype: str,
    **sizes: Any,
) -> tuple[TextTask, dict[str, Any]]:
    began = None
    if pretrained is not None:
        began = weights_of(pretrained, model, data.vocabulary, dtype=dtype, seed=seed, take=take)
    ready = corpora.with_words(model, data.vocabulary, device)
    task = TextTask(ready, data, regularizer, seed=seed, dtype=dtype, encoder=began, **sizes)
    return task, {"pretrained": None if began is None else digest(began)}


def evaluate_run(run: Run, data: Corpus, part: str, params: Any, device: Device) -> dict[str, Any]:
    data.vocabulary.expect(run.vocabulary.fingerprint, str(run.path or "the run"))
    if tuple(data.classes) != run.classes:
        raise RunError(f"the corpus has the classes {data.classes}, expected those of the run: {run.classes}")
    model, _ = corpora.place(run.model, data, device)
    params = to_device(params, device)
    return evaluate(model, params, getattr(data, part), max_tokens=run.config["max_tokens"])


def encode(run: Run, texts: Sequence[str]) -> Documents:
    """Texts in the numbers of the run's vocabulary; raises ValueError for one without words."""
    found = [run.vocabulary.encode(text) for text in texts]
    for n, tokens in enumerate(found, 1):
        if len(tokens) == 0:
            raise ValueError(f"text {n} is empty, expected at least one word")
    lengths = np.array([len(tokens) for tokens in found], dtype=np.int64)
    return Documents(np.concatenate([np.zeros(0, np.int32), *found]), np.cumsum(lengths) - lengths, lengths)


def predict(run: Run, texts: Sequence[str]) -> Array:
    """Class probabilities (N, C) of texts."""
    documents, p = encode(run, texts), np.empty((len(texts), len(run.classes)))
    for rows, _, logits in read(run.model, run.params, documents, max_tokens=run.config["max_tokens"]):
        p[rows] = np.exp(to_host(log_softmax(logits)))
    return p


def answers(run: Run, part: str) -> tuple[Array, Array]:
    """The true classes (N,) of the texts of a part, and those that the run gives them."""
    documents: Documents = getattr(run.data, part)
    assert documents.labels is not None
    found = np.empty(len(documents), dtype=np.int64)
    for rows, _, logits in read(run.model, run.params, documents, max_tokens=run.config["max_tokens"]):
        found[rows] = to_host(logits.argmax(axis=-1))
    return to_host(documents.labels), found


def attack(
    run: Run,
    n: int,
    *,
    delta: list[float] | None = None,
    budget: list[int] | None = None,
    at_once: int | None = None,
    seed: int = 0,
) -> Target:
    """The target of an attack on n test texts, or all if these are fewer, at random: the texts are sorted by class.

    They are run in groups of like length, or, if ``at_once`` is n, as one batch.
    """
    order = permutation(stream(seed, "some texts"), len(run.data.test))
    documents, most = run.data.test.take(np.sort(order[:n])), run.config["max_tokens"]
    groups, tokens = [np.arange(len(documents))], steps_of(documents, max_tokens=most)
    if at_once is None:
        groups = list(in_length_order(tokens, 100))
    budgets = choose_budgets(run, delta, budget, share=lambda H: masks.budget(max(0.04, 1 / H), H))
    return Target(
        run,
        budgets,
        [(text_batch(run.model, documents, rows, max_tokens=most), None) for rows in groups],
        f"{len(documents)} test texts, {units_flipped(run, budgets)}",
        "accuracy %",
        count=len,
        score=right_answers(run),
        result=lambda mean: 100 * mean,
        number="10.4f",
        load=load_of(run.model, str(run.params.encoder.E.dtype), float(tokens.sum()), len(documents), padded=True),
    )


FAMILY = Family(
    kind="text",
    model=TextClassifier,
    data=Corpus,
    task=TextTask,
    config=corpora.OfClassifier,
    described=corpora.About,
    presets={name: preset(name) for name in SIZES},
    metrics=("error", "loss"),
    options=OPTIONS,
    changes=CHANGES,
    methods=("none", "at", "vat", "vd", "el", "fd", "pi", "rdrop", "add", "last", "add+vat"),
    check=check,
    about=lambda options: corpora.about(options, before(options)),
    arguments=arguments,
    summary=summary,
    fitted=fitted,
    in_force=in_force,
    baseline=baseline,
    report=error_report,
    open_data=corpora.open_data,
    identify=corpora.identify,
    expect_data=corpora.expect_corpus,
    complete=corpora.with_words,
    size=lambda run, part: f"{len(getattr(run.data, part)):,} texts",
    settings={"batch_size": 64, "unlabelled_size": 64, "max_tokens": None, "dtype": "float32"}
    | {"pretrained": None, "take": "all"},
    begins_with="pretrained",
    recipe={
        "optimizer": Adam(5e-4),
        "step_schedule": ExponentialDecay(0.9998),
        "ema": EMA(0.999, warm=True),
        "clip": Clip(1.0, but=EMBEDDINGS),
    },
    make_task=make_task,
    evaluate=evaluate_run,
    place=corpora.place,
    predict=predict,
    answers=answers,
    attack=attack,
    figures=("curves", "influence"),
)
