r"""The language model that a classifier of texts is pre-trained as: the same embeddings and cells, another head.

.. math:: p_t = \mathrm{softmax}(h_t V^\top + b), \qquad NLL = \frac1T \sum_t -\log p_t(w_{t+1})

A batch is a piece of B streams of text, whose state is carried from one batch to the next. The features are the states
of every step.

The likelihood of the whole vocabulary's softmax is too dear to train on, and the head is given no noise from which it
could take a sample. So the sample comes with the **targets**: they are either the words themselves, for the softmax of
the whole vocabulary, or a `minadv.words.sampled_softmax.Sampled`, the words beside a batch's candidates, for the
sampled softmax. ``with_candidates`` makes the second from the first, once a step::

    batch = model.with_candidates(rng, LMBatch(tokens, targets))
    term = Plain()(model, params, batch, rng=rng, likelihood=1.0, state=state)

Every pass over such a batch is then scored against the same candidates, whatever regularizer runs it. Distances between
two passes are those of the whole vocabulary, by blocks of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from minadv import layers
from minadv.backend import Array, namespace, to_host
from minadv.base.checks import expect_shape
from minadv.base.initial import glorot
from minadv.base.numbers import Size
from minadv.base.shared_draws import Rng
from minadv.base.trees import leaves
from minadv.distances import Distance
from minadv.models import encoder, text
from minadv.models.comparing import step_weights
from minadv.models.encoder import Encoder, Noise, Piece
from minadv.protocol import Comparison, Likelihood, ModelGrads
from minadv.words import sampled_softmax, softmax_blocks
from minadv.words.sampled_softmax import Sampled


@dataclass(frozen=True)
class LMBatch:
    """A piece of B streams: words, and the words that follow them."""

    tokens: Array  # (T, B), integers
    targets: Array | Sampled | None = None  # (T, B)

    def __post_init__(self) -> None:
        words = self.targets.words if isinstance(self.targets, Sampled) else self.targets
        namespace(tokens=self.tokens, targets=words)
        expect_shape("tokens", self.tokens, ("T", "B"), "time first")
        if self.tokens.dtype.kind not in "iu":
            raise TypeError(f"tokens has dtype {self.tokens.dtype}, expected integers")
        if words is not None:
            expect_shape("targets", words, self.tokens.shape, "the word after each of tokens")

    def __len__(self) -> int:
        return int(self.tokens.shape[1])

    @cached_property
    def extent(self) -> tuple[int, int]:
        """The least and the largest token, found once."""
        return int(self.tokens.min()), int(self.tokens.max())


@dataclass(frozen=True)
class Params:
    encoder: encoder.Params | None
    V: Array | None  # (words, H), one row a word
    b: Array | None  # (words,)


@dataclass(frozen=True)
class TextLM(Encoder):
    """The configuration; parameters are apart. The fields before ``n_candidates`` are those of `Encoder`.

    Candidates are drawn from ``frequencies`` too.
    """

    n_candidates: Size = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_candidates >= self.n_words:
            raise ValueError(
                f"n_candidates is {self.n_candidates}, expected 1 to {self.n_words - 1}, fewer than n_words: "
                "give the targets without candidates for the whole vocabulary"
            )

    @property
    def n_params(self) -> int:
        """The number of parameters."""
        return super().n_params + self.n_words * (self.n_hidden + 1)

    @property
    def n_kept(self) -> int:
        """Numbers that a pass keeps of each step of an example: the logits of its candidates too."""
        return super().n_kept + 2 * self.n_candidates

    def valid(self, batch: LMBatch) -> Array:
        return namespace(batch.tokens).ones(batch.tokens.shape, dtype=bool)  # type: ignore[no-any-return]

    def init(self, rng: np.random.Generator, *, dtype: npt.DTypeLike = np.float32) -> Params:
        """Initial parameters, drawn on the host."""
        first = self.encoder_init(rng, dtype)
        return Params(first, glorot(rng, self.n_words, self.n_hidden, dtype), np.zeros(self.n_words, dtype))

    @cached_property
    def unigram(self) -> Array:
        """The distribution that candidates are drawn from, (n_words,), float64 on the host."""
        if self.frequencies is None:
            return np.full(self.n_words, 1 / self.n_words)
        return np.asarray(to_host(self.frequencies), dtype=np.float64)

    def with_candidates(self, rng: Rng, batch: LMBatch) -> LMBatch:
        """The batch with candidates drawn for it: common to its examples, and corrected for how they were drawn."""
        if batch.targets is None or isinstance(batch.targets, Sampled):
            raise ValueError("the targets are None or have candidates already, expected an array of words (T, B)")
        xp = namespace(batch.tokens)
        candidates = sampled_softmax.draw(rng, self.unigram, self.n_candidates)
        return replace(batch, targets=sampled_softmax.correct(batch.targets, candidates, xp.asarray(self.unigram)))

    def body(
        self,
        params: Params,
        batch: LMBatch,
        *,
        masks: Mapping[str, Array],
        noise: Noise | None,
        state: tuple[Any, ...] | None = None,
        dx: Array | None = None,
    ) -> tuple[Array, tuple[Any, ...], Piece]:
        enc = params.encoder
        assert enc is not None
        self.expect_input(enc, batch, masks, dx)
        return self.run(
            enc,
            batch.tokens,
            steps="all",
            valid=None,
            masks=masks,
            noise=noise,
            state=state,
            dx=dx,
            at=self.moments(enc),
        )

    def body_backward(
        self,
        params: Params,
        cache: Piece,
        dfeatures: Array,
        *,
        weights: bool = True,
        inputs: bool = False,
        masks: Sequence[str] = (),
    ) -> ModelGrads:
        assert params.encoder is not None
        back = self.run_backward(
            params.encoder, cache, dfeatures, steps="all", weights=weights, inputs=inputs, masks=masks
        )
        return replace(back, params=Params(back.params, None, None) if weights else None)

    def logits(self, params: Params, features: Array) -> Array:
        """(T, B, words), whole: for small vocabularies."""
        return softmax_blocks.logits(features, *_output(params))

    def head(self, params: Params, features: Array, targets: Array | Sampled | None) -> Likelihood:
        """The mean NLL over the steps of each stream, against candidates or the whole vocabulary."""
        if targets is None:
            raise ValueError("targets is None: the likelihood needs a batch with targets")
        V, b = _output(params)
        if isinstance(targets, Sampled):
            nll, dfeatures, dV, db = sampled_softmax.sampled_softmax(features, V, b, targets, weight=1 / len(features))
            return Likelihood(nll.mean(axis=0), dfeatures, Params(None, dV, db))
        layers.expect_range("targets", targets, self.n_words)
        weight = step_weights(None, 1 / len(features), features)
        sweep = softmax_blocks.nll(features, V, b, targets, weight=weight)
        assert sweep.f is not None
        return Likelihood(sweep.values.mean(axis=0).astype(features.dtype), sweep.f, Params(None, sweep.W, sweep.b))

    def nll(self, params: Params, features: Array, targets: Array) -> Array:
        """The NLL of every word under the whole vocabulary's softmax, (T, B): perplexity is the exp of its mean."""
        layers.expect_range("targets", targets, self.n_words)
        weight = step_weights(None, 1.0, features)
        return softmax_blocks.nll(features, *_output(params), targets, weight=weight, gradients=False).values

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
        """Distances of the whole vocabulary, by blocks of rows; each step counts 1/T unless ``lam`` is given."""
        weight = step_weights(lam, 1 / len(features0), features0)  # (T, B or 1)
        sweep = softmax_blocks.distance(
            features0, features1, *_output(params), distance, weight=weight, stop_base=stop_base, weights=weights
        )
        value = (weight * sweep.values).sum(axis=0)
        return Comparison(value, sweep.f0, sweep.f1, Params(None, sweep.W, sweep.b) if weights else None)


def _output(params: Params) -> tuple[Array, Array]:
    assert params.V is not None and params.b is not None
    return params.V, params.b


def pretrained(params: Params, classifier: text.Params) -> text.Params:
    """The classifier's parameters with the embeddings and cells of a language model; raises unless they fit."""
    mine, theirs = dict(leaves(params.encoder)), dict(leaves(classifier.encoder))
    if mine.keys() != theirs.keys():
        raise ValueError(
            f"the language model has {sorted(mine)}, the classifier {sorted(theirs)}: expected the same cells in both"
        )
    for name, value in mine.items():
        namespace(**{f"the language model's {name}": value, f"the classifier's {name}": theirs[name]})
        expect_shape(f"the language model's {name}", value, theirs[name].shape, "as the classifier's")
        if value.dtype != theirs[name].dtype:
            raise TypeError(
                f"the language model's {name} has dtype {value.dtype}, the classifier's {theirs[name].dtype}"
            )
    return replace(classifier, encoder=params.encoder)
