"""Corpora of reviews: folders, the archive of IMDB, Elec; what they hold, and what is refused."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base.errors import DataError, DataWarning
from minadv.data import fetch
from minadv.data.fetch import Remote
from minadv.data.texts import encoded, reviews
from minadv.data.texts.counting import Cut
from minadv.data.texts.documents import Corpus, Documents, Options, validation_rows
from minadv.data.texts.reviews import archive, elec, folder, load
from tests.support.reviewfiles import REVIEWS, write_archive, write_elec, write_folder

ALL_WORDS = Options(cut=Cut(min_count=1))
PARTS = ("train", "valid", "test", "unlabelled")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the user's, and no network."""
    monkeypatch.delenv("MINADV_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_network(url: str, checksum: str, path: Path) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(fetch, "_retrieve", no_network)


def texts(corpus: Corpus, part: str) -> list[str]:
    documents: Documents = getattr(corpus, part)
    return [" ".join(corpus.vocabulary.decode(documents[n])) for n in range(len(documents))]


def as_read(corpus: Corpus, text: str) -> str:
    return " ".join(corpus.vocabulary.decode(corpus.vocabulary.encode(text)))


def same(a: Corpus, b: Corpus) -> bool:
    """Whether two corpora are equal in everything but their name."""
    pairs = [(getattr(a, part), getattr(b, part)) for part in PARTS]
    return (
        (a.classes, a.removed, a.vocabulary.fingerprint) == (b.classes, b.removed, b.vocabulary.fingerprint)
        and all(texts(a, part) == texts(b, part) for part in PARTS)
        and all((x.labels is None) == (y.labels is None) for x, y in pairs)
        and all(np.array_equal(x.labels, y.labels) for x, y in pairs if x.labels is not None)
    )


def test_a_folder(tmp_path: Path) -> None:
    corpus = load("folder", data_dir=write_folder(tmp_path / "mine"), options=ALL_WORDS)
    assert corpus.classes == ("neg", "pos")
    assert [len(getattr(corpus, part)) for part in PARTS] == [4, 2, 2, 2]
    assert texts(corpus, "unlabelled") == [
        "A film about a film about it . It's good or bad .",
        "Who liked this film ? I did .",
    ]
    assert corpus.unlabelled.labels is None
    assert corpus.train.labels is not None and corpus.train.labels.dtype == np.int64
    assert corpus.train.text.dtype == np.int32
    assert corpus.test.labels is not None and corpus.test.labels.tolist() == [0, 1]
    known = {as_read(corpus, text): name.split("/") for name, text in REVIEWS.items()}
    assert len(known) == len(REVIEWS)
    for part in ("train", "valid"):
        labels = getattr(corpus, part).labels
        assert [known[text][:2] for text in texts(corpus, part)] == [["train", corpus.classes[n]] for n in labels]
        assert set(labels.tolist()) == {0, 1}
    assert sorted(texts(corpus, "train") + texts(corpus, "valid")) == sorted(
        text for text, (part, label, _) in known.items() if part == "train" and label != "unsup"
    )
    assert str(corpus).startswith("folder: 4 train, 2 valid, 2 test, 2 unlabelled; classes neg, pos; ")


def test_the_vocabulary_knows_nothing_of_validation_and_test(tmp_path: Path) -> None:
    corpus = load("folder", data_dir=write_folder(tmp_path), options=ALL_WORDS)
    seen = {word for part in ("train", "unlabelled") for text in texts(corpus, part) for word in text.split()}
    assert set(corpus.vocabulary.words[2:]) == seen
    assert "unexpectedly" not in corpus.vocabulary.index
    assert texts(corpus, "test")[0].startswith("<unk> a ")
    total = sum(int(getattr(corpus, part).lengths.sum()) for part in ("train", "unlabelled"))
    assert int(corpus.vocabulary.counts[2:].sum()) == total
    assert corpus.vocabulary.counts[:2].tolist() == [0, 6]
    seen_twice = load("folder", data_dir=tmp_path).vocabulary
    assert all(count >= 2 for count in seen_twice.counts[2:])
    in_two = load("folder", data_dir=tmp_path, options=Options(cut=Cut(1, min_documents=2))).vocabulary
    read = [set(text.split()) for part in ("train", "unlabelled") for text in texts(corpus, part)]
    assert set(in_two.words[2:]) == {word for word in seen if sum(word in text for text in read) >= 2}
    assert set(in_two.words[2:]) < set(seen_twice.words[2:]) < seen


def test_a_folder_without_unlabelled_text(tmp_path: Path) -> None:
    labelled = {name: text for name, text in REVIEWS.items() if "unsup" not in name}
    corpus = load("folder", data_dir=write_folder(tmp_path, labelled))
    assert [len(getattr(corpus, part)) for part in PARTS] == [4, 2, 2, 0]
    assert len(corpus.train.join(corpus.unlabelled)) == 4


def test_three_classes(tmp_path: Path) -> None:
    more = {f"{part}/even/{n}.txt": f"Neither, {n} times." for part, n in (("train", 1), ("train", 2), ("test", 3))}
    corpus = load("folder", data_dir=write_folder(tmp_path, REVIEWS | more))
    assert corpus.classes == ("even", "neg", "pos")
    assert corpus.test.labels is not None and corpus.test.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_is_read_like_the_folder_in_it(tmp_path: Path, mode: str) -> None:
    """Whatever the order of its members, and whatever else it holds."""
    path = write_archive(tmp_path / "a" / ("aclImdb.tar.gz" if mode == "w:gz" else "aclImdb.tar"), mode=mode)
    corpus = load("imdb", data_dir=path.parent)
    assert corpus.name == "imdb"
    assert same(corpus, load("folder", data_dir=write_folder(tmp_path / "b")))


def test_where_imdb_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded.corpus_of(archive(write_archive(tmp_path / "x.tar.gz")), Options())
    write_archive(tmp_path / "a" / "aclImdb_v1.tar.gz")
    write_archive(tmp_path / "b" / "imdb" / "aclImdb.tar.gz")
    write_folder(tmp_path / "c" / "imdb" / "aclImdb")
    for data_dir in (tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path / "c" / "imdb" / "aclImdb"):
        assert same(load("imdb", data_dir=data_dir), expected)
    monkeypatch.setenv("MINADV_DATA", str(tmp_path / "b"))
    assert same(load("imdb"), expected)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"lacks aclImdb_v1\.tar\.gz, expected there for imdb, compressed or not"):
        load("imdb", data_dir=tmp_path / "empty")


def test_imdb_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"imdb is not in .*imdb and cannot be downloaded \(ai\.stanford\.edu: Name"):
        load("imdb")
    pytest.importorskip("pooch")
    content = write_archive(tmp_path / "served.tar.gz").read_bytes()
    sums = {"aclImdb_v1.tar.gz": "md5:" + hashlib.md5(content, usedforsecurity=False).hexdigest()}
    monkeypatch.setitem(fetch.REMOTES, "imdb", Remote("test", ("https://a/", "https://b/"), sums, ("aclImdb",)))

    def retrieve(url: str, checksum: str, path: Path) -> None:
        import pooch

        def serve(url: str, output_file: Any, _: Any) -> None:
            Path(output_file).write_bytes(content if url.startswith("https://b/") else b"other bytes")

        pooch.get_logger().setLevel("ERROR")
        pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=serve)

    monkeypatch.setattr(fetch, "_retrieve", retrieve)
    assert len(load("imdb").unlabelled) == 2
    assert (tmp_path / "cache" / "minadv" / "imdb" / "aclImdb_v1.tar.gz").read_bytes() == content
    assert [c.sound for c in fetch.check("imdb")] == [True]


def test_what_stands_in_place_of_the_official_archive(tmp_path: Path) -> None:
    write_archive(tmp_path / "imdb" / "aclImdb.tar.gz")
    (found,) = fetch.check("imdb", tmp_path)
    assert (found.path, found.sound) == (tmp_path / "imdb" / "aclImdb.tar.gz", None)
    assert found.says == "in place of aclImdb_v1.tar.gz: there is no checksum of it"
    assert fetch.get("imdb", tmp_path) == tmp_path / "imdb"  # nothing is missing, so nothing is downloaded


def test_elec(tmp_path: Path) -> None:
    corpus = load("elec", data_dir=write_elec(tmp_path / "elec").parent, options=ALL_WORDS)
    assert corpus.classes == ("1", "2")
    assert [len(getattr(corpus, part)) for part in PARTS] == [4, 2, 2, 3]
    assert corpus.test.labels is not None and corpus.test.labels.tolist() == [1, 0]
    assert corpus.vocabulary.split == "spaces"
    assert texts(corpus, "unlabelled") == ["the battery is ok", "some cable", "Good phone ."]
    assert corpus.removed == 3  # one of train in other spacing, one of test, one that comes again
    assert same(corpus, load("elec", data_dir=tmp_path / "elec", options=ALL_WORDS))


def test_elec_line_by_line(tmp_path: Path) -> None:
    """One bad byte spoils its own line, and no other."""
    lines = ["a caf\u00e9 cable".encode(), "a na\u00efve cable".encode("latin-1"), "an \u00fcber cable \u263a".encode()]
    corpus = load(
        "elec", data_dir=write_elec(tmp_path, unlab00=b"\xef\xbb\xbf" + b"\r\n".join(lines)), options=ALL_WORDS
    )
    assert {"caf\u00e9", "na\u00efve", "\u00fcber", "\u263a"} <= set(corpus.vocabulary.words)
    assert not any("\u00c3" in word or "\ufeff" in word or "\r" in word for word in corpus.vocabulary.words)


def test_elec_without_unlabelled_reviews(tmp_path: Path) -> None:
    there = write_elec(tmp_path, unlab00=None, unlab01=None)
    with pytest.warns(DataWarning, match=r"has no elec-25k-unlab\*.txt.tok: there are no unlabelled reviews"):
        assert len(load("elec", data_dir=there, options=ALL_WORDS).unlabelled) == 0


@pytest.mark.parametrize("coding", ["utf-8", "latin-1"])
def test_elec_in_either_coding(tmp_path: Path, coding: str) -> None:
    line = "a caf\xe9 \x85 phone\n"  # in Latin-1, 0x85 is one character, and no end of a line
    corpus = load("elec", data_dir=write_elec(tmp_path, unlab00=line.encode(coding)), options=ALL_WORDS)
    assert texts(corpus, "unlabelled")[0] == "a café phone"


def test_the_split_is_a_function_of_its_seed() -> None:
    labels = np.repeat([0, 1, 2], [100, 40, 3])
    chosen = validation_rows(labels, 3, Options())
    assert np.bincount(labels[chosen]).tolist() == [15, 6, 1]
    np.testing.assert_array_equal(chosen, validation_rows(labels, 3, Options()))
    other = validation_rows(labels, 3, Options(split_seed=1))
    assert np.bincount(labels[other]).tolist() == [15, 6, 1]
    assert not np.array_equal(chosen, other)
    half = validation_rows(labels, 3, Options(valid_share=0.99))
    assert np.bincount(labels[half]).tolist() == [99, 39, 2]
    assert np.flatnonzero(chosen)[:6].tolist() == [
        6,
        13,
        16,
        24,
        26,
        35,
    ]  # pinned: results of different versions must be comparable


def test_a_given_vocabulary(tmp_path: Path) -> None:
    first = load("folder", data_dir=write_folder(tmp_path / "a"), options=ALL_WORDS)
    few = {name: text for name, text in REVIEWS.items() if not name.endswith("1_0.txt")}
    data_dir = write_folder(tmp_path / "b", few)
    second = load("folder", data_dir=data_dir, vocabulary=first.vocabulary)
    assert second.vocabulary is first.vocabulary
    assert texts(second, "unlabelled") == texts(first, "unlabelled")[:1]
    assert same(load("folder", data_dir=data_dir, vocabulary=first.vocabulary), second)
    assert not same(load("folder", data_dir=data_dir), second)
    with pytest.raises(DataError, match=r"the vocabulary cuts text by 'words', expected 'spaces' for .*elec"):
        load("elec", data_dir=write_elec(tmp_path / "elec"), vocabulary=first.vocabulary)


def test_documents_are_views_of_one_text(tmp_path: Path) -> None:
    corpus = load("folder", data_dir=write_folder(tmp_path))
    joined = corpus.train.join(corpus.unlabelled)
    assert joined.text is corpus.train.text is corpus.test.text
    assert joined.labels is None
    assert np.shares_memory(joined[0], corpus.train[0])
    np.testing.assert_array_equal(joined[4], corpus.unlabelled[0])
    other = load("folder", data_dir=tmp_path)
    with pytest.raises(ValueError, match="documents are of two corpora, expected parts of one"):
        corpus.train.join(other.unlabelled)


def test_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name is 'yelp', expected one of 'docstrings', 'imdb', 'elec', 'folder'"):
        load("yelp")
    with pytest.raises(DataError, match="no folder is given"):
        load("folder")
    assert reviews.source("folder", write_folder(tmp_path)).where == str(tmp_path)
    assert folder(tmp_path).fingerprint() != elec(write_elec(tmp_path)).fingerprint()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_bad_options(share: float) -> None:
    with pytest.raises(ValueError, match=f"valid_share is {share}, expected more than 0 and less than 1"):
        Options(valid_share=share)
    with pytest.raises(ValueError, match="seed is -1"):
        Options(split_seed=-1)
