"""What a comparison would cost, by the steps and evaluations that are timed."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments.parts.compared import images, texts
from experiments.parts.compared.estimate import estimate
from tests.support.comparisons import REVIEWS, TINY, given


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A training that takes 5 s, 0.1 s a step and 3 s an evaluation, by a clock that nothing else moves."""
    now = [0.0]

    def train(*args: Any, steps: int, eval_every: int, **how: Any) -> None:
        now[0] += 5 + 0.1 * steps + 3 * math.ceil(steps / eval_every)

    monkeypatch.setattr("experiments.parts.compared.estimate.time.process_time", lambda: now[0])
    return train


def test_an_evaluation_is_counted_for_each_epoch(clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "train", clock)
    (row,) = (line for line in estimate(TINY, given(tmp_path), 1).splitlines() if line.startswith("| AdD K=2"))
    assert [cell.strip() for cell in row.split("|")[2:-2]] == ["10", "40", "100.0", "3.00"]
    long = replace(TINY, epochs=500)
    (row,) = (line for line in estimate(long, given(tmp_path), 1).splitlines() if line.startswith("| AdD K=2"))
    assert float(row.split("|")[-2]) == pytest.approx(10 * (5 + 0.1 * 1000 + 3 * 500) / 3600, abs=0.01)


def test_the_language_model_is_counted(clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "train", clock)
    monkeypatch.setattr(texts, "pretrain", clock)
    sizes = tuple((REVIEWS.size | {"lm_steps": 6000}).items())
    text = estimate(replace(REVIEWS, sizes=sizes), given(tmp_path), 1)
    (row,) = (line for line in text.splitlines() if line.startswith("| language model"))
    assert float(row.split("|")[-2]) == pytest.approx((5 + 0.1 * 6000 + 3 * 6) / 3600, abs=0.006)


def test_the_language_model_can_be_timed() -> None:
    assert texts.pretrain(REVIEWS, None, steps=2, eval_every=1, workers=1, progress=False).step == 2


def test_the_estimate_counts_all_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = estimate(TINY, given(tmp_path), 1)
    runs = 2 * 2 + 2 * 4 * 2 + 2 * (1 + 4 + 1 + 2 + 1)
    assert f"| all     | {runs} " in text
    assert not list(tmp_path.iterdir())
