r"""What the search and the regularizers ask of a model: small enough for a user's own model to meet.

A pass runs in two parts. The **body** maps a batch to ``features (N, B, F)``, one row for each predicted step; the
**head** maps features to predictions. They are apart because two passes' logits over a vocabulary must never stand
whole in memory: the head works on blocks of rows, for the likelihood and for the distance alike.

Gradients returned by head, compare and body_backward are those of the **sum** over examples of what they return or are
given; a mean or a weight is a factor that the caller applies. Parameter gradients have the structure of ``params``,
with None where a part contributes nothing.

Nothing is kept on the model between calls: workers that share a batch may be threads, and call it at the same time.

A batch is whatever the model takes, with a ``len``, the number of examples, and ``targets``, which head is given.
`minadv.bounds` asks for one method more, ``logits(params, features)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

from minadv.backend import Array
from minadv.base.shared_draws import Rng
from minadv.distances import Distance
from minadv.fast.workspace import Workspace


@dataclass(frozen=True)
class Site:
    """A place where an adversarial mask may go: its name, its number of units, and what it masks."""

    name: str
    H: int
    kind: Literal["recurrent", "readout"] = "recurrent"


@dataclass(frozen=True)
class ModelGrads:
    """What body_backward returns; ``masks`` holds dD/dm (B, H) for each site whose mask the pass was given."""

    params: Any | None
    masks: dict[str, Array]
    inputs: Array | None  # (T, B, I), asked for with inputs=True
    state: Any


@dataclass(frozen=True)
class Likelihood:
    """What head returns: the negative log-likelihood of each example, and the gradients of its sum.

    ``penalty`` is what a model adds to the likelihood that it is trained with, reported apart from it: where there is
    one, the gradients are those of the sum of ``nll + penalty``.
    """

    nll: Array  # (B,)
    dfeatures: Array  # (N, B, F)
    params: Any
    penalty: Array | None = None  # (B,)


@dataclass(frozen=True)
class Comparison:
    r"""What compare returns: :math:`\sum_t \lambda_t D_t` of each example, and the gradients of its sum.

    ``dfeatures0`` is None where the base was stopped, ``params`` where no weights were asked for.
    """

    d: Array  # (B,)
    dfeatures0: Array | None  # (N, B, F)
    dfeatures1: Array  # (N, B, F)
    params: Any | None


def choose_sites(model: Model, names: tuple[str, ...] | None) -> tuple[Site, ...]:
    """The sites of these names, or every recurrent one; raises ValueError for a name that the model lacks."""
    if names is None:
        return tuple(site for site in model.sites if site.kind == "recurrent")
    by_name = {site.name: site for site in model.sites}
    if not isinstance(names, tuple | list) or not names or any(name not in by_name for name in names):
        raise ValueError(f"sites is {names!r}, expected a tuple of names among {list(by_name)}")
    return tuple(by_name[name] for name in names)


def runs_together(model: Any) -> TypeGuard[Together]:
    """Whether a model is `Together`. A class that overrides ``body`` of one that is, and not ``bodies``, is not."""
    by_class = [vars(c).keys() & {"body", "bodies"} for c in type(model).__mro__]
    lowest = next((names for names in by_class if names), {"body"})
    overridden = "bodies" not in lowest and any("bodies" in names for names in by_class)
    return hasattr(model, "bodies") and not overridden


class Model(Protocol):
    """The protocol; `minadv.models.classifier.Classifier` is the shortest example."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """Where masks may go."""
        ...

    def noise(self, rng: Rng, batch: Any) -> Any:
        """Every other random mask of a pass, drawn once, as an explicit record (None: the model has none)."""
        ...

    def body(
        self,
        params: Any,
        batch: Any,
        *,
        masks: Mapping[str, Array],
        noise: Any,
        state: Any = None,
        dx: Array | None = None,
        work: Workspace | None = None,
    ) -> tuple[Array, Any, Any]:
        """Features, last state and cache; ``masks[site]`` is m (B, H); ``dx`` is added to the inputs of the cells.

        ``work`` is handed to the cells. It is given only where a caller made a workspace: a model that knows nothing of
        workspaces may leave it out.
        """
        ...

    def body_backward(
        self, params: Any, cache: Any, dfeatures: Array, *, weights: bool = True, inputs: bool = False
    ) -> ModelGrads:
        """Gradients through the body."""
        ...

    def head(self, params: Any, features: Array, targets: Any) -> Likelihood:
        """The negative log-likelihood of the batch's targets."""
        ...

    def compare(
        self,
        params: Any,
        features0: Array,
        features1: Array,
        lam: Array | None,
        distance: Distance,
        *,
        stop_base: bool = False,
        weights: bool = True,
    ) -> Comparison:
        r"""The distance of two passes; ``lam`` is (N,) or (N, B), None for the model's own choice."""
        ...


class Together(Model, Protocol):
    """What a model may have beside: several passes over one batch at once, which can be faster than one by one.

    Whoever overrides ``body`` or ``body_backward`` of such a model, or wraps it, sees to these two as well.
    """

    def bodies(
        self,
        params: Any,
        batch: Any,
        *,
        masks: Sequence[Mapping[str, Array]],
        noises: Sequence[Any],
        state: Any = None,
        work: Workspace | None = None,
    ) -> list[tuple[Array, Any, Any]]:
        """``body`` of passes that differ in their masks and noise."""
        ...

    def bodies_backward(self, params: Any, caches: Sequence[Any], dfeatures: Sequence[Array]) -> Any:
        """The parameters' gradient through several passes, summed."""
        ...


class Perturbable(Model, Protocol):
    """A model whose inputs AT and VAT may perturb."""

    @property
    def n_inputs(self) -> int:
        """I, the size of one step's input to the cells."""
        ...

    def valid(self, batch: Any) -> Array:
        """(T, B), True on real steps and False on padding."""
        ...
