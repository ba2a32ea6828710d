r"""Reading texts with a classifier: a batch of documents, how much work it is, and the answers without gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from minadv import layers
from minadv.backend import Array, is_device, same_place
from minadv.data.texts.buckets import in_length_order, make_batch, steps_of
from minadv.data.texts.documents import Documents
from minadv.fast import reusing
from minadv.models import stack
from minadv.models.encoder import Encoder
from minadv.models.text import TextBatch, TextClassifier
from minadv.training.parallel.inference import share
from minadv.training.task import Load

PIECE = 64  # steps that an evaluation keeps in memory at a time


def text_batch(
    model: TextClassifier, documents: Documents, rows: Array, *, max_tokens: int | None, part: slice | None = None
) -> TextBatch:
    """The batch of these documents, on the device of the model's parameters."""
    made, like = make_batch(documents, rows, part=part, max_tokens=max_tokens), like_params(model)
    valid = None if bool(made.valid.all()) else same_place(made.valid, like)
    targets = None if made.targets is None else same_place(made.targets, like)
    return TextBatch(same_place(made.tokens, like), targets, valid)


def evaluate(model: TextClassifier, params: Any, documents: Documents, *, max_tokens: int | None) -> dict[str, Any]:
    """Mean NLL and error in per cent, of the full network."""
    nll = wrong = 0.0
    for _, targets, logits in read(model, params, documents, max_tokens=max_tokens):
        assert targets is not None
        nll += float(layers.cross_entropy(logits, targets)[0].sum())
        wrong += float((logits.argmax(axis=-1) != targets).sum())
    return {"loss": nll / len(documents), "error": 100 * wrong / len(documents)}


def read(
    model: TextClassifier, params: Any, documents: Documents, *, max_tokens: int | None, batch_size: int = 250
) -> list[tuple[Array, Array | None, Array]]:
    """Every document once, in batches of like length: their rows, their targets, and the full network's logits (B, C).

    Nothing is differentiated, so that a few steps at a time are all that is kept in memory.
    """
    return share(Texts(model, params, documents, max_tokens, batch_size))


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents that a classifier reads, in batches of like length."""

    model: TextClassifier
    params: Any
    documents: Documents
    max_tokens: int | None
    batch_size: int

    @cached_property
    def groups(self) -> list[Array]:
        """The rows of each batch."""
        return list(in_length_order(self.steps, self.batch_size))

    @cached_property
    def steps(self) -> Array:
        return steps_of(self.documents, max_tokens=self.max_tokens)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def load(self) -> Load:
        dtype = str(self.params.encoder.E.dtype)
        return load_of(self.model, dtype, float(self.steps.sum()), len(self.documents), padded=True)

    def reader(self) -> Callable[[int], tuple[Array, Array | None, Array]]:
        model = reusing(replace(self.model, truncate=PIECE))

        def read(number: int) -> tuple[Array, Array | None, Array]:
            rows = self.groups[number]
            batch = text_batch(self.model, self.documents, rows, max_tokens=self.max_tokens)
            with model.scope():
                features, _, _ = model.body(self.params, batch, masks={}, noise=None)
                logits: Array = model.logits(self.params, features)[-1]
            return rows, batch.targets, logits

        return read


def like_params(model: Encoder) -> Array:
    """An array that is on the device of the parameters of a task's model."""
    assert model.frequencies is not None
    return model.frequencies


def load_of(model: Encoder, dtype: str, tokens: float, examples: int, *, padded: bool) -> Load:
    """How much work a pass over ``tokens`` tokens is, with padding or without."""
    H, D, on_gpu = model.n_hidden, model.n_embedding, is_device(model.frequencies)
    weights = 4 * H * H * np.dtype(dtype).itemsize
    ready = stack.compiles_passes(model, model.cell, model.n_hidden, dtype, padded=padded, on_gpu=on_gpu)
    return Load(4.0 * tokens * H * (H + D), weights, examples, on_gpu, compiled=ready)
