"""A small made-up text and language models that train on it in a moment."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from minadv.data.language.corpus import Corpus, from_lines
from minadv.models.language.model import LanguageModel
from minadv.regularizers import EL, FD, VD, AdD, Pi, Plain, RDrop, Regularizer
from minadv.searches import Greedy, Reselect
from minadv.tasks.language.task import LanguageTask

NOISY = {
    "word_dropout": 0.2,
    "input_dropout": 0.2,
    "hidden_dropout": 0.2,
    "output_dropout": 0.2,
    "dropconnect": 0.2,
}
AT_BASE = Greedy(start="base", keep="last")
SECOND: dict[str, Any] = {"search": AT_BASE, "share_noise": False}  # the paper's: words are dropped anew in the second

REGULARIZERS: dict[str, Regularizer] = {
    "none": Plain(),
    "VD": VD(p=0.3),
    "EL": EL(p=0.3),
    "FD": FD(p=0.3, distance="logit2"),
    "Pi": Pi(p=0.3, share_noise=False),
    "RDrop": RDrop(p=0.3),
    "AdD": AdD(delta={"layer0": 0.5, "layer1": 0.4}, search=replace(AT_BASE, K=2), share_noise=False),
    "AdD reselect": AdD(budgets=2, search=Reselect()),
}


def lines(n: int, seed: int = 0) -> list[str]:
    """Sentences of a tiny grammar."""
    rng = np.random.default_rng(seed)
    nouns, verbs = ("cat", "dog", "bird", "<unk>"), ("sees", "likes", "fears")
    return [f"the {rng.choice(nouns)} {rng.choice(verbs)} a {rng.choice(nouns)}" for _ in range(n)]


def corpus(n: int = 60) -> Corpus:
    return from_lines("toy", {"train": lines(n), "valid": lines(9, 1), "test": lines(11, 2)})


def model(text: Corpus, **options: Any) -> LanguageModel:
    return LanguageModel(len(text.vocabulary), 5, (6, 5), **options)


def task(put: Callable[[Any], Any], regularizer: Regularizer | None = None, **options: Any) -> LanguageTask:
    """Everything on, in float64 unless it says otherwise."""
    text = corpus()
    noise = options.pop("noise", {**NOISY, "alpha": 0.5, "beta": 0.5})
    parts = (put(part) for part in (text.train, text.valid, text.test))
    return LanguageTask(
        model(text, **noise),
        *parts,
        regularizer or Plain(),
        **{"batch_size": 4, "bptt": 7, "dtype": "float64", **options},
    )
