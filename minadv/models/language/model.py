r"""A word-level language model, AWD-LSTM: that of Table 3.

.. math:: x_t = E_{w_t}, \qquad h^n = \mathrm{LSTM}_n(h^{n-1}), \quad h^0 = x, \qquad
          p(w_{t+1}) = \mathrm{softmax}(h^{last}_t P^\top + b), \qquad P = E \text{ where they are tied}

with the dropouts of `minadv.models.language.noise` around every layer. Mask sites: ``"layer0"``, ``"layer1"``, ... on
the recurrent connection of each layer, each with its own number of units.

The state is carried from batch to batch: a tuple with one `minadv.lstm.State` a layer goes into ``body`` and comes out
of it, and gradients stop at the start of a batch (truncated backpropagation through time).

The likelihood of an example is the **mean** over its T words, and a distance weighs each step by
:math:`\lambda_t = 1/T` unless told otherwise. Logits are made by blocks of rows only (`minadv.words.softmax_blocks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv import lstm
from minadv.backend import Array, namespace
from minadv.base.numbers import Probability, Size, Two, ZeroOrMore
from minadv.base.shared_draws import Rng
from minadv.base.trees import tree_add
from minadv.distances import Distance
from minadv.models import sizes, stack
from minadv.models.language import head as language_head
from minadv.models.language import initial
from minadv.models.language import noise as language_noise
from minadv.models.language.head import Head
from minadv.models.language.noise import Noise, Rates, Sizes, drop
from minadv.models.language.records import Cache, Params, States, TokenBatch, expect_inputs
from minadv.models.stack import Buffered, Inputs
from minadv.protocol import Comparison, Likelihood, ModelGrads, Site
from minadv.words import embedding, softmax_blocks

__all__ = ["LanguageModel", "Noise", "Params", "States", "TokenBatch"]


@dataclass(frozen=True)
class LanguageModel(Buffered):
    r"""The configuration; parameters are apart. The default sizes are the paper's, without noise or penalties.

    Dropouts: ``word_dropout`` (whole words), ``input_dropout`` (embeddings), ``hidden_dropout`` (between layers),
    ``output_dropout`` (after the last layer) and ``dropconnect`` (recurrent weights), all scaled by 1/(1-p). ``alpha``
    and ``beta`` weigh the penalties of `minadv.models.language.activation`, which are part of the likelihood's gradient
    and reported apart from it. ``block`` is the number of rows whose logits stand in memory at once (None: chosen by
    the vocabulary).
    """

    n_words: Two
    n_embed: Size = 400
    hidden: tuple[Size, ...] = (1150, 1150, 400)
    tied: bool = True
    word_dropout: Probability = 0.0
    input_dropout: Probability = 0.0
    hidden_dropout: Probability = 0.0
    output_dropout: Probability = 0.0
    dropconnect: Probability = 0.0
    alpha: ZeroOrMore = 0.0
    beta: ZeroOrMore = 0.0
    block: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "hidden", tuple(self.hidden))
        initial.expect_settings(self)

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(Site(f"layer{n}", H) for n, H in enumerate(self.hidden))

    @property
    def rates(self) -> Rates:
        """The probabilities of dropping, by part of the noise."""
        outputs = (self.hidden_dropout,) * (len(self.hidden) - 1) + (self.output_dropout,)
        return Rates(self.word_dropout, self.input_dropout, outputs, self.dropconnect)

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.n_words, self.n_embed, self.hidden)

    @property
    def n_params(self) -> int:
        """The number of parameters: at the paper's sizes 24 million for PTB, 34 million for WikiText-2."""
        return initial.count(self.n_embed, self._layers, self.n_words, tied=self.tied)

    @property
    def n_kept(self) -> int:
        """Numbers that a pass keeps of each step of an example."""
        return sizes.kept("lstm", self._layers) + sum(self.hidden)

    @property
    def n_inputs(self) -> int:
        return self.n_embed

    def valid(self, batch: TokenBatch) -> Array:
        return namespace(batch.tokens).ones(batch.tokens.shape, dtype=bool)  # type: ignore[no-any-return]

    def init(self, rng: np.random.Generator, *, dtype: npt.DTypeLike = np.float32) -> Params:
        """Initial parameters, as AWD-LSTM has them (`minadv.models.language.initial`)."""
        return initial.draw(rng, self.n_embed, self._layers, self.n_words, tied=self.tied, dtype=dtype)

    def noise(self, rng: Rng, batch: TokenBatch) -> Noise | None:
        return language_noise.draw(rng, self.rates, self.sizes, len(batch), like=batch.tokens)

    def redraw(self, rng: Rng, batch: TokenBatch, noise: Noise | None, parts: tuple[str, ...]) -> Noise | None:
        """The noise with some ``parts`` drawn anew, such as ``("words",)``, and the others as they are."""
        if noise is None:
            return None
        return language_noise.redraw(noise, parts, rng, self.rates, self.sizes, len(batch), like=batch.tokens)

    def body(
        self,
        params: Params,
        batch: TokenBatch,
        *,
        masks: Mapping[str, Array],
        noise: Noise | None,
        state: States | None = None,
        dx: Array | None = None,
    ) -> tuple[Array, States, Cache]:
        return self.bodies(params, batch, masks=[masks], noises=[noise], state=state, dxs=[dx])[0]

    def bodies(
        self,
        params: Params,
        batch: TokenBatch,
        *,
        masks: Sequence[Mapping[str, Array]],
        noises: Sequence[Noise | None],
        state: States | None = None,
        dxs: Sequence[Array | None] | None = None,
    ) -> list[tuple[Array, States, Cache]]:
        """``body`` of several passes over one batch; layers whose recurrent weights they share run side by side."""
        for given, noise in zip(masks, noises, strict=True):
            expect_inputs(params, batch, given, noise, state, self.sizes)
        assert params.E is not None
        rates, nothing = self.rates, language_noise.nothing(len(self.hidden))
        keeps = [noise or nothing for noise in noises]
        words = embedding.lookup(params.E, batch.tokens, check=False)  # (T, B, D)
        apart = {id(keep): keep for keep in keeps}  # passes of one noise have one x
        dropped = {name: self._drop_inputs(words, batch, keep) for name, keep in apart.items()}
        xs = [dropped[id(keep)] for keep in keeps]
        xs = [x if dx is None else x + dx for x, dx in zip(xs, dxs or [None] * len(xs), strict=True)]
        hs, cells, states, caches = xs, [], [], []  # a list of layers, each a list of passes
        for n, layer in enumerate(params.cells):
            assert layer is not None
            weights = language_noise.dropconnect(layer, [keep.U[n] for keep in keeps], rates.U, self.once)
            before = None if state is None else state[n]
            passes = [Inputs(x, before, given.get(f"layer{n}")) for x, given in zip(xs, masks, strict=True)]
            done: list[Any] = [None] * len(passes)
            for group in language_noise.alike(keeps, n):
                alike = [passes[p] for p in group]
                ran = stack.run_layer("lstm", weights[group[0]], alike, engine=self.engine, buffers=self.buffers)
                for p, result in zip(group, ran, strict=True):
                    done[p] = result
            hs = [h for h, _, _ in done]
            xs = [drop(h, keep.outputs[n], rates.outputs[n]) for h, keep in zip(hs, keeps, strict=True)]  # (T, B, H)
            cells.append(weights)
            states.append([last for _, last, _ in done])
            caches.append([cache for _, _, cache in done])
        return [
            (
                language_head.join(xs[p], hs[p], self.beta),
                tuple(layer[p] for layer in states),
                Cache(batch, tuple(layer[p] for layer in cells), tuple(layer[p] for layer in caches), keeps[p]),
            )
            for p in range(len(keeps))
        ]

    def body_backward(
        self,
        params: Params,
        cache: Cache,
        dfeatures: Array,
        *,
        weights: bool = True,
        inputs: bool = False,
        masks: Sequence[str] = (),
        dstate: States | None = None,
    ) -> ModelGrads:
        """Back through the layers, from the features and, where ``dstate`` is given, from the last states."""
        total, [(grads, dx)] = self._backward(
            params, [cache], [dfeatures], [dstate], weights=weights, inputs=inputs, masks=masks
        )
        return ModelGrads(
            params=total,
            masks={f"layer{n}": back.m for n, back in enumerate(grads) if back.m is not None},
            inputs=dx if inputs else None,
            state=tuple(back.state for back in grads),
        )

    def bodies_backward(self, params: Params, caches: Sequence[Cache], dfeatures: Sequence[Array]) -> Params:
        """The gradient of the parameters through several passes at once: the sum of what each would give."""
        total, _ = self._backward(params, caches, dfeatures, [None] * len(caches), weights=True, inputs=False, masks=())
        assert total is not None
        return total

    def _backward(
        self,
        params: Params,
        caches: Sequence[Cache],
        dfeatures: Sequence[Array],
        dstates: Sequence[States | None],
        *,
        weights: bool,
        inputs: bool,
        masks: Sequence[str],
    ) -> tuple[Params | None, list[tuple[list[lstm.Grads], Array | None]]]:
        """The parameters' gradient, summed over passes, and each pass's gradients of its layers and its first input."""
        rates, top = self.rates, len(self.hidden) - 1
        parts = [language_head.split(d, self.hidden[-1], self.beta) for d in dfeatures]
        dxs: list[Any] = [do for do, _ in parts]
        grads: list[list[lstm.Grads]] = [[] for _ in caches]
        sums: list[Any] = [None] * len(self.hidden)
        for n in range(top, -1, -1):
            dhs = [drop(dx, c.noise.outputs[n], rates.outputs[n]) for dx, c in zip(dxs, caches, strict=True)]
            if n == top:
                dhs = [dh if raw is None else dh + raw for dh, (_, raw) in zip(dhs, parts, strict=True)]
            for group in language_noise.alike([cache.noise for cache in caches], n):
                cell, keep = caches[group[0]].cells[n], caches[group[0]].noise.U[n]
                summed, each = stack.run_layer_backward(
                    cell,
                    [caches[p].caches[n] for p in group],
                    [dhs[p] for p in group],
                    [None if after is None else after[n] for after in (dstates[p] for p in group)],
                    weights=weights,
                    inputs=n > 0 or weights or inputs,
                    masks=f"layer{n}" in masks,
                )
                if summed is not None:
                    sums[n] = tree_add(sums[n], replace(summed, U=drop(summed.U, keep, rates.U)))
                for p, back in zip(group, each, strict=True):
                    grads[p].insert(0, back)
                    dxs[p] = back.x
        total = Params(self._word_grads(params, caches, dxs), tuple(sums), None, None) if weights else None
        return total, list(zip(grads, dxs, strict=True))

    def _word_grads(self, params: Params, caches: Sequence[Cache], dxs: Sequence[Array]) -> Array:
        """From the gradients of what enters the first layer, pass by pass, to that of the embedding."""
        assert params.E is not None
        dropped = [self._drop_inputs(dx, c.batch, c.noise) for dx, c in zip(dxs, caches, strict=True)]
        return embedding.lookup_backward(params.E, caches[0].batch.tokens, sum(dropped[1:], start=dropped[0]))

    def logits(self, params: Params, features: Array) -> Array:
        """(T, B, V), whole: for few rows."""
        o, _ = language_head.split(features, self.hidden[-1], self.beta)
        head = self._head(params)
        return softmax_blocks.logits(o, head.P, head.b)

    def head(self, params: Params, features: Array, targets: Array | None) -> Likelihood:
        result = language_head.likelihood(self._head(params), features, targets)
        return replace(result, params=self._head_grads(*result.params))

    def nll(self, params: Params, features: Array, targets: Array) -> Array:
        """The NLL of every word, (T, B) in float64, without gradients: for evaluation."""
        return language_head.word_nll(self._head(params), features, targets)

    def compare(
        self,
        params: Params,
        features0: Array,
        features1: Array,
        lam: Array | None,
        distance: Distance,
        *,
        stop_base: bool = False,
        weights: bool = True,
    ) -> Comparison:
        result = language_head.comparison(
            self._head(params), features0, features1, lam, distance, stop_base=stop_base, weights=weights
        )
        return result if result.params is None else replace(result, params=self._head_grads(*result.params))

    @property
    def _layers(self) -> list[tuple[int, int]]:
        """The numbers of inputs and of units, layer by layer."""
        return list(zip((self.n_embed, *self.hidden[:-1]), self.hidden, strict=True))

    def _drop_inputs(self, x: Array, batch: TokenBatch, keep: Noise) -> Array:
        """Drop whole words and entries of embeddings ``x (T, B, D)``; a gradient goes back in the same way."""
        if keep.words is not None:
            x = drop(x, keep.words[batch.tokens][..., None], self.word_dropout)
        return drop(x, keep.inputs, self.input_dropout)

    def _head(self, params: Params) -> Head:
        P = params.E if self.tied else params.P
        if P is None or params.b is None:
            raise ValueError(f"params lacks {'b' if P is not None else 'E' if self.tied else 'P'}: see init()")
        return Head(P, params.b, self.alpha, self.beta, self.block)

    def _head_grads(self, dP: Array, db: Array) -> Params:
        nothing = (None,) * len(self.hidden)
        return Params(dP, nothing, None, db) if self.tied else Params(None, nothing, dP, db)
