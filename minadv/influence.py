r"""The influence map (Eq. 6): how much each recurrent unit matters to the distance, over all time steps at once.

The paper writes, for the distance :math:`D_t` at each step and the masked states :math:`\hat h_u = m \odot h_u`,

.. math:: IM_i = \sum_{t=1}^{T} \lambda_t \frac{\partial D_t}{\partial \hat h_t}
                 \Big\{ \sum_{u=1}^{t-1} \frac{\partial \hat h_t}{\partial \hat h_{u,i}} h_{u,i} \Big\}

Swapping the two sums, with :math:`g_u = \partial (\sum_t \lambda_t D_t) / \partial \hat h_u` from one backward pass,

.. math:: IM_i = \sum_{u=0}^{T-1} g_{u,i}\, h_{u,i}

which costs O(T) instead of O(T²). The sum starts at the initial state, u = 0, which is masked too and drops out where
it is zero; with a readout from the clean state no term u = t arises. `influence_map` is that sum,
`influence_map_double_sum` the paper's. Both are gradients with respect to ``m``; `minadv.masks.scale_backward` carries
them to ``eps``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from minadv.backend import Array, namespace
from minadv.base.checks import expect_shape
from minadv.base.kernels import on_device
from minadv.base.readings import check_all

ROUNDING = 100
"""Two numbers that differ by no more than so many times the precision are the same but for rounding."""


class ZeroInfluenceWarning(UserWarning):
    """The influence map is zero in every example, so that nothing says which units to flip."""


def influence_map(h_prev: Array, dhhat: Array) -> Array:
    r"""The sum over time of Eq. 6, ``(B, H)``: :math:`\partial D/\partial m_i = \sum_u g_{u,i} h_{u,i}`.

    ``h_prev (T, B, H)``: ``h_prev[u]`` is :math:`h_u`, the state that entered step u + 1, u = 0, ..., T - 1
    (``cache.h[:-1]``); ``dhhat (T, B, H)``: `Grads.hhat` of a backward pass from :math:`\sum_t \lambda_t D_t`. Equals
    that pass's `Grads.m`. It is IM where the scale is 1; `minadv.objective.Objective.influence_of` makes IM of it for
    the other scales. A masked readout adds its own term at the step it reads (u = t), in the model.
    """
    xp = namespace(h_prev=h_prev, dhhat=dhhat)
    expect_shape("h_prev", h_prev, ("T", "B", "H"))
    expect_shape("dhhat", dhhat, h_prev.shape, "the shape of h_prev")
    return xp.einsum("ubh,ubh->bh", dhhat, h_prev)  # type: ignore[no-any-return]  # Eq. 6


def influence_map_double_sum(cell: Any, params: Any, cache: Any, dh: Array, dread: Array | None = None) -> Array:
    r"""The double sum of Eq. 6, ``(B, H)``: the readable reference, O(T²).

    ``cell`` is the module (`minadv.rnn`, `lstm`, `gru`) that made ``cache``; ``dh[t-1]`` is
    :math:`\lambda_t\, \partial D_t / \partial h_t`. For a readout from the masked state, ``dread[t-1]`` is
    :math:`\lambda_t\, \partial D_t/\partial \hat h_t`, and the sum over u includes u = t; ``dh`` is then ``m * dread``,
    what reaches :math:`h_t` through its masked copy.

    Differs from the paper: :math:`D_t` reads the clean :math:`h_t`, so that the factors are
    :math:`\partial D_t/\partial h_t` and :math:`\partial h_t/\partial \hat h_u`; and u starts at 0, because a carried
    initial state is masked like every other.
    """
    xp = namespace(dh=dh, dread=dread)
    h = cache.h  # (T+1, B, H), h[t] is h_t
    dm: Array = xp.zeros_like(h[0])
    for t in range(1, dh.shape[0] + 1):
        only_t = xp.zeros_like(dh)
        only_t[t - 1] = dh[t - 1]
        g = cell.backward(params, cache, only_t, weights=False).hhat  # g[u] = d(lam_t D_t) / d hhat_u
        for u in range(t):
            dm = dm + g[u] * h[u]  # Eq. 6
        if dread is not None:
            dm = dm + dread[t - 1] * h[t]  # Eq. 6, u = t
    return dm


@on_device
def agree(features0: Array, features1: Array, d: Array) -> tuple[Array, Array]:
    r"""Of which examples two passes agree up to rounding, bool ``(B,)``, and D ``(B,)`` with exact zeros there.

    ``features (N, B, F)`` are those of the two passes, ``d (B,)`` is their distance. Passes agree by D and by every
    feature: D is quadratic in the difference of two logits, and small for a very sure prediction too, whose map is
    true; there the features differ.
    """
    xp = namespace(features0=features0, features1=features1, d=d)
    rounding = ROUNDING * float(xp.finfo(features0.dtype).eps)
    apart, size = (xp.abs(a).max(axis=2).max(axis=0) for a in (features1 - features0, features0))  # (B,) each
    same = (d <= rounding**2) & (apart <= rounding * size)
    return same, xp.where(same, 0, d)


@on_device
def zero_maps(im: Mapping[str, Array], same: Array) -> tuple[dict[str, Array], Array]:
    r"""The influence maps with zeros for rounding, and of which examples they are zero at every site, bool ``(B,)``.

    ``same (B,)`` says in which examples the two passes agree (`agree`). There D is at its minimum, as it is everywhere
    at :math:`\epsilon^s = \epsilon^0` with the same noise, and its gradient is rounding, whose signs would choose the
    flips. With a map of zeros the rules ``"strict"`` and ``"authors"`` leave an example as it is, and ``"paper"`` takes
    its units by their index.
    """
    xp = namespace(same)
    maps = {name: xp.where(same[:, None], 0, values) for name, values in im.items()}
    return maps, ~xp.stack([values.any(axis=1) for values in maps.values()]).any(axis=0)


def warn_if_zero(zero: Array, why: Callable[[], str]) -> None:
    """Warn if the influence map is zero in every example, as `zero_maps` tells; ``why`` says why, and what to do."""

    def warn() -> None:
        warnings.warn(f"the influence map is zero up to rounding: {why()}", ZeroInfluenceWarning, stacklevel=5)

    check_all(zero, warn)
