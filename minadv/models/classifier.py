r"""A sequence classifier: recurrent layers, then a softmax from the last state. The shortest model of the protocol.

.. math:: p = \mathrm{softmax}(h_T V + b)

Mask sites: ``"layer0"``, ``"layer1"``, ... on the recurrent connection of each layer, and ``"readout"`` on the state
that the softmax reads (adversarial dropout "on the last hidden state"). With ``readout="masked"`` the softmax reads the
masked copy of the top layer's state, so that its mask acts twice and its influence map has a term for u = t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from minadv import layers
from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.base.initial import glorot
from minadv.base.numbers import Few, Probability, Size, Two
from minadv.base.shared_draws import Rng
from minadv.distances import Distance
from minadv.masks import bernoulli, scale
from minadv.models import sizes, stack
from minadv.models.comparing import compare_heads, step_weights
from minadv.models.sequences import Batch as Batch
from minadv.models.sequences import Cache as Cache
from minadv.models.sequences import Noise as Noise
from minadv.models.sequences import Params as Params
from minadv.models.stack import Buffered
from minadv.protocol import Comparison, Likelihood, ModelGrads, Site
from minadv.torch_layout import classifier_from_torch


@dataclass(frozen=True)
class Classifier(Buffered):
    """The configuration; parameters are apart.

    ``steps="last"`` makes features of the last (valid) state only, ``"all"`` of every state, so that the distance may
    be weighted over time by a ``lam`` (T, B), which for ragged batches should be zero on padding, where the last state
    is repeated; the likelihood is that of the last state in both cases. ``leak`` is the GRU's. ``input_dropout`` is a
    dropout on the inputs, one mask a sequence: the noise of this model. ``remat`` saves memory at the price of one more
    forward pass (`minadv.fast.remat`).
    """

    n_in: Size
    n_hidden: Size
    n_classes: Two
    cell: str = "lstm"
    n_layers: Few = 1
    readout: Literal["clean", "masked"] = "clean"
    steps: Literal["last", "all"] = "last"
    input_dropout: Probability = 0.0
    leak: Literal["clean", "masked"] = "clean"
    remat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        stack.by_name(self.cell)
        if self.leak == "masked" and self.cell != "gru":
            raise ValueError(f'leak="masked" is an option of the GRU, and cell is "{self.cell}"')

    @property
    def sites(self) -> tuple[Site, ...]:
        recurrent = tuple(Site(f"layer{n}", self.n_hidden) for n in range(self.n_layers))
        return (*recurrent, Site("readout", self.n_hidden, "readout"))

    @property
    def n_inputs(self) -> int:
        return self.n_in

    @property
    def _layers(self) -> list[tuple[int, int]]:
        return sizes.alike(self.n_in, self.n_hidden, self.n_layers)

    @property
    def n_params(self) -> int:
        """The number of parameters."""
        return sizes.parameters(self.cell, self._layers) + (self.n_hidden + 1) * self.n_classes

    @property
    def n_kept(self) -> int:
        """Numbers that a pass keeps of each step of an example; with ``remat`` its inputs and few of its states."""
        return sum(I + H for I, H in self._layers) if self.remat else sizes.kept(self.cell, self._layers)

    def valid(self, batch: Batch) -> Array:
        xp = namespace(batch.x)
        return xp.ones(batch.x.shape[:2], dtype=bool) if batch.valid is None else batch.valid

    def init(self, rng: np.random.Generator, *, dtype: npt.DTypeLike = np.float32) -> Params:
        """Initial parameters, drawn on the host."""
        module = stack.by_name(self.cell)
        return Params(
            cells=tuple(module.init(rng, I, H, dtype=dtype) for I, H in self._layers),
            V=glorot(rng, self.n_hidden, self.n_classes, dtype),
            b=np.zeros(self.n_classes, dtype),
        )

    @staticmethod
    def from_torch(module: Any) -> tuple[Classifier, Params]:
        """A model and its parameters from a module of PyTorch: see `minadv.torch_layout.classifier_from_torch`.

        Its forward is taken to be that of this class: the softmax reads the last state of the top layer.
        """
        cell, cells, V, b = classifier_from_torch(module)
        model = Classifier(cells[0].W.shape[0], cells[0].U.shape[0], V.shape[1], cell=cell, n_layers=len(cells))
        return model, Params(cells, V, b)

    def noise(self, rng: Rng, batch: Batch) -> Noise | None:
        if self.input_dropout == 0:
            return None
        keep = bernoulli(rng, self.input_dropout, (len(batch), self.n_in), like=batch.x)
        return Noise(scale(keep, "inverted", p=self.input_dropout))

    def body(
        self,
        params: Params,
        batch: Batch,
        *,
        masks: Mapping[str, Array],
        noise: Noise | None,
        state: tuple[Any, ...] | None = None,
        dx: Array | None = None,
    ) -> tuple[Array, tuple[Any, ...], Cache]:
        return self.bodies(params, batch, masks=[masks], noises=[noise], state=state, dxs=[dx])[0]

    def bodies(
        self,
        params: Params,
        batch: Batch,
        *,
        masks: Sequence[Mapping[str, Array]],
        noises: Sequence[Noise | None],
        state: tuple[Any, ...] | None = None,
        dxs: Sequence[Array | None] | None = None,
    ) -> list[tuple[Array, tuple[Any, ...], Cache]]:
        """``body`` of several passes over one batch, the cells side by side."""
        dropped = {id(noise): batch.x if noise is None else batch.x * noise.inputs for noise in noises}  # one x a noise
        xs = []
        for given, noise, dx in zip(masks, noises, dxs or [None] * len(masks), strict=True):
            self._check(params, batch, given)
            x = dropped[id(noise)]
            xs.append(x if dx is None else x + dx)
        runs = stack.forward(
            self.cell,
            params.cells,
            xs,
            state=state,
            masks=[tuple(given.get(f"layer{n}") for n in range(self.n_layers)) for given in masks],
            valid=batch.valid,
            leak=self.leak,
            remat=self.remat,
            keep_h=self.steps == "all",
            lasting=all(x is batch.x for x in xs),
            engine=self.engine,
            buffers=self.buffers,
        )
        done = []
        for (all_h, states, caches), given, noise in zip(runs, masks, noises, strict=True):
            # (1, B, H) or (T, B, H); the state is carried over padding, so that the last is the last valid one
            h = states[-1].h[None] if self.steps == "last" or all_h is None else all_h
            features = h
            for m in self._readout_masks(given).values():
                features = features * m
            done.append((features, states, Cache(batch, caches, h, given, noise)))
        return done

    def body_backward(
        self,
        params: Params,
        cache: Cache,
        dfeatures: Array,
        *,
        weights: bool = True,
        inputs: bool = False,
        masks: Sequence[str] = (),
    ) -> ModelGrads:
        total, [grads] = self._backward(params, [cache], [dfeatures], weights=weights, inputs=inputs, masks=masks)
        dmasks = {f"layer{n}": dm for n, dm in enumerate(grads.masks) if dm is not None}
        for name in self._on_readout:
            if name in masks:
                du = dfeatures * cache.h
                for other, m in self._readout_masks(cache.masks).items():
                    du = du if other == name else du * m
                dmasks[name] = dmasks.get(name, 0) + du.sum(axis=0)  # Eq. 6, u = t
        return ModelGrads(total, dmasks, grads.x, grads.state)

    def bodies_backward(self, params: Params, caches: Sequence[Cache], dfeatures: Sequence[Array]) -> Params:
        """The gradient of the parameters through several passes at once: the sum of what each would give."""
        total, _ = self._backward(params, caches, dfeatures, weights=True, inputs=False, masks=())
        assert total is not None
        return total

    def _backward(
        self,
        params: Params,
        caches: Sequence[Cache],
        dfeatures: Sequence[Array],
        *,
        weights: bool,
        inputs: bool,
        masks: Sequence[str],
    ) -> tuple[Params | None, list[stack.StackGrads]]:
        through = [self._through_readout(cache, d) for cache, d in zip(caches, dfeatures, strict=True)]
        total, grads = stack.backward(
            params.cells,
            [cache.caches for cache in caches],
            [dh for dh, _ in through],
            dstates=[dstate for _, dstate in through],
            weights=weights,
            inputs=inputs,
            masks=[f"layer{n}" in masks for n in range(self.n_layers)],
        )
        return None if total is None else Params(total, None, None), grads

    def _through_readout(self, cache: Cache, dfeatures: Array) -> tuple[Array | None, tuple[Any, ...] | None]:
        """From the features to the top layer's h, or to the last state where that is all that is read."""
        dh = dfeatures
        for m in self._readout_masks(cache.masks).values():
            dh = dh * m
        if self.steps == "all":
            return dh, None
        module = stack.by_name(self.cell)
        zero = namespace(dh).zeros_like(dh[0])
        rest = [zero] * (len(module.State.__dataclass_fields__) - 1)
        top = self.n_layers - 1
        return None, tuple(module.State(dh[0] if n == top else zero, *rest) for n in range(self.n_layers))

    def logits(self, params: Params, features: Array) -> Array:
        """(N, B, C)."""
        assert params.V is not None and params.b is not None
        return layers.affine(features, params.V, params.b)

    def head(self, params: Params, features: Array, targets: Array | None) -> Likelihood:
        xp = namespace(features=features, targets=targets)
        if targets is None:
            raise ValueError("targets is None: the likelihood needs a batch with targets")
        logits, last = self.predict(params, features[-1])
        nll, dlogits = layers.cross_entropy(logits, targets)
        dfeatures = xp.zeros_like(features)
        dfeatures[-1], grads = self.predict_backward(params, last, dlogits)
        return Likelihood(nll, dfeatures, grads)

    def compare(
        self,
        params: Params,
        features0: Array,
        features1: Array,
        lam: Array | None,
        distance: Distance,
        *,
        stop_base: bool = False,
        weights: bool = True,
    ) -> Comparison:
        weight = step_weights(lam, None, features0)
        head = replace(params, cells=(None,) * self.n_layers)
        return compare_heads(self, head, features0, features1, weight, distance, stop_base, weights)

    def predict(self, head: Params, features: Array) -> tuple[Array, Array]:
        """The logits, and what `predict_backward` needs: the features."""
        return self.logits(head, features), features

    def predict_backward(
        self, head: Params, features: Array, dlogits: Array, *, weights: bool = True
    ) -> tuple[Array, Params]:
        """From the logits to the features and, with ``weights``, the head's parameters."""
        assert head.V is not None
        dfeatures, dV, db = layers.affine_backward(features, head.V, dlogits, weights=weights)
        return dfeatures, Params((None,) * self.n_layers, dV, db)

    @property
    def _on_readout(self) -> tuple[str, ...]:
        """The sites whose masks act on what the softmax reads."""
        return ("readout",) if self.readout == "clean" else (f"layer{self.n_layers - 1}", "readout")

    def _readout_masks(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Those of a pass's masks that act on what the softmax reads, by site."""
        return {name: given[name] for name in self._on_readout if name in given}

    def _check(self, params: Params, batch: Batch, given: Mapping[str, Array]) -> None:
        if len(params.cells) != self.n_layers:
            raise ValueError(f"params has {len(params.cells)} layers, expected n_layers = {self.n_layers}")
        unknown = set(given) - {site.name for site in self.sites}
        if unknown:
            raise ValueError(f"masks has {sorted(unknown)}, expected sites among {[s.name for s in self.sites]}")
        for name, m in given.items():
            expect_shape(f"masks[{name!r}]", m, (len(batch), self.n_hidden), "one mask per example")
