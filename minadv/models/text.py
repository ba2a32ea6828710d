r"""A classifier of texts: normalised word embeddings, recurrent layers, a small ReLU layer, a softmax at the end.

.. math:: r = \mathrm{relu}(h_T W_1 + b_1), \qquad p = \mathrm{softmax}(r V + b)

The features are the last state alone, ``(1, B, H)``: the ReLU layer and the softmax are the head. So the site
``"readout"`` is the last hidden state, as in `minadv.models.classifier.Classifier`, beside ``"layer0"``, ... on the
recurrent connections.

Padding stands in **front** of a text: the state is zero until its first word, and its last word is at the last step of
the batch, for texts of every length. With ``truncate`` only the last steps are differentiated. The steps before are run
without being kept; the state they leave is a constant, and its masked copy has its term (u = 0) in the influence map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from minadv import layers
from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.base.initial import glorot
from minadv.base.numbers import Size, Two
from minadv.distances import Distance
from minadv.models import encoder
from minadv.models.comparing import compare_heads, step_weights
from minadv.models.encoder import Encoder, Noise, Piece
from minadv.protocol import Comparison, Likelihood, ModelGrads


@dataclass(frozen=True)
class TextBatch:
    tokens: Array  # (T, B), integers; any word of the vocabulary on padding
    targets: Array | None = None  # (B,) classes; None for unlabelled texts
    valid: Array | None = None  # (T, B), False on padding, which stands in front

    def __post_init__(self) -> None:
        namespace(tokens=self.tokens, targets=self.targets, valid=self.valid)
        expect_shape("tokens", self.tokens, ("T", "B"), "time first")
        if self.tokens.dtype.kind not in "iu":
            raise TypeError(f"tokens has dtype {self.tokens.dtype}, expected integers")
        B = self.tokens.shape[1]
        if self.targets is not None:
            expect_shape("targets", self.targets, (B,), f"tokens has B = {B} texts, time first")
        if self.valid is not None:
            expect_shape("valid", self.valid, self.tokens.shape, "the shape of tokens")
            if not bool(self.valid[-1].all()):
                text = int((~self.valid[-1].astype(bool)).argmax())
                raise ValueError(
                    f"valid is False at the last step of text {text}: expected padding in front, and no empty text"
                )

    def __len__(self) -> int:
        return int(self.tokens.shape[1])

    @cached_property
    def extent(self) -> tuple[int, int]:
        """The least and the largest token, found once: a pass compares them with the vocabulary."""
        return int(self.tokens.min()), int(self.tokens.max())


@dataclass(frozen=True)
class Params:
    encoder: encoder.Params | None
    W1: Array | None  # (H, R)
    b1: Array | None  # (R,)
    V: Array | None  # (R, C), C = 1 for the sigmoid
    b: Array | None  # (C,)


@dataclass(frozen=True)
class Cache:
    first: int  # the step at which the differentiated part begins
    batch: TextBatch
    piece: Piece


@dataclass(frozen=True)
class TextClassifier(Encoder):
    """The configuration; parameters are apart. The fields before ``n_classes`` are those of `Encoder`.

    ``output="sigmoid"`` is a head with one output z for two classes, whose logits are (0, z). ``truncate`` is the
    number of steps, from the end, through which gradients go (the paper: 400; None: all).
    """

    n_classes: Two = 2
    n_relu: Size = 30
    output: Literal["softmax", "sigmoid"] = "softmax"
    truncate: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output == "sigmoid" and self.n_classes != 2:
            raise ValueError(f"n_classes is {self.n_classes}, expected 2, for the sigmoid")

    @property
    def n_params(self) -> int:
        """The number of parameters."""
        n_out = 1 if self.output == "sigmoid" else self.n_classes
        return super().n_params + (self.n_hidden + 1) * self.n_relu + (self.n_relu + 1) * n_out

    def valid(self, batch: TextBatch) -> Array:
        if batch.valid is None:
            return namespace(batch.tokens).ones(batch.tokens.shape, dtype=bool)  # type: ignore[no-any-return]
        return batch.valid

    def init(self, rng: np.random.Generator, *, dtype: npt.DTypeLike = np.float32) -> Params:
        """Initial parameters, drawn on the host."""
        n_out = 1 if self.output == "sigmoid" else self.n_classes
        return Params(
            encoder=self.encoder_init(rng, dtype),
            W1=glorot(rng, self.n_hidden, self.n_relu, dtype),
            b1=np.zeros(self.n_relu, dtype),
            V=glorot(rng, self.n_relu, n_out, dtype),
            b=np.zeros(n_out, dtype),
        )

    def body(
        self,
        params: Params,
        batch: TextBatch,
        *,
        masks: Mapping[str, Array],
        noise: Noise | None,
        state: tuple[Any, ...] | None = None,
        dx: Array | None = None,
    ) -> tuple[Array, tuple[Any, ...], Cache]:
        enc = params.encoder
        assert enc is not None
        self.expect_input(enc, batch, masks, dx)
        at = self.moments(enc)

        def run(first: int, last: int, state: Any) -> tuple[Array, tuple[Any, ...], Piece]:
            return self.run(
                enc,
                batch.tokens[first:last],
                steps="last",
                valid=None if batch.valid is None else batch.valid[first:last],
                masks=masks,
                noise=noise,
                state=state,
                dx=None if dx is None else dx[first:last],
                at=at,
            )

        T = len(batch.tokens)
        kept = T if self.truncate is None else min(self.truncate, T)
        for first in range(0, T - kept, kept):
            with self.scope():  # the state is a copy, and the rest of the piece is not needed
                _, state, _ = run(first, min(first + kept, T - kept), state)
        features, state, piece = run(T - kept, T, state)
        return features, state, Cache(T - kept, batch, piece)

    def body_backward(
        self,
        params: Params,
        cache: Cache,
        dfeatures: Array,
        *,
        weights: bool = True,
        inputs: bool = False,
        masks: Sequence[str] = (),
    ) -> ModelGrads:
        """As the protocol has it; the steps before the truncation and the state given to them have no gradient."""
        xp = namespace(dfeatures)
        assert params.encoder is not None
        back = self.run_backward(
            params.encoder, cache.piece, dfeatures, steps="last", weights=weights, inputs=inputs, masks=masks
        )
        dx = back.inputs
        if dx is not None and cache.first:
            dx = xp.concatenate([xp.zeros((cache.first, *dx.shape[1:]), dx.dtype), dx])
        return ModelGrads(
            params=Params(back.params, None, None, None, None) if weights else None,
            masks=back.masks,
            inputs=dx,
            state=None if cache.first else back.state,
        )

    def logits(self, params: Params, features: Array) -> Array:
        """(N, B, C)."""
        return self.predict(params, features)[0]

    def head(self, params: Params, features: Array, targets: Array | None) -> Likelihood:
        namespace(features=features, targets=targets)
        if targets is None:
            raise ValueError("targets is None: the likelihood needs a batch with targets")
        logits, record = self.predict(params, features)
        nll, dlogits = layers.cross_entropy(logits[-1], targets)
        return Likelihood(nll, *self.predict_backward(params, record, dlogits[None]))

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
        weight, head = step_weights(lam, 1.0, features0), replace(params, encoder=None)
        return compare_heads(self, head, features0, features1, weight, distance, stop_base, weights)

    def predict(self, head: Params, features: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        """The logits (N, B, C), and for `predict_backward` the features and the layer before and after the ReLU."""
        assert head.W1 is not None and head.b1 is not None and head.V is not None and head.b is not None
        hidden = layers.affine(features, head.W1, head.b1)
        r = layers.relu(hidden)
        logits = layers.affine(r, head.V, head.b)
        if self.output == "sigmoid":
            logits = namespace(logits).concatenate([0 * logits, logits], axis=-1)
        return logits, (features, hidden, r)

    def predict_backward(
        self, head: Params, record: tuple[Array, Array, Array], dlogits: Array, *, weights: bool = True
    ) -> tuple[Array, Params]:
        """From the logits to the features and, with ``weights``, the head's parameters."""
        assert head.W1 is not None and head.V is not None
        features, hidden, r = record
        if self.output == "sigmoid":
            dlogits = dlogits[..., 1:]
        dr, dV, db = layers.affine_backward(r, head.V, dlogits, weights=weights)
        dhidden = layers.relu_backward(hidden, dr)
        dfeatures, dW1, db1 = layers.affine_backward(features, head.W1, dhidden, weights=weights)
        return dfeatures, Params(None, dW1, db1, dV, db)
