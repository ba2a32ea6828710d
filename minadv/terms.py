r"""What every regularizer does: run passes, add up their losses, and go back through each pass once.

A regularizer compares passes that share parameters. `Setting` holds what it was called with and runs passes; `Tally`
collects the gradients that the likelihood and the distance leave at each pass's features, so that each pass is gone
back through once, however many terms meet there. `Regularizer` is their one signature, `Term` what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from minadv import distances, masks, protocol
from minadv.adversary import Trace
from minadv.backend import Array
from minadv.base.checks import expect_generator
from minadv.base.shared_draws import Rng
from minadv.base.trees import any_array, tree_add, tree_map
from minadv.protocol import Pass, choose_sites


@dataclass(frozen=True)
class Setting:
    """The arguments of a regularizer."""

    model: Any
    params: Any
    batch: Any
    rng: Rng
    noise: Any
    weight: float
    likelihood: float
    state: Any
    memory: Any = None  # what a search that remembers is given: a `minadv.objective.Remembered`

    def run(self, m: Mapping[str, Array] | None = None, *, noise: Any = None, dx: Array | None = None) -> Pass:
        """A pass under the masks ``m`` (none: the full network) and, unless another is given, the shared noise."""
        noise = self.noise if noise is None else noise
        return Pass(*self.model.body(self.params, self.batch, masks=m or {}, noise=noise, state=self.state, dx=dx))

    def run_together(self, ms: Sequence[Mapping[str, Array]], *, noises: Sequence[Any]) -> list[Pass]:
        """Several passes that do not wait for each other, at once where the model can."""
        return protocol.run_bodies(self.model, self.params, self.batch, masks=ms, noises=noises, state=self.state)

    def second_noise(self, share: bool) -> Any:
        """The noise of a second pass: the same record, or a new draw."""
        return self.noise if share else self.model.noise(self.rng, self.batch)

    def random_masks(self, p: float, sites: tuple[str, ...] | None, scale: masks.Scale) -> dict[str, Array]:
        """One random mask for each site (None: the recurrent ones), as the layers see it."""
        like = any_array(self.params)
        return {
            site.name: masks.scale(masks.bernoulli(self.rng, p, (len(self.batch), site.H), like=like), scale, p=p)
            for site in choose_sites(self.model, sites)
        }


@dataclass(frozen=True)
class Term:
    """A regularizer's value and what it adds to the gradient."""

    value: Array  # (B,), unweighted
    grads: Any  # of the weighted mean over examples, in the structure of the parameters
    trace: Trace | None = None  # of the adversary, where there is one
    nll: Array | None = None  # (B,), where a likelihood was asked for
    state: Any = None  # the last state of the pass at which the likelihood is taken
    dx: Array | None = None  # (T, B, I), the perturbation of AT and VAT


class Regularizer:
    """One signature for all; a subclass writes ``term``."""

    passes: ClassVar[int] = 2  # over a batch that are kept at once, for going back

    @property
    def needs_targets(self) -> bool:
        """Whether the value itself depends on the targets."""
        return False

    @property
    def group(self) -> int:
        """How many neighbours of a batch see each other's masks, and must have one worker: 1 is none."""
        return 1

    def remembers(self, model: Any) -> dict[str, int]:
        """The sites, with their number of units, whose masks an adversary remembers from visit to visit."""
        return {}

    def __call__(
        self,
        model: Any,
        params: Any,
        batch: Any,
        *,
        rng: Rng,
        noise: Any = "draw",
        weight: float = 1.0,
        likelihood: float = 0.0,
        state: Any = None,
        memory: Any = None,
    ) -> Term:
        """The term of a batch: see `Term`. ``noise`` is drawn from the model unless one is given; None is no noise.

        ``memory`` is for an adversary that remembers: ``term.trace.memory`` of the last time these examples were seen.

        The model may forget the passes afterwards (`minadv.protocol.scope`): no array of a `Term` lies in their memory.
        """
        expect_generator(rng)
        for name, value in (("weight", weight), ("likelihood", likelihood)):
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}, expected a finite number")
        if batch.targets is None and (likelihood != 0 or self.needs_targets):
            raise ValueError("targets is None: the likelihood needs a batch with targets")
        if isinstance(noise, str) and noise == "draw":
            noise = model.noise(rng, batch)
        with protocol.scope(model):
            return self.term(Setting(model, params, batch, rng, noise, float(weight), float(likelihood), state, memory))

    def term(self, on: Setting) -> Term:
        raise NotImplementedError


class Tally:
    """The gradient of a weighted mean over examples, collected at the features of each pass."""

    def __init__(self, on: Setting) -> None:
        self._on = on
        self._pending: list[tuple[Pass, Array]] = []
        self._grads: Any = None

    def add_nll(self, run: Pass, likelihood: float) -> Array | None:
        """Add a share of the likelihood at a pass; returns the NLL (B,), None if the share is zero."""
        if likelihood == 0:
            return None
        result = self._on.model.head(self._on.params, run.features, self._on.batch.targets)
        self.add(run, result.dfeatures, result.params, likelihood)
        return result.nll  # type: ignore[no-any-return]

    def add_distance(
        self, run0: Pass, run1: Pass, weight: float, lam: Array | None, distance: str, stop_base: bool
    ) -> Array:
        r"""Add the weighted distance between two passes; returns :math:`\sum_t \lambda_t D_t`, ``(B,)``."""
        result = self._on.model.compare(
            self._on.params, run0.features, run1.features, lam, distances.by_name(distance), stop_base=stop_base
        )
        self.add(run1, result.dfeatures1, result.params, weight)
        if not stop_base:
            self.add(run0, result.dfeatures0, None, weight)
        return result.d  # type: ignore[no-any-return]

    def add(self, run: Pass, dfeatures: Array, head: Any, weight: float) -> None:
        """Add gradients of a sum over examples, weighted and divided by the number of examples."""
        factor = weight / len(self._on.batch)
        self._grads = tree_add(self._grads, tree_map(lambda g: factor * g, head))
        for n, (other, pending) in enumerate(self._pending):
            if other is run:
                self._pending[n] = (run, pending + factor * dfeatures)
                return
        self._pending.append((run, factor * dfeatures))

    def grads(self) -> Any:
        """Go back through every pass and return the gradient of all that was added."""
        on, runs, dfeatures = self._on, [run for run, _ in self._pending], [d for _, d in self._pending]
        back = protocol.run_bodies_backward(on.model, on.params, [run.cache for run in runs], dfeatures)
        total = tree_add(self._grads, back)
        return tree_map(lambda p: 0 * p, on.params) if total is None else total
