r"""Lines about runs of sequences: what was found of the data, and what a simple method gets on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from minadv.backend import Array, to_host
from minadv.data.split import Split
from minadv.tasks import baselines, fitting


def summary(plan: Any) -> str:
    """What was found: examples by part and class, steps and inputs; of a user's own data also whether they are few."""
    data, own = plan.data, bool(plan.data.names)
    N, T, I = data.train.x.shape
    counts = np.bincount(to_host(data.train.y), minlength=data.classes).tolist()
    names = data.names or tuple(map(str, range(data.classes)))
    classes = ", ".join(f"{name} {n:,}" for name, n in list(zip(names, counts, strict=True))[:12])
    steps = f"{T:,} steps" if data.train.lengths is None else f"{_range(data.train.lengths)} steps"
    said = f"{N:,} train, {len(data.valid):,} valid, {len(data.test):,} test sequences of {steps} and {I:,} inputs"
    more = f"; {data.classes} classes ({classes}{', ...' * (data.classes > 12)})" if own else ""
    return f"{plan.config['about']['task']}: {said}{more}" + (fitting.few(N, "sequences") if own else "")


def _range(lengths: Array) -> str:
    """The shortest, the middle and the longest of some lengths."""
    low, middle, high = (int(value) for value in np.quantile(to_host(lengths), (0, 0.5, 1), method="lower"))
    return f"{low:,} to {high:,} (half of them up to {middle:,})"


def without_padding(part: Split) -> Array:
    """The sequences ``(N, T, I)`` of a part on the host, with zeros behind the end of each.

    Not the data themselves are changed: the checksum by which a run knows them again has their padding in it.
    """
    x: Array = to_host(part.x)
    if part.lengths is None:
        return x
    return np.where((np.arange(x.shape[1]) < part.lengths[:, None])[..., None], x, x.dtype.type(0))


def baseline(run: Any, error: float) -> str:
    """A line: the errors of the most frequent class and of a linear classifier on the run's test sequences."""
    train, test = ((without_padding(part), to_host(part.y)) for part in (run.data.train, run.data.test))
    simple = baselines.linear(train, test, run.data.classes)
    return baselines.of_classes("a linear classifier", simple, error, baselines.majority(train[1], test[1]))
