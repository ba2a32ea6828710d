"""The Penn Treebank and WikiText-2 themselves, where the data directory holds them: nothing is downloaded."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minadv.base.trees import tree_map
from minadv.data.fetch import VARIABLE, data_root
from minadv.data.language import published
from minadv.data.language.corpus import Corpus, load
from minadv.models.language.model import LanguageModel
from minadv.tasks.language.task import evaluate
from tests.support.corpora import unigram_perplexity


def needs(name: str) -> Any:
    why = f"{name} is not in the data directory {data_root()}: set {VARIABLE}, or minadv data get {name}"
    return pytest.mark.skipif(not published.there(name), reason=why)


@pytest.fixture(scope="module")
def ptb() -> Corpus:
    return load("ptb")


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in published.PUBLISHED])
def test_the_files_are_as_published(name: str) -> None:
    found = published.check(name)
    assert [(c.file, c.sound) for c in found] == [(c.file, True) for c in found]
    assert len(found) == 4


@needs("ptb")
def test_what_the_penn_treebank_is(ptb: Corpus) -> None:
    assert (len(ptb.train), len(ptb.valid), len(ptb.test)) == (929_589, 73_760, 82_430)
    words = ptb.vocabulary
    assert (len(words), sum(words.counts)) == (10_000, 929_589)
    assert " ".join(words.decode(ptb.train[:4])) == "aer banknote berlitz calloway"
    assert words.counts[words.eos] == 42_068
    for part in (ptb.train, ptb.valid, ptb.test):
        assert set(np.unique(part)) <= set(range(10_000))


@needs("ptb")
@pytest.mark.parametrize("columns", [1, 10])
def test_a_uniform_model(columns: int, ptb: Corpus) -> None:
    """Perplexity 10,000, to the last bit of the mean NLL; 73,759 words are predicted, no multiple of 10."""
    model, params = still(10_000)
    found = evaluate(model, params, ptb.valid, columns=columns)
    assert abs(found["loss"] - math.log(10_000)) <= math.ulp(math.log(10_000))
    assert found["perplexity"] == pytest.approx(10_000, rel=3e-15)


@needs("ptb")
def test_a_unigram_model(ptb: Corpus) -> None:
    """A model whose output bias is the log of each word's share of the training text, and which has no other weight."""
    model, params = still(10_000)
    p = np.array(ptb.vocabulary.counts) / sum(ptb.vocabulary.counts)
    params = replace(params, b=np.log(p))
    found = evaluate(model, params, ptb.valid, columns=10)
    assert found["perplexity"] == pytest.approx(unigram_perplexity(ptb), rel=1e-12)
    seen = np.bincount(ptb.valid[1:], minlength=10_000) / (len(ptb.valid) - 1)
    assert found["loss"] == pytest.approx(-(seen * np.log(p)).sum(), rel=1e-12)


def still(n_words: int) -> tuple[LanguageModel, Any]:
    """A model whose weights are all zero."""
    model = LanguageModel(n_words, 1, (1,))
    return model, tree_map(np.zeros_like, model.init(np.random.default_rng(0), dtype=np.float64))
