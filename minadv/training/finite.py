r"""Numbers of training that are not finite: found before they can reach a checkpoint, and named."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minadv.backend import namespace
from minadv.base.trees import leaves


class TrainingError(RuntimeError):
    """Training cannot go on: a number is not finite, say. The message names step, leaf and last good checkpoint."""


def expect_finite(step: int, what: str, tree: Any) -> None:
    """Raise TrainingError unless all numbers of a tree's arrays are finite.

    One sum over everything says whether to look closer: a NaN or an infinity survives it.
    """
    if not math.isfinite(float(sum(a.sum(dtype=np.float64) for _, a in _floats(tree)))):
        raise not_finite(step, what, tree, "entries")


def not_finite(step: int, what: str, tree: Any, of: str) -> TrainingError:
    """The error that names the leaves of a tree that are not finite; if all are, the one with the largest entry."""
    arrays = _floats(tree)
    bad = [name for name, a in arrays if not bool(namespace(a).isfinite(a).all())]
    if bad:
        return TrainingError(f"{what} is not finite at step {step} ({', '.join(bad)})")
    size, name = max((float(abs(a).max()), name) for name, a in arrays)
    return TrainingError(f"{what} is not finite at step {step} (all {of} are: the largest is {size:.3g}, in {name})")


def _floats(tree: Any) -> list[tuple[str, Any]]:
    return [(name, a) for name, a in leaves(tree) if hasattr(a, "dtype") and a.dtype.kind == "f"]
