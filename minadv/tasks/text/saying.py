r"""Lines about classifiers of texts: what was found of the texts, and what a simple method gets on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from minadv.data.texts.documents import Corpus
from minadv.tasks import baselines, fitting


def describe(corpus: Corpus) -> str:
    """What was found: texts by part and class, their lengths, the vocabulary, and how much of other texts it lacks."""
    train, unk = corpus.train, corpus.vocabulary.unk
    assert train.labels is not None
    counts = np.bincount(train.labels, minlength=len(corpus.classes)).tolist()
    classes = ", ".join(f"{name} {n:,}" for name, n in list(zip(corpus.classes, counts, strict=True))[:12])
    sizes = ", ".join(f"{len(getattr(corpus, p)):,} {p}" for p in ("train", "valid", "test", "unlabelled"))
    words = np.concatenate([corpus.valid[n] for n in range(len(corpus.valid))])
    return (
        f"{corpus.name}: {sizes} texts; {len(corpus.classes)} classes ({classes}{', ...' * (len(counts) > 12)}); "
        f"{train.lengths.min():,} to {train.lengths.max():,} words a text, half have {int(np.median(train.lengths)):,} "
        f"or fewer; vocabulary {len(corpus.vocabulary):,}, unknown to it {(words == unk).mean():.1%} of the validation "
        "words"
    )


def summary(plan: Any) -> str:
    """What was found, and of a user's own texts whether they are few."""
    few = fitting.few(len(plan.data.train), "texts") if plan.data.name == "folder" else ""
    return describe(plan.data) + few


def baseline(run: Any, error: float) -> str:
    """A line: the errors of the most frequent class and of naive Bayes on the run's test texts."""
    data, words = run.data, len(run.data.vocabulary)
    simple = baselines.naive_bayes(data.train, data.test, words, len(data.classes))
    most_frequent = baselines.majority(data.train.labels, data.test.labels)
    return baselines.of_classes("naive Bayes on words", simple, error, most_frequent)
