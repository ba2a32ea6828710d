r"""Small LSTMs trained on real data, for experiments that look at many masks: the digits, read row by row (T = 8)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.streams import stream
from minadv.data.images import Split, load
from minadv.data.images.batches import Batches, take
from minadv.data.images.sequences import as_sequences
from minadv.models.classifier import Batch, Classifier, Params
from minadv.regularizers import Plain, Regularizer
from minadv.training.optimizers import Adam


def digit_rows(n_classes: int, dtype: npt.DTypeLike = np.float32) -> tuple[Split, Split]:
    """Training and test digits of the first ``n_classes`` classes, 8 steps of 8 pixels."""
    data = as_sequences(load("digits", dtype=dtype), by="row")

    def first(split: Split) -> Split:
        keep = split.y < n_classes
        return Split(split.x[keep], split.y[keep])

    return first(data.train), first(data.test)


def train(
    model: Classifier,
    data: Split,
    *,
    seed: int,
    steps: int = 300,
    batch: int = 64,
    lr: float = 1e-2,
    regularizer: Regularizer | None = None,
    weight: float = 1.0,
) -> Params:
    """Train with Adam on the likelihood and a regularizer; returns the parameters."""
    regularizer = regularizer or Plain()
    params = model.init(stream(seed, "init"), dtype=data.x.dtype)
    adam = Adam(lr)
    state = adam.init(params)
    batches = Batches(len(data), batch, seed)
    for step in range(steps):
        x, y, _ = take(data, batches.rows(step))
        term = regularizer(model, params, Batch(x, y), rng=stream(seed, "masks", step), weight=weight, likelihood=1.0)
        params, state = adam.step(params, term.grads, state, lr_scale=1 - step / steps)
    return params


def test_batch(data: Split, n: int) -> Batch:
    """The first ``n`` test examples."""
    x, y, _ = take(data, slice(0, n))
    return Batch(x, y)


def predictions(model: Classifier, params: Params, data: Split, masks: dict[str, Array] | None = None) -> Array:
    """The logits of every example, (N, C)."""
    x, y, _ = take(data, slice(0, len(data)))
    features, _, _ = model.body(params, Batch(x, y), masks=masks or {}, noise=None)
    logits: Array = model.logits(params, features)[-1]
    return logits


def accuracy(model: Classifier, params: Params, data: Split) -> float:
    """The share of examples whose class is predicted rightly."""
    return float((predictions(model, params, data).argmax(axis=-1) == data.y).mean())
