r"""The random masks of a language model's pass, as one explicit record, and the dropout that applies them.

==============  ==========================================================  ==========================
part            what it drops                                               drawn
==============  ==========================================================  ==========================
``words``       whole words of the vocabulary, wherever they occur          once for the batch
``inputs``      entries of the embeddings, the same at every step (locked)  for each example
``outputs``     units of each layer's output, the same at every step: what  for each example
                the next layer, or after the last the softmax, sees of it
``U``           entries of the recurrent weights (DropConnect)              once for the batch
==============  ==========================================================  ==========================

The recurrent masks of the regularizers are no part of this record: they are what the regularizers are about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minadv import lstm
from minadv.backend import Array, namespace, same_place
from minadv.base import shared_draws
from minadv.base.checks import expect_shape
from minadv.base.shared_draws import Keyed, Rng

PARTS = ("words", "inputs", "outputs", "U")


@dataclass(frozen=True)
class Rates:
    """The probability of dropping, by part; one a layer for ``outputs``."""

    words: float
    inputs: float
    outputs: tuple[float, ...]
    U: float


@dataclass(frozen=True)
class Sizes:
    """V words, D numbers an embedding, H units a layer."""

    V: int
    D: int
    H: tuple[int, ...]


@dataclass(frozen=True)
class Noise:
    """What a pass keeps: masks of True and False, None where nothing is dropped."""

    words: Array | None  # (V,)
    inputs: Array | None  # (B, D)
    outputs: tuple[Array | None, ...]  # (B, H), one a layer
    U: tuple[Array | None, ...]  # (H, 4H), one a layer


def nothing(n_layers: int) -> Noise:
    """The record of a pass that drops nothing."""
    return Noise(None, None, (None,) * n_layers, (None,) * n_layers)


def draw(rng: Rng, rates: Rates, sizes: Sizes, B: int, *, like: Array) -> Noise | None:
    """A new record for a batch of B examples, on the device of the array ``like``; None if every rate is zero."""
    if not any((rates.words, rates.inputs, *rates.outputs, rates.U)):
        return None
    return redraw(nothing(len(sizes.H)), PARTS, rng, rates, sizes, B, like=like)


def redraw(noise: Noise, parts: Iterable[str], rng: Rng, rates: Rates, sizes: Sizes, B: int, *, like: Array) -> Noise:
    """The record with some of its parts drawn anew and the others shared; always in the order of `PARTS`."""
    wanted = set(parts)
    if not wanted <= set(PARTS):
        raise ValueError(f"parts has {sorted(wanted - set(PARTS))}, expected some of {', '.join(PARTS)}")

    def by_example(p: float, n: int) -> Array | None:
        if p == 0:
            return None
        if isinstance(rng, Keyed):
            return rng.keeps(p, (B, n), by_row=True, like=like)
        return same_place(shared_draws.rows(rng, lambda g, B: g.random((B, n)) >= p, B), like)  # (B, n)

    def by_batch(p: float, *shape: int) -> Array | None:
        if p == 0:
            return None
        if isinstance(rng, Keyed):
            return rng.keeps(p, shape, by_row=False, like=like)
        return same_place(shared_draws.whole(rng).random(shape, dtype=np.float32) >= np.float32(p), like)

    new: dict[str, Any] = {}
    if "words" in wanted:
        new["words"] = by_batch(rates.words, sizes.V)
    if "inputs" in wanted:
        new["inputs"] = by_example(rates.inputs, sizes.D)
    if "outputs" in wanted:
        new["outputs"] = tuple(by_example(p, H) for p, H in zip(rates.outputs, sizes.H, strict=True))
    if "U" in wanted:
        new["U"] = tuple(by_batch(rates.U, H, 4 * H) for H in sizes.H)
    return replace(noise, **new)


def drop(a: Array, keep: Array | None, p: float) -> Array:
    r"""Dropout, :math:`a \odot k / (1-p)`; ``keep`` is broadcast to ``a``, None is no dropout.

    It is its own backward: a gradient passes through the same mask.
    """
    return a if keep is None else a * (keep.astype(a.dtype) * (1 / (1 - float(p))))


def dropconnect(
    layer: lstm.Params,
    keeps: Sequence[Array | None],
    p: float,
    once: Callable[[Array, Callable[[Array], lstm.Params]], lstm.Params],
) -> list[lstm.Params]:
    """A layer's parameters with what DropConnect leaves of U, for each of several passes.

    Passes with the same mask share one record; ``once(keep, make)`` makes it, or returns it from an earlier call.
    """

    def make(keep: Array) -> lstm.Params:
        return replace(layer, U=drop(layer.U, keep, p))

    by_mask: dict[int, lstm.Params] = {id(None): layer}
    for keep in keeps:
        if keep is not None and id(keep) not in by_mask:
            by_mask[id(keep)] = once(keep, make)
    return [by_mask[id(keep)] for keep in keeps]


def alike(noises: Sequence[Noise], n: int) -> list[list[int]]:
    """Groups of passes with the same DropConnect mask in layer n, and so with the same U."""
    found: dict[int, list[int]] = {}
    for p, noise in enumerate(noises):
        found.setdefault(id(noise.U[n]), []).append(p)
    return list(found.values())


def expect_noise(noise: Noise, sizes: Sizes, B: int) -> None:
    """Raise unless the record fits a model of these sizes and a batch of B examples."""
    if not isinstance(noise, Noise):
        raise TypeError(f"noise is a {type(noise).__name__}, expected what the model's noise() returns, or None")
    layers = len(sizes.H)
    if len(noise.outputs) != layers or len(noise.U) != layers:
        raise ValueError(f"noise is for {len(noise.outputs)} layers, expected {layers}")
    wanted: list[tuple[str, Array | None, tuple[int, ...]]] = [
        ("noise.words", noise.words, (sizes.V,)),
        ("noise.inputs", noise.inputs, (B, sizes.D)),
        *((f"noise.outputs[{n}]", noise.outputs[n], (B, H)) for n, H in enumerate(sizes.H)),
        *((f"noise.U[{n}]", noise.U[n], (H, 4 * H)) for n, H in enumerate(sizes.H)),
    ]
    for name, keep, shape in wanted:
        if keep is not None:
            namespace(**{name: keep})
            expect_shape(name, keep, shape, "a record of this model, drawn for a batch of this size")
