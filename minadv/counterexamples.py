r"""Where the bounds stop: four statements that are not theorems, each with a network that breaks it, in numbers.

Each function builds its network, enumerates its masks and returns both sides, so that the claim can be looked at and
tested. The theorems beside them are in `minadv.bounds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import bounds, layers, lstm, rnn
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.base.initial import glorot
from minadv.distances import Distance
from minadv.protocol import Comparison, ModelGrads, Site


@dataclass(frozen=True)
class Broken:
    """A claimed ``lower <= upper`` that fails: what stands on each side."""

    claim: str
    lower: float
    upper: float

    @property
    def fails(self) -> bool:
        return self.lower > self.upper


def kl_counterexample(a: float = 200.0) -> Broken:
    r"""¼ FD ≤ EL fails for KL, and by any factor: a tanh network of one unit read out with weight a.

    H = 1, T = 2, W = 1, U = 0.05, b = 0, x = (1, 0), V = (a, 0), p = ½, scale ``inverted``, base m = 1. The state at
    the end is about 0.05 m tanh(1): zero under the dropped mask (m = 0), twice the base under the kept one (m = 2).
    The logit is linear in that state, but KL grows like the logit where the two predictions disagree, and the pair of
    masks disagrees more than either does with the base.
    """
    params = rnn.Params(np.array([[1.0]]), np.array([[0.05]]), np.array([0.0]))
    x = np.array([1.0, 0.0]).reshape(2, 1, 1)

    def logits(m: float) -> Array:
        _, state, _ = rnn.forward(params, x, m=np.array([[m]]))
        return np.stack([a * state.h[:, 0], np.zeros(1)], axis=-1)[None]  # (1, 1, 2)

    chain = bounds.chain(logits(1.0), np.stack([logits(0.0), logits(2.0)]), np.array([0.5, 0.5]), distance="kl")
    return Broken("1/4 FD <= EL for KL", float(chain.fd[0] / 4), float(chain.el[0]))


def skl_counterexample(a: float = 1000.0) -> Broken:
    r"""¼ FD ≤ EL fails for the symmetrised KL of R-Drop, and by any factor: a tanh network of one unit.

    H = 1, T = 2, W = 1, b = 0, x = (1, 0), p = ½, scale ``inverted``, base m = 1. The state at the end is tanh(u m),
    u = U tanh(1). The readout falls with it: the log-odds are a under the dropped mask (m = 0) and 0 under the kept one
    (m = 2). U is such that those of the base are log a, for a > 1. The base is then near both masks: EL has log a / 8
    from the kept one and about ¼ from the dropped one, because the base gives the second class a probability of only
    1 / a. The two masks themselves are a / 4 apart.
    """
    u = np.arctanh(np.sqrt(1 - 2 * np.log(a) / a))  # tanh(u) / tanh(2u) = (1 + tanh(u)^2) / 2 = 1 - log(a) / a
    params = rnn.Params(np.array([[1.0]]), np.array([[u / np.tanh(1.0)]]), np.array([0.0]))
    x = np.array([1.0, 0.0]).reshape(2, 1, 1)

    def logits(m: float) -> Array:
        _, state, _ = rnn.forward(params, x, m=np.array([[m]]))
        return np.stack([a - a / np.tanh(2 * u) * state.h[:, 0], np.zeros(1)], axis=-1)[None]  # (1, 1, 2)

    chain = bounds.chain(logits(1.0), np.stack([logits(0.0), logits(2.0)]), np.array([0.5, 0.5]), distance="skl")
    return Broken("1/4 FD <= EL for the symmetrised KL", float(chain.fd[0] / 4), float(chain.el[0]))


def greedy_counterexample(
    n_nets: int = 100, *, n_hidden: int = 6, budget: int = 2, seed: int = 0, distance: str = "js"
) -> tuple[Broken, float]:
    r"""EL ≤ AdD fails if AdD uses the greedy mask instead of the exact one.

    Draws tiny LSTMs; EL is taken over the ball of masks within the budget, all equally likely. Returns the worst case,
    and the share of networks in which the greedy mask's distance lies below EL.
    """
    claims = []
    for n in range(n_nets):
        rng = np.random.default_rng([seed, n])
        model, params, batch = tiny_network(rng, n_hidden)
        masks = bounds.ball(np.ones(n_hidden), budget)
        w = np.full(len(masks), 1 / len(masks))
        logits = bounds.outputs(model, params, batch, masks)
        chain = bounds.chain(bounds.base_output(model, params, batch), logits, w, distance=distance)
        trace = find_adversary(model, params, batch, rng=rng, budgets=budget, distance=distance)
        assert trace.d is not None
        claims.append(Broken("EL <= D(greedy mask)", float(chain.el[0]), float(trace.d[0])))
    worst = min(claims, key=lambda claim: claim.upper / claim.lower)
    return worst, float(np.mean([claim.fails for claim in claims]))


def ball_counterexample(*, n_hidden: int = 6, budget: int = 1, p: float = 0.5, seed: int = 1) -> Broken:
    """EL over all masks is not bounded by AdD over a ball: masks outside the ball can be further away."""
    model, params, batch = tiny_network(np.random.default_rng(seed), n_hidden)
    base = bounds.base_output(model, params, batch)
    everywhere, near = bounds.all_masks(n_hidden), bounds.ball(np.ones(n_hidden), budget)
    el = bounds.chain(
        base, bounds.outputs(model, params, batch, everywhere), bounds.bernoulli_weights(everywhere, p)
    ).el
    add = bounds.chain(base, bounds.outputs(model, params, batch, near), bounds.bernoulli_weights(near, p)).add
    return Broken("EL over all masks <= AdD over the ball", float(el[0]), float(add[0]))


@dataclass(frozen=True)
class Sequences:
    """The batch of a `Tiny` network."""

    x: Array  # (T, B, I)

    def __len__(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True)
class Tiny:
    """An LSTM read out by a softmax from its last state; it has as much of `minadv.protocol` as a search needs."""

    H: int

    @property
    def sites(self) -> tuple[Site, ...]:
        return (Site("layer0", self.H),)

    def body(
        self, params: Any, batch: Sequences, *, masks: Mapping[str, Array], noise: Any = None, state: Any = None
    ) -> tuple[Array, lstm.State, lstm.Cache]:
        _, last, cache = lstm.forward(params["cell"], batch.x, m=masks.get("layer0"), state=state)
        return last.h[None], last, cache

    def body_backward(
        self, params: Any, cache: lstm.Cache, dfeatures: Array, *, weights: bool = True, masks: Sequence[str] = ()
    ) -> ModelGrads:
        dlast = lstm.State(dfeatures[0], np.zeros_like(dfeatures[0]))
        grads = lstm.backward(params["cell"], cache, None, dstate=dlast, weights=weights)
        assert grads.m is not None
        return ModelGrads(grads.params, {"layer0": grads.m}, None, grads.state)

    def logits(self, params: Any, features: Array) -> Array:
        return layers.affine(features, params["V"], params["b"])

    def compare(
        self, params: Any, features0: Array, features1: Array, lam: Any, distance: Distance, **wanted: bool
    ) -> Comparison:
        d, _, dlogits1 = distance(self.logits(params, features0), self.logits(params, features1))
        return Comparison(d[0], None, dlogits1 @ params["V"].T, None)


def tiny_network(rng: np.random.Generator, n_hidden: int) -> tuple[Any, dict[str, Any], Sequences]:
    """A random LSTM of a few units with strong recurrent weights, and one random sequence of two inputs a step."""
    cell = lstm.init(rng, 2, n_hidden, dtype=np.float64)
    V = glorot(rng, n_hidden, 3, np.float64)
    params = {"cell": lstm.Params(cell.W, 2 * cell.U, cell.b), "V": 3 * V, "b": np.zeros(3)}
    return Tiny(n_hidden), params, Sequences(rng.standard_normal((6, 1, 2)))
