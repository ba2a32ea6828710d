r"""Training and testing one classifier of texts, which begins with a language model that all jobs of a task share."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import reporting
from experiments.parts.compared.plan import SEARCHES, SUMS, VAT_NORM, Job, Task
from experiments.parts.naive_bayes import naive_bayes
from experiments.parts.tfidf import tfidf
from minadv import layers
from minadv.backend import Array
from minadv.base.streams import permutation, stream
from minadv.data.texts.documents import Corpus
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Plain, RDrop, Regularizer, Sum
from minadv.tasks.fit import fit
from minadv.tasks.run import digest
from minadv.tasks.text.corpus import fingerprint as of_corpus
from minadv.tasks.text.corpus import open_data
from minadv.tasks.text.pretrained import weights_of
from minadv.tasks.text.reading import read
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam
from minadv.training.runs.folder import read_config
from minadv.training.schedules import ExponentialDecay, RampDown, RampUp


def regularizer(method: str, strength: float, weight: float = 1.0) -> Regularizer:
    """The regularizer of a method at a strength: p of random masks, δ of an adversary, the norm of AT and VAT.

    A sum of AdD and VAT has VAT with its own weight of 1 and the norm of `VAT_NORM`; ``weight`` is that of AdD.
    """
    if method in SUMS:
        return Sum((regularizer(SUMS[method], strength), VAT(VAT_NORM)), weights=(weight, 1.0))
    if method == "AdD last":
        return AdD(delta=strength, search=SEARCHES["AdD K=1"], sites=("readout",))
    if method in SEARCHES:
        return AdD(delta=strength, search=SEARCHES[method])
    kinds: dict[str, Any] = {"AT": AT, "VAT": VAT}
    if method in kinds:
        perturbed: Regularizer = kinds[method](strength)
        return perturbed
    random: dict[str, Any] = {"VD": VD, "EL": EL, "FD": FD, "RDrop": RDrop}
    made: Regularizer = Plain() if method == "none" else random[method](p=strength)
    return made


def _about(task: Task, data_dir: str | None) -> dict[str, Any]:
    """Which texts a task reads, and which of their words it keeps."""
    cut = {"vocab_size": task.size["vocab_size"], "min_count": 2, "min_documents": 1, "valid_share": 0.15}
    return {"task": task.name, "corpus": task.size["corpus"], "data_dir": data_dir, **cut}


@lru_cache(maxsize=1)
def _loaded(task: Task, data_dir: str | None) -> Corpus:
    return open_data(_about(task, data_dir))


@lru_cache(maxsize=1)
def _fingerprint(task: Task, data_dir: str | None) -> str:
    return str(of_corpus(_loaded(task, data_dir))["fingerprint"])[:16]


def fingerprint(job: Job) -> str:
    """What tells the task's texts from others."""
    return _fingerprint(job.task, job.data_dir)


def data_of(job: Job) -> Corpus:
    """The texts of a job: the seed draws those with a label and those that validate; the others have none."""
    size, whole = job.task.size, _loaded(job.task, job.data_dir)
    rng = stream(job.seed, "examples")
    rows = permutation(rng, len(whole.train))
    train, rest = (whole.train.take(np.sort(some)) for some in np.split(rows, [size["train"]]))
    valid = whole.valid.take(np.sort(permutation(rng, len(whole.valid))[: size["valid"]]))
    return replace(whole, train=train, valid=valid, unlabelled=rest.join(whole.unlabelled))


def _encoder(task: Task, corpus: Corpus) -> dict[str, Any]:
    size = task.size
    sizes = {"n_words": len(corpus.vocabulary), "n_embedding": size["n_embedding"], "n_hidden": size["n_hidden"]}
    return {**sizes, "embedding_dropout": size["dropout"], "forget_bias": 2.0}


def _language_model(task: Task, root: Path) -> Path:
    return root / task.name / "lm" / "all"


WORKERS = 2
"""The workers of the language model: their number decides the order of sums, so that of others it is another model."""


def prepare(task: Task, root: Path, data_dir: str | None) -> str:
    """Train the language model that all jobs begin with, to its end or from where it was stopped; returns its digest.

    The digest is that of the weights that a classifier takes from it, which the configuration of a run names.
    """
    folder = _language_model(task, root)
    reporting.begins(folder)
    run = pretrain(task, data_dir, out=folder, resume=True, workers=WORKERS)
    corpus = _loaded(task, data_dir)
    model = TextClassifier(**_encoder(task, corpus), n_classes=len(corpus.classes))
    return digest(weights_of(run, model, corpus.vocabulary, dtype="float32", seed=0))


def began(job: Job) -> str | None:
    """The digest of the weights that a job's run was begun with."""
    found: str | None = read_config(job.folder).get("pretrained")
    return found


def eval_every(task: Task) -> int:
    """After how many steps the language model is evaluated."""
    return int(max(1, task.size["lm_steps"] // 6))


def pretrain(task: Task, data_dir: str | None, **how: Any) -> Any:
    """The run of the language model; ``how`` are further options of `fit`, fewer ``steps`` among them to time them."""
    corpus, about, size = _loaded(task, data_dir), _about(task, data_dir), task.size
    return fit(
        TextLM(**_encoder(task, corpus), n_candidates=size["candidates"]),
        corpus,
        batch_size=size["lm_batch"],
        T=size["lm_window"],
        optimizer=Adam(3e-3),
        step_schedule=ExponentialDecay(0.05 ** (1 / size["lm_steps"])),
        about=about,
        **{"steps": size["lm_steps"], "eval_every": eval_every(task), **how},
    )


def recipe(job: Job, n_train: int) -> Recipe:
    """Adam, a learning rate that falls over the last quarter, a regularizer that grows over the first fifth.

    Weights are averaged for evaluations, as in the paper; the average forgets within a third of an epoch.
    """
    epochs, per_epoch = job.task.epochs * job.longer, n_train // job.task.batch
    return Recipe(
        steps=round(epochs * per_epoch),
        optimizer=Adam(job.lr),
        clip=Clip(1.0),
        lr_schedule=RampDown(epochs, epochs / 4),
        weight=1.0 if job.method in SUMS else job.weight,
        weight_schedule=RampUp(epochs / 5),
        ema=EMA(1 - 3 / max(4, per_epoch), warm=True),
    )


def steps_of(job: Job) -> int:
    """The steps of a job's training."""
    return recipe(job, job.task.size["train"]).steps


def train(
    job: Job, on_evaluation: Any, steps: int | None = None, eval_every: int | None = None, **where: Any
) -> tuple[Any, dict[str, Any], Array]:
    """The run of a job, its test result at the best validation error, and its probabilities of the test texts.

    With ``steps``, which times so many and an evaluation every ``eval_every``, it begins without the language model.
    """
    corpus, task = data_of(job), job.task
    made = recipe(job, len(corpus.train))
    if steps is not None:
        made = replace(made, steps=steps, eval_every=eval_every)
    run = fit(
        TextClassifier(**_encoder(task, corpus), n_classes=len(corpus.classes)),
        corpus,
        regularizer=regularizer(job.method, job.strength, job.weight),
        recipe=made,
        pretrained=_language_model(task, job.root) if steps is None else None,
        batch_size=task.batch,
        unlabelled_size=task.batch,
        max_tokens=task.size["max_tokens"],
        seed=job.draws,
        device=job.device,
        workers=1,  # several networks are trained side by side
        progress=False,
        on_evaluation=on_evaluation,
        about=_about(task, job.data_dir),
        **where,
    )
    if steps is not None:
        return run, {}, np.zeros(0)
    p = np.zeros((len(corpus.test), len(corpus.classes)))
    for rows, _, logits in read(run.model, run.params, corpus.test, max_tokens=task.size["max_tokens"]):
        p[rows] = np.exp(layers.log_softmax(logits))
    return run, {"error": error_of(p, job)}, p


def error_of(probabilities: Array, job: Job) -> float:
    """The test error in per cent of given probabilities (N, C)."""
    return 100 * float((probabilities.argmax(axis=1) != data_of(job).test.labels).mean())


def baselines(task: Task, data_dir: str | None) -> dict[str, list[float]]:
    """The test errors, a seed, of what needs no network, on the same labelled texts; settings by validation texts."""
    jobs = [Job(task, "none", 0.0, 0.0, 0.0, seed, "final", Path(), data_dir) for seed in range(task.seeds)]
    most = task.size["max_tokens"]
    found = [(naive_bayes(data, most), tfidf(data, most)) for data in map(data_of, jobs)]
    named = zip(("naive Bayes", "logistic regression on tf-idf"), zip(*found, strict=True), strict=True)
    return {name: [one["test"]["error"] for one in by_seed] for name, by_seed in named}
