r"""A linear baseline for texts: logistic regression on the tf-idf of the very words that the networks read.

.. math:: x_w = \frac{(1 + \log n_w)\, \mathrm{idf}_w}{\lVert \cdot \rVert_2}, \qquad
    \mathrm{idf}_w = 1 + \log \frac{1 + N}{1 + N_w}

:math:`n_w` counts the word w among a text's last words, :math:`N_w` the training texts that have it. The weight of the
squared norm of the coefficients is chosen on the validation texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from experiments.parts.naive_bayes import counts
from minadv.backend import Array
from minadv.data.texts.documents import Corpus

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)


def features(found: Any, idf: Array) -> Any:
    """The tf-idf of counts, each text of norm 1; a text without words stays zero."""
    made = found.copy()
    made.data = 1 + np.log(made.data)
    made = made @ scipy.sparse.diags(idf)
    norms = np.sqrt(np.asarray(made.multiply(made).sum(axis=1)).reshape(-1))
    return scipy.sparse.diags(1 / np.where(norms > 0, norms, 1)) @ made


def fit(x: Any, labels: Array, classes: int, penalty: float) -> Array:
    """The coefficients (V + 1, C) of least mean NLL plus penalty; the last row is the bias, which is not penalised."""
    N, V = x.shape
    onehot = np.eye(classes)[labels]

    def loss(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(V + 1, classes)
        z = x @ w[:-1] + w[-1]
        dz = (softmax(z, axis=1) - onehot) / N
        value = -(onehot * log_softmax(z, axis=1)).sum() / N + penalty * (w[:-1] ** 2).sum() / 2
        return float(value), np.concatenate([x.T @ dz + penalty * w[:-1], dz.sum(axis=0, keepdims=True)]).reshape(-1)

    start = np.zeros((V + 1) * classes)
    coefficients: Array = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return coefficients.reshape(V + 1, classes)


def tfidf(corpus: Corpus, max_tokens: int | None) -> dict[str, Any]:
    """Errors in per cent with the penalty of least validation error."""
    V, C = len(corpus.vocabulary), len(corpus.classes)
    found = {part: counts(getattr(corpus, part), V, max_tokens, False) for part in ("train", "valid", "test")}
    idf = 1 + np.log((1 + len(corpus.train)) / (1 + np.asarray((found["train"] > 0).sum(axis=0)).reshape(-1)))
    x = {part: features(these, idf) for part, these in found.items()}

    def error(w: Array, part: str) -> float:
        return 100 * float(((x[part] @ w[:-1] + w[-1]).argmax(axis=1) != getattr(corpus, part).labels).mean())

    assert corpus.train.labels is not None
    fitted = {penalty: fit(x["train"], corpus.train.labels, C, penalty) for penalty in PENALTIES}
    best = min(PENALTIES, key=lambda penalty: error(fitted[penalty], "valid"))
    valid, test = ({"error": error(fitted[best], part)} for part in ("valid", "test"))
    return {"penalty": best, "valid": valid, "test": test}
