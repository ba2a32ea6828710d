"""``--engine``: the readable cells train every task, and a run keeps the engine that it was begun with."""

from pathlib import Path
from typing import Any

import pytest

import minadv
from minadv.fast import choice
from minadv.training.runs import log
from tests.support.compare import assert_close

OLD_RUNS = Path(__file__).parents[1] / "tasks" / "old_runs"
SHORT = ["--train-steps", "2", "--eval-every", "2", "--dtype", "float64", "--workers", "1", "--device", "cpu"]
TASKS = {
    "digits": "train digits --rows --hidden 6 --delta 0.4 --batch 50 --ramp-up 0",
    "gru": "train digits --rows --hidden 6 --delta 0.4 --batch 50 --cell gru --layers 2 --ramp-up 0",
    "lm": "train lm --hidden 6 5 --embed 5 --delta 0.4 --batch 2 --bptt 5 --min-count 1",
    "text": "train text --hidden 6 --embed 5 --delta 0.4 --batch 4 --max-tokens 8",
    "pretrain": "pretrain text --hidden 6 --embed 5 --batch 4 --window 5 --candidates 5",
}


@pytest.mark.parametrize("name", TASKS)
def test_plain_trains_every_task(name: str, tmp_path: Path, says: Any) -> None:
    """To the weights of the fast engine, up to rounding."""
    verb, task, *options = TASKS[name].split()
    if name in ("lm", "text", "pretrain"):
        options += ["--data-dir", str(OLD_RUNS / "data" / ("words" if name == "lm" else "texts"))]
    for engine in ("plain", "fast"):
        says(verb, task, *options, *SHORT, "--engine", engine, "--out", tmp_path / engine)
    plain, fast = (minadv.load(tmp_path / engine) for engine in ("plain", "fast"))
    assert (plain.model.engine, fast.model.engine) == ("plain", "fast-3")
    assert_close(plain.last, fast.last, 1e-9)
    header = log.read(tmp_path / "plain" / "log.jsonl")[0]
    assert header["engine"] == "the readable cells by NumPy, as was asked for"


def test_a_run_keeps_its_engine(tmp_path: Path, says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the environment chose it, and says something else by now."""
    monkeypatch.setenv(choice.ENGINE, "plain")
    says(*TASKS["digits"].split(), *SHORT, "--out", tmp_path / "run")
    monkeypatch.setenv(choice.ENGINE, "fast")
    assert minadv.load(tmp_path / "run").model.engine == "plain"


def test_an_engine_that_there_is_not(monkeypatch: pytest.MonkeyPatch, fails: Any) -> None:
    assert "invalid choice: 'slow'" in fails("train", "digits", "--engine", "slow")
    monkeypatch.setenv(choice.ENGINE, "slow")
    assert "MINADV_ENGINE is 'slow', expected one of 'fast', 'plain'" in fails("doctor")
