r"""PyTorch networks through the door of minadv: their adversarial masks, and AdD as a loss in their training loop.

All that is asked of a network is a function of the mask: ``logits(m)``, with m (B, H) a tensor that multiplies the
state before it enters the recurrent product, and logits (B, C), or (T, B, C) for a prediction at every step. ::

    trace = find_adversary(TorchModel(lambda m: net(x, m), H), *nothing(x), budgets=3, search=Relax(), rng=rng)

    for x, y in batches:                                              # adversarial dropout in a training loop
        value, logits = adversarial_dropout(lambda m: net(x, m), len(x), H, delta=0.03, rng=rng)
        loss = torch.nn.functional.cross_entropy(logits, y) + value.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

Several places for masks are a dict of units by name, and ``logits`` is given a dict of masks. This module needs torch,
and nothing of minadv imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError("minadv.torch_door needs PyTorch: pip install torch") from error

from minadv import distances, layers, masks
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.protocol import Comparison, Likelihood, ModelGrads, Site
from minadv.searches import Greedy, Search


@dataclass(frozen=True)
class Examples:
    """A batch as the search asks for one: the number of examples, which ``logits`` knows already, and their classes."""

    n: int
    targets: Any = None

    def __len__(self) -> int:
        return self.n


def nothing(like: Any, targets: Any = None) -> tuple[Array, Examples]:
    """Parameters and batch of a `TorchModel` for ``find_adversary``: it has its own, and needs only their number.

    ``like`` is the input of the network, examples first, or their number; masks are searched in double precision.
    """
    return np.zeros(1), Examples(like if isinstance(like, int) else len(like), targets)


class TorchModel:
    """A torch function ``logits(m)`` as a model of `minadv.protocol`: every search finds its adversarial mask.

    ``units`` is H, or a dict of them by name for several masks. A pass remembers its graph; masks are given to
    ``logits`` in the ``dtype`` and on the ``device`` of the network. Weights have no gradient here: autograd has them.
    """

    def __init__(
        self, logits: Callable[[Any], Any], units: int | Mapping[str, int], *, dtype: Any = None, device: Any = None
    ) -> None:
        self.one = not isinstance(units, Mapping)
        self.units = {name: _units(H) for name, H in (units if isinstance(units, Mapping) else {"mask": units}).items()}
        self.sites = tuple(Site(name, H) for name, H in self.units.items())
        self._logits, self._dtype, self._device = logits, dtype or torch.get_default_dtype(), device

    def noise(self, rng: Any, batch: Any) -> None:
        """None: what else is random in a network must not change between calls of ``logits``."""
        return

    def body(
        self,
        params: Any,
        batch: Any,
        *,
        masks: Mapping[str, Array],
        noise: Any = None,
        state: Any = None,
        dx: Any = None,
    ) -> tuple[Array, None, tuple[Any, dict[str, Any]]]:
        """Features are the logits, (1, B, C) or (T, B, C); the cache is them and the masks, as tensors of one graph."""
        given = {
            name: torch.as_tensor(masks.get(name, np.ones((len(batch), H))), dtype=self._dtype, device=self._device)
            for name, H in self.units.items()
        }
        given = {name: m.clone().requires_grad_() for name, m in given.items()}
        try:
            with torch.enable_grad():
                out = self._logits(given["mask"] if self.one else given)
        except RuntimeError as error:
            if "device" not in str(error):
                raise
            place = f"the device {self._device or 'cpu'} ({str(error).splitlines()[0]})"
            raise ValueError(f"logits failed with masks on {place}: give the network's as device=") from error
        if not isinstance(out, torch.Tensor) or out.ndim not in (2, 3) or out.shape[-2] != len(batch):
            said = tuple(out.shape) if isinstance(out, torch.Tensor) else f"a {type(out).__name__}"
            raise ValueError(f"logits returned {said}, expected a tensor (B, C) or (T, B, C) with B = {len(batch)}")
        features = out.detach().double().cpu().numpy()
        return features if out.ndim == 3 else features[None], None, (out, given)

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
        """The gradients of masks, by autograd."""
        out, given = cache
        d = torch.as_tensor(dfeatures, dtype=out.dtype, device=out.device).reshape(out.shape)
        wanted = [given[name] for name in masks]
        reached = wanted and out.requires_grad
        found = torch.autograd.grad(out, wanted, d, retain_graph=True, allow_unused=True) if reached else ()
        if wanted and all(g is None for g in found):
            raise ValueError("logits do not depend on the mask: multiply the state by it before the recurrent product")
        grads = {
            name: np.zeros(given[name].shape) if g is None else g.double().cpu().numpy()
            for name, g in zip(masks, found, strict=True)
        }
        return ModelGrads(None, grads, None, None)

    def logits(self, params: Any, features: Array) -> Array:
        """The features themselves."""
        return features

    def head(self, params: Any, features: Array, targets: Any) -> Likelihood:
        """The cross-entropy of the last step."""
        nll, dlogits = layers.cross_entropy(features[-1], np.asarray(targets))
        dfeatures = np.zeros_like(features)
        dfeatures[-1] = dlogits
        return Likelihood(nll, dfeatures, None)

    def compare(
        self,
        params: Any,
        features0: Array,
        features1: Array,
        lam: Array | None,
        distance: distances.Distance,
        *,
        stop_base: bool = False,
        weights: bool = True,
    ) -> Comparison:
        r"""The distance of two passes; without ``lam`` every step has the weight 1/T."""
        d, d0, d1 = distance(features0, features1)
        w = _weights(lam, d)
        return Comparison((w * d).sum(axis=0), None if stop_base else w[..., None] * d0, w[..., None] * d1, None)


def _units(H: Any) -> int:
    if isinstance(H, bool) or not isinstance(H, Integral) or H < 1:
        raise ValueError(f"units is {H!r}, expected a number of units, or a dict of them by name")
    return int(H)


def _weights(lam: Any, d: Any) -> Any:
    """Weights of the steps, (T, 1) or (T, B), for distances d (T, B)."""
    if lam is None:
        return np.full((len(d), 1), 1 / len(d))
    lam = np.asarray(lam, dtype=np.float64)
    return lam[:, None] if lam.ndim == 1 else lam


class _Distance(torch.autograd.Function):  # type: ignore[misc]
    r"""A distance of `minadv.distances` between two logits, with the gradients that it computes."""

    @staticmethod
    def forward(ctx: Any, logits0: Any, logits1: Any, name: str) -> Any:
        z0, z1 = (z.detach().double().cpu().numpy() for z in (logits0, logits1))
        d, *gradients = distances.by_name(name)(z0, z1)
        ctx.save_for_backward(*(torch.as_tensor(g, dtype=logits0.dtype, device=logits0.device) for g in gradients))
        return torch.as_tensor(d, dtype=logits0.dtype, device=logits0.device)

    @staticmethod
    def backward(ctx: Any, dd: Any) -> Any:
        d0, d1 = ctx.saved_tensors
        return dd[..., None] * d0, dd[..., None] * d1, None


def distance_of(logits0: Any, logits1: Any, name: str = "js") -> Any:
    """The distance of two predictions, tensors (..., C), over the last axis; autograd goes through both."""
    return _Distance.apply(logits0, logits1, name)


def adversarial_dropout(
    logits: Callable[[Any], Any],
    n: int,
    units: int | Mapping[str, int],
    *,
    delta: float | Mapping[str, float] | None = None,
    budgets: int | Mapping[str, int] | None = None,
    search: Search = Greedy(keep="last"),
    distance: str = "js",
    lam: Any = None,
    stop_base: bool = False,
    rng: np.random.Generator | None = None,
    dtype: Any = None,
    device: Any = None,
) -> tuple[Any, Any]:
    r"""Adversarial dropout (Eq. 4) of n examples: the value of each, a tensor (B,), and the logits of the full network.

    .. math:: \sum_t \lambda_t D[p_t(1) \,\|\, p_t(\epsilon^{adv})]

    Autograd goes through both passes (``stop_base``: through the second alone); the mask is a constant. Options are
    those of `minadv.regularizers.AdD`, among them its default budget, and of `TorchModel`.
    """
    model = TorchModel(logits, units, dtype=dtype, device=device)
    if delta is None and budgets is None:
        budgets = {name: masks.few_flips(H) for name, H in model.units.items()}
    how: dict[str, Any] = {"delta": delta, "budgets": budgets, "search": search, "distance": distance, "lam": lam}
    trace = find_adversary(model, *nothing(n), rng=rng, **how)
    assert trace.base is not None
    base, _ = trace.base.cache
    _, _, (adversarial, _) = model.body(None, Examples(n), masks=trace.eps)
    d = distance_of(base.detach() if stop_base else base, adversarial, distance)
    d = d if d.ndim == 2 else d[None]
    w = torch.as_tensor(_weights(lam, d), dtype=d.dtype, device=d.device)
    return (w * d).sum(dim=0), base
