r"""The head of a language model: the likelihood with its penalties, and the distance of two passes, by blocks of rows.

Features are the dropped-out outputs ``o (T, B, F)`` of the last layer. Where the temporal penalty has a weight, the raw
outputs ``h``, which it penalises, stand behind ``o``: ``(T, B, 2F)``. A distance looks at ``o`` only.
"""

from __future__ import annotations

from dataclasses import dataclass

from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.distances import Distance
from minadv.models.comparing import step_weights
from minadv.models.language.activation import activation_penalty, temporal_penalty
from minadv.protocol import Comparison, Likelihood
from minadv.words import softmax_blocks


@dataclass(frozen=True)
class Head:
    """The output weights and how they are used; ``params`` in the results of this file is the pair (dP, db)."""

    P: Array  # (V, F)
    b: Array  # (V,)
    alpha: float = 0.0
    beta: float = 0.0
    block: int | None = None


def join(o: Array, h: Array, beta: float) -> Array:
    """The features of a pass: the dropped-out outputs and, where ``beta`` asks for them, the raw ones."""
    features: Array = namespace(o).concatenate([o, h], axis=-1) if beta else o
    return features


def split(features: Array, F: int, beta: float) -> tuple[Array, Array | None]:
    """What `join` joined."""
    expect_shape("features", features, ("T", "B", 2 * F if beta else F), "as body returns them")
    return features[..., :F], features[..., F:] if beta else None


def likelihood(head: Head, features: Array, targets: Array | None) -> Likelihood:
    """The mean NLL of the T words of each example, and the activation penalties beside it."""
    xp = namespace(features=features, targets=targets)
    if targets is None:
        raise ValueError("targets is None: the likelihood needs a batch with targets")
    o, h = split(features, head.P.shape[1], head.beta)
    weight = xp.full((o.shape[0], 1), 1 / o.shape[0], dtype=o.dtype)
    sweep = softmax_blocks.nll(o, head.P, head.b, targets, weight=weight, block=head.block)
    dfeatures, penalty = sweep.f, None
    assert dfeatures is not None
    if head.alpha:
        penalty, do = activation_penalty(o, head.alpha)
        dfeatures += do
    if h is not None:
        slow, dh = temporal_penalty(h, head.beta)
        penalty = slow if penalty is None else penalty + slow
        dfeatures = xp.concatenate([dfeatures, dh], axis=-1)
    return Likelihood(sweep.values.mean(axis=0).astype(o.dtype), dfeatures, (sweep.W, sweep.b), penalty)


def word_nll(head: Head, features: Array, targets: Array) -> Array:
    """The NLL of every word, (T, B) in float64, without gradients."""
    o, _ = split(features, head.P.shape[1], head.beta)
    one = namespace(o).ones((1, 1), dtype=o.dtype)
    return softmax_blocks.nll(o, head.P, head.b, targets, weight=one, block=head.block, gradients=False).values


def comparison(
    head: Head,
    features0: Array,
    features1: Array,
    lam: Array | None,
    distance: Distance,
    *,
    stop_base: bool,
    weights: bool,
) -> Comparison:
    r"""The distance of two passes, :math:`\sum_t \lambda_t D_t` of each example, with :math:`1/T` for no ``lam``."""
    xp = namespace(features0=features0, features1=features1, lam=lam)
    F = head.P.shape[1]
    (o0, h), (o1, _) = split(features0, F, head.beta), split(features1, F, head.beta)
    weight = step_weights(lam, 1 / len(o0), o0)
    sweep = softmax_blocks.distance(
        *(o0, o1, head.P, head.b, distance),
        weight=weight,
        block=head.block,
        stop_base=stop_base,
        weights=weights,
    )

    def widen(do: Array | None) -> Array | None:
        return do if do is None or h is None else xp.concatenate([do, xp.zeros_like(do)], axis=-1)

    dfeatures1 = widen(sweep.f1)
    assert dfeatures1 is not None
    value = (weight * sweep.values).sum(axis=0)
    return Comparison(value, widen(sweep.f0), dfeatures1, (sweep.W, sweep.b) if weights else None)
