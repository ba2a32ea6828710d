r"""What a simple method gets on the same data, in a second: the line under a run's result that says what that is worth.

Classes: always the most frequent one, and naive Bayes on the words of a text, or a linear classifier (ridge regression
on the flat sequence). Language: each word by its share of the training text.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minadv.backend import Array
from minadv.base.streams import permutation, stream

MOST = 2000  # examples that the linear classifier learns from
WIDEST = 5000  # numbers of an example that it reads


def majority(train: Array, test: Array) -> float:
    """The error in per cent of always giving the most frequent class of the training labels."""
    return float(100 * (test != np.bincount(train).argmax()).mean())


def naive_bayes(train: Any, test: Any, words: int, classes: int) -> float:
    """The error in per cent of multinomial naive Bayes on counts of words, with one added to each count.

    ``train`` and ``test`` are `minadv.data.texts.documents.Documents` with labels.
    """
    tokens, rows = _flat(train)
    counts = np.bincount(train.labels[rows] * words + tokens, minlength=classes * words).reshape(classes, words) + 1.0
    log_p = np.log(counts / counts.sum(axis=1, keepdims=True))
    prior = np.log(np.bincount(train.labels, minlength=classes) + 1.0)
    tokens, rows = _flat(test)
    scores = np.stack([np.bincount(rows, of_class[tokens], minlength=len(test)) for of_class in log_p], axis=1) + prior
    return float(100 * (scores.argmax(axis=1) != test.labels).mean())


def _flat(documents: Any) -> tuple[Array, Array]:
    """All tokens of some documents one after the other, and the number of each one's document."""
    rows = np.repeat(np.arange(len(documents)), documents.lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(documents.lengths) - documents.lengths, documents.lengths)
    return documents.text[documents.starts[rows] + within].astype(np.int64), rows


def linear(train: tuple[Array, Array], test: tuple[Array, Array], classes: int) -> float:
    """The error in per cent of ridge regression from flat examples ``(N, ...)`` to classes.

    It learns from `MOST` examples at most, and reads `WIDEST` numbers of each at most, evenly spaced.
    """
    rows = np.sort(permutation(stream(0, "baseline"), len(train[1]))[:MOST])

    def flat(x: Array) -> Array:
        wide: Array = x.reshape(len(x), -1)
        return wide[:, :: max(1, -(-wide.shape[1] // WIDEST))].astype(np.float64)

    x, y = flat(train[0][rows]), train[1][rows]
    mean = x.mean(axis=0)
    x -= mean
    gram = x @ x.T
    gram[np.diag_indices_from(gram)] += 0.01 * np.trace(gram) / len(rows) + 1e-12
    dual = np.linalg.solve(gram, np.eye(classes)[y] - np.eye(classes)[y].mean(axis=0))
    weights, bias = x.T @ dual, np.eye(classes)[y].mean(axis=0)  # (D, C)
    wrong = 0
    for first in range(0, len(test[1]), MOST):
        some = flat(test[0][first : first + MOST]) - mean
        wrong += int(((some @ weights + bias).argmax(axis=1) != test[1][first : first + MOST]).sum())
    return 100 * wrong / len(test[1])


def unigram(train: Array, test: Array, words: int) -> float:
    """The perplexity of the test words, but the first, by their shares of the training text; counts have one added."""
    counts = np.bincount(train, minlength=words) + 1.0
    return math.exp(float(-np.log(counts / counts.sum())[test[1:]].mean()))


def of_classes(name: str, simple: float, error: float, most_frequent: float) -> str:
    """The line about a classifier's error beside those of two simple methods."""
    said = f"baselines on the same test data: most frequent class {most_frequent:.2f} %, {name} {simple:.2f} %"
    return f"{said}; the run is {_compared(error, min(simple, most_frequent), 'an error')}"


def of_words(simple: float, perplexity: float) -> str:
    """The line about a language model's perplexity beside that of single words."""
    said = f"baseline on the same test data: words by their frequency, perplexity {simple:.2f}"
    return f"{said}; the run is {_compared(perplexity, simple, 'a perplexity')}"


def _compared(ours: float, theirs: float, what: str) -> str:
    if ours < theirs:
        return f"better, {what} {theirs - ours:.2f} lower"
    return "no better than that" if ours == theirs else f"worse, {what} {ours - theirs:.2f} higher"
