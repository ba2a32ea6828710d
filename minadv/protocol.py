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

Three methods have a default, which `run_bodies`, `run_bodies_backward`, `scope` and `margin` use for a model that lacks
them: ``bodies`` runs several passes at once, ``scope`` is a context at whose end passes may be forgotten, and
``margin(params, features, lam)`` says how sure the prediction is, with its gradient to the features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.shared_draws import Rng
from minadv.base.trees import tree_add
from minadv.distances import Distance, surprise


@dataclass(frozen=True)
class Site:
    """A place where an adversarial mask may go: its name, its number of units, and what it masks."""

    name: str
    H: int
    kind: Literal["recurrent", "readout"] = "recurrent"


@dataclass(frozen=True)
class Pass:
    """What body returns: the features, the last state, and a cache that body_backward takes."""

    features: Array  # (N, B, F)
    state: Any
    cache: Any


@dataclass(frozen=True)
class ModelGrads:
    """What body_backward returns; ``masks`` holds dD/dm (B, H) for each site that was asked for."""

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


def run_bodies(
    model: Model,
    params: Any,
    batch: Any,
    *,
    masks: Sequence[Mapping[str, Array]],
    noises: Sequence[Any],
    state: Any = None,
) -> list[Pass]:
    """Passes that differ in their masks and noise: at once by the model's ``bodies``, or one after the other."""
    if hasattr(model, "bodies"):
        results = model.bodies(params, batch, masks=masks, noises=noises, state=state)
    else:
        pairs = zip(masks, noises, strict=True)
        results = [model.body(params, batch, masks=m, noise=noise, state=state) for m, noise in pairs]
    return [Pass(*result) for result in results]


def run_bodies_backward(model: Model, params: Any, caches: Sequence[Any], dfeatures: Sequence[Array]) -> Any:
    """The gradient of the parameters through several passes, summed; None without any pass."""
    if hasattr(model, "bodies_backward") and caches:
        return model.bodies_backward(params, caches, dfeatures)
    total: Any = None
    for cache, d in zip(caches, dfeatures, strict=True):
        total = tree_add(total, model.body_backward(params, cache, d).params)
    return total


def scope(model: Model) -> AbstractContextManager[Callable[[Any], None]]:
    """A context at whose end the model may forget the passes that were made in it, to use their memory again.

    The context yields a function: a pass whose cache is handed to it is kept until the end of the context around this
    one, or, where there is none, until the next pass is run. Nothing of a pass may be used after its context. A model
    without a ``scope`` of its own forgets nothing.
    """
    return model.scope() if hasattr(model, "scope") else nullcontext(lambda cache: None)


def margin(model: Model, params: Any, features: Array, lam: Array | None) -> tuple[Array, Array]:
    r"""How sure a pass is of what it predicts: the gradient of its log-odds to the features (N, B, F), and p (B,).

    For one step, p is the probability of the predicted class y and the log-odds are :math:`\log p - \log(1 - p)`. For
    several, :math:`\log p = \sum_t \lambda_t \log p_t / \sum_t \lambda_t`, over the classes predicted at each step, and
    the gradient is that of :math:`\log p` divided by 1 - p, as it is for one.

    It is made of the model's ``compare``, with `minadv.distances.surprise` for the distance, unless the model has a
    ``margin(params, features, lam)`` of its own; ``lam`` None is the model's own choice, whose sum is taken to be 1.
    p is in double precision. An example of which every step has the weight zero has p = 1 and no gradient.
    """
    if hasattr(model, "margin"):
        dfeatures, p = model.margin(params, features, lam)
        return dfeatures, p
    xp = namespace(features)
    asked = []

    def distance(logits0: Array, logits1: Array) -> tuple[Array, Array, Array]:
        asked.append(True)
        return surprise(logits0, logits1)

    seen = model.compare(params, features, features, lam, distance, stop_base=True, weights=False)
    if not asked:
        name = type(model).__name__
        raise TypeError(
            f"{name}.compare does not compute the distance that it is given, and {name} has no margin: "
            "write one of the two, or use a search that needs neither, such as Reselect()"
        )
    tiny = np.finfo(np.float64).tiny  # single precision would round a sure p to 1
    total = 1 if lam is None else xp.maximum(lam.sum(axis=0, dtype=np.float64), tiny)
    surprised = seen.d.astype(np.float64) / total
    doubt = -xp.expm1(-surprised)  # 1 - p
    dlogodds = seen.dfeatures1 * (-1 / xp.maximum(total * doubt, tiny))[:, None]
    return dlogodds.astype(features.dtype), xp.exp(-surprised)


class Model(Protocol):
    """The protocol; `minadv.models.classifier.Classifier` is the shortest example."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """Where masks may go."""
        ...

    def noise(self, rng: Rng, batch: Any) -> Any:
        """Every random mask of a pass but those of the sites, drawn once, as an explicit record (None: no noise)."""
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
    ) -> tuple[Array, Any, Any]:
        """Features, last state and cache; ``masks[site]`` is m (B, H); ``dx`` is added to the inputs of the cells."""
        ...

    def body_backward(
        self,
        params: Any,
        cache: Any,
        dfeatures: Array,
        *,
        weights: bool = True,
        inputs: bool = False,
        masks: Sequence[str] = (),
    ) -> ModelGrads:
        """Gradients through the body: of the parameters, of the inputs of the cells, and of the masks of some sites.

        The gradient of a mask exists whether or not the pass was given one: without, m = 1.
        """
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


class Perturbable(Model, Protocol):
    """A model whose inputs AT and VAT may perturb."""

    @property
    def n_inputs(self) -> int:
        """I, the size of one step's input to the cells."""
        ...

    def valid(self, batch: Any) -> Array:
        """(T, B), True on real steps and False on padding."""
        ...
