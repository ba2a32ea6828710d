r"""Presets and sizes that classifiers of texts and the language models that these begin with have in common.

The presets of the paper are ``imdb`` and ``elec``; ``docstrings`` is a small one for the texts that need no download,
``text`` one for a folder of one's own.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Any

from minadv.tasks.options import chosen, recipe
from minadv.training.clip import Clip
from minadv.training.optimizers import Adam
from minadv.training.schedules import ExponentialDecay

ABOUT = {
    "docstrings": "which library a docstring is from: six classes, no download, a minute",
    "text": "texts of your own: --data-dir with CLASS/*.txt (or .md), or train/ and test/ with such folders, or one "
    ".csv or .jsonl with text and label; unlabelled texts in unsup/",
    "imdb": "IMDB film reviews, good or bad (the paper's sizes, for a GPU)",
    "elec": "Elec reviews of electronics, good or bad (the paper's sizes, for a GPU)",
}
CORPORA = {"docstrings": "docstrings", "text": "folder", "imdb": "imdb", "elec": "elec"}
COMMON: dict[str, Any] = {"embed": 256, "hidden": 1024, "layers": 1, "cell": "lstm", "dropout": 0.5, "forget_bias": 0.0}
COMMON |= {"vocab_size": None, "min_count": 2, "min_documents": 1, "valid_share": 0.15, "test_share": 0.2}
SIZES = {
    "docstrings": COMMON | {"embed": 64, "hidden": 64, "dropout": 0.2, "forget_bias": 1.0, "vocab_size": 8000},
    "text": COMMON | {"embed": 64, "hidden": 64, "dropout": 0.2, "forget_bias": 1.0},
    "imdb": COMMON | {"min_documents": 2},
    "elec": COMMON | {"embed": 512, "min_documents": 2},
}
"""Vocabulary and encoder of each preset, for the classifier and for the language model."""

EMBEDDINGS = ("encoder.E",)
OF_MODEL = {"embed": "n_embedding", "hidden": "n_hidden", "layers": "n_layers", "cell": "cell"}


def encoder_of(options: Namespace, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The encoder that the options describe; sizes that no option gives are those of the language model ``before``."""
    fields = {field: chosen(options, name) for name, field in OF_MODEL.items()}
    if before is not None:
        fields |= {field: before["model"][field] for name, field in OF_MODEL.items() if getattr(options, name) is None}
    return fields | {"embedding_dropout": chosen(options, "dropout"), "forget_bias": chosen(options, "forget_bias")}


def recipe_of(options: Namespace, **particular: Any) -> Any:
    """A recipe with Adam, as a function of the number of steps in an epoch; embeddings are not clipped."""
    return partial(
        recipe,
        options,
        clip=Clip(options.clip, but=EMBEDDINGS) if options.clip else None,
        optimizer=Adam(chosen(options, "lr")),
        step_schedule=ExponentialDecay(chosen(options, "lr_decay")),
        **particular,
    )
