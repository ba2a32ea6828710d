"""The corpus without download: CPython's own documentation, split by topic."""

import sys
from collections import Counter

import numpy as np
import pytest

from minadv.base.errors import DataError
from minadv.data.language import topics
from minadv.data.language.corpus import load
from tests.support.corpora import unigram_perplexity

PAGE = """The "for" statement
*******************

The "for" statement is used to
iterate: **x**, isn't it?

   for_stmt ::= "for" target
\x20\x20
   >>> list(...)
"""


def test_paragraphs_and_tokens() -> None:
    found = topics.paragraphs(PAGE)
    assert found == [
        'The "for" statement',
        'The "for" statement is used to iterate: **x**, isn\'t it?',
        'for_stmt ::= "for" target',
        ">>> list(...)",
    ]
    assert [" ".join(topics.tokens(paragraph)) for paragraph in found] == [
        'the " for " statement',
        'the " for " statement is used to iterate : ** x ** , isn\'t it ?',
        'for_stmt :: = " for " target',
        ">>> list ( ... )",
    ]
    assert topics.paragraphs(" \n\n====\n\n") == []
    assert topics.tokens("Built-in __Init__, 3.14 – “Ünïcode”—") == [
        "built-in", "__init__", ",", "3", ".", "14", "–", "“", "ünïcode", "”", "—"
    ]  # fmt: skip


def test_a_paragraph_is_kept_once_in_the_shortest_topic() -> None:
    pages = {"long": "shared\n\nonly long\n\nmore of it\n\nonly long", "a short": "own\n\nshared", "b": "own\n\nshared"}
    kept = topics.distinct(pages)
    assert kept == {"b": [], "a short": ["own", "shared"], "long": ["only long", "more of it"]}


def test_a_topic_stays_in_its_part() -> None:
    """Pinned: results of different versions must be comparable."""
    where = {name: topics.part_of(name) for name in ("assert", "types", "assignment", "import", "compound", "strings")}
    assert where == {
        "assert": "train",
        "types": "train",
        "assignment": "valid",
        "import": "valid",
        "compound": "test",
        "strings": "test",
    }
    shares = Counter(topics.part_of(f"topic {n}") for n in range(4000))
    assert [round(shares[part] / 4000, 2) for part in ("train", "valid", "test")] == pytest.approx(
        [0.8, 0.1, 0.1], abs=0.02
    )


def test_no_topic_and_no_paragraph_is_in_two_parts() -> None:
    pages = pytest.importorskip("pydoc_data.topics").topics
    parts = topics.split(pages)
    assert list(parts) == ["train", "valid", "test"]
    assert sorted(name for part in parts.values() for name in part) == sorted(pages)
    kept = [paragraph for part in parts.values() for topic in part.values() for paragraph in topic]
    assert len(kept) == len(set(kept))
    assert set(kept) == {paragraph for page in pages.values() for paragraph in topics.paragraphs(page)}


def test_the_default_corpus() -> None:
    pytest.importorskip("pydoc_data.topics")
    corpus = load()
    words = corpus.vocabulary
    assert corpus.name == "pydoc"
    assert 50_000 < len(corpus.train) < 120_000
    assert 4_000 < len(corpus.valid) < 0.25 * len(corpus.train)
    assert 4_000 < len(corpus.test) < 0.25 * len(corpus.train)
    assert 1_500 < len(words) < 5_000
    assert {"the", "statement", "<unk>", "<eos>", ".", "__init__"} <= set(words.words)
    assert min(words.counts) >= 2
    for part in (corpus.train, corpus.valid, corpus.test):
        assert np.mean(part == words.unk) < 0.15
        assert part[-1] == words.eos
        assert int(part.min()) >= 0 and int(part.max()) < len(words)
    np.testing.assert_array_equal(np.bincount(corpus.train, minlength=len(words)), words.counts)
    assert load("pydoc").fingerprint == corpus.fingerprint
    assert load("pydoc", "somewhere").fingerprint == corpus.fingerprint
    assert len(load("pydoc", min_count=5).vocabulary) < len(words)
    for name in ("valid", "test"):
        assert 50 < unigram_perplexity(corpus, name) < len(words)


def test_a_python_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DataError, match=r"this Python comes without pydoc_data\.topics"):
        load()
