r"""Penalties on the activations of a recurrent layer: on their size (AR), and on their change in time (temporal AR).

.. math:: \alpha \frac{1}{TF} \sum_{t,j} o_{t,j}^2 \;+\; \beta \frac{1}{(T-1)F} \sum_{t>1,j} (h_{t,j} - h_{t-1,j})^2

for each example, with the dropped-out output ``o (T, B, F)`` and the raw one ``h (T, B, F)``.
"""

from __future__ import annotations

from minadv.backend import Array, namespace


def activation_penalty(o: Array, alpha: float) -> tuple[Array, Array]:
    r"""AR, :math:`\alpha\, \mathrm{mean}_{t,j}\, o^2`: ``(B,)``, and the gradient of its sum, ``(T, B, F)``."""
    namespace(o=o)
    T, _, F = o.shape
    share = alpha / (T * F)
    return share * (o * o).sum(axis=(0, 2)), (2 * share) * o


def temporal_penalty(h: Array, beta: float) -> tuple[Array, Array]:
    r"""Temporal AR, :math:`\beta\, \mathrm{mean}_{t>1,j}\, (h_t - h_{t-1})^2`: ``(B,)``, and the gradient of its sum.

    A sequence of one step has no difference and no penalty.
    """
    xp = namespace(h=h)
    T, B, F = h.shape
    dh: Array = xp.zeros_like(h)
    if T == 1:
        return xp.zeros(B, h.dtype), dh
    share = beta / ((T - 1) * F)
    step = h[1:] - h[:-1]
    dh[1:] = (2 * share) * step
    dh[:-1] -= (2 * share) * step
    return share * (step * step).sum(axis=(0, 2)), dh
