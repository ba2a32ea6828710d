r"""A run of a classifier of texts, or of the language model that it begins with: what its folder holds, read back.

The configuration in a run's folder holds the vocabulary, and the fingerprint of the text: a run's numbers mean nothing
without the one, and its results nothing on another text than the other says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from minadv.backend import Array, Device, DeviceName, to_device, to_host
from minadv.base.checks import expect_choice
from minadv.base.streams import stream
from minadv.base.trees import leaves, tree_map
from minadv.data.texts.documents import Corpus, Documents
from minadv.data.vocabulary import Vocabulary
from minadv.layers import log_softmax
from minadv.models import encoder
from minadv.models.pretraining import TextLM, pretrained
from minadv.models.text import TextClassifier
from minadv.tasks.config import build, build_recipe
from minadv.tasks.pretrain import task as pretrain_task
from minadv.tasks.text import task as text_task
from minadv.training.loop import Recipe, State, weights
from minadv.training.runs import folder as folders
from minadv.training.runs.folder import Blank, RunError, kind_of, read_config, restore

KINDS = {"text": "a classifier of texts", "pretrain": "a language model of texts"}
M = TypeVar("M", TextClassifier, TextLM)
Take: TypeAlias = Literal["all", "embeddings"]
"""What a classifier takes over from a language model: embeddings and cells, or the embeddings alone."""


@dataclass(frozen=True)
class TextRun:
    """A trained classifier of texts, or a language model that one may begin with, and where it came from."""

    model: TextClassifier | TextLM
    params: Any = field(repr=False)  # the weights of the best validation score, on the host
    last: Any = field(repr=False)  # those of the last step; averaged, as in the evaluations, if the recipe does that
    config: dict[str, Any] = field(repr=False)  # as it stands in the run's file, or would
    records: list[dict[str, Any]] = field(repr=False)  # one an evaluation
    step: int
    vocabulary: Vocabulary = field(repr=False)
    classes: tuple[str, ...]
    path: Path | None = None
    corpus: Corpus | None = field(default=None, repr=False)

    @property
    def classifier(self) -> TextClassifier:
        """The model, if it is a classifier."""
        if not isinstance(self.model, TextClassifier):
            raise RunError(
                f"{self.path or 'the run'} is a language model: train a classifier that begins with it (pretrained=, "
                "--pretrained)"
            )
        return self.model

    def evaluate(
        self,
        part: str = "test",
        *,
        corpus: Corpus | None = None,
        last: bool = False,
        device: DeviceName | Device = "cpu",
    ) -> dict[str, Any]:
        """Mean NLL and error in per cent, or perplexity, on a part of the run's corpus, or of one in its vocabulary."""
        corpus = corpus or self.corpus
        if corpus is None:
            raise RunError("the run was opened without its corpus: give the corpus to evaluate on")
        corpus.vocabulary.expect(self.vocabulary.fingerprint, str(self.path or "the run"))
        params, frequencies = to_device((self.last if last else self.params, self.model.frequencies), device)
        model, documents = replace(self.model, frequencies=frequencies), getattr(corpus, part)
        if isinstance(model, TextLM):
            return pretrain_task.evaluate(model, params, documents, tokens=self.config["held_out"])
        if corpus.classes != self.classes:
            raise RunError(f"the corpus has the classes {corpus.classes}, expected those of the run: {self.classes}")
        return text_task.evaluate(model, params, documents, max_tokens=self.config["max_tokens"])

    def test(self, corpus: Corpus | None = None) -> dict[str, Any]:
        """The same on the test part."""
        return self.evaluate("test", corpus=corpus)

    def encode(self, texts: Sequence[str]) -> Documents:
        """Texts in the numbers of the run's vocabulary; raises ValueError for one without words."""
        found = [self.vocabulary.encode(text) for text in texts]
        for n, tokens in enumerate(found, 1):
            if len(tokens) == 0:
                raise ValueError(f"text {n} is empty, expected at least one word")
        lengths = np.array([len(tokens) for tokens in found], dtype=np.int64)
        return Documents(np.concatenate([np.zeros(0, np.int32), *found]), np.cumsum(lengths) - lengths, lengths)

    def predict(self, texts: Sequence[str]) -> Array:
        """Class probabilities (N, C) of texts."""
        documents, p = self.encode(texts), np.empty((len(texts), len(self.classes)))
        for rows, _, logits in text_task.read(
            self.classifier, self.params, documents, max_tokens=self.config["max_tokens"]
        ):
            p[rows] = np.exp(log_softmax(logits))
        return p


def load_text(run: str | Path, corpus: Corpus | None = None) -> TextRun:
    """A run of either kind from its folder, at its newest sound checkpoint; raises RunError for another corpus."""
    path = Path(run)
    config = read_config(path)
    recipe = build_recipe(config["recipe"])
    state = restore(path, blank(config, str(path)), recipe)
    if corpus is not None:
        expect_corpus(config, corpus, str(path))
    return opened(state, recipe, config, folders.records(path, state.step), path, corpus)


def opened(
    state: State,
    recipe: Recipe,
    config: dict[str, Any],
    records: list[dict[str, Any]],
    path: Path | None,
    corpus: Corpus | None,
) -> TextRun:
    """A run as its last state and its configuration have it."""
    vocabulary = vocabulary_of(config)
    model = with_words(build(config["model"], "model"), vocabulary)
    best, last = to_host(folders.best_weights(path, recipe, state)), to_host(weights(recipe, state))
    return TextRun(model, best, last, config, records, state.step, vocabulary, tuple(config["classes"]), path, corpus)


def vocabulary_of(config: dict[str, Any]) -> Vocabulary:
    """The vocabulary in a run's configuration."""
    held = config["vocabulary"]
    counts = np.array(held["counts"].split(" "), dtype=np.int64)
    return Vocabulary(tuple(held["words"].split(" ")), counts, held["split"])


def describe_vocabulary(vocabulary: Vocabulary) -> dict[str, str]:
    """A vocabulary as a configuration holds it; no word has white space."""
    words, counts = " ".join(vocabulary.words), " ".join(map(str, vocabulary.counts.tolist()))
    return {"split": vocabulary.split, "words": words, "counts": counts}


def blank(config: dict[str, Any], path: str = "this") -> Blank:
    """What a run's state looks like, for reading its checkpoints."""
    expect_kind(config, path)
    model = build(config["model"], "model")
    params = model.init(np.random.default_rng(0), dtype=config["dtype"])
    if not isinstance(model, TextLM):
        return Blank(params)
    return Blank(params, pretrain_task.zero_states(model, config["batch_size"], config["dtype"], like=params.encoder.E))


def with_words(model: M, vocabulary: Vocabulary, device: Device | None = None) -> M:
    """The model with the frequencies of a vocabulary's words, on a device."""
    if model.n_words != len(vocabulary):
        raise ValueError(f"n_words is {model.n_words}, expected {len(vocabulary)}, the words of the vocabulary")
    frequencies = vocabulary.frequencies
    return replace(model, frequencies=frequencies if device is None else device.xp.asarray(frequencies))


def weights_of(
    run: TextRun | str | Path,
    model: TextClassifier,
    vocabulary: Vocabulary,
    *,
    dtype: str,
    seed: int,
    take: Take = "all",
) -> encoder.Params:
    """The embeddings and cells of a language model, on the host; raises unless the classifier can begin with them.

    With ``take="embeddings"`` the cells are fresh ones, those that a run of this seed would begin with on its own.
    """
    expect_choice("take", take, ("all", "embeddings"))
    run = run if isinstance(run, TextRun) else load_text(run)
    name = str(run.path or "the pre-trained run")
    if not isinstance(run.model, TextLM):
        raise RunError(f"{name} is a classifier already, expected a language model: a run of minadv pretrain")
    vocabulary.expect(run.vocabulary.fingerprint, name)
    cells = ("n_hidden", "cell", "n_layers") if take == "all" else ()
    for what in ("n_embedding", "normalise", *cells):
        mine, theirs = getattr(model, what), getattr(run.model, what)
        if mine != theirs:
            raise RunError(f"{what} is {mine}, expected {theirs}, that of {name}")
    fresh = model.init(stream(seed, "init"), dtype=run.config["dtype"])
    found = fresh.encoder
    assert found is not None and run.params.encoder is not None
    found = pretrained(run.params, fresh).encoder if take == "all" else replace(found, E=run.params.encoder.E)
    assert found is not None
    return tree_map(lambda a: a.astype(dtype), found)


def begin_again(config: dict[str, Any], model: TextClassifier, vocabulary: Vocabulary, path: Path) -> encoder.Params:
    """What a classifier without a checkpoint was to begin with, from where it was."""
    where = config["about"].get("pretrained")
    if where is None:
        raise RunError(f"{path} has no checkpoint yet and does not say where its pre-trained run is: train it anew")
    how = {name: config[name] for name in ("dtype", "seed", "take")}
    found = weights_of(where, model, vocabulary, **how)
    if digest(found) != config["pretrained"]:
        raise RunError(f"{path} has no checkpoint yet, and {where}, which it was to begin with, has changed since")
    return found


def digest(params: encoder.Params) -> str:
    """The SHA-256 of some weights: what a classifier began with."""
    found = hashlib.sha256()
    for name, leaf in leaves(to_host(params)):
        found.update(f"{name} {leaf.dtype} {leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def identity(corpus: Corpus) -> dict[str, Any]:
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


def expect_kind(config: dict[str, Any], path: str) -> None:
    """Raise RunError unless a configuration is that of a classifier or language model of texts."""
    if kind_of(config) not in KINDS:
        raise RunError(f"{path} is a run of the kind {kind_of(config)!r}, expected {' or '.join(KINDS.values())}")


def expect_corpus(config: dict[str, Any], corpus: Corpus, path: str) -> None:
    """Raise RunError unless a corpus is the one that a run was trained on."""
    theirs, ours = config["corpus"], identity(corpus)
    if theirs != ours:
        raise RunError(
            f"{path} was trained on another text: {theirs['name']} with {theirs['words']:,} words, {theirs['train']:,} "
            f"training texts and fingerprint {theirs['fingerprint'][:12]}; this one, {ours['name']}, has "
            f"{ours['words']:,}, {ours['train']:,} and {ours['fingerprint'][:12]}"
        )
