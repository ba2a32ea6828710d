"""Small language models with everything on, and their loss written out from the protocol alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import lstm
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.models.language.model import LanguageModel, TokenBatch

DROPOUTS = {
    "word_dropout": 0.3,
    "input_dropout": 0.4,
    "hidden_dropout": 0.3,
    "output_dropout": 0.4,
    "dropconnect": 0.5,
}
PENALTIES = {"alpha": 0.7, "beta": 1.3}


@dataclass(frozen=True)
class Net:
    model: LanguageModel
    params: Any
    batch: TokenBatch
    state: tuple[lstm.State, ...]
    masks: dict[str, Any]  # of real numbers, so that they have a slope
    noise: Any


def language(
    rng: np.random.Generator,
    put: Callable[[Any], Any],
    *,
    T: int = 4,
    B: int = 3,
    V: int = 7,
    D: int = 3,
    hidden: tuple[int, ...] = (4, 2, 3),
    size: float = 1.0,
    **options: Any,
) -> Net:
    """A model with weights of moderate size in float64, a batch with repeated words, a state, masks and noise."""
    model = LanguageModel(V, D, hidden, **options)
    params = tree_map(lambda a: size * rng.uniform(-1, 1, a.shape), model.init(rng, dtype=np.float64))
    tokens = rng.integers(0, V, (T + 1, B))
    batch = put(TokenBatch(tokens[:-1], tokens[1:]))
    state = tuple(lstm.State(rng.uniform(-1, 1, (B, H)), rng.uniform(-1, 1, (B, H))) for H in hidden)
    masks = {f"layer{n}": rng.uniform(0, 2, (B, H)) for n, H in enumerate(hidden)}
    noise = model.noise(rng, batch)
    while noise is not None and not lively(noise):
        noise = model.noise(rng, batch)
    return Net(model, put(params), batch, put(state), put(masks), noise)


def lively(noise: Any) -> bool:
    """Whether every mask drops something, and those of the examples leave each of them something."""
    masks = [to_host(keep) for _, keep in leaves(noise)]
    by_example = [to_host(keep) for _, keep in leaves((noise.inputs, noise.outputs))]
    return all(not keep.all() for keep in masks) and all(keep.any(axis=1).all() for keep in by_example)


def fewer(xp: Any) -> dict[str, int]:
    """One random direction a gradient on CuPy, which is slow without a GPU; every entry on NumPy."""
    return {} if xp is np else {"elementwise": 0, "directions": 1}
