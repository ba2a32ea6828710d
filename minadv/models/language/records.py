r"""The records of a language model: a batch of words, the parameters, and what a backward pass needs of a forward one.

Sizes: ``T`` steps, ``B`` examples (streams of text, read side by side), ``V`` words, ``D`` numbers an embedding, ``H``
units of a layer, ``F`` those of the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minadv import layers, lstm
from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.models.language.noise import Noise, Sizes, expect_noise
from minadv.models.stack import LayerCache

States = tuple[lstm.State, ...]
"""What is carried from batch to batch: one state a layer."""


@dataclass(frozen=True)
class TokenBatch:
    """Words and those that follow them, as integers, time first.

    ``checked`` says that all words are known to lie in the vocabulary: on a GPU, a check waits for the device.
    """

    tokens: Array  # (T, B)
    targets: Array | None = None  # (T, B)
    checked: bool = False

    def __post_init__(self) -> None:
        namespace(tokens=self.tokens, targets=self.targets)
        expect_shape("tokens", self.tokens, ("T", "B"), "time first")
        if self.targets is not None:
            expect_shape("targets", self.targets, self.tokens.shape, "the word that follows each token")
        for name, array in (("tokens", self.tokens), ("targets", self.targets)):
            if array is not None and array.dtype.kind not in "iu":
                raise TypeError(f"{name} has dtype {array.dtype}, expected integers")

    def __len__(self) -> int:
        return int(self.tokens.shape[1])


@dataclass(frozen=True)
class Params:
    E: Array | None  # (V, D), the embedding; the output weights too where they are tied
    cells: tuple[lstm.Params | None, ...]  # one a layer
    P: Array | None  # (V, F), the output weights where they are not tied
    b: Array | None  # (V,)


@dataclass(frozen=True)
class Cache:
    batch: TokenBatch
    cells: tuple[lstm.Params, ...]  # with what DropConnect left of U
    caches: tuple[LayerCache, ...]
    noise: Noise


def expect_inputs(
    params: Params,
    batch: TokenBatch,
    masks: Mapping[str, Array],
    noise: Noise | None,
    state: States | None,
    sizes: Sizes,
) -> None:
    """Raise unless a pass can be run with these: parameters of these sizes, words, masks, noise and states that fit."""
    B, n_layers = len(batch), len(sizes.H)
    if params.E is None or params.b is None:
        raise ValueError("params has no E or no b: expected parameters, as the model's init() returns them")
    expect_shape("params.E", params.E, (sizes.V, sizes.D), f"n_words = {sizes.V}, n_embed = {sizes.D}")
    if len(params.cells) != n_layers:
        raise ValueError(f"params has {len(params.cells)} layers, expected {n_layers}, one for each of hidden")
    for n, (layer, H) in enumerate(zip(params.cells, sizes.H, strict=True)):
        if layer is None:
            raise ValueError(f"params.cells[{n}] is None: expected parameters, as the model's init() returns them")
        expect_shape(f"params.cells[{n}].U", layer.U, (H, 4 * H), f"hidden[{n}] = {H}")
    if state is not None and (not isinstance(state, tuple | list) or len(state) != n_layers):
        raise ValueError(f"state is a {type(state).__name__}, expected one lstm.State for each of {n_layers} layers")
    if not batch.checked:
        layers.expect_range("tokens", batch.tokens, sizes.V)
        if batch.targets is not None:
            layers.expect_range("targets", batch.targets, sizes.V)
    units = {f"layer{n}": H for n, H in enumerate(sizes.H)}
    unknown = set(masks) - set(units)
    if unknown:
        raise ValueError(f"masks has {sorted(unknown)}, expected sites among {list(units)}")
    for name, m in masks.items():
        expect_shape(f"masks[{name!r}]", m, (B, units[name]), "one mask per example")
    if noise is not None:
        expect_noise(noise, sizes, B)
