"""A run that is overwritten: aside until the new one has a checkpoint, back if it ends without any."""

from pathlib import Path

import pytest

from minadv.base.files import CONFIG
from minadv.training.loop import LOG
from minadv.training.runs import overwriting
from minadv.training.runs.checkpoints import FOLDER
from minadv.training.runs.overwriting import ASIDE, put_aside, settle


def write(run: Path, said: str, *, checkpoint: str | None = "step-1.json", log: bool = True) -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / CONFIG).write_text(said)
    if log:
        (run / LOG).write_text(said)
    if checkpoint is not None:
        (run / FOLDER).mkdir(exist_ok=True)
        (run / FOLDER / checkpoint).write_text(said)


def files(run: Path) -> dict[str, str]:
    return {str(path.relative_to(run)): path.read_text() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    seen: list[Path] = []
    monkeypatch.setattr(overwriting, "flush_directory", seen.append)
    return seen


@pytest.mark.parametrize("log", [True, False])
def test_aside_and_back(tmp_path: Path, log: bool, flushed: list[Path]) -> None:
    run = tmp_path / "run"
    write(run, "old", log=log)
    before = files(run)
    put_aside(run)
    assert files(run / ASIDE) == before
    assert not (run / LOG).exists() and not (run / FOLDER).exists()
    assert flushed == [run / ASIDE]
    write(run, "new", checkpoint="step-1.json.tmp", log=log)  # it ended before its first checkpoint was whole
    assert settle(run)
    assert files(run) == before
    assert flushed == [run / ASIDE, run]


def test_a_new_run_with_a_checkpoint_stays(tmp_path: Path) -> None:
    write(tmp_path, "old")
    put_aside(tmp_path)
    write(tmp_path, "new")
    after = {name: said for name, said in files(tmp_path).items() if said == "new"}
    assert not settle(tmp_path)
    assert files(tmp_path) == after and len(after) == 3


@pytest.mark.parametrize("checkpoint", [None, "step-1.json.tmp"])
@pytest.mark.parametrize("log", [True, False])
def test_of_a_run_without_a_checkpoint_nothing_is_kept(tmp_path: Path, checkpoint: str | None, log: bool) -> None:
    write(tmp_path, "old", checkpoint=checkpoint, log=log)
    put_aside(tmp_path)
    assert files(tmp_path) == {CONFIG: "old"}
    assert not (tmp_path / FOLDER).exists() and not (tmp_path / ASIDE).exists()


@pytest.mark.parametrize("newer", [True, False])
def test_what_a_kill_left_aside_is_settled_first(tmp_path: Path, newer: bool) -> None:
    write(tmp_path / ASIDE, "old")
    write(tmp_path, "new", checkpoint="step-1.json" if newer else None)
    put_aside(tmp_path)
    assert set(files(tmp_path / ASIDE).values()) == {"new" if newer else "old"}
