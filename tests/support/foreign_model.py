"""A model that is not minadv's: a leaky recurrence with one logistic output, batch-major data and names of its own.

    z_t = leak z_{t-1} + tanh(x_t A + (m z_{t-1}) R),    logit = z_T w + c

It meets `minadv.protocol`, and that is all that it and the search know of each other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv.backend import namespace, same_place
from minadv.protocol import Comparison, Likelihood, ModelGrads, Site


@dataclass(frozen=True)
class Weights:
    A: Any  # (I, H)
    R: Any  # (H, H)
    w: Any  # (H,)
    c: Any  # (1,)


@dataclass(frozen=True)
class Songs:
    notes: Any  # (B, T, I)
    liked: Any  # (B,), 0.0 or 1.0

    def __len__(self):
        return len(self.notes)

    @property
    def targets(self):
        return self.liked


class Leaky:
    def __init__(self, n_notes, n_units, leak=0.5, jitter=0.0):
        self.n_inputs, self.n_units, self.leak, self.jitter = n_notes, n_units, leak, jitter
        self.sites = (Site("z", n_units),)

    def noise(self, rng, batch):
        """A random volume for each note of each song."""
        if self.jitter == 0:
            return None
        return same_place(1 + self.jitter * rng.standard_normal((len(batch), self.n_inputs)), batch.notes)

    def valid(self, batch):
        B, T, _ = batch.notes.shape
        return namespace(batch.notes).ones((T, B), dtype=bool)

    def body(self, params, batch, *, masks, noise, state=None, dx=None):
        xp = namespace(batch.notes)
        x = batch.notes.transpose(1, 0, 2)
        x = x if noise is None else x * noise
        x = x if dx is None else x + dx
        z = [xp.zeros((len(batch), self.n_units), x.dtype) if state is None else state]
        m = masks.get("z", xp.ones_like(z[0]))
        s = []
        for x_t in x:
            s.append(xp.tanh(x_t @ params.A + (m * z[-1]) @ params.R))
            z.append(self.leak * z[-1] + s[-1])
        return z[-1][None], z[-1], (x, m, z, s)

    def body_backward(self, params, cache, dfeatures, *, weights=True, inputs=False, masks=()):
        xp = namespace(dfeatures)
        x, m, z, s = cache
        dz, dx, dm = dfeatures[0], [], 0
        dA, dR = xp.zeros_like(params.A), xp.zeros_like(params.R)
        for t in range(len(s) - 1, -1, -1):
            ds = dz * (1 - s[t] ** 2)
            dx.insert(0, ds @ params.A.T)
            dA = dA + x[t].T @ ds
            dR = dR + (m * z[t]).T @ ds
            dm = dm + (ds @ params.R.T) * z[t]
            dz = self.leak * dz + m * (ds @ params.R.T)
        grads = Weights(dA, dR, None, None) if weights else None
        return ModelGrads(grads, {"z": dm} if "z" in masks else {}, xp.stack(dx) if inputs else None, dz)

    def logits(self, params, features):
        """(1, B, 2): a logistic output y is the pair of logits (y, 0)."""
        y = features @ params.w + params.c
        return namespace(y).stack([y, 0 * y], axis=-1)

    def head(self, params, features, targets):
        xp = namespace(features)
        y = self.logits(params, features)[0, :, 0]  # (B,)
        dy = 1 / (1 + xp.exp(-y)) - targets
        return Likelihood(xp.logaddexp(0, y) - targets * y, *self._to_features(params, features, dy))

    def compare(self, params, features0, features1, lam, distance, *, stop_base=False, weights=True):
        share = 1 if lam is None else lam[0]
        d, dlogits0, dlogits1 = distance(self.logits(params, features0), self.logits(params, features1))
        df0, df1 = None, None
        df1, grads = self._to_features(params, features1, share * dlogits1[0, :, 0])
        if not stop_base:
            df0, more = self._to_features(params, features0, share * dlogits0[0, :, 0])
            grads = Weights(None, None, grads.w + more.w, grads.c + more.c)
        return Comparison(share * d[0], df0, df1, grads if weights else None)

    def _to_features(self, params, features, dy):
        return dy[None, :, None] * params.w, Weights(None, None, dy @ features[0], dy.sum(keepdims=True))


def example(rng, put, *, B=3, T=4, I=2, H=4, **options):
    """A model, its weights and a batch, in float64."""
    sizes = {"A": (I, H), "R": (H, H), "w": (H,), "c": (1,)}
    weights = Weights(**{name: rng.uniform(-1, 1, shape) for name, shape in sizes.items()})
    songs = Songs(rng.standard_normal((B, T, I)), rng.integers(0, 2, B).astype(np.float64))
    return Leaky(I, H, **options), put(weights), put(songs)
