r"""The update of a training step: clip, optimizer, and checks before and after it.

What is not finite is found here, and named, before it can reach a checkpoint.
"""

from __future__ import annotations

import math
from typing import Any

from minadv.base.kernels import on_device
from minadv.training.clip import Clip
from minadv.training.finite import expect_finite, not_finite
from minadv.training.optimizers import Optimizer


@on_device
def updated(
    clip: Clip | None, optimizer: Optimizer, params: Any, grads: Any, state: Any, *, step: int, loss: float, rate: float
) -> tuple[Any, Any]:
    """The parameters and the optimizer's state after a step; raises TrainingError where a number is not finite.

    ``state`` is the optimizer's before it, ``rate`` what its learning rate is multiplied by, ``loss`` that of the step.
    """
    expect_finite(step, "the gradient", grads)
    clipped, norm = (grads, None) if clip is None else clip(grads)
    if norm is not None and not math.isfinite(float(norm)):
        raise not_finite(step, "the norm of the gradient", grads, "entries")
    if not math.isfinite(loss):
        raise not_finite(step, "the loss", params, "weights")
    params, state = optimizer.step(params, clipped, state, lr_scale=rate)
    expect_finite(step, "the update", {"params": params, "optimizer": state})
    return params, state
