r"""The step in JAX: everything under ``jit``, the recurrence a ``lax.scan``, its body unrolled some steps at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from experiments.bench.contenders.problem import LR, Exchange, Given, Outcome, Problem

if TYPE_CHECKING:  # so that types are the same where JAX is not installed
    jax: Any
    jnp: Any
    JaxArray: TypeAlias = Any
else:
    import jax
    import jax.numpy as jnp
    from jax import Array as JaxArray


def logits(weights: tuple[JaxArray, ...], x: JaxArray, m: JaxArray | None, unroll: int) -> JaxArray:
    """One pass: the logits (B, C) of the last state."""
    W, U, b, V, d = weights

    def cell(state: tuple[JaxArray, JaxArray], z: JaxArray) -> tuple[tuple[JaxArray, JaxArray], None]:
        h, c = state
        i, f, g, o = jnp.split(z + (h if m is None else h * m) @ U, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros((x.shape[1], U.shape[0]), x.dtype)
    (h, _), _ = jax.lax.scan(cell, (zero, zero), x @ W + b, unroll=unroll)
    return h @ V + d


def js(z0: JaxArray, z1: JaxArray) -> JaxArray:
    """The Jensen-Shannon divergence (B,), in the form that does not cancel."""
    log_p0, log_p1 = jax.nn.log_softmax(z0), jax.nn.log_softmax(z1)
    r = log_p0 - log_p1
    s0 = -jnp.log1p(0.5 * jnp.expm1(-r))
    s1 = -jnp.log1p(0.5 * jnp.expm1(r))
    return 0.5 * (jnp.exp(log_p0) * s0 + jnp.exp(log_p1) * s1).sum(axis=1)


def flip(eps: JaxArray, im: JaxArray, budget: int) -> JaxArray:
    """The strict flip: the walk along the sorted gains, reflected at the budget."""
    gain = (1 - 2 * eps) * im
    step = jnp.where(eps == 1, 1, -1) * (gain > 0)
    order = jnp.argsort(-gain, axis=1, stable=True)
    step = jnp.take_along_axis(step, order, axis=1)
    walk = (eps == 0).sum(axis=1, keepdims=True) + jnp.cumsum(step, axis=1)
    excess = jnp.maximum(jax.lax.cummax(walk, axis=1) - budget, 0)
    before = jnp.pad(excess[:, :-1], ((0, 0), (1, 0)))
    taken = (step != 0) & (excess == before)
    taken = jnp.take_along_axis(taken, jnp.argsort(order, axis=1), axis=1)
    return jnp.where(taken, 1 - eps, eps)


def work(
    weights: tuple[JaxArray, ...],
    x: JaxArray,
    targets: JaxArray,
    start: JaxArray,
    given: JaxArray,
    use_given: JaxArray,
    *,
    budgets: tuple[int, ...],
    n: int,
    unroll: int,
) -> tuple[JaxArray, list[JaxArray], list[JaxArray], tuple[JaxArray, ...]]:
    """Loss, maps, flipped masks and gradients; ``given (K, B, H)`` takes the flipped masks' place if asked to."""
    run = partial(logits, x=x, unroll=unroll)
    z0, back0 = jax.vjp(lambda w: run(w, m=None), weights)

    def distance(m: JaxArray) -> JaxArray:
        return js(z0, run(weights, m=m)).sum()

    eps, maps, flipped = start, [], []
    for k, budget in enumerate(budgets):
        maps.append(jax.grad(distance)(eps))  # Eq. 6
        flipped.append(flip(eps, maps[-1], budget))
        eps = jnp.where(use_given, given[k], flipped[-1])
    z1, back1 = jax.vjp(lambda w: run(w, m=eps), weights)

    def loss(z0: JaxArray, z1: JaxArray) -> JaxArray:
        log_p = jax.nn.log_softmax(z0)
        return (js(z0, z1).sum() - log_p[jnp.arange(targets.size), targets].sum()) / n

    value, (dz0, dz1) = jax.value_and_grad(loss, argnums=(0, 1))(z0, z1)
    grads = jax.tree.map(jnp.add, back0(dz0)[0], back1(dz1)[0])
    return value, maps, flipped, grads


@partial(jax.jit, donate_argnums=0)
def update(weights: tuple[JaxArray, ...], grads: tuple[JaxArray, ...]) -> tuple[JaxArray, ...]:
    moved: tuple[JaxArray, ...] = jax.tree.map(lambda w, g: w - LR * g, weights, grads)
    return moved


class Jax:
    """The contender."""

    def __init__(self, problem: Problem, *, unroll: int = 4) -> None:
        if problem.x.dtype == np.float64:
            jax.config.update("jax_enable_x64", True)
        self.problem = problem
        self.weights = tuple(jnp.array(w) for w in problem.weights)
        self.arrays = tuple(jnp.array(a) for a in (problem.x, problem.targets, problem.start))
        self.work = jax.jit(partial(work, n=problem.n, unroll=unroll), static_argnames="budgets")

    def _work(self, K: int, given: Given = None) -> Any:
        shape = (K, *self.problem.start.shape)
        masks = (
            np.zeros(shape, self.problem.x.dtype)
            if given is None
            else np.stack(list(given)).astype(self.problem.x.dtype)
        )
        budgets = tuple(self.problem.size.budgets(K))
        return jax.block_until_ready(self.work(self.weights, *self.arrays, masks, given is not None, budgets=budgets))

    def outcome(self, K: int, given: Given = None) -> Outcome:
        loss, *several = self._work(K, given)
        maps, flipped, grads = (tuple(np.asarray(a) for a in arrays) for arrays in several)
        return Outcome(float(loss), maps, flipped, flipped if given is None else tuple(given), grads)

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        *_, grads = self._work(K)
        if exchange is not None:
            grads = tuple(exchange([np.asarray(g) for g in grads]))
        self.weights = jax.block_until_ready(update(self.weights, grads))
