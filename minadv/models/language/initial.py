r"""The settings of a language model, checked, and its initial parameters, drawn on the host as AWD-LSTM has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv import lstm
from minadv.backend import Array
from minadv.base.numbers import Few, number_of
from minadv.models import sizes
from minadv.models.language.records import Params


def expect_settings(model: Any) -> None:
    """Raise ValueError for layers that do not fit each other; the fields themselves have been checked."""
    if not 1 <= len(model.hidden) <= number_of(Few).most:
        raise ValueError(f"hidden has {len(model.hidden)} layers, expected 1 to {number_of(Few).most:,}")
    if model.tied and model.hidden[-1] != model.n_embed:
        raise ValueError(
            f"the last layer has {model.hidden[-1]} units and n_embed is {model.n_embed}: tied weights need the two "
            "equal; change one of them, or give tied=False (--untied)"
        )


def count(n_embed: int, layers: list[tuple[int, int]], n_words: int, *, tied: bool) -> int:
    """The number of parameters."""
    return n_words * n_embed + sizes.parameters("lstm", layers) + (0 if tied else n_words * layers[-1][1]) + n_words


def draw(
    rng: np.random.Generator,
    n_embed: int,
    layers: list[tuple[int, int]],
    n_words: int,
    *,
    tied: bool,
    dtype: npt.DTypeLike,
) -> Params:
    r"""Initial parameters for layers of I inputs and H units each.

    The embedding is uniform on ±0.1 (as are untied output weights) and b is zero; everything of a cell with H units is
    uniform on :math:`\pm 1/\sqrt H`, its bias the sum of two such draws (PyTorch's cell has two biases).
    """

    def uniform(limit: float, *shape: int) -> Array:
        return rng.uniform(-limit, limit, shape).astype(dtype)

    E = uniform(0.1, n_words, n_embed)
    cells = []
    for I, H in layers:
        limit = 1 / math.sqrt(H)
        W, U = uniform(limit, I, 4 * H), uniform(limit, H, 4 * H)
        cells.append(lstm.Params(W, U, uniform(limit, 4 * H) + uniform(limit, 4 * H)))
    P = None if tied else uniform(0.1, n_words, layers[-1][1])
    return Params(E, tuple(cells), P, np.zeros(n_words, dtype))
