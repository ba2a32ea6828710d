r"""What a language model's run says of itself in its folder, and how a run finds its text again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Device, to_host
from minadv.base.trees import leaves
from minadv.data.language import corpus as corpora
from minadv.data.language.corpus import Corpus
from minadv.models.language.model import LanguageModel, Params
from minadv.tasks.config import build, describe
from minadv.tasks.language.task import LanguageTask, zero_states
from minadv.training.runs.folder import Blank, RunError, kind_of, read_config

KIND = "lm"
SETTINGS = ("batch_size", "bptt", "dtype", "random_lengths", "fresh", "every", "columns")
"""What a configuration says of its task under the name that `minadv.tasks.language.training.fit_language` has for
it."""


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit_language` that a run's configuration fixes, but for model, regularizer and recipe."""
    return {name: tuple(config[name]) if name == "fresh" else config[name] for name in SETTINGS}


def read_language(path: Path) -> dict[str, Any]:
    """The configuration of a run; raises RunError unless it is a language model's."""
    config = read_config(path)
    if kind_of(config) != KIND:
        raise RunError(f"{path} is a run of the kind {kind_of(config)!r}, expected a language model (minadv train lm)")
    return config


def blank(config: dict[str, Any]) -> Blank:
    """What a run's state looks like, for reading its checkpoints."""
    model: LanguageModel = build(config["model"], "model")
    params = model.init(np.random.default_rng(0), dtype=config["dtype"])
    return Blank(params, zero_states(model, config["batch_size"], config["dtype"], like=np.zeros(0)))


def corpus_of(about: dict[str, Any]) -> Corpus:
    """The corpus that a run's configuration describes."""
    if "corpus" not in about:
        raise RunError("the run was made in Python and does not say where its text is: open it with its corpus there")
    return corpora.load(about["corpus"], about.get("data_dir"), min_count=about.get("min_count"))


def expect_corpus(config: dict[str, Any], corpus: Corpus, path: str) -> None:
    """Raise RunError unless a corpus is the one that a run was trained on."""
    theirs = config["corpus"]
    if theirs["fingerprint"] != corpus.fingerprint:
        own = theirs["name"] == corpus.name == "pydoc"
        way = "use the Python that it was trained with, whose version its log has"
        way = way if own else "name its folder with --data-dir"
        raise RunError(
            f"{path} was trained on another text: {theirs['name']} with {theirs['words']:,} words and fingerprint "
            f"{theirs['fingerprint'][:12]}, and this one, {corpus.name}, has {len(corpus.vocabulary):,} words and "
            f"{corpus.fingerprint[:12]}: {way}"
        )


def weights_digest(params: Params) -> str:
    """The SHA-256 of some weights: what a fine-tuned run began with."""
    digest = hashlib.sha256()
    for name, leaf in leaves(to_host(params)):
        digest.update(f"{name} {leaf.dtype} {leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def describe_task(task: LanguageTask, corpus: Corpus, device: Device, about: dict[str, Any] | None) -> dict[str, Any]:
    """What a run's folder says of it, beside its recipe and its seed."""
    described = {
        "kind": KIND,
        "about": about or {},
        "model": describe(task.model, "model"),
        "regularizer": describe(task.regularizer, "regularizer"),
        **{name: describe(getattr(task, name), name) for name in SETTINGS},
        "device": device.name,
        "corpus": {"name": corpus.name, "words": len(corpus.vocabulary), "fingerprint": corpus.fingerprint},
        "vocabulary": " ".join(corpus.vocabulary.words),  # words hold no white space
    }
    return described if task.start is None else {**described, "start": weights_digest(task.start)}
