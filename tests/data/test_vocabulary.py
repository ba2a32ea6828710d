"""Words, and the vocabulary that numbers them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.base.errors import DataError
from minadv.data.texts.counting import EOS_TOKEN, UNK_TOKEN, Cut, Numbers, choose_words
from minadv.data.vocabulary import SPECIAL, SPLITS, Vocabulary, words

FOUND = ["the", "film", "The", "zoo", "ape", "<eos>", "once"]
COUNTS = np.array([9, 4, 4, 2, 2, 3, 1])


def small(**changed: Any) -> Vocabulary:
    built = choose_words(FOUND, COUNTS, 5, cut=Cut(min_count=2), split="words")
    return replace(built, **changed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's a GREAT film!", ["It's", "a", "GREAT", "film", "!"]),
        ("one<br />two<br/>three<BR>four<br  />", ["one", "two", "three", "four"]),
        ("don’t 'quote' o'er-the", ["don’t", "'", "quote", "'", "o'er", "-", "the"]),
        ("10/10, 3.5... really?!", ["10", "/", "10", ",", "3", ".", "5", ".", ".", ".", "really", "?", "!"]),
        ("naïve  café\tÉté\n", ["naïve", "café", "Été"]),
        ("array_like <b>", ["array_like", "<", "b", ">"]),
        (" \n\t", []),
        ("<br /> ", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_text_that_is_cut_already() -> None:
    assert SPLITS["spaces"]("It 's a  <br /> film\t. \n") == ["It", "'s", "a", "<br", "/>", "film", "."]


@given(text=st.text())
def test_nothing_but_white_space_is_lost(text: str) -> None:
    text = text.replace("<", "")
    assert "".join(words(text)) == "".join(text.split())
    assert words(" ".join(words(text))) == words(text)


def test_numbers_as_they_come() -> None:
    numbers = Numbers()
    assert [numbers[word] for word in ("a", "b", "a", "c", "b")] == [0, 1, 0, 2, 1]
    assert list(numbers) == ["a", "b", "c"]


def test_order_and_counts() -> None:
    """By count, ties by characters; what is cut is counted as <unk>, and so is a word that looks like a special one."""
    vocabulary = small()
    assert vocabulary.words == ("<unk>", "<eos>", "the", "The", "film", "ape", "zoo")
    assert vocabulary.counts.tolist() == [4, 5, 9, 4, 4, 2, 2]
    assert int(vocabulary.counts.sum()) == int(COUNTS.sum()) + 5
    assert len(vocabulary) == 7


def test_the_order_of_reading_does_not_matter(rng: Any) -> None:
    order = rng.permutation(len(FOUND))
    again = choose_words([FOUND[n] for n in order], COUNTS[order], 5, cut=Cut(min_count=2), split="words")
    assert again.words == small().words
    assert again.fingerprint == small().fingerprint


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (Cut(min_count=1), ("the", "The", "film", "ape", "zoo", "once")),
        (Cut(min_count=4), ("the", "The", "film")),
        (Cut(min_count=1, max_size=4), ("the", "The")),
        (Cut(min_count=1, min_documents=3), ("the", "film")),
        (Cut(min_count=10), ()),
    ],
)
def test_cuts(cut: Cut, expected: tuple[str, ...]) -> None:
    in_documents = np.array([5, 3, 2, 2, 1, 3, 1])
    vocabulary = choose_words(FOUND, COUNTS, 5, in_documents=in_documents, cut=cut, split="words")
    assert vocabulary.words == (*SPECIAL, *expected)
    assert int(vocabulary.counts.sum()) == int(COUNTS.sum()) + 5


def test_bad_cuts() -> None:
    with pytest.raises(ValueError, match="min_count is 0, expected a whole number of at least 1"):
        Cut(min_count=0)
    with pytest.raises(ValueError, match="max_size is 2, expected at least 3"):
        Cut(max_size=2)
    with pytest.raises(ValueError, match="min_documents is 2, expected in_documents with it"):
        choose_words(FOUND, COUNTS, 5, cut=Cut(min_documents=2), split="words")


def test_encode_and_decode() -> None:
    vocabulary = small()
    tokens = vocabulary.encode("The <br />film, once <eos> zoo")
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [3, 4, UNK_TOKEN, UNK_TOKEN, UNK_TOKEN, UNK_TOKEN, UNK_TOKEN, 6]
    assert vocabulary.decode(tokens)[:3] == ["The", "film", "<unk>"]
    assert vocabulary.decode([EOS_TOKEN]) == ["<eos>"]
    assert small(split="spaces").encode("film, <eos> film the").tolist() == [UNK_TOKEN, UNK_TOKEN, 4, 2]
    for bad in (-1, 7):
        with pytest.raises(ValueError, match=f"a token is {bad}, expected 0 to 6"):
            vocabulary.decode([0, bad])


def test_frequencies() -> None:
    vocabulary = small()
    np.testing.assert_allclose(vocabulary.frequencies, np.array([4, 5, 9, 4, 4, 2, 2]) / 30, rtol=1e-15)
    none_cut = choose_words(["a", "b"], np.array([3, 1]), 1, cut=Cut(min_count=1), split="words")
    assert none_cut.counts[UNK_TOKEN] == 0
    np.testing.assert_allclose(none_cut.frequencies, np.array([1, 1, 3, 1]) / 6, rtol=1e-15)


def test_the_fingerprint_tells_vocabularies_apart() -> None:
    vocabulary = small()
    others = [
        small(split="spaces"),
        small(counts=vocabulary.counts + np.eye(7, dtype=np.int64)[3]),
        small(words=(*vocabulary.words[:-1], "zoos")),
        small(words=(*vocabulary.words[:-2], "zoo", "ape")),
    ]
    assert len({v.fingerprint for v in (vocabulary, *others)}) == 5
    vocabulary.expect(small().fingerprint, "runs/lm")
    for other in others:
        with pytest.raises(
            DataError, match=rf"the text has the vocabulary {other.fingerprint[:12]} \(7 words\)"
        ) as caught:
            other.expect(vocabulary.fingerprint, "runs/lm")
        assert f"expected {vocabulary.fingerprint[:12]}, that of runs/lm" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_vocabulary_that_is_none() -> None:
    counts = np.ones(3, dtype=np.int64)
    with pytest.raises(ValueError, match="expected words that begin with"):
        Vocabulary(("a", "b", "c"), counts)
    with pytest.raises(ValueError, match="expected a count for each of 4 words"):
        Vocabulary((*SPECIAL, "a", "b"), counts)
    with pytest.raises(ValueError, match="twice"):
        Vocabulary((*SPECIAL, "a", "a"), np.ones(4, dtype=np.int64))
    with pytest.raises(ValueError, match="split is 'letters', expected one of 'words', 'spaces', 'lines'"):
        Vocabulary((*SPECIAL, "a"), counts, "letters")
