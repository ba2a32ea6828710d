r"""Corpora kept as numbers, so that text is cut into words once and not at every start.

A kept corpus is one ``.npz`` file in the user's cache, named by the SHA-256 of what it was made from: the source's
fingerprint, the options, and the version of this format. It is written whole or not at all; one that cannot be read is
made again, and where nothing can be written nothing is kept.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from minadv.base.files import write_whole
from minadv.data.fetch import cache_root
from minadv.data.texts.documents import Corpus, Documents, Options, Source, build
from minadv.data.vocabulary import Vocabulary

FORMAT = 2  # to be raised whenever the same source and options would give another corpus
_PARTS = ("train", "valid", "test", "unlabelled")


def corpus_of(source: Source, options: Options, vocabulary: Vocabulary | None = None, *, cache: bool = True) -> Corpus:
    """The corpus of a source: the kept one, or one that is built and then kept; ``cache=False`` always builds."""
    if not cache:
        return build(source, options, vocabulary)
    key = json.dumps(
        {
            "format": FORMAT,
            "name": source.name,
            "source": source.fingerprint(),
            "options": asdict(options),
            "vocabulary": None if vocabulary is None else vocabulary.fingerprint,
        }
    )
    path = cache_root() / "encoded" / f"{source.name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    corpus = _read(path, source.name, key)
    if corpus is None:
        corpus = build(source, options, vocabulary)
        _write(path, key, corpus)
    return corpus


def of_file(path: Path) -> str:
    """The fingerprint of a file: the SHA-256 of its bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_files(files: Mapping[str, Path]) -> str:
    """The fingerprint of many files: the SHA-256 of the names they go by, their sizes and times of change."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        status = path.stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _write(path: Path, key: str, corpus: Corpus) -> None:
    about = {"classes": corpus.classes, "split": corpus.vocabulary.split, "removed": corpus.removed, "key": key}
    arrays = {
        "about": _bytes(json.dumps(about)),
        "words": _bytes("\n".join(corpus.vocabulary.words)),  # no word holds white space
        "counts": corpus.vocabulary.counts,
        "text": corpus.train.text,
    }
    for part in _PARTS:
        documents: Documents = getattr(corpus, part)
        arrays[f"{part}.starts"], arrays[f"{part}.lengths"] = documents.starts, documents.lengths
        if documents.labels is not None:
            arrays[f"{part}.labels"] = documents.labels
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, buffer.getvalue())
    except OSError:  # no room, or no right to write: the corpus can be used without being kept
        return


def _read(path: Path, name: str, key: str) -> Corpus | None:
    """The kept corpus; None if there is none, or it is damaged, or of another key."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            if about["key"] != key:
                return None
            words = tuple(arrays["words"].tobytes().decode().split("\n"))
            vocabulary = Vocabulary(words, arrays["counts"], about["split"])
            text = arrays["text"]
            parts = {
                part: Documents(text, arrays[f"{part}.starts"], arrays[f"{part}.lengths"], arrays.get(f"{part}.labels"))
                for part in _PARTS
            }
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):
        return None
    return Corpus(name, tuple(about["classes"]), vocabulary, removed=about["removed"], **parts)


def _bytes(text: str) -> Any:
    return np.frombuffer(text.encode(), dtype=np.uint8)
