r"""The bag-of-words baseline: multinomial naive Bayes on the very words that the networks read.

.. math:: \log p(y \mid text) = \log p(y) + \sum_w n_w \log \frac{N_{yw} + \alpha}{\sum_{w'} (N_{yw'} + \alpha)} + const

:math:`N_{yw}` counts the word w in the training texts of class y. :math:`n_w` is how often w is in the text, or 1 if
it is there at all. Which of the two, and :math:`\alpha`, is chosen on the validation texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from minadv.backend import Array
from minadv.data.texts.documents import Corpus, Documents

SETTINGS = [(binary, alpha) for binary in (False, True) for alpha in (0.1, 0.3, 1.0, 3.0)]


def counts(documents: Documents, n_words: int, max_tokens: int | None, binary: bool) -> Any:
    """How often each document has each word among its last tokens, sparse (N, V)."""
    lengths = documents.lengths if max_tokens is None else np.minimum(documents.lengths, max_tokens)
    ends = documents.starts + documents.lengths
    places = np.concatenate([np.arange(end - n, end) for end, n in zip(ends, lengths, strict=True)])
    rows = np.repeat(np.arange(len(documents)), lengths)
    ones = np.ones(len(rows))
    found = scipy.sparse.csr_matrix((ones, (rows, documents.text[places])), shape=(len(documents), n_words))
    return (found > 0).astype(np.float64) if binary else found


def fit(found: Any, labels: Array, n_classes: int, alpha: float) -> tuple[Array, Array]:
    """The log-probabilities of words (C, V) and of classes (C,)."""
    totals = np.stack([np.asarray(found[labels == y].sum(axis=0)).reshape(-1) for y in range(n_classes)]) + alpha
    return np.log(totals / totals.sum(axis=1, keepdims=True)), np.log(np.bincount(labels, minlength=n_classes))


def wrong(corpus: Corpus, part: str, max_tokens: int | None, binary: bool, alpha: float) -> Array:
    """Which documents of a part are classified wrongly, bool (N,)."""
    V, C, documents = len(corpus.vocabulary), len(corpus.classes), getattr(corpus, part)
    assert corpus.train.labels is not None
    words, classes = fit(counts(corpus.train, V, max_tokens, binary), corpus.train.labels, C, alpha)
    scores = counts(documents, V, max_tokens, binary) @ words.T + classes
    missed: Array = scores.argmax(axis=1) != documents.labels
    return missed


def naive_bayes(corpus: Corpus, max_tokens: int | None) -> dict[str, Any]:
    """Errors in per cent in the setting of least validation error, and the test documents classified wrongly."""
    valid = {s: 100 * float(wrong(corpus, "valid", max_tokens, *s).mean()) for s in SETTINGS}
    binary, alpha = min(valid, key=lambda s: valid[s])
    missed = wrong(corpus, "test", max_tokens, binary, alpha)
    return {
        "binary": binary,
        "alpha": alpha,
        "valid": {"error": valid[binary, alpha]},
        "test": {"error": 100 * float(missed.mean())},
        "wrong": np.flatnonzero(missed).tolist(),
        "n_test": len(corpus.test),
    }
