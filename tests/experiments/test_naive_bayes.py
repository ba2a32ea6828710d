"""The naive Bayes that stands beside Table 2."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments.parts import naive_bayes
from minadv.data.texts.documents import Documents
from tests.support.text_tiny import OF


def test_naive_bayes_against_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.naive_bayes")
    V = len(OF.vocabulary)
    for binary, alpha in naive_bayes.SETTINGS:
        x, y = (naive_bayes.counts(d, V, 4, binary) for d in (OF.train, OF.test))
        theirs = sklearn.MultinomialNB(alpha=alpha).fit(x, OF.train.labels).predict(y)
        np.testing.assert_array_equal(naive_bayes.wrong(OF, "test", 4, binary, alpha), theirs != OF.test.labels)
    dense = naive_bayes.counts(OF.test, V, 3, False).toarray()
    np.testing.assert_array_equal(dense[5], np.bincount(OF.test[5][-3:], minlength=V))
    found = naive_bayes.naive_bayes(OF, None)
    assert found["test"]["error"] == pytest.approx(100 * len(found["wrong"]) / len(OF.test))
    errors = [naive_bayes.wrong(OF, "valid", None, *s).mean() for s in naive_bayes.SETTINGS]
    assert found["valid"]["error"] == pytest.approx(100 * min(errors))


def test_naive_bayes_reads_what_the_networks_read() -> None:
    """Texts that all end in the same word: whoever reads only that gives all of them one class."""
    text = np.tile([2, 2, 4, 3, 3, 4], 6)
    part = Documents(text, np.arange(0, 36, 3), np.full(12, 3), np.tile([0, 1], 6))
    of = replace(OF, train=part, valid=part, test=part)
    assert naive_bayes.naive_bayes(of, None)["wrong"] == []
    assert len(naive_bayes.naive_bayes(of, 1)["wrong"]) == 6


def test_counts_of_documents_side_by_side() -> None:
    documents = Documents(np.array([5, 5, 3, 3, 5]), np.array([0, 2]), np.array([2, 3]))
    dense = naive_bayes.counts(documents, 6, None, False).toarray()
    np.testing.assert_array_equal(dense[:, [3, 5]], [[0, 2], [2, 1]])
    np.testing.assert_array_equal(naive_bayes.counts(documents, 6, 2, True).toarray()[:, [3, 5]], [[0, 1], [1, 1]])
