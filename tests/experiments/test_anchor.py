"""The first epochs at the paper's size, in miniature."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments import anchor
from experiments.parts.comparison import Preset

TINY = Preset("tiny", "digits", "row", 2, 8, 10, 1, "rmsprop", 1e-3, batch=200)


@pytest.fixture(autouse=True)
def once(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")
    monkeypatch.setattr(anchor, "PRESET", TINY)


def test_a_run_goes_on_from_epoch_to_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def run(name: str, *more: str) -> dict[str, Any]:
        anchor.main([*more, "--device", "cpu", "--runs", str(tmp_path / name), "--out", str(tmp_path / name)])
        found: dict[str, Any] = json.loads((tmp_path / name / "anchor.json").read_text())
        return found

    run("parts", "--epochs", "2")
    parts = run("parts", "--epochs", "3")
    whole = run("whole", "--epochs", "3")
    for a, b in zip(parts["results"], whole["results"], strict=True):
        assert [one["epoch"] for one in a["curve"]] == [1, 2, 3]
        assert (a["curve"], a["test"]) == (b["curve"], b["test"])
    monkeypatch.setattr(anchor.comparison, "train", lambda *a, **k: pytest.fail("trained"))
    assert run("parts", "--report-only")["results"] == parts["results"]
    assert run("parts", "--epochs", "2")["results"] == parts["results"]
    text = (tmp_path / "parts" / "anchor.md").read_text()
    assert "| none         | 3      |" in text
    assert "estimated to take 3.3 to 4.3 ms" in text
    assert (tmp_path / "parts" / "anchor.png").stat().st_size > 10_000


def test_an_epoch_that_was_logged_but_not_saved_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed between the two leaves a log that is an evaluation ahead of its checkpoint."""

    def run(epochs: int) -> list[Any]:
        places = ["--device", "cpu", "--runs", str(tmp_path), "--out", str(tmp_path)]
        anchor.main([*places, "--epochs", str(epochs)])
        results = json.loads((tmp_path / "anchor.json").read_text())["results"]
        return [(r["curve"], r["test"]) for r in results]

    def saved() -> list[str]:
        return sorted(path.name for path in tmp_path.rglob("checkpoints/step-*.json"))

    run(1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("checkpoints/*")}
    whole, steps = run(2), saved()
    for folder in {path.parent for path in before}:
        for path in folder.iterdir():
            path.unlink()
    for path, content in before.items():
        path.write_bytes(content)
    assert saved() != steps
    assert run(2) == whole
    assert set(steps) - set(saved()) == set()
