r"""What the models of text have in common: word embeddings, a dropout on them that is shared over time, and the cells.

.. math:: x_t = k \odot \bar E_{w_t} + r_t

:math:`\bar E` are the normalised embeddings of `minadv.words.embedding`; k is one scaled dropout mask an example, the
same at every step, and the noise of these models; r is the perturbation of AT and VAT, added last. The cells and what
is read from them are those of `minadv.models.classifier.Classifier`, so that masks on the recurrent connection and on
the readout mean the same here as there.

A language model and a classifier that share an `Encoder`'s settings share its `Params`: that is how a classifier takes
over what was learnt in pre-training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from minadv.backend import Array, namespace, same_place, to_host
from minadv.base import shared_draws
from minadv.base.checks import expect_floating, expect_shape
from minadv.base.numbers import Few, Finite, Probability, Size, Two
from minadv.base.shared_draws import Rng
from minadv.models import classifier, sizes, stack
from minadv.models.stack import Buffered
from minadv.protocol import ModelGrads, Site
from minadv.words import embedding
from minadv.words.embedding import Moments


@dataclass(frozen=True)
class Params:
    E: Array  # (V, D), one row a word
    cells: tuple[Any, ...]  # one cell's Params a layer


@dataclass(frozen=True)
class Noise:
    """The dropout on the embeddings, the same at every step: which dimensions are kept."""

    keep: Array  # (B, D), booleans: the tokens do not say which precision the parameters have


@dataclass(frozen=True)
class Piece:
    """Some steps of a batch as the cells see them, and what is needed to go back through them."""

    tokens: Array  # (T, B)
    at: Moments | None
    k: Array | None  # (B, D)
    cells: classifier.Cache


@dataclass(frozen=True)
class Encoder(Buffered):
    """The configuration; parameters are apart.

    ``frequencies (n_words,)``, with the sum 1, normalise the embeddings; None stands for equal ones, and
    ``normalise=False`` leaves the embeddings as they are. Frequencies are data, not configuration: they come from the
    vocabulary, and lie on the device of the parameters. ``forget_bias`` is the initial bias of an LSTM's forget gate.
    """

    n_words: Two
    n_embedding: Size
    n_hidden: Size
    _: KW_ONLY
    cell: str = "lstm"
    n_layers: Few = 1
    embedding_dropout: Probability = 0.5
    normalise: bool = True
    forget_bias: Finite = 0.0
    frequencies: Array | None = field(default=None, repr=False, compare=False, metadata={"config": False})

    def __post_init__(self) -> None:
        super().__post_init__()
        stack.by_name(self.cell)
        if self.frequencies is not None:
            _expect_frequencies(self.frequencies, self.n_words)

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._cells("last").sites

    @property
    def n_inputs(self) -> int:
        return self.n_embedding

    @property
    def _layers(self) -> list[tuple[int, int]]:
        return sizes.alike(self.n_embedding, self.n_hidden, self.n_layers)

    @property
    def n_params(self) -> int:
        """The number of parameters, without those of a head."""
        return self.n_words * self.n_embedding + sizes.parameters(self.cell, self._layers)

    @property
    def n_kept(self) -> int:
        """Numbers that a pass keeps of each step of an example, embeddings once more among them."""
        return self.n_embedding + sizes.kept(self.cell, self._layers)

    def encoder_init(self, rng: np.random.Generator, dtype: npt.DTypeLike) -> Params:
        """Embeddings uniform on (-1, 1), cells as their modules initialise them; drawn on the host."""
        options = {"forget_bias": self.forget_bias} if self.cell == "lstm" else {}
        module = stack.by_name(self.cell)
        E = rng.uniform(-1, 1, (self.n_words, self.n_embedding)).astype(dtype)
        cells = (module.init(rng, I, H, dtype=dtype, **options) for I, H in self._layers)
        return Params(E, tuple(cells))

    def noise(self, rng: Rng, batch: Any) -> Noise | None:
        if self.embedding_dropout == 0:
            return None
        uniform = shared_draws.rows(rng, lambda g, n: g.random((n, self.n_embedding)), len(batch))
        return Noise(same_place(uniform >= self.embedding_dropout, batch.tokens))

    def moments(self, params: Params) -> Moments | None:
        """What normalises the embeddings, None if nothing does; passes within one scope share it."""
        return self.once(params, self._moments) if self.normalise else None

    def _moments(self, params: Params) -> Moments:
        f = self.frequencies
        if f is None:
            f = namespace(params.E).full(self.n_words, 1 / self.n_words, dtype=params.E.dtype)
        return embedding.moments(params.E, f.astype(params.E.dtype, copy=False))

    def run(
        self,
        params: Params,
        tokens: Array,
        *,
        steps: Literal["last", "all"],
        valid: Array | None,
        masks: Mapping[str, Array],
        noise: Noise | None,
        state: tuple[Any, ...] | None,
        dx: Array | None,
        at: Moments | None,
    ) -> tuple[Array, tuple[Any, ...], Piece]:
        """Embed ``tokens (T, B)``, whose range is checked already, and run the cells: features, last state, piece."""
        x = embedding.lookup(params.E, tokens, at, check=False)  # (T, B, D)
        k = None
        if noise is not None:
            expect_shape("noise.keep", noise.keep, (tokens.shape[1], self.n_embedding), "one mask an example")
            k = noise.keep.astype(x.dtype) * float(1 / (1 - self.embedding_dropout))
            x *= k
        if dx is not None:
            x += dx
        features, state, cache = self._cells(steps).body(
            classifier.Params(params.cells, None, None),
            classifier.Batch(x, None, valid),
            masks=masks,
            noise=None,
            state=state,
        )
        return features, state, Piece(tokens, at, k, cache)

    def run_backward(
        self,
        params: Params,
        piece: Piece,
        dfeatures: Array,
        *,
        steps: Literal["last", "all"],
        weights: bool,
        inputs: bool,
        masks: Sequence[str],
    ) -> ModelGrads:
        """Back through a piece; ``params`` of the result are an encoder's, ``inputs`` those of the piece's steps."""
        back = self._cells(steps).body_backward(
            classifier.Params(params.cells, None, None),
            piece.cells,
            dfeatures,
            weights=weights,
            inputs=weights or inputs,
            masks=masks,
        )
        if back.params is None:
            return back
        assert back.inputs is not None
        dy = back.inputs if piece.k is None else back.inputs * piece.k
        dE = embedding.lookup_backward(params.E, piece.tokens, dy, piece.at)
        return replace(back, params=Params(dE, back.params.cells), inputs=back.inputs if inputs else None)

    def expect_input(self, params: Params, batch: Any, masks: Mapping[str, Array], dx: Array | None) -> None:
        """Raise ValueError for parameters, tokens, masks or a perturbation that do not fit."""
        namespace(tokens=batch.tokens, E=params.E, frequencies=self.frequencies, dx=dx)
        expect_shape("E", params.E, (self.n_words, self.n_embedding), "n_words and n_embedding of the model")
        low, high = batch.extent
        if low < 0 or high >= self.n_words:
            raise ValueError(
                f"tokens holds {low if low < 0 else high}, expected integers from 0 to {self.n_words - 1}: "
                "is it encoded with the vocabulary of this model?"
            )
        names = [site.name for site in self.sites]
        for name in masks:
            if name not in names:
                raise ValueError(f"masks has {name!r}, expected sites among {names}")
        if dx is not None:
            expect_shape("dx", dx, (*batch.tokens.shape, self.n_embedding), "one perturbation a step and example")

    def _cells(self, steps: Literal["last", "all"]) -> classifier.Classifier:
        """The part above the embeddings; its own softmax is not used."""
        return classifier.Classifier(
            self.n_embedding,
            self.n_hidden,
            2,
            cell=self.cell,
            n_layers=self.n_layers,
            steps=steps,
            engine=self.engine,
            buffers=self.buffers,
        )


def _expect_frequencies(f: Array, n_words: int) -> None:
    expect_floating("frequencies", f)
    expect_shape("frequencies", f, (n_words,), f"n_words is {n_words}")
    total, least = (float(value) for value in to_host((f.sum(), f.min())))
    if not (least >= 0 and abs(total - 1) < 1e-4):
        raise ValueError(
            f"frequencies have the sum {total:.6g} and the least is {least:.6g}, expected shares of the text: "
            "numbers of at least 0 with the sum 1"
        )
