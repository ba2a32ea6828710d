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
from experiments.parts import reporting
from experiments.parts.compared import images, plan
from experiments.parts.compared.plan import Task
from minadv.base.errors import DataError
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
    for module in (plan, figure3):
        monkeypatch.setattr(module, "settings", lambda method, *kind: [(0.2, 1.0), (0.2, 0.0)])
    compare.main(["tiny", *runs])
    figure3.main(["--task", "tiny", "--draws", "4", "--images", "150", "--device", "cpu", *runs])
    data = json.loads((tmp_path / "figure3-tiny.json").read_text())
    compared = json.loads((tmp_path / "compare-tiny.json").read_text())["results"]
    for r in data["results"]:
        (same,) = (c for c in compared if c["method"] == r["method"] and c["part"] == "final")
        assert r["error"] == same["test"]  # looking at a network does not change its training
        assert (r["images"], len(r["random"]), len(r["adversarial"]), len(r["kept"][-1])) == (150, 4, 4, 16)
        assert np.mean(r["adversarial"]) < np.mean(r["random"])
        assert r["strong"] <= np.mean(r["adversarial"])
        assert len(set(r["adversarial"])) > 1
        run = load(
            tmp_path / "runs" / "tiny" / "figure3" / f"{r['method'].replace(' ', '_')}-0.2-{r['weight']:g}-0.01-seed0"
        )
        job = images.Job(TINY, r["method"], 0.2, r["weight"], 1e-2, 0, "figure3", tmp_path)
        test = images.data_of(job).test
        batch = Batch(test.x[:150].transpose(1, 0, 2), test.y[:150])
        shares = [record["valid_mean_mask"]["layer0"] for record in run.records]
        np.testing.assert_allclose(figure3.masks_of(r), shares, atol=1e-6)
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
    assert "which tell the settings: run python -m experiments.compare tiny first" in capsys.readouterr().err


def test_settings_are_known_when_all_that_chooses_is_done(runs: list[str], tmp_path: Path) -> None:
    rated = [{"part": "rates", "method": "none", "lr": lr, "valid": 1 / lr, "valid_loss": 0} for lr in (1e-3, 1e-2)]
    tried = [
        {"part": "settings", "method": method, "strength": s, "weight": w, "valid": abs(w - 3), "valid_loss": s}
        for method in figure3.METHODS
        for s, w in plan.settings(method)
    ]
    where = plan.files_of("tiny", tmp_path)[1]
    reporting.write_results(where, {"results": [*rated, *tried]})
    jobs = figure3.chosen("tiny", tmp_path, {"root": tmp_path})
    assert [(j.method, j.strength, j.weight, j.lr) for j in jobs] == [("FD", 0.1, 3, 1e-2), ("AdD K=2", 0.06, 3, 1e-2)]
    reporting.write_results(where, {"results": [*rated, *tried[:-1]]})
    with pytest.raises(DataError, match="does not have all settings of AdD K=2 yet"):
        figure3.chosen("tiny", tmp_path, {"root": tmp_path})


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
            "images": 100,
            "kept": rng.integers(50, 101, (3, 4)).tolist(),
        }
        for method, strong in (("FD", 70.0), ("AdD K=2", 85.0))
    ]
    top, bottom = figure3.figure(results).axes[:2], figure3.figure(results).axes[2:4]
    assert len({axis.get_xlim() for axis in top}) == 1
    assert top[0].get_xlim()[0] < 70
    assert all(float(tick).is_integer() for axis in bottom for tick in axis.get_yticks())
