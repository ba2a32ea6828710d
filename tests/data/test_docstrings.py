"""The corpus without a download: what is read, what is taken out, and that it is the same every time."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from minadv.base.errors import DataError
from minadv.data.texts import docstrings, encoded
from minadv.data.texts.docstrings import MASK, NAMES, choose, mask, part_of
from minadv.data.texts.documents import Options, Text
from minadv.data.texts.reviews import load
from minadv.data.vocabulary import words

SOURCE = b'''"""The module."""

def f(x):
    """Of f.

    Of its argument.
    """
    def inner():
        "Of inner."

    return "not a docstring"

class A:
    """Of A, caf\xc3\xa9, \\d."""

    async def g(self):
        """Of g."""

    def without(self):
        pass
'''


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_docstrings_of_a_file() -> None:
    found = docstrings.docstrings(SOURCE)
    assert [line for line, _ in found] == [1, 3, 8, 13, 16]
    assert found[1][1] == "Of f.\n\nOf its argument."
    assert found[3][1] == "Of A, café, \\d."
    assert docstrings.docstrings(b"def f(:") == []
    assert docstrings.docstrings(b"x = 1\0") == []
    assert docstrings.docstrings(b"") == []
    assert docstrings.docstrings('# coding: latin-1\n"""Caf\xe9."""'.encode("latin-1")) == [(1, "Café.")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import numpy as np", "import NAME as NAME"),
        ("NumPy's and SciPy's scipy.optimize.minimize", "NAME's and NAME's NAME.NAME.minimize"),
        ("asyncio_loop, numpylike, _numpy_", "NAME_loop, numpylike, _NAME_"),
        ("Parameters\n----------\nx : int\n    ===\nend - start", "Parameters\n\nx : int\n\nend - start"),
    ],
)
def test_what_gives_the_answer_away_is_masked(text: str, expected: str) -> None:
    assert mask(text) == expected


def test_the_parts_of_digests() -> None:
    """One in five digests is for testing, one in four has its label, the others not."""
    assert [part_of(bytes([n]) + bytes(31)) for n in (0, 51, 52, 115, 116, 255)] == [
        "test",
        "test",
        "train",
        "train",
        "unlabelled",
        "unlabelled",
    ]


def made(n: int, label: str = "a", words_each: int = 30) -> list[Text]:
    """Texts of random words, of which no two share a run."""
    rng = np.random.default_rng(n)
    return [
        Text("train", label, f"{label}.py", " ".join(f"w{w}" for w in rng.integers(0, 10**6, words_each)), k)
        for k in range(1, n + 1)
    ]


def test_repeated_docstrings_are_left_out() -> None:
    first, second = made(2)
    tokens = first.text.split()
    nearly = Text("train", "b", "b.py", " ".join([*tokens[:20], "new", *tokens[21:]]), 1)
    half = Text("train", "b", "b.py", " ".join([*tokens[:12], *second.text.split()[:3], *made(1)[0].text.split()]), 2)
    same = Text("train", "b", "b.py", first.text.upper().replace(" ", "\n"), 3)
    short = Text("train", "b", "b.py", "nine words are not enough for a good guess", 4)
    signs = Text("train", "b", "b.py", ">>> " * 20 + "one two", 5)
    kept = list(choose([first, nearly, half, same, short, signs]))
    assert len(kept) == 2
    assert [t.text for t in kept if t.line == 2] == [half.text]
    assert sum(t.text in (first.text, nearly.text, same.text) for t in kept) == 1


def test_a_choice_that_depends_on_the_texts_alone() -> None:
    texts = [*made(300, "a"), *made(200, "b")]
    kept = list(choose(texts))
    assert list(choose(texts[::-1])) == kept
    assert len(kept) == 500
    counts = Counter(text.part for text in kept)
    assert counts["test"] == pytest.approx(100, abs=30)
    assert counts["train"] == pytest.approx(125, abs=35)
    assert all((text.label is None) == (text.part == "unlabelled") for text in kept)
    of_a = {text.text: text.part for text in choose(texts[:300])}
    assert all(of_a[text.text] == text.part for text in kept if text.text in of_a)  # others move none of them
    few = list(choose(texts, most=50))
    assert Counter(text.file for text in few) == {"a.py": 50, "b.py": 50}
    assert {text.text for text in few} < {text.text for text in kept}


def test_the_installed_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three classes of the six, so that the test is short; they are read, not imported, and read once."""
    classes = {"concurrency": "asyncio queue threading", "files": "logging tarfile", "numpy": "numpy.polynomial"}
    monkeypatch.setattr(docstrings, "CLASSES", classes)
    corpus = load("docstrings", options=Options(valid_share=0.2))
    assert corpus.classes == ("concurrency", "files", "numpy")
    assert len(corpus.unlabelled) > len(corpus.train) > len(corpus.valid) > 10
    assert len(corpus.test) > 50
    assert corpus.unlabelled.labels is None
    text = {word.lower() for word in corpus.vocabulary.words}
    assert not text & {"numpy", "np", "asyncio", "logging", "tarfile", "threading"}
    assert MASK in corpus.vocabulary.index
    assert int(corpus.test.lengths.min()) >= 10
    monkeypatch.setattr(encoded, "build", None)
    again = load("docstrings", options=Options(valid_share=0.2))
    assert again.vocabulary.fingerprint == corpus.vocabulary.fingerprint
    np.testing.assert_array_equal(again.train.text, corpus.train.text)


def test_the_classes() -> None:
    """Every class is installed wherever minadv is, no module belongs to two, and every name is masked."""
    assert set(docstrings.CLASSES) == {"numpy", "scipy", "concurrency", "files", "internet", "language"}
    modules = [module for listed in docstrings.CLASSES.values() for module in listed.split()]
    assert len(set(modules)) == len(modules)
    for label in docstrings.CLASSES:
        files = docstrings._files(label)
        assert files
        assert not any({"tests", "distutils"} & set(name.split("/")) for name in files)
    assert {"numpy", "scipy", "np", "asyncio", "email", "pyio"} <= NAMES
    assert words(mask("numpy scipy.optimize email")) == [MASK, MASK, ".", MASK, MASK]


def test_a_class_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "CLASSES", {"a": "queue", "b": "no_such_module nor_this"})
    with pytest.raises(DataError, match=r"the source files of b \(no_such_module nor_this\) are not installed"):
        load("docstrings")
