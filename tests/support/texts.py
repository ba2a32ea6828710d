"""Small models of text, in float64 unless they are asked for in float32, and batches for them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minadv.base.trees import tree_map
from minadv.models.pretraining import LMBatch, TextLM
from minadv.models.text import TextBatch, TextClassifier
from tests.support.cells import RAGGED

FRONT = RAGGED[::-1].copy()  # (4, 3), lengths 4, 3, 1, padding in front


def zipf(n: int) -> Any:
    """Frequencies of n words, the last of which does not occur."""
    f = 1.0 / np.arange(1, n + 1)
    f[-1] = 0
    return f / f.sum()


def classifier(
    rng: np.random.Generator,
    put: Callable[[Any], Any],
    *,
    T: int = 4,
    B: int = 3,
    V: int = 7,
    D: int = 3,
    H: int = 4,
    C: int = 3,
    valid: Any = None,
    size: float = 1.0,
    dtype: Any = np.float64,
    **options: Any,
) -> tuple[TextClassifier, Any, TextBatch]:
    """A classifier with weights of moderate size, and a labelled batch in which words come up several times.

    Sixteen ReLU units, so that none of a few texts finds them all silent.
    """
    options = {"n_classes": C, "n_relu": 16, "frequencies": put(zipf(V)), **options}
    model = TextClassifier(V, D, H, **options)
    params = tree_map(lambda a: (size * rng.uniform(-1, 1, a.shape)).astype(dtype), model.init(rng, dtype=dtype))
    batch = TextBatch(rng.integers(0, V - 1, (T, B)), rng.integers(0, model.n_classes, B), valid)
    return model, put(params), put(batch)


def language_model(
    rng: np.random.Generator,
    put: Callable[[Any], Any],
    *,
    T: int = 4,
    B: int = 3,
    V: int = 7,
    D: int = 3,
    H: int = 4,
    **options: Any,
) -> tuple[TextLM, Any, LMBatch]:
    """A language model with weights of moderate size, and a batch with its targets."""
    options = {"n_candidates": 3, "frequencies": put(zipf(V)), **options}
    model = TextLM(V, D, H, **options)
    params = tree_map(lambda a: rng.uniform(-1, 1, a.shape), model.init(rng, dtype=np.float64))
    text = rng.integers(0, V - 1, (T + 1, B))
    return model, put(params), put(LMBatch(text[:-1], text[1:]))


def fewer(xp: Any) -> dict[str, int]:
    """One random direction a gradient on CuPy, which is slow without a GPU; every entry on NumPy."""
    return {} if xp is np else {"elementwise": 0, "directions": 1}
