"""Run folders that an earlier version wrote (commit 1175f66) are opened, evaluated, asked and resumed by this one.

`old_runs/NAME/stopped` is a run that was interrupted, `finished` what it became; `old_runs/data` has their texts, and
`old_runs/expected.json` says what the earlier version printed and which weights it ended with. On the machine that made
them, with the same libraries, every bit and every character must be the same; elsewhere the weights must be close,
because BLAS may add numbers up in another order.
"""

import hashlib
import io
import json
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.cli import main
from minadv.fast import describe
from minadv.training.runs import checkpoints, log
from minadv.training.runs.folder import read_config

pytest.importorskip("safetensors")

OLD = Path(__file__).parent / "old_runs"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text())
RUNS: dict[str, Any] = EXPECTED["runs"]


@pytest.fixture(autouse=True)
def host(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.name == "gpu":
        pytest.skip("the runs were made on a CPU")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")


def cpu() -> str:
    """The processor with its family and model: one name stands for several, which round differently."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    names = {"model name": "", "cpu family": ", family ", "model": ", model ", "stepping": ", stepping "}
    return "".join(before + told[name] for name, before in names.items() if name in told) or platform.machine()


def same_machine() -> bool:
    """Whether bits can be expected to be the same."""
    found = {"cpu": cpu(), "python": platform.python_version()}
    names = ("numpy", "scipy", "numba", "threadpoolctl")
    try:
        found |= {name: metadata.version(name) for name in names}
    except metadata.PackageNotFoundError:
        return False
    return all(EXPECTED["versions"][name] == version for name, version in found.items())


def how() -> str:
    return "numba" if describe().versions else "plain"


def copied(name: str, which: str, tmp_path: Path) -> Path:
    if name.startswith("images"):
        pytest.importorskip("sklearn")
    return Path(shutil.copytree(OLD / name / which, tmp_path / "run"))


def data_of(name: str) -> list[str]:
    return [] if RUNS[name]["data"] is None else ["--data-dir", str(OLD / "data" / RUNS[name]["data"])]


def weights(run: Path) -> dict[str, Any]:
    saved = checkpoints.latest(run)
    assert saved is not None
    return {name: leaf for name, leaf in checkpoints.load(saved)[0].items() if isinstance(leaf, np.ndarray)}


def digest(arrays: dict[str, Any]) -> str:
    """As expected.json has it: the SHA-256 of names, types, shapes and bytes, in the order of the names."""
    kinds = {"float32": "F32", "float64": "F64", "int64": "I64", "bool": "BOOL"}
    whole = hashlib.sha256()
    for name, a in sorted(arrays.items()):
        whole.update(f"{name} {kinds[str(a.dtype)]} {list(a.shape)} ".encode() + np.ascontiguousarray(a).tobytes())
    return whole.hexdigest()


@pytest.mark.parametrize("name", RUNS)
def test_resumed(name: str, tmp_path: Path, capsys: Any) -> None:
    run = copied(name, "stopped", tmp_path)
    before = read_config(run)
    assert main(["train", "--resume", str(run), *data_of(name)]) == 0
    said, then = capsys.readouterr().out.replace(str(run), "{run}"), RUNS[name]["resumed"][how()]
    found, finished = weights(run), weights(OLD / name / "finished")
    assert found.keys() == finished.keys()
    for leaf, array in found.items():
        np.testing.assert_allclose(array, finished[leaf], rtol=1e-3, atol=1e-4, err_msg=leaf)
    assert read_config(run) == before
    steps = [r["step"] for r in log.read(run / "log.jsonl") if r["kind"] == "evaluation"]
    assert steps == [r["step"] for r in log.read(OLD / name / "finished" / "log.jsonl") if r["kind"] == "evaluation"]
    if same_machine():
        assert digest(found) == then["all"]
        assert said == then["stdout"]


@pytest.mark.parametrize("name", RUNS)
def test_loaded(name: str) -> None:
    run = minadv.load(OLD / name / "finished")
    assert run.step == RUNS[name]["resumed"][how()]["step"]
    assert run.family.kind == read_config(OLD / name / "finished").get("kind", "classify")
    assert len(run.records) > 1


@pytest.mark.parametrize(("name", "n"), [(name, n) for name in RUNS for n in range(len(RUNS[name]["uses"]["plain"]))])
def test_used(name: str, n: int, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluated, attacked, shown, asked for classes or for words; and resumed, which says that it is finished."""
    run, use = copied(name, "finished", tmp_path), RUNS[name]["uses"][how()][n]
    if use["argv"][0] == "show":
        pytest.importorskip("matplotlib")
    marks = {"{run}": str(run), "{out}": str(run / "figures"), "{data}": str(OLD / "data" / str(RUNS[name]["data"]))}
    given = [marks.get(argument, argument) for argument in use["argv"]]
    if use["stdin"] is not None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(use["stdin"].encode())))
    assert main(given) == use["exit"]
    said = capsys.readouterr().out
    for mark in ("{out}", "{run}"):
        said = said.replace(marks[mark], mark)
    if use["argv"][0] == "attack":  # version 0.2 has rows that 0.1 had not
        said = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("relax"))
    if use["argv"][0] == "show":  # version 0.2 has a figure and a table of confused classes after those of 0.1
        said = said.partition("{out}/confusion.png")[0]
    assert len(said.splitlines()) == len(use["stdout"].splitlines())
    if same_machine():
        assert said == use["stdout"]
