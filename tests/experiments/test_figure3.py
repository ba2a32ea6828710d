"""Figure 3: the networks of a comparison once more, and their sub-networks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments import compare, figure3
from experiments.parts.compared import images, plan
from experiments.parts.compared.plan import Task
from minadv.models.classifier import Batch
from minadv.tasks.run import load

TINY = Task(
    "tiny",
    "images",
    "a few digits",
    "error",
    epochs=8,
    batch=20,
    lrs=(1e-2,),
    seeds=1,
    sizes=(("images", "digits"), ("by", "row"), ("train", 200), ("valid", 20), ("n_hidden", 16)),
    methods=("none", "FD", "AdD K=2"),
    matched=False,
)


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setitem(plan.TASKS, "tiny", TINY)
    monkeypatch.setattr(figure3, "METHODS", ("FD", "AdD K=2"))
    return ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path), "--workers", "1"]


def test_sub_networks_of_the_networks_that_were_compared(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "choice", lambda task, tuned: dict.fromkeys(TINY.methods, (0.2, 1.0)))
    monkeypatch.setattr(plan, "trials", lambda *a: [])
    compare.main(["tiny", *runs])
    figure3.main(["--task", "tiny", "--draws", "4", "--images", "150", "--device", "cpu", *runs])
    data = json.loads((tmp_path / "figure3-tiny.json").read_text())
    compared = json.loads((tmp_path / "compare-tiny.json").read_text())["results"]
    for r in data["results"]:
        (same,) = (c for c in compared if c["method"] == r["method"] and c["part"] == "final")
        assert r["error"] == same["test"]  # looking at a network does not change its training
        assert (r["images"], len(r["random"]), len(r["adversarial"]), len(r["masks"][-1])) == (150, 4, 4, 16)
        assert np.mean(r["adversarial"]) < np.mean(r["random"])
        assert r["strong"] <= np.mean(r["adversarial"])
        assert len(set(r["adversarial"])) > 1
        run = load(tmp_path / "runs" / "tiny" / "figure3" / f"{r['method'].replace(' ', '_')}-0.2-1-0.01-seed0")
        job = images.Job(TINY, r["method"], 0.2, 1.0, 1e-2, 0, "figure3", tmp_path)
        test = images.data_of(job).test
        batch = Batch(test.x[:150].transpose(1, 0, 2), test.y[:150])
        logits = run.model.logits(run.params, run.model.body(run.params, batch, masks={}, noise=None)[0])[-1]
        assert r["accuracy"] == pytest.approx(100 * (logits.argmax(axis=1) == test.y[:150]).mean())
    text = (tmp_path / "figure3-tiny.md").read_text()
    assert text == figure3.page(data)
    assert "(a) 150 test images, 4 random masks" in text
    assert (tmp_path / "figure3-tiny.png").stat().st_size > 10_000


def test_without_a_comparison_there_are_no_settings(runs: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        figure3.main(["--task", "tiny", "--device", "cpu", *runs])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith("which tells the settings: run python -m experiments.compare tiny\n")


def test_one_axis_for_all_histograms_and_whole_epochs() -> None:
    rng = np.random.default_rng(0)
    results = [
        {
            "method": method,
            "accuracy": 95.0,
            "strong": strong,
            "epochs": [1.0, 2.0, 3.0],
            "random": list(rng.uniform(90, 95, 9)),
            "adversarial": list(rng.uniform(strong, 90, 9)),
            "masks": rng.uniform(0.5, 1, (3, 4)).tolist(),
        }
        for method, strong in (("FD", 70.0), ("AdD K=2", 85.0))
    ]
    top, bottom = figure3.figure(results).axes[:2], figure3.figure(results).axes[2:4]
    assert len({axis.get_xlim() for axis in top}) == 1
    assert top[0].get_xlim()[0] < 70
    assert all(float(tick).is_integer() for axis in bottom for tick in axis.get_yticks())
