r"""The texts of classifiers and of the language models that these begin with: which texts, and what tells them apart.

The configuration in a run's folder holds the vocabulary, and the fingerprint of the texts: a run's numbers mean nothing
without the one, and its results nothing on other texts than the fingerprint's.
"""

from __future__ import annotations

import hashlib
from argparse import Namespace
from dataclasses import replace
from typing import Any, Literal, TypedDict, TypeVar

import numpy as np

from minadv.backend import Device, to_device
from minadv.base.numbers import Count, Share, Size
from minadv.data.texts import reviews
from minadv.data.texts.counting import Cut
from minadv.data.texts.documents import Corpus, Documents, Options
from minadv.data.vocabulary import Vocabulary
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.tasks.options import chosen
from minadv.training.runs.folder import RunError


class Named(TypedDict):
    """What tells one corpus from another."""

    name: str
    words: Size
    fingerprint: str
    train: Count
    valid: Count
    test: Count
    unlabelled: Count


class Words(TypedDict):
    """A vocabulary: its words, and as many counts, with spaces between them."""

    split: Literal["words", "spaces"]
    words: str
    counts: str


class Config(TypedDict):
    """What a configuration says of its texts."""

    classes: list[str]
    corpus: Named
    vocabulary: Words


class OfClassifier(Config):
    """What the configuration of a classifier says."""

    max_tokens: Size | None


class OfPretraining(Config):
    """What the configuration of a language model for pre-training says."""

    held_out: Size


class Perhaps(TypedDict, total=False):
    """What only configurations with texts of a user's own say."""

    test_share: Share


class About(Perhaps):
    """What a configuration says of where its texts are, and which of their words it keeps."""

    corpus: str
    data_dir: str | None
    vocab_size: Size | None
    min_count: Size
    min_documents: Size
    valid_share: Share


M = TypeVar("M", TextClassifier, TextLM)
DATA = ("vocab_size", "min_count", "min_documents", "valid_share", "test_share")


def about(options: Namespace, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Where the texts are; ``before`` is the configuration of the language model that a classifier begins with.

    That model decides vocabulary and split, and the folder if the texts are the same, unless an option says otherwise.
    """
    corpus = options.preset.data
    if corpus == "docstrings" and options.data_dir is not None:
        raise ValueError(f"--data-dir is {options.data_dir}, but docstrings are those installed here: leave it out")
    if corpus != "folder" and options.test_share is not None:
        raise ValueError(f"--test-share is {options.test_share}, but {corpus} has a part for the test: leave it out")
    theirs, names = (before or {}).get("about", {}), DATA if corpus == "folder" else DATA[:-1]
    found = {name: chosen(options, name) for name in names}
    found.update({name: theirs[name] for name in names if name in theirs and getattr(options, name) is None})
    data_dir = options.data_dir
    if data_dir is None and theirs.get("corpus") == corpus:
        data_dir = theirs.get("data_dir")
    return {"task": options.task, "corpus": corpus, "data_dir": data_dir, **found}


def open_data(about: dict[str, Any]) -> Corpus:
    """The texts that a run's configuration describes."""
    cut = Cut(about["min_count"], about["min_documents"], about["vocab_size"])
    shares = {name: about[name] for name in ("valid_share", "test_share") if name in about}
    return reviews.load(about["corpus"], data_dir=about.get("data_dir"), options=Options(cut, **shares))


def fingerprint(corpus: Corpus) -> dict[str, Any]:
    """What tells one corpus from another: the SHA-256 of every document and label, part by part."""
    found, sizes = hashlib.sha256(corpus.vocabulary.fingerprint.encode()), {}
    for part in ("train", "valid", "test", "unlabelled"):
        documents: Documents = getattr(corpus, part)
        sizes[part] = len(documents)
        found.update(f"{part} {len(documents)}".encode())
        for array in (documents.lengths, documents.labels):
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        for n in range(len(documents)):
            found.update(documents[n].tobytes())
    return {"name": corpus.name, **sizes, "words": len(corpus.vocabulary), "fingerprint": found.hexdigest()}


def identify(corpus: Corpus) -> dict[str, Any]:
    """What a configuration says of its texts: fingerprint, classes and vocabulary, whose words hold no white space."""
    words, counts = " ".join(corpus.vocabulary.words), " ".join(map(str, corpus.vocabulary.counts.tolist()))
    vocabulary = {"split": corpus.vocabulary.split, "words": words, "counts": counts}
    return {"classes": list(corpus.classes), "corpus": fingerprint(corpus), "vocabulary": vocabulary}


def expect_corpus(config: dict[str, Any], corpus: Corpus, path: str) -> None:
    """Raise RunError unless a corpus is the one that a run was trained on."""
    theirs, ours = config["corpus"], fingerprint(corpus)
    if theirs != ours:
        raise RunError(
            f"{path} was trained on another text: {theirs['name']} with {theirs['words']:,} words, {theirs['train']:,} "
            f"training texts and fingerprint {theirs['fingerprint'][:12]}; this one, {ours['name']}, has "
            f"{ours['words']:,}, {ours['train']:,} and {ours['fingerprint'][:12]}"
        )


def with_words(model: M, vocabulary: Vocabulary, device: Device | None = None) -> M:
    """The model with the frequencies of a vocabulary's words, on a device."""
    if model.n_words != len(vocabulary):
        raise ValueError(f"n_words is {model.n_words}, expected {len(vocabulary)}, the words of the vocabulary")
    frequencies = vocabulary.frequencies
    return replace(model, frequencies=frequencies if device is None else device.xp.asarray(frequencies))


def place(model: M, data: Any, device: Device) -> tuple[M, Any]:
    """The model with what it holds of the words on a device; texts stay on the host until a batch is made of them."""
    return replace(model, frequencies=to_device(model.frequencies, device)), data
