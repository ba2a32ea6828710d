r"""The mask :math:`\epsilon`: drawing it, flipping it, measuring it, and the scale that turns it into what layers see.

``eps (B, H)`` is binary, one mask per example, the same at every time step. The layers see ``m = s(eps) * eps``;
`scale` and `scale_backward` are the only bridge between the two. Random numbers are drawn on the host, or made of a key
alike on host and device (`minadv.base.philox`), so that both array modules see the same masks.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from minadv.backend import Array, namespace, same_place
from minadv.base import shared_draws
from minadv.base.checks import expect_choice, expect_floating, expect_shape, shape_text
from minadv.base.kernels import on_device
from minadv.base.numbers import Delta, Probability
from minadv.base.schema import expect_type
from minadv.base.shared_draws import Keyed, Rng

Scale: TypeAlias = Literal["none", "inverted", "kept"]
SCALES = ("none", "inverted", "kept")


def ones(shape: tuple[int, int], *, like: Array) -> Array:
    """The mask that drops nothing, with the module and dtype of ``like``."""
    return namespace(like).ones(shape, like.dtype)  # type: ignore[no-any-return]


def bernoulli(rng: Rng, p: float, shape: tuple[int, int], *, like: Array) -> Array:
    """A random mask: each unit is dropped with probability ``p``."""
    expect_probability(p)
    if isinstance(rng, Keyed):
        return rng.keeps(p, shape, by_row=True, like=like).astype(like.dtype)
    uniform = shared_draws.rows(rng, lambda g, n: g.random((n, *shape[1:])), shape[0])
    return same_place((uniform >= p).astype(like.dtype), like)


@on_device
def one_flip(rng: Rng, eps0: Array) -> Array:
    """``eps0`` with one random unit of each example flipped."""
    xp = namespace(eps0=eps0)
    expect_binary("eps0", eps0)
    B, H = eps0.shape
    units = same_place(np.asarray(shared_draws.rows(rng, lambda g, n: g.integers(H, size=n), B)), eps0)
    eps = eps0.copy()
    rows = xp.arange(B)
    eps[rows, units] = 1 - eps[rows, units]
    return eps


def random_flips(rng: Rng, eps0: Array, budget: int) -> Array:
    """``eps0`` with ``budget`` random units of each example flipped, every set of that size equally likely."""
    xp = namespace(eps0=eps0)
    B, H = eps0.shape
    shuffled = shared_draws.rows(rng, lambda g, n: g.permuted(np.tile(np.arange(H), (n, 1)), axis=1), B)
    ranks = same_place(shuffled, eps0)
    return xp.where(ranks < budget, 1 - eps0, eps0)  # type: ignore[no-any-return]


def hamming(eps: Array, eps0: Array) -> Array:
    """The number of units in which two masks differ, ``(B,)``."""
    namespace(eps=eps, eps0=eps0)
    expect_shape("eps", eps, eps0.shape, "the shape of eps0")
    return (eps != eps0).sum(axis=-1)  # type: ignore[no-any-return]


def budget(delta: float, n_hidden: int) -> int:
    r"""The number of flips that ``delta`` allows: :math:`b = \lfloor \delta H + 10^{-9} \rfloor`, at least one.

    Differs from the paper: its constraint is written :math:`\|\cdot\|_2 \le \delta` in the text and
    :math:`\le \delta H` in Alg. 1, and meant as a share of the units; minadv counts flips.
    """
    expect_type("delta", delta, Delta)
    flips = int(np.floor(delta * n_hidden + 1e-9))
    if flips == 0:
        raise ValueError(
            f"delta is {delta}, which allows no flip among H = {n_hidden} units: "
            f"the smallest useful delta is 1/{n_hidden} = {1 / n_hidden:.4g}"
        )
    return flips


def few_flips(n_hidden: int) -> int:
    r"""The budget where none is given: :math:`\delta = 0.03`, as for sequential MNIST, and at least three units.

    With fewer the random start of the paper's search is all or half of the mask.
    """
    return min(n_hidden, max(3, 3 * n_hidden // 100))


def scale(eps: Array, how: Scale, *, p: float | None = None) -> Array:
    r"""What the layers see of a binary mask: :math:`m = s(\epsilon)\,\epsilon`.

    ``"none"``: s = 1, the default for adversarial dropout. ``"inverted"``: s = 1/(1-p), the default for random dropout.
    ``"kept"``: s = H / sum(eps) in each row (a row that keeps nothing stays zero).

    The expected mask is not a binary one: whatever the scale, it has m = 1.
    """
    namespace(eps=eps)
    expect_scale(how, p)
    if how == "none":
        return eps
    if how == "inverted":
        assert p is not None
        return eps * (1 / (1 - float(p)))
    kept = _kept(eps)
    return eps * (eps.shape[-1] / kept)  # type: ignore[no-any-return]


def scale_backward(eps: Array, dm: Array, how: Scale, *, p: float | None = None) -> Array:
    r"""The gradient with respect to ``eps`` from that with respect to ``m``.

    For ``"kept"``, with :math:`S = \sum_j \epsilon_j`, the scale itself depends on every unit:

    .. math:: \frac{\partial D}{\partial \epsilon_i}
              = \frac HS \Big(dm_i - \frac1S \sum_j \epsilon_j\, dm_j\Big)
    """
    namespace(eps=eps, dm=dm)
    expect_scale(how, p)
    expect_shape("dm", dm, eps.shape, "the shape of eps")
    if how == "none":
        return dm
    if how == "inverted":
        assert p is not None
        return dm * (1 / (1 - float(p)))
    kept = _kept(eps)
    mean = (eps * dm).sum(axis=-1, keepdims=True) / kept
    return (dm - mean) * (eps.shape[-1] / kept)  # type: ignore[no-any-return]


def _kept(eps: Array) -> Array:
    """S, the number of units that each row keeps, (B, 1), or 1 for none; a sum, so that it has a derivative in eps."""
    S = eps.sum(axis=-1, keepdims=True)
    return namespace(S).where(S > 0, S, 1)  # type: ignore[no-any-return]


def expect_binary(name: str, eps: Array) -> None:
    """Raise unless this is a floating array ``(B, H)`` of zeros and ones."""
    expect_floating(name, eps)
    expect_shape(name, eps, ("B", "H"))
    wrong = (eps != 0) & (eps != 1)
    if bool(wrong.any()):
        index = tuple(int(k) for k in np.unravel_index(int(wrong.argmax()), eps.shape))
        raise ValueError(f"{name} is {float(eps[index])} at {shape_text(index)}, expected a mask of zeros and ones")


def expect_probability(p: float) -> None:
    """Raise ValueError unless p is a probability of dropping that is below 1, so that some units are kept."""
    expect_type("p", p, Probability)


def expect_scale(how: str, p: float | None) -> None:
    """Raise ValueError for an unknown scale, and for ``"inverted"`` without a probability p."""
    expect_choice("scale", how, SCALES)
    if how == "inverted":
        if p is None:
            raise ValueError('scale="inverted" needs the probability of dropping: give p')
        expect_probability(p)
