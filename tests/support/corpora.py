"""Small made-up corpora in files, and the perplexity of the model that only counts words."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np

TEXTS = {
    "train": "the cat sat\n\nthe <unk> sat on the mat\nthe end\n",
    "valid": "the dog sat\n",
    "test": "\non the mat",
}


def write_corpus(folder: Path, pattern: str = "{}.txt", compress: bool = False, **texts: str) -> Path:
    """The three files, under the pattern's names; a text given by its part's name takes the place of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in {**TEXTS, **texts}.items():
        content = text.encode()
        path = folder / pattern.format(part)
        if compress:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return folder


def unigram_perplexity(corpus: Any, part: str = "valid") -> float:
    """Of the model that knows how often each word occurs in train; every token but the first is predicted."""
    p = corpus.vocabulary.counts / corpus.vocabulary.counts.sum()
    return float(np.exp(-np.log(p[getattr(corpus, part)[1:]]).mean()))
