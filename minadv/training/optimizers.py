r"""Optimizers as pure steps: configuration, state and parameters are three values, and a step returns new ones.

::

    opt = RMSProp(lr=1e-3)
    state = opt.init(params)
    params, state = opt.step(params, grads, state, lr_scale=schedule(epoch))

A configuration is a frozen dataclass of numbers; parameters, gradients and states are trees (`minadv.base.trees`), so
that a checkpoint stores a state as it stores the parameters. Symbols: :math:`\theta` parameters, :math:`g` gradients,
:math:`\alpha` the learning rate, ``lr * lr_scale``. Nothing is changed in place; arrays keep their dtype and device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from minadv.backend import Array, namespace
from minadv.base.checks import shape_text
from minadv.base.numbers import Decay, Many, Rate, ZeroOrMore
from minadv.base.schema import expect_fields
from minadv.base.trees import leaves, tree_map

Tree = TypeVar("Tree")


@runtime_checkable
class Optimizer(Protocol):
    """What the training loop asks of an optimizer."""

    def init(self, params: Any) -> Any:
        """The state before the first step."""
        ...

    def step(self, params: Tree, grads: Tree, state: Any, *, lr_scale: float = 1.0) -> tuple[Tree, Any]:
        """The parameters and the state after one step."""
        ...


@dataclass(frozen=True)
class SGDState:
    """``velocity`` is a tree like the parameters, or None without momentum."""

    velocity: Any


@dataclass(frozen=True)
class SGD:
    r"""Gradient descent with momentum :math:`\mu` and weight decay :math:`w`.

    .. math:: v \leftarrow \mu v + (g + w\theta), \qquad \theta \leftarrow \theta - \alpha v
    """

    lr: Rate
    momentum: Decay = 0.0
    weight_decay: ZeroOrMore = 0.0

    def __post_init__(self) -> None:
        expect_fields(self)

    def init(self, params: Any) -> SGDState:
        """No velocity yet: zero."""
        return SGDState(tree_map(_zeros, params) if self.momentum else None)

    def step(self, params: Tree, grads: Tree, state: SGDState, *, lr_scale: float = 1.0) -> tuple[Tree, SGDState]:
        """One step of the equation above."""
        _expect_alike(params, grads)
        rate = float(self.lr * lr_scale)
        direction = _decayed(params, grads, self.weight_decay)
        if self.momentum:
            direction = tree_map(lambda v, g: self.momentum * v + g, state.velocity, direction)
            state = SGDState(direction)
        return tree_map(lambda p, v: p - rate * v, params, direction), state


@dataclass(frozen=True)
class RMSPropState:
    """``mean_square`` is a tree like the parameters."""

    mean_square: Any


@dataclass(frozen=True)
class RMSProp:
    r"""RMSProp in TensorFlow's form: the mean square starts at 1, and ``tiny`` stands inside the root.

    .. math:: s \leftarrow \rho s + (1 - \rho) g^2, \qquad \theta \leftarrow \theta - \alpha\, g / \sqrt{s + tiny}

    Starting at 1 makes the first steps plain gradient descent; PyTorch starts at 0, where they are nearly
    :math:`\alpha\,\mathrm{sign}(g)`, and adds ``tiny`` outside the root.
    """

    lr: Rate
    decay: Decay = 0.5
    tiny: ZeroOrMore = 1e-10

    def __post_init__(self) -> None:
        expect_fields(self)

    def init(self, params: Any) -> RMSPropState:
        """A mean square of 1 everywhere."""
        return RMSPropState(tree_map(lambda p: namespace(p).ones_like(p), params))

    def step(
        self, params: Tree, grads: Tree, state: RMSPropState, *, lr_scale: float = 1.0
    ) -> tuple[Tree, RMSPropState]:
        """One step of the equations above."""
        _expect_alike(params, grads)
        rate = float(self.lr * lr_scale)
        square = tree_map(lambda s, g: self.decay * s + (1 - self.decay) * (g * g), state.mean_square, grads)

        def moved(p: Array, g: Array, s: Array) -> Array:
            root: Array = namespace(s).sqrt(s + self.tiny)
            return p - rate * g / root

        return tree_map(moved, params, grads, square), RMSPropState(square)


@dataclass(frozen=True)
class AdamState:
    """The number of steps taken, and the two running means, trees like the parameters."""

    steps: int
    mean: Any
    mean_square: Any


@dataclass(frozen=True)
class Adam:
    r"""Adam (Kingma and Ba, 2015, Algorithm 1), with the bias of both means corrected at step :math:`t`.

    .. math::
        m \leftarrow \beta_1 m + (1-\beta_1) g, \quad s \leftarrow \beta_2 s + (1-\beta_2) g^2, \quad
        \theta \leftarrow \theta - \alpha \frac{m/(1-\beta_1^t)}{\sqrt{s/(1-\beta_2^t)} + tiny}
    """

    lr: Rate
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    tiny: ZeroOrMore = 1e-8

    def __post_init__(self) -> None:
        expect_fields(self)

    def init(self, params: Any) -> AdamState:
        """Both means are zero."""
        return AdamState(0, tree_map(_zeros, params), tree_map(_zeros, params))

    def step(self, params: Tree, grads: Tree, state: AdamState, *, lr_scale: float = 1.0) -> tuple[Tree, AdamState]:
        """One step of the equations above."""
        _expect_alike(params, grads)
        t = state.steps + 1
        b1, b2 = self.beta1, self.beta2
        mean = tree_map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, grads)
        square = tree_map(lambda s, g: b2 * s + (1 - b2) * (g * g), state.mean_square, grads)
        rate = float(self.lr * lr_scale) / (1 - b1**t)
        bias = math.sqrt(1 - b2**t)

        def moved(p: Array, m: Array, s: Array) -> Array:
            root: Array = namespace(s).sqrt(s) / bias
            return p - rate * m / (root + self.tiny)

        return tree_map(moved, params, mean, square), AdamState(t, mean, square)


@dataclass(frozen=True)
class ASGDState:
    """The average so far, of how many iterates, and what the trigger remembers of the validation losses.

    ``average`` is a tree like the parameters: the weights to evaluate with. ``recent`` holds the last ``interval``
    losses, oldest first, and ``older`` the least of those before; infinity stands for losses not there yet, so that
    the state has one shape from the first step to the last.
    """

    average: Any
    averaged: int
    started: bool
    older: float
    recent: tuple[float, ...]


@dataclass(frozen=True)
class ASGD:
    r"""Averaged SGD with the non-monotone trigger: NT-ASGD of AWD-LSTM (Merity et al., 2018).

    The iterates of SGD at a constant rate do not settle: they wander around a minimum at a distance that the rate and
    the noise of the gradients decide. Their mean does settle, so the rate need not be lowered. An average that starts
    too early drags the poor first iterates along; so it starts when the validation loss stops falling, that is, when a
    loss :math:`L_k` is worse than the best one seen more than :math:`n` evaluations before it (a single bad
    evaluation is not enough: hence non-monotone):

    .. math::
        \text{start as soon as}\quad L_k > \min_{j < k - n} L_j, \qquad
        \theta \leftarrow \theta - \alpha (g + w\theta), \qquad
        \bar\theta \leftarrow \bar\theta + (\theta - \bar\theta)/(\text{iterates since the start})

    SGD goes on unaware of the average: gradients are taken at :math:`\theta`, evaluations made with
    ``state.average``, which is :math:`\theta` itself until the start. ``interval`` is :math:`n`; with None the average
    starts at the first step, as in fine-tuning. Call `observe` once after each evaluation on validation data.
    """

    lr: Rate
    weight_decay: ZeroOrMore = 0.0
    interval: Many | None = 5

    def __post_init__(self) -> None:
        expect_fields(self)

    def init(self, params: Any) -> ASGDState:
        """The parameters stand for their average until it starts."""
        return ASGDState(params, 0, self.interval is None, math.inf, (math.inf,) * (self.interval or 0))

    def step(self, params: Tree, grads: Tree, state: ASGDState, *, lr_scale: float = 1.0) -> tuple[Tree, ASGDState]:
        """One step of SGD; the new parameters join the average if it has started, and else replace it."""
        _expect_alike(params, grads)
        rate = float(self.lr * lr_scale)
        direction = _decayed(params, grads, self.weight_decay)
        params = tree_map(lambda p, g: p - rate * g, params, direction)
        if not state.started:
            return params, replace(state, average=params)
        share = 1 / (state.averaged + 1)
        average = tree_map(lambda a, p: a + share * (p - a), state.average, params)
        return params, replace(state, average=average, averaged=state.averaged + 1)

    def observe(self, state: ASGDState, loss: float) -> ASGDState:
        """The state after an evaluation on validation data: starts the average if the loss no longer falls."""
        if self.interval is None:
            return state
        started = state.started or loss > state.older
        window = (*state.recent, float(loss))
        return replace(state, started=started, older=min(state.older, window[0]), recent=window[1:])


def _zeros(p: Array) -> Array:
    zeros: Array = namespace(p).zeros_like(p)
    return zeros


def _decayed(params: Any, grads: Any, weight_decay: float) -> Any:
    r""":math:`g + w\theta`."""
    return tree_map(lambda g, p: g + weight_decay * p, grads, params) if weight_decay else grads


def _expect_alike(params: Any, grads: Any) -> None:
    """Raise unless the gradients have the parameters' names, shapes and dtypes."""
    mine, theirs = dict(leaves(params)), dict(leaves(grads))
    if mine.keys() != theirs.keys():
        missing, extra = sorted(mine.keys() - theirs.keys()), sorted(theirs.keys() - mine.keys())
        raise ValueError(f"grads do not fit params: missing {missing}, not among the parameters {extra}")
    for name, p in mine.items():
        g = theirs[name]
        if p.shape != g.shape:
            raise ValueError(f"grads.{name} has shape {shape_text(g.shape)}, expected {shape_text(p.shape)}")
        if p.dtype != g.dtype:
            raise TypeError(f"grads.{name} has dtype {g.dtype}, expected {p.dtype} as the parameter has")
