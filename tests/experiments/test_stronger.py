"""The experiment on stronger adversaries: what it trains, how it chooses, and what it says of given numbers."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import stronger
from experiments.parts import reporting, stronger_report
from experiments.stronger import METHODS, SEARCHES, SETTINGS, Job
from minadv.regularizers import AdD, Plain, RDrop


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


def test_a_seed_draws_its_own_examples_without_overlap() -> None:
    setting = SETTINGS["digits"]
    one, same, other = (stronger.data_of(setting, seed, None) for seed in (0, 0, 1))
    assert (len(one.train), len(one.valid), len(one.test)) == (400, 400, 997)
    assert (one.train.x == same.train.x).all()
    assert (one.train.y != other.train.y).any()
    seen = {row.tobytes() for part in (one.train, one.valid) for row in part.x}
    repeated = sum(row.tobytes() in seen for row in one.test.x)
    assert repeated <= 2  # scikit-learn's digits hold no more than that of equal pictures


def test_strengths_are_probabilities_or_flips() -> None:
    setting = SETTINGS["digits"]
    assert setting.strengths("none") == (0.0,)
    assert setting.strengths("RDrop") == setting.probabilities
    assert setting.strengths("Memory") == (3.0, 6.0, 10.0)
    assert stronger.regularizer("none", 0.0) == Plain()
    assert stronger.regularizer("RDrop", 0.2) == RDrop(p=0.2)
    assert stronger.regularizer("Memory", 6.0) == AdD(budgets=6, search=SEARCHES["Memory"])


def test_passes_of_a_step_are_counted() -> None:
    assert stronger_report.passes(SEARCHES) == {
        "none": [1, 1],
        "VD": [1, 1],
        "EL": [2, 2],
        "FD": [2, 2],
        "RDrop": [2, 2],
        "random": [3, 2],
        "greedy K=1": [3, 3],
        "greedy K=2": [4, 4],
        "reselect": [7, 4],
        "Relax": [5, 4],
        "Memory": [5, 3.5],
    }


def made_up(errors: dict[str, float], noise: float = 0.1) -> dict[str, Any]:
    """Results of a task whose methods have these test errors but for a little noise."""
    setting = SETTINGS["digits"]
    rng = np.random.default_rng(0)
    results = [
        {"setting": "digits", "method": method, "strength": s, "weight": 1.0, "seed": seed, "part": "final"}
        | dict.fromkeys(("valid_error", "test_error", "attacked_error"), errors[method] + k + noise * rng.random())
        | {"valid_loss": 1.0, "valid_losses": [2.0, 1.0, 1.5, 1.5, 1.5], "seconds": 1.0}
        for method in METHODS
        for k, s in enumerate(setting.strengths(method))
        for seed in range(4)
    ]
    facts = {"setting": asdict(setting), "passes": stronger_report.passes(SEARCHES), **reporting.facts(0.0)}
    return {"facts": facts, "commits": ["0123456789"], "results": results}


def test_the_verdict_follows_from_the_numbers() -> None:
    errors = dict.fromkeys(METHODS, 6.0) | {"none": 9.0, "Memory": 4.0}
    said = stronger_report.verdict(made_up(errors))
    assert "Least mean error: Memory," in said
    assert "Memory has less error than greedy K=2 (-" in said
    assert "had stopped improving" in said
    said = stronger_report.verdict(made_up(dict.fromkeys(METHODS, 6.0), noise=3.0))
    assert "Memory cannot be told from greedy K=2" in said
    said = stronger_report.verdict(made_up(errors | {"Memory": 7.0}))
    assert "Memory has more error than greedy K=2 (+" in said


def test_strength_and_weight_are_chosen_by_validation_data() -> None:
    task = made_up(dict.fromkeys(METHODS, 6.0))
    for r in task["results"]:
        if r["strength"] == 6.0:
            r["valid_error"], r["test_error"] = 0.0, 50.0
    assert stronger_report.chosen(task, "Memory") == 6.0
    tuned = [
        {"method": "FD", "strength": 0.1, "weight": w, "valid_error": e, "valid_loss": loss}
        for w, e, loss in ((0.3, 5.0, 1.0), (1.0, 4.0, 2.0), (3.0, 4.0, 1.0), (3.0, 4.0, 1.0))
    ]
    assert stronger_report.best_weight(tuned, "FD", 0.1) == 3.0


def test_a_run_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = replace(SETTINGS["digits"], train=40, valid=40, n_hidden=6, epochs=2, budgets=(2, 3, 4))
    monkeypatch.setitem(SETTINGS, "digits", tiny)
    job = Job("digits", "Memory", 2.0, 1.0, 0, None, tmp_path)
    first = stronger.train(job)
    assert job.path == tmp_path / "digits" / "Memory-2-1-seed0.json"
    assert len(first["valid_losses"]) == 2
    assert 0 <= first["test_error"] <= 100
    assert 0 <= first["attacked_error"] <= 100
    monkeypatch.setattr(stronger, "fit", None)  # nothing is trained again
    assert stronger.train(job) == first
