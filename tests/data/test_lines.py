"""The vocabulary: words by frequency, one <eos> a line, <unk> or a clear error for the others."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.base.errors import DataError
from minadv.data.language.lines import count_words, encode_lines, lines_of
from minadv.data.vocabulary import EOS, UNK, Vocabulary

LINES = ["b a a", "", "c b a <unk>"]
texts = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "é", UNK]), max_size=6).map(" ".join), min_size=1)


def test_the_most_frequent_first_and_ties_by_code_point() -> None:
    words = count_words(LINES)
    assert words.words == ("<eos>", "a", "b", "<unk>", "c")
    assert words.counts.tolist() == [3, 3, 2, 1, 1]
    assert len(words) == 5
    assert (words.eos, words.unk) == (0, 3)
    assert count_words(["a b"]).unk is None


def test_rare_words_are_counted_as_unk() -> None:
    words = count_words(LINES, min_count=2)
    assert dict(zip(words.words, words.counts, strict=True)) == {"<eos>": 3, "a": 3, "b": 2, "<unk>": 2}
    assert count_words(["a b c"], min_count=4).words == ("<unk>", "<eos>")  # <eos> stays, however rare
    none = count_words(["a a"], min_count=2)
    assert (none.words, none.counts.tolist()) == (("a", "<eos>", "<unk>"), [2, 1, 0])  # there may be none
    with pytest.raises(ValueError, match="min_count is 0, expected 1 or more"):
        count_words(LINES, min_count=0)


@given(lines=texts, min_count=st.integers(1, 3))
def test_encoding(lines: list[str], min_count: int) -> None:
    words = count_words(lines, min_count=min_count)
    ids = encode_lines(words, lines)
    assert ids.dtype == np.int32
    plain = [word for line in lines for word in [*line.split(), EOS]]
    assert words.decode(ids) == [word if word in words.index else UNK for word in plain]
    np.testing.assert_array_equal(ids, words.numbers(plain))
    np.testing.assert_array_equal(np.bincount(ids, minlength=len(words)), words.counts)
    assert list(words.counts) == sorted(words.counts, reverse=True)
    assert [words.index[word] for word in words.words] == list(range(len(words)))


def test_a_long_line_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [" a b\tc " * 5 + "d", "", "a b c"]
    words = count_words(long)
    ids = encode_lines(words, long)
    for piece in (1, 3, 15, 16):
        monkeypatch.setattr("minadv.data.language.lines.PIECE", piece)
        again = count_words(long)
        assert (again.words, again.counts.tolist()) == (words.words, words.counts.tolist())
        np.testing.assert_array_equal(encode_lines(words, long), ids)


def test_a_long_line_takes_little_more_memory_than_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minadv.data.language.lines.PIECE", 10**5)
    line = [" a" * 500_000]
    tracemalloc.start()
    try:
        encode_lines(count_words(line), line)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20  # in one piece 14
    finally:
        tracemalloc.stop()


def test_words_that_the_training_text_lacks() -> None:
    assert count_words(LINES).numbers(["a", "dog", "c"]).tolist() == [1, 3, 4]
    words = count_words(["a b", "c"])
    with pytest.raises(DataError, match=r"^valid\.txt, line 2: 'dog' is not among the 4 words of .* no <unk> to stand"):
        encode_lines(words, ["a b", "a dog b cat"], "valid.txt")
    with pytest.raises(DataError, match=r"^the prompt: 'dog' is not among"):
        words.numbers(["dog"], "the prompt")
    assert words.numbers([]).shape == (0,)


def test_vocabularies_that_are_none() -> None:
    with pytest.raises(ValueError, match="the vocabulary lacks <eos>"):
        Vocabulary(("a",), np.ones(1, np.int64), "lines")


def test_the_fingerprint_is_of_the_words_and_their_order() -> None:
    words = count_words([*LINES, "日本語 'n"])
    assert count_words([*LINES, "日本語 'n", "a"]).fingerprint == words.fingerprint  # other counts, the same numbers
    assert count_words(LINES).fingerprint != words.fingerprint


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\nb", ["a", "b"]),
        ("a\nb\n", ["a", "b"]),
        ("a\n\n", ["a", ""]),
        ("a\x0bb\u2028c\x85d\n", ["a\x0bb\u2028c\x85d"]),  # ends of lines for str.splitlines, not for us
    ],
)
def test_lines(text: str, lines: list[str]) -> None:
    assert lines_of(text) == lines
