"""The log survives being cut at any byte; the bar is silent when nobody watches."""

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base import pulse
from minadv.training.loop import Recipe, train
from minadv.training.progress import Progress
from minadv.training.runs import log
from minadv.training.runs.log import LogError, append, header, read, rewind, start
from tests.support.problems import task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with a header and evaluations at steps 10, 20, 30."""
    path = tmp_path / "log.jsonl"
    start(path, header(seed=3, config={"lr": 1e-3, "task": "digits"}))
    for step in (10, 20, 30):
        append(path, {"kind": "evaluation", "step": step, "loss": np.float32(1 / step), "n": np.int64(step)})
    return path


def steps(records: list[log.Record]) -> list[int]:
    return [record["step"] for record in records]


def test_what_is_written_is_read(path: Path) -> None:
    first, *rest = read(path)
    assert first["kind"] == "header"
    assert (first["seed"], first["config"]) == (3, {"lr": 1e-3, "task": "digits"})
    assert first["versions"]["minadv"] == minadv.__version__
    assert first["versions"]["numpy"] == np.__version__
    assert first["versions"].keys() >= {"python", "numpy", "scipy", "minadv"}
    assert steps(rest) == [10, 20, 30]
    assert rest[0]["loss"] == float(np.float32(0.1))
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_blas_is_named_where_it_can_be() -> None:
    pytest.importorskip("threadpoolctl")
    assert "threads: " in log.versions()["blas"]


def test_a_log_is_never_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(LogError, match="is there already"):
        start(path, header(seed=0, config={}))
    assert path.read_bytes() == before


def test_cut_at_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of real ones take long
    path = tmp_path / "log.jsonl"
    start(path, {"kind": "header", "step": 0})
    for step in (10, 20, 30):
        append(path, {"kind": "evaluation", "step": step})
    whole = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        lines = sum(end <= cut for end in ends)
        assert steps(read(path)) == [0, 10, 20, 30][:lines]
        assert steps(rewind(path, 99)) == [0, 10, 20, 30][:lines]
        assert path.read_bytes() == whole[: ends[lines - 1] if lines else 0]


@pytest.mark.parametrize(
    ("step", "left"), [(0, [0]), (9, [0]), (10, [0, 10]), (25, [0, 10, 20]), (30, [0, 10, 20, 30])]
)
def test_rewind_to_a_step(path: Path, step: int, left: list[int]) -> None:
    assert steps(rewind(path, step)) == left
    assert steps(read(path)) == left
    append(path, {"step": 40})
    assert steps(read(path)) == [*left, 40]
    assert [other.name for other in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("bad", [b"\0" * 40, b"[1, 2]", b'{"no": "step"}', b'{"step": "x"}', b"\xff\xfe", b""])
def test_a_bad_line_in_the_middle(path: Path, bad: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], bad + b"\n", *lines[2:]]))
    with pytest.raises(LogError, match=r"line 3 of .* is not a record"):
        read(path)
    assert steps(rewind(path, 20)) == [0, 10, 20]
    assert path.read_bytes() == b"".join(lines[:3])


def test_bad_records(path: Path) -> None:
    with pytest.raises(LogError, match="the record has step None, expected an integer"):
        append(path, {"loss": 1.0})
    with pytest.raises(TypeError, match="JSON cannot hold"):
        append(path, {"step": 1, "what": object()})
    assert len(read(path)) == 4
    with pytest.raises(LogError, match=r"cannot read .*: No such file or directory"):
        read(path.with_name("other.jsonl"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_on_a_terminal() -> None:
    pytest.importorskip("tqdm")
    screen = Terminal()
    with Progress(1000, unit="image", done=500, title="AdD", stream=screen) as progress:
        progress.advance(100, loss=0.5, regularizer=0.01234567, accuracy=None)
        progress.advance(400, accuracy="97 %")
    shown = screen.getvalue()
    for text in ("AdD", "500/1.00k", "1.00k/1.00k", "image/s", "loss 0.5", "regularizer 0.01235", "97 %"):
        assert text in shown


def test_the_bar_of_a_run(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss, regularizer, accuracy, rate and time left."""
    pytest.importorskip("tqdm")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    _, records = train(task(put), Recipe(steps=12), title="VD")
    shown = screen.getvalue()
    for text in ("VD", "120/120", "loss ", "regularizer ", f"valid accuracy % {100 - records[-1]['valid_error']:.4g}"):
        assert text in shown


def test_a_run_is_work_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is told how far it has come, and its numbers, which stay until there are new ones."""
    going_on = pulse.Pulse(print)
    monkeypatch.setattr(pulse, "_pulse", going_on)
    with Progress(10, unit="word", done=4, shown=False) as progress:
        progress.advance(2, loss=0.5, regularizer=None, rate="1/s")
        progress.advance(1, loss=0.25)
        [work] = going_on.work
        assert work.told(0) == "training: 7 of 10 words, loss 0.25, rate 1/s"
        assert work.bar is None
    assert going_on.work == []


def test_work_with_a_bar_of_its_own_needs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    going_on, screen = pulse.Pulse(print), Terminal()
    monkeypatch.setattr(pulse, "_pulse", going_on)
    with Progress(10, stream=screen) as progress:
        progress.advance(1)
        [work] = going_on.work
        assert work.bar is not None  # the lines that say how far work has come are left out
        assert "0.00/10.0" in screen.getvalue()
    assert "1.00/10.0" in screen.getvalue()
    assert screen.getvalue().endswith("\n")
    hidden = Terminal()
    with Progress(10, shown=False, stream=hidden) as progress:
        progress.advance(1)
    assert hidden.getvalue() == ""


def test_no_bar_elsewhere(capsys: Any) -> None:
    stream = io.StringIO()
    for progress in (Progress(10, stream=stream), Progress(10)):
        with progress:
            progress.advance(5, loss=0.5)
    assert stream.getvalue() == ""
    assert capsys.readouterr() == ("", "")


def test_of_a_log_only_its_evaluations_are_evaluations(tmp_path):
    """A header and the note of a run that was resumed have no metrics, and are left out without a word."""
    path = tmp_path / "log.jsonl"
    evaluation = {
        "kind": "evaluation",
        "step": 2,
        "epoch": 1.0,
        "time": "2026-01-01T00:00:00+00:00",
        "valid_error": 3.0,
    }
    evaluation |= {"train_loss": 1.0, "regularizer": 0.0, "valid_loss": 1.0}
    others = [{"kind": "header", "step": 0}, {"kind": "resumed", "step": 2}]
    assert log.expect_evaluations(path, [others[0], evaluation, others[1]], ("error",)) == [evaluation]
