r"""The explorer's network: an LSTM of eight units that reads digits row by row, trained when the site is built.

It is trained with variational dropout, so that it still answers when units are dropped: without, three units of eight
are enough for any other answer, and every search looks equally good.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import minadv
from minadv.data.images import load
from minadv.data.images.sequences import as_sequences
from minadv.models import Classifier
from minadv.regularizers import VD
from minadv.training.optimizers import Adam

UNITS, P, SEED, EPOCHS = 8, 0.15, 0, 60
DIGITS = (3, 8, 5, 9, 4, 2)
"""The classes of which the page shows one test image each."""


@functools.cache
def trained() -> dict[str, Any]:
    """Train it, in a few seconds, and pick the examples: of each class the first test image that it gets right."""
    data = as_sequences(load("digits", dtype=np.float64), by="row")
    model = Classifier(n_in=8, n_hidden=UNITS, n_classes=10, engine="plain")
    how: dict[str, Any] = {"regularizer": VD(p=P), "optimizer": Adam(0.01), "batch_size": 50}
    run = minadv.fit(model, data, epochs=EPOCHS, seed=SEED, workers=1, progress=False, **how)
    p = run.predict(data.test.x)  # (N, C)
    right = p.argmax(axis=1) == data.test.y
    examples = []
    for digit in DIGITS:
        n = int(np.flatnonzero(right & (data.test.y == digit))[0])
        examples.append({"x": data.test.x[n].tolist(), "y": digit})
    cell = run.params.cells[0]
    named = {"W": cell.W, "U": cell.U, "b": cell.b, "V": run.params.V, "c": run.params.b}
    return {
        **{name: array.tolist() for name, array in named.items()},
        "examples": examples,
        "test_error": float(100 * (1 - right.mean())),
        "trained": f"variational dropout with p = {P}, Adam at 0.01, {EPOCHS} epochs, seed {SEED}",
    }
