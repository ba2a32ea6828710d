r"""Adversarial and virtual adversarial training: perturbations of the inputs, the paper's baselines beside dropout.

The perturbation is added to what the cells see: for text, embeddings after normalisation and dropout. Its norm is taken
over the whole sequence of an example. `minadv.regularizers` is the door to these two as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minadv import distances
from minadv.backend import Array, namespace, same_place
from minadv.base import shared_draws
from minadv.base.numbers import ZeroOrMore
from minadv.base.schema import expect_fields
from minadv.terms import Regularizer, Setting, Tally, Term


@dataclass(frozen=True)
class AT(Regularizer):
    r"""Adversarial training on the inputs: the NLL at :math:`x + \rho\, g / \|g\|`, with :math:`g = \nabla_x NLL`.

    ``x`` is what the cells see (embeddings after normalisation and dropout), the norm is taken over the whole sequence,
    and the perturbation is held constant. The likelihood is taken at the unperturbed input. Needs targets.
    """

    norm: ZeroOrMore = 5.0

    def __post_init__(self) -> None:
        expect_fields(self)

    @property
    def needs_targets(self) -> bool:
        return True

    def term(self, on: Setting) -> Term:
        clean = on.run()
        head = on.model.head(on.params, clean.features, on.batch.targets)
        tally = Tally(on)
        nll = None
        if on.likelihood:
            nll = head.nll
            tally.add(clean, head.dfeatures, head.params, on.likelihood)
        back = on.model.body_backward(on.params, clean.cache, head.dfeatures, weights=False, inputs=True)
        dx = to_norm(back.inputs, self.norm)
        perturbed = on.run(dx=dx)
        moved = on.model.head(on.params, perturbed.features, on.batch.targets)
        tally.add(perturbed, moved.dfeatures, moved.params, on.weight)
        return Term(moved.nll, tally.grads(), nll=nll, state=clean.state, dx=dx)


@dataclass(frozen=True)
class VAT(Regularizer):
    r"""Virtual adversarial training on the inputs: :math:`KL(p(x) \,\|\, p(x + r))` at the r that raises it most.

    r comes from one power iteration: a Gaussian start, zero on padding and on each example's last step, is scaled to
    ``xi``; the gradient of the KL there, scaled to ``norm``, is r. Norms are taken over the whole sequence. No
    gradient goes to the base pass. Both passes share their noise, or its difference would be part of the KL.
    """

    norm: ZeroOrMore = 5.0
    xi: ZeroOrMore = 0.1
    lam: Array | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        expect_fields(self)

    def term(self, on: Setting) -> Term:
        clean = on.run()
        probe = on.run(dx=to_norm(self._start(on, clean.features), self.xi))
        tally = Tally(on)
        nll = tally.add_nll(clean, on.likelihood)
        kl = on.model.compare(
            on.params, clean.features, probe.features, self.lam, distances.kl, stop_base=True, weights=False
        )
        back = on.model.body_backward(on.params, probe.cache, kl.dfeatures1, weights=False, inputs=True)
        dx = to_norm(back.inputs, self.norm)
        perturbed = on.run(dx=dx)
        value = tally.add_distance(clean, perturbed, on.weight, self.lam, "kl", stop_base=True)
        return Term(value, tally.grads(), nll=nll, state=clean.state, dx=dx)

    def _start(self, on: Setting, like: Array) -> Array:
        """(T, B, I), standard normal on every step of an example but its last."""
        xp = namespace(like)
        valid = on.model.valid(on.batch)  # (T, B)
        T, B = valid.shape
        steps = xp.arange(1, T + 1)[:, None] * valid
        inner = valid & (steps < steps.max(axis=0))
        normal = shared_draws.rows(on.rng, lambda g, n: g.standard_normal((n, T, on.model.n_inputs)), B)
        start = np.ascontiguousarray(normal.transpose(1, 0, 2)).astype(like.dtype)
        return same_place(start, like) * inner[..., None]  # type: ignore[no-any-return]


def to_norm(direction: Array, norm: float) -> Array:
    """Each example's direction (T, B, I) scaled to a norm over its whole sequence; zero stays zero."""
    xp = namespace(direction)
    peak = xp.abs(direction).max(axis=(0, 2), keepdims=True)
    unit = direction / xp.where(peak > 0, peak, 1)  # entries of at most 1, so that no square under- or overflows
    size = xp.sqrt((unit * unit).sum(axis=(0, 2), keepdims=True))
    return unit * (float(norm) / xp.maximum(size, 1))  # type: ignore[no-any-return]
