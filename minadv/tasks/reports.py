r"""Lines about a trained run that several families share."""

from __future__ import annotations

from typing import Any

from minadv.backend import Device


def best_record(run: Any, metric: str) -> dict[str, Any]:
    """The evaluation with the least value of a metric."""
    best: dict[str, Any] = min(run.records, key=lambda record: record[f"valid_{metric}"])
    return best


def error_report(run: Any, device: Device) -> str:
    """A classifier's error on the test data, and its best one on the validation data."""
    test, best = run.evaluate("test", device=device), best_record(run, "error")
    return (
        f"test error {test['error']:.2f} % (loss {test['loss']:.4f}), best validation error "
        f"{best['valid_error']:.2f} % at step {best['step']} of {run.step}; run in {run.path}"
    )
