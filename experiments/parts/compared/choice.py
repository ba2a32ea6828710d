r"""What is chosen on validation data: a method's setting, and the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.parts.compared.rows import Result


def best_setting(results: Sequence[Result], method: str) -> tuple[float, float]:
    """The setting of the least mean validation result over the tuning seeds; the least loss decides between equals."""
    some = [r for r in results if r["method"] == method]
    return min(_settings(some), key=lambda setting: _score(some, setting))


def best_rate(results: Sequence[Result]) -> float:
    """The learning rate of the least mean validation result, then loss."""
    return float(min(sorted({r["lr"] for r in results}), key=lambda lr: _mean([r for r in results if r["lr"] == lr])))


def _settings(results: Sequence[Result]) -> list[tuple[float, float]]:
    return list(dict.fromkeys((r["strength"], r["weight"]) for r in results))


def _score(results: Sequence[Result], setting: tuple[float, float]) -> tuple[float, float]:
    return _mean([r for r in results if (r["strength"], r["weight"]) == setting])


def _mean(results: Sequence[Result]) -> tuple[float, float]:
    return float(np.mean([r["valid"] for r in results])), float(np.mean([r["valid_loss"] for r in results]))
