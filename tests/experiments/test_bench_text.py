"""The benchmark of Table 2's steps, in miniature."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import table2
from experiments.bench import text as bench_text
from experiments.parts.text_methods import METHODS
from tests.support.text_tiny import OF, TINY


def test_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The rows that are there already stay; the padding is held to its limit."""
    monkeypatch.setattr(bench_text, "open_data", lambda about: OF)
    monkeypatch.setitem(table2.PRESETS, "docstrings", TINY)
    monkeypatch.setattr(bench_text, "call", lambda name, threads, **given: bench_text.measure(**given))
    options = ["--preset", "docstrings", "--rounds", "2", "--workers", "1", "--out", str(tmp_path)]
    for row in ("AdD K=1", bench_text.PRETRAINING):
        bench_text.main([*options, "--rows", row])
    found = json.loads((tmp_path / "bench_text.json").read_text())
    assert list(found["rows"]) == [bench_text.PRETRAINING, "AdD K=1"]
    alone = found["rows"]["AdD K=1"]["alone"]
    assert len(alone["seconds"]) == 2
    assert all(0 < real <= padded for real, padded in zip(alone["real"], alone["padded"], strict=True))
    assert found["rows"][bench_text.PRETRAINING]["alone"]["real"] == [4 * 5, 4 * 5]
    text = (tmp_path / "bench_text.md").read_text()
    assert "| AdD K=1 " in text
    assert "times its real tokens: within the limit of 1.3." in text
    assert str(tmp_path) not in text
    assert "written:" in capsys.readouterr().out


def test_speed_is_of_all_steps_together() -> None:
    """A mean of tokens over a median of seconds would say 200 here."""
    assert bench_text.speed({"real": [100, 100, 400], "seconds": [1.0, 1.0, 10.0]}) == "50 (40 to 100)"


def test_every_method_reads_the_same_labelled_texts() -> None:
    tasks = [bench_text.make_task(TINY, OF, row) for row in METHODS]
    for step in range(3):
        rows = [np.concatenate(task.readings[0].buckets.groups(step)).tolist() for task in tasks]
        assert rows == [rows[0]] * len(METHODS)
