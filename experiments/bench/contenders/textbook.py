r"""The step in plain NumPy, as a textbook has it: a function a formula, lists over time, new arrays everywhere.

In float64 it is also the reference that every contender is held to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from experiments.bench.contenders.problem import LR, Exchange, Given, Outcome, Problem
from minadv.backend import Array

Weights: TypeAlias = Sequence[Array]


@dataclass(frozen=True)
class Tape:
    """One time step: what entered it, and its gates."""

    x: Array
    hhat: Array
    h_prev: Array
    c_prev: Array
    i: Array
    f: Array
    g: Array
    o: Array
    tanh_c: Array


def sigma(z: Array) -> Array:
    s: Array = 1 / (1 + np.exp(-z))
    return s


def forward(weights: Weights, x: Array, m: Array) -> tuple[Array, list[Tape]]:
    """The last state (B, H), and a tape."""
    W, U, b = weights[:3]
    h = c = np.zeros((x.shape[1], U.shape[0]), x.dtype)
    tape = []
    for x_t in x:
        hhat = m * h
        zi, zf, zg, zo = np.split(x_t @ W + hhat @ U + b, 4, axis=1)
        i, f, g, o = sigma(zi), sigma(zf), np.tanh(zg), sigma(zo)
        c_prev, h_prev = c, h
        c = f * c + i * g
        tanh_c = np.tanh(c)
        h = o * tanh_c
        tape.append(Tape(x_t, hhat, h_prev, c_prev, i, f, g, o, tanh_c))
    return h, tape


def backward(
    weights: Weights, tape: list[Tape], m: Array, dh: Array, *, with_weights: bool
) -> tuple[list[Array], Array]:
    """The gradients of W, U and b (zeros unless asked for), and that of m: the influence map (Eq. 6)."""
    W, U, b = weights[:3]
    dW, dU, db, dm = np.zeros_like(W), np.zeros_like(U), np.zeros_like(b), np.zeros_like(m)
    dc = np.zeros_like(dh)
    for s in reversed(tape):
        dc = dc + dh * s.o * (1 - s.tanh_c**2)
        di, df, dg, do = dc * s.g, dc * s.c_prev, dc * s.i, dh * s.tanh_c
        dz = np.concatenate(
            [di * s.i * (1 - s.i), df * s.f * (1 - s.f), dg * (1 - s.g**2), do * s.o * (1 - s.o)], axis=1
        )
        if with_weights:
            dW += s.x.T @ dz
            dU += s.hhat.T @ dz
            db += dz.sum(axis=0)
        dhhat = dz @ U.T
        dm += dhhat * s.h_prev  # Eq. 6
        dh = dhhat * m
        dc = dc * s.f
    return [dW, dU, db], dm


def log_softmax(z: Array) -> Array:
    z = z - z.max(axis=1, keepdims=True)
    log_p: Array = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return log_p


def js(z0: Array, z1: Array) -> tuple[Array, Array, Array]:
    """The Jensen-Shannon divergence (B,) of two rows of logits and its gradient to both.

    The logarithms of p / mean go through log1p and expm1: written as they stand they cancel to nothing in float32.
    """
    log_p0, log_p1 = log_softmax(z0), log_softmax(z1)
    p0, p1 = np.exp(log_p0), np.exp(log_p1)
    r = log_p0 - log_p1
    s0 = -np.log1p(0.5 * np.expm1(-r))  # log(p0 / mean)
    s1 = -np.log1p(0.5 * np.expm1(r))  # log(p1 / mean)
    d = 0.5 * (p0 * s0 + p1 * s1).sum(axis=1)
    dz0 = 0.5 * p0 * (s0 - (p0 * s0).sum(axis=1, keepdims=True))
    dz1 = 0.5 * p1 * (s1 - (p1 * s1).sum(axis=1, keepdims=True))
    return d, dz0, dz1


def nll(z: Array, targets: Array) -> tuple[Array, Array]:
    """The negative log-likelihood (B,) and its gradient to the logits."""
    log_p = log_softmax(z)
    dz = np.exp(log_p)
    rows = np.arange(len(z))
    dz[rows, targets] -= 1
    return -log_p[rows, targets], dz


def flip(eps: Array, im: Array, budget: int) -> Array:
    """The strict flip, example by example: in descending order of positive gain, never beyond the budget."""
    new = eps.copy()
    gain = (1 - 2 * eps) * im
    for row, gains in zip(new, gain, strict=True):
        dropped = int((row == 0).sum())
        for unit in np.argsort(-gains, kind="stable"):
            if gains[unit] <= 0:
                break
            if row[unit] == 0:
                row[unit], dropped = 1, dropped - 1
            elif dropped < budget:
                row[unit], dropped = 0, dropped + 1
    return new


class Textbook:
    """The contender."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.weights = [w.copy() for w in problem.weights]

    def outcome(self, K: int, given: Given = None) -> Outcome:
        p, weights = self.problem, self.weights
        V, d = weights[3:]
        ones = np.ones_like(p.start)
        h0, tape0 = forward(weights, p.x, ones)
        z0 = h0 @ V + d
        eps, maps, flipped = p.start, [], []
        for k, budget in enumerate(p.size.budgets(K)):
            h, tape = forward(weights, p.x, eps)
            _, _, dz = js(z0, h @ V + d)
            _, im = backward(weights, tape, eps, dz @ V.T, with_weights=False)
            maps.append(im)
            flipped.append(flip(eps, im, budget))
            eps = flipped[-1] if given is None else given[k].astype(eps.dtype)
        h1, tape1 = forward(weights, p.x, eps)
        z1 = h1 @ V + d
        loss, dz0 = nll(z0, p.targets)
        distance, dz0_js, dz1 = js(z0, z1)
        dz0, dz1 = (dz0 + dz0_js) / p.n, dz1 / p.n
        cell0, _ = backward(weights, tape0, ones, dz0 @ V.T, with_weights=True)
        cell1, _ = backward(weights, tape1, eps, dz1 @ V.T, with_weights=True)
        grads = [a + b for a, b in zip(cell0, cell1, strict=True)]
        grads += [h0.T @ dz0 + h1.T @ dz1, dz0.sum(axis=0) + dz1.sum(axis=0)]
        used = flipped if given is None else given
        return Outcome(float((loss + distance).sum() / p.n), tuple(maps), tuple(flipped), tuple(used), tuple(grads))

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        grads = self.outcome(K).grads
        if exchange is not None:
            grads = tuple(exchange(grads))
        self.weights = [w - LR * g for w, g in zip(self.weights, grads, strict=True)]
