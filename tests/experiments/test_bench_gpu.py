"""The command for whoever has a GPU, and the table of launches: on the strict stand-in for CuPy, at small sizes."""

import json
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import launches
from experiments.bench import __main__ as bench
from experiments.bench import gpu
from experiments.parts.gpu_steps import Setting
from tests.support import strict

SMALL = (
    Setting("S, gru", 4, 2, 1, (6,), "gru", delta=0.4),
    Setting("text", 4, 2, 3, (6,), padded=True, delta=0.4),
    Setting("PTB", 4, 2, 6, (6, 6), words=12, delta=0.4),
)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", strict.module)
    monkeypatch.setenv("MINADV_COMPILED", "0")


def test_a_gpu_in_one_file(stand_in: None, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SHORT", {"T": 4, "B": 2})
    assert gpu.run(Namespace(rounds=2, out=tmp_path), ["--device", "gpu"], SMALL) == 0
    out = capsys.readouterr().out
    assert f"the file to send back: {tmp_path / 'bench_gpu.json'}" in out
    found = json.loads((tmp_path / "bench_gpu.json").read_text())
    assert found["gpu"]["device"] == strict.NAME
    assert {"cupy", "cuda", "driver", "compute_capability", "free_memory"} <= found["gpu"].keys()
    for row in found["rows"].values():
        assert row["gap"]["float64"] <= 1e-9 < row["gap"]["float32"] <= 1e-3
        assert len(row["seconds"]) == 2
    assert "PTB" in (tmp_path / "bench_gpu.md").read_text()


def test_what_is_wrong_is_told(stand_in: None, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails does not stop the others, and a wrong one is called so; the exit code says it too."""

    def correctness(setting: Setting, _: Any) -> dict[str, float]:
        if setting.words:
            raise MemoryError("Out of memory allocating 9 bytes.")
        return {"float64": 1e-3, "float32": 1e-6}

    monkeypatch.setattr(gpu, "correctness", correctness)
    assert gpu.run(Namespace(rounds=1, out=tmp_path), ["--device", "gpu"], SMALL[1:]) == 2
    out = capsys.readouterr().out
    assert "1e-03 **too far**" in out
    assert "failed: MemoryError: Out of memory allocating 9 bytes." in out
    where: list[Path] = []
    monkeypatch.setattr(gpu, "run", lambda args, _: where.append(args.out) or 2)
    with pytest.raises(SystemExit, match=r"2 of the steps failed or were wrong: see the file"):
        bench.main(["--device", "gpu"])
    assert where == [Path()]  # not among the results that are kept


def test_the_gap_is_relative_to_the_largest_number() -> None:
    assert gpu.gap({"a": np.array([1.0, 4.4])}, {"a": np.array([1.0, 4.0])}) == pytest.approx(0.1)


def test_the_table_of_launches(stand_in: None, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by a module of the emulation, for which another stands here."""

    seen = SimpleNamespace(
        totals={"kernel": 7, "blas": 2, "sync": 1, "D2H": 1, "H2D": 1, "alloc": 3},
        bytes={"H2D": 1500},
        where={"sync": {"training/loop.py:1": 1}},
    )
    monkeypatch.setitem(sys.modules, "counters", SimpleNamespace(counting=lambda under: nullcontext(seen)))
    monkeypatch.setattr(launches, "SETTINGS", SMALL)
    launches.main(["--only", "gru", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "| 9 at T = 16, 9 at 32 |" in out
    assert "| `training/loop.py:1` | 1     |" in out
    assert json.loads((tmp_path / "launches.json").read_text())["rows"].keys() == {"S, gru"}
    monkeypatch.setitem(sys.modules, "counters", None)
    with pytest.raises(SystemExit):
        launches.main(["--out", str(tmp_path)])
    assert "launches are counted on CuPy with emulated kernels" in capsys.readouterr().err


def test_the_estimate() -> None:
    """By hand, of an LSTM at size S: six rounds of 784 steps of 40,000/128 + 300 cycles, and two products."""
    found = launches.estimate("lstm", 100, 2)
    assert found["passes"] == pytest.approx(1e3 * 6 * 784 * 612.5 / 1.41e9)
    assert found["products"] == pytest.approx(1e3 * 2 * 2 * 78_400 * 102 * 400 / 1e13)
    assert found["host"] == pytest.approx(1.04)
    counts = {"kernel": 90, "blas": 10, "sync": 2}
    rows = {"LSTM": {"setting": vars(Setting("", 0, 1, 1, (100,))), "counts": {"16": counts, "32": counts}}}
    assert launches.estimates(rows) == [["LSTM", "2.0", "1.3", "1.0", "3.3 to 4.4"]]
    rows["LSTM"]["setting"] = vars(Setting("", 0, 1, 1, (132,)))
    assert launches.estimates(rows) == []
