r"""The flip (Eq. 7, Alg. 1): from an influence map to a new mask within a budget, for a whole batch at once.

Flipping unit i changes D by about :math:`(1 - 2\epsilon_i)\,IM_i`, its gain. The rules differ in which gains they act
on and in how they count:

* ``"strict"``, minadv's default: in descending order of gain, only positive gains, never beyond the budget.
* ``"paper"``: Algorithm 1 to the letter, which tests the constraint before each flip and so goes one beyond it.
* ``"authors"``: the released code, a threshold at the c-th largest candidate.

Every rule is a few whole-array lines: a sort, then walks along the sorted units by prefix sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.checks import expect_choice, expect_floating, expect_shape
from minadv.base.errors import NotFiniteError
from minadv.base.kernels import on_device
from minadv.masks import expect_binary, hamming


@on_device
def flip(
    eps: Array,
    im: Array,
    eps0: Array,
    budget: int,
    *,
    rule: Literal["strict", "paper", "authors"] = "strict",
    allow_unflip: bool = True,
    norm: Literal["count", "l2"] = "count",
    variant: Literal["smnist", "text"] = "smnist",
) -> Array:
    r"""Flip units of ``eps`` where the influence map ``im`` says that the distance grows (Eq. 7).

    ``eps``, ``im`` and ``eps0`` are ``(B, H)``; ``budget`` is b, a number of units. Only ``"strict"`` keeps the result
    within b units of ``eps0``: ``"paper"`` ends b + 1 away, or b² + 1 for the norm l2, and ``"authors"`` counts changes
    from ``eps``. ``allow_unflip`` belongs to ``"strict"``, ``norm`` to ``"paper"``, ``variant`` to
    ``"authors"``; see the function of each rule. Cost: one sort of H numbers per example.

    Raises ValueError for a mask that is not binary, a map with NaN (naming the example), a budget that is negative or
    larger than H, and, for ``"strict"``, a start further from ``eps0`` than the budget.
    """
    xp = namespace(eps=eps, im=im, eps0=eps0)
    expect_choice("rule", rule, ("strict", "paper", "authors"))
    expect_choice("norm", norm, ("count", "l2"))
    expect_choice("variant", variant, ("smnist", "text"))
    expect_binary("eps0", eps0)
    expect_binary("eps", eps)
    expect_shape("eps", eps, eps0.shape, "the shape of eps0")
    expect_floating("im", im)
    expect_shape("im", im, eps0.shape, "the shape of eps0")
    H = eps0.shape[1]
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or not 0 <= budget <= H:
        raise ValueError(f"budget is {budget!r}, expected a whole number of flips from 0 to H = {H}")
    nan = xp.isnan(im).any(axis=1)
    if bool(nan.any()):
        raise NotFiniteError(
            f"im is NaN for example {int(nan.argmax())} (and {int(nan.sum())} of {nan.size} in all): "
            "are its input and the parameters finite?"
        )

    if rule == "strict":
        return _strict(eps, im, eps0, budget, allow_unflip)
    if rule == "paper":
        return _paper(eps, im, eps0, budget, norm)
    return _authors(eps, im, budget, variant)


def _strict(eps: Array, im: Array, eps0: Array, budget: int, allow_unflip: bool) -> Array:
    r"""One walk over the units in descending order of gain, ties by lowest index, only positive gains.

    A flip that would exceed the budget is skipped; un-flipping a unit back towards ``eps0`` frees a place for the units
    after it (unless ``allow_unflip=False``). Without skipping, the distance to ``eps0`` after n units would be
    :math:`S_n`; with it, it is the walk reflected at the budget b,

    .. math:: d_n = S_n - \max(0, \max_{k \le n} S_k - b)

    and a flip is skipped exactly where the subtracted term rises. From a start at ``eps0`` the result maximises any
    objective that is linear in eps, within the budget.
    """
    xp = namespace(eps)
    spent = hamming(eps, eps0)  # (B,)
    too_far = spent > budget
    if bool(too_far.any()):
        row = int(too_far.argmax())
        raise ValueError(
            f"eps differs from eps0 in {int(spent[row])} units in example {row}, which is beyond the budget of {budget}"
        )
    gain = (1 - 2 * eps) * im  # Eq. 7, (B, H)
    step = xp.where(eps == eps0, 1, -1) * (gain > 0)  # +1: further from eps0, -1: back, 0: left alone
    if not allow_unflip:
        step = xp.maximum(step, 0)

    order = xp.argsort(-gain, axis=1, kind="stable")  # ties by lowest index
    step = xp.take_along_axis(step, order, axis=1)
    S = spent[:, None] + _running(xp.add, step)
    excess = xp.maximum(_running(xp.maximum, S) - budget, 0)
    before = xp.concatenate([xp.zeros_like(excess[:, :1]), excess[:, :-1]], axis=1)
    flips = (step != 0) & (excess == before)
    return _flip_in_order(eps, order, flips)  # Eq. 7


def _paper(eps: Array, im: Array, eps0: Array, budget: int, norm: str) -> Array:
    r"""Algorithm 1: while the norm of ``eps0 - eps`` is at most the budget, flip the unit of the next largest gain.

    The test comes before the flip, so the result overshoots: by one for ``norm="count"`` (4 flips for a budget of 3);
    for ``norm="l2"``, the printed formula, :math:`\sqrt{d} \le b` lets b² + 1 flips through. Units of negative gain are
    flipped as well.
    """
    xp = namespace(eps)
    gain = (1 - 2 * eps) * im  # (B, H)
    order = xp.argsort(-gain, axis=1, kind="stable")
    step = xp.take_along_axis(xp.where(eps == eps0, 1, -1), order, axis=1)
    distance = hamming(eps, eps0)[:, None] + _running(xp.add, step) - step  # before each flip
    limit = budget if norm == "count" else budget * budget
    flips = _running(xp.logical_and, distance <= limit)
    return _flip_in_order(eps, order, flips)  # Alg. 1


def _authors(eps: Array, im: Array, budget: int, variant: str) -> Array:
    r"""The released code's rule: change the candidates whose :math:`|IM|` is above the c-th largest, strictly.

    A candidate is a unit whose state and influence disagree: kept with IM <= 0 (with IM = 0 it never passes the strict
    threshold), or dropped with IM > 0. At most c - 1
    units change, fewer on ties. The sequential-image code passes c = b + 1 and may re-activate units; the text code
    passes c = b and only ever drops. The count starts from ``eps``, not from ``eps0``.
    """
    xp = namespace(eps)
    H = eps.shape[1]
    c = budget + 1 if variant == "smnist" else max(budget, 1)
    candidate = (eps == 1) & (im <= 0)
    if variant == "smnist":
        candidate = candidate | ((eps == 0) & (im > 0))
    score = xp.where(candidate, xp.abs(im), 0)
    if c > H:  # every candidate is above the (H + 1)-th largest
        return xp.where(candidate & (score > 0), 1 - eps, eps)  # type: ignore[no-any-return]
    threshold = xp.sort(score, axis=1)[:, H - c, None]
    return xp.where(score > threshold, 1 - eps, eps)  # type: ignore[no-any-return]


def _flip_in_order(eps: Array, order: Array, flips: Array) -> Array:
    """Flip the units whose position in ``order (B, H)`` has True in ``flips (B, H)``."""
    xp = namespace(eps)
    position = xp.argsort(order, axis=1)  # where each unit stands in the order
    return xp.where(xp.take_along_axis(flips, position, axis=1), 1 - eps, eps)  # type: ignore[no-any-return]


def _running(op: Callable[[Any, Any], Any], a: Array) -> Array:
    """Running ``op`` (sum, maximum, and) along the last axis in log2 H doublings: CuPy has no maximum.accumulate."""
    xp = namespace(a)
    reach = 1
    while reach < a.shape[-1]:
        a = xp.concatenate([a[..., :reach], op(a[..., reach:], a[..., :-reach])], axis=-1)
        reach *= 2
    return a
