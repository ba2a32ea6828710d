r"""Lines about a trained run that several families share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minadv.backend import Device


@dataclass(frozen=True)
class Report:
    """A line about a trained run, and the number in it that a simple method is compared with, if there is one."""

    line: str
    value: float | None = None


def best_record(run: Any, metric: str) -> dict[str, Any]:
    """The evaluation with the least value of a metric."""
    best: dict[str, Any] = min(run.records, key=lambda record: record[f"valid_{metric}"])
    return best


def heading(run: Any) -> str:
    """Which run it is: its folder, its method with delta, budgets, p or norm, its seed, and the step of its weights."""
    parts = [f"{run.path.name if run.path else 'run'}: {method(run.config.get('regularizer', {}))}"]
    if "seed" in run.config:
        parts.append(f"seed {run.config['seed']}")
    if run.records:
        monitor = run.config["recipe"]["monitor"]
        parts.append(f"weights of step {best_record(run, monitor)['step']:,}, the best of {run.step:,}")
    else:
        parts.append(f"weights of step {run.step:,}")
    return ", ".join(parts)


def method(regularizer: dict[str, Any]) -> str:
    """A regularizer, as a configuration describes it, in words: its name, and how much it may change."""
    if "parts" in regularizer:
        return " + ".join(method(part) for part in regularizer["parts"])
    names = [name for name in ("delta", "budgets", "p", "norm") if regularizer.get(name) is not None]
    kind = str(regularizer.get("kind", "Plain")).rpartition(".")[2]
    return " ".join([kind, *(f"{name} {_value(regularizer[name])}" for name in names)])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{site} {_value(one)}" for site, one in value.items())
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def error_report(run: Any, device: Device) -> Report:
    """A classifier's error on the test data, and its best one on the validation data."""
    test, best = run.evaluate("test", device=device), best_record(run, "error")
    line = (
        f"test error {test['error']:.2f} % (loss {test['loss']:.4f}), best validation error "
        f"{best['valid_error']:.2f} % at step {best['step']} of {run.step}; run in {run.path}"
    )
    return Report(line, test["error"])
