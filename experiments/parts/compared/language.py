r"""Training and testing one language model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from experiments.parts.compared.plan import SEARCHES, Job
from minadv.backend import Array
from minadv.data.language import corpus
from minadv.data.language.corpus import Corpus
from minadv.data.language.windows import Windows
from minadv.models.language.model import LanguageModel
from minadv.regularizers import EL, FD, VD, AdD, Plain, RDrop, Regularizer
from minadv.searches import Greedy, Reselect
from minadv.tasks.fit import fit
from minadv.tasks.language.task import metrics, read_whole
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import SGD
from minadv.training.schedules import RampDown


def regularizer(method: str, strength: float) -> Regularizer:
    """The regularizer of a method at a strength, in the paper's form for language models.

    FD compares logits. The second pass of every method draws all noise anew, as published FD and R-Drop do: a method
    whose passes shared it would average over less of it. The searches that take steps begin at the base mask.
    """
    if method in SEARCHES:
        search = SEARCHES[method]
        if isinstance(search, Greedy | Reselect):
            search = replace(search, start="base")
        return AdD(delta=strength, search=search, share_noise=False)
    if method == "FD":
        return FD(p=strength, distance="logit2", share_noise=False)
    if method in ("EL", "RDrop"):
        return (EL if method == "EL" else RDrop)(p=strength, share_noise=False)
    return Plain() if method == "none" else VD(p=strength)


def data_of(job: Job) -> Corpus:
    """The text of a job, whichever the seed; to learn from, the first words alone where the task says how many."""
    text = corpus.load(job.task.size["corpus"], job.data_dir)
    return replace(text, train=text.train[: job.task.size.get("words")])


def fingerprint(job: Job) -> str:
    """What tells the task's text from another."""
    return data_of(job).fingerprint[:16]


def model_of(job: Job, text: Corpus) -> LanguageModel:
    """A model of one layer with a tied embedding, and the dropouts that all methods have, `none` too."""
    size = job.task.size
    words, inputs, between, outputs, U = size["dropouts"]
    return LanguageModel(
        len(text.vocabulary),
        size["n_hidden"],
        (size["n_hidden"],),
        word_dropout=words,
        input_dropout=inputs,
        hidden_dropout=between,
        output_dropout=outputs,
        dropconnect=U,
    )


def recipe(job: Job, text: Corpus) -> Recipe:
    """SGD at a learning rate that falls from three tenths of the training on, to 1/130 of itself at four fifths."""
    task, epochs = job.task, job.task.epochs * job.longer
    per_epoch = Windows(text.train, task.batch, task.size["bptt"], job.draws).per_epoch
    return Recipe(
        steps=round(epochs * per_epoch),
        optimizer=SGD(job.lr, weight_decay=1.2e-6),
        clip=Clip(0.25),
        lr_schedule=RampDown(1.1 * epochs, 0.8 * epochs),
        weight=job.weight,
        monitor="loss",
    )


def steps_of(job: Job) -> int:
    """The steps of a job's training."""
    return recipe(job, data_of(job)).steps


def train(
    job: Job, on_evaluation: Any, steps: int | None = None, eval_every: int | None = None, **where: Any
) -> tuple[Any, dict[str, Any], Array]:
    """The run of a job, its test result at the best validation loss, and its probability of each word of the test."""
    text, size = data_of(job), job.task.size
    model, made = model_of(job, text), recipe(job, text)
    if steps is not None:
        made = replace(made, steps=steps, eval_every=eval_every)
    run = fit(
        model,
        text,
        regularizer=regularizer(job.method, job.strength),
        recipe=made,
        batch_size=job.task.batch,
        bptt=size["bptt"],
        seed=job.draws,
        every=size["every"],
        columns=size["columns"],
        device=job.device,
        workers=1,  # several networks are trained side by side
        progress=False,
        on_evaluation=on_evaluation,
        about={"task": "lm", "corpus": size["corpus"], "data_dir": job.data_dir, "min_count": None},
        **where,
    )
    found = read_whole(model, run.params, text.test, columns=size["columns"], window=size["bptt"])
    return run, metrics(found), np.exp(-found.words)


def error_of(probabilities: Array, job: Job) -> float:
    """The test perplexity of given probabilities ``(N,)`` of its words."""
    return float(np.exp(-np.log(probabilities.astype(np.float64)).mean()))
