r"""The settings of a language model, checked, and its initial parameters, drawn on the host as AWD-LSTM has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv import lstm
from minadv.backend import Array
from minadv.models.language.records import Params


def expect_settings(model: Any) -> None:
    """Raise ValueError for a setting of a language model that is out of range."""
    if model.n_words < 2:
        raise ValueError(f"n_words is {model.n_words}, expected a vocabulary of at least 2")
    if model.n_embed < 1:
        raise ValueError(f"n_embed is {model.n_embed}, expected at least 1")
    if not model.hidden or any(H < 1 for H in model.hidden):
        raise ValueError(f"hidden is {model.hidden}, expected the number of units of each layer, at least 1")
    if model.tied and model.hidden[-1] != model.n_embed:
        raise ValueError(
            f"the last layer has {model.hidden[-1]} units and n_embed is {model.n_embed}: tied weights need the two "
            "equal; change one of them, or give tied=False (--untied)"
        )
    for name in ("alpha", "beta"):
        if not 0 <= getattr(model, name) < math.inf:
            raise ValueError(f"{name} is {getattr(model, name)}, expected zero or a positive number")
    for name in ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "dropconnect"):
        if not 0 <= getattr(model, name) < 1:
            raise ValueError(f"{name} is {getattr(model, name)}, expected a probability of dropping, below 1")
    if model.block is not None and model.block < 1:
        raise ValueError(f"block is {model.block}, expected at least 1 row, or None")


def count(n_embed: int, layers: list[tuple[int, int]], n_words: int, *, tied: bool) -> int:
    """The number of parameters."""
    recurrent = sum(4 * H * (I + H + 1) for I, H in layers)
    return n_words * n_embed + recurrent + (0 if tied else n_words * layers[-1][1]) + n_words


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
