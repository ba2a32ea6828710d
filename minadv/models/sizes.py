r"""How large recurrent layers are, told from their sizes alone: nothing is drawn or run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

BLOCKS = {"rnn": 1, "lstm": 4, "gru": 3}
"""Gates side by side in the columns of a cell's W, U and b."""

Layers: TypeAlias = Iterable[tuple[int, int]]
"""The inputs I and the units H of each layer."""


def alike(n_in: int, n_hidden: int, n_layers: int) -> list[tuple[int, int]]:
    """Layers of as many units each, the first of which reads ``n_in`` inputs."""
    return [(n_in if n == 0 else n_hidden, n_hidden) for n in range(n_layers)]


def parameters(cell: str, layers: Layers) -> int:
    """The number of parameters: W (I, gH), U (H, gH) and b (gH) a layer, and the GRU's bn (H)."""
    g = BLOCKS[cell]
    return sum(g * H * (I + H + 1) + (H if cell == "gru" else 0) for I, H in layers)


def kept(cell: str, layers: Layers) -> int:
    """Numbers that a pass keeps of each step of an example: its inputs, its gates and its states."""
    return sum(I + (BLOCKS[cell] + 2) * H for I, H in layers)
