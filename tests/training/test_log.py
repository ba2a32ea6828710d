"""The log survives being cut at any byte; the bar is silent when nobody watches."""

import errno
import io
import json
import os
import platform
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base import pulse
from minadv.base.schema import MISSING
from minadv.fast import describe
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


def test_what_the_first_record_and_that_of_a_resumed_run_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the numbers come from: versions, machine, engine, and the GPU of a run that has one."""
    monkeypatch.setattr(log.gpu, "used", lambda: "a GPU")
    own: dict[str, Any] = {"workers": 2, "ranks": 3, "model": {"engine": "an engine of my own"}}
    for config in (own, own | {"device": "cpu", "model": {"engine": "plain"}}, {"device": "gpu"}):
        engine = {"plain": "plain"}.get(config.get("model", {}).get("engine"))
        found = {
            "engine": describe(config.get("device") == "gpu", engine).why,
            "versions": log.versions(engine),
            "platform": platform.platform(),
            **({"gpu": "a GPU"} if config.get("device") == "gpu" else {}),
        }
        first, again = header(seed=3, config=config), log.resumed(config)
        for record in (first, again):
            assert re.fullmatch(
                r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", record.pop("time")
            )  # to the millisecond
        assert first == {"kind": "header", "step": 0, "seed": 3, "config": config, **found}
        where = {name: config.get(name) for name in ("workers", "ranks", "device")}
        assert again == {"kind": "resumed", **where, **found}


@pytest.mark.parametrize(
    ("libraries", "said"),
    [
        ({}, "A 1, threads: 2"),
        ({"numba": "1.0"}, "A 1, threads: 2; B 3, threads: 4"),
        (None, None),
        ({"other": "1.0"}, "A 1, threads: 2"),
    ],
)
def test_which_blas_is_named(libraries: Any, said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of NumPy, which computes; where Numba does, all there are."""
    numpy = {"internal_api": "A", "version": 1, "num_threads": 2, "filepath": "site/numpy.libs/a.so"}
    scipy = {"internal_api": "B", "version": 3, "num_threads": 4, "filepath": "site/scipy.libs/b.so"}
    pools = [] if libraries is None else [scipy, numpy, numpy]
    monkeypatch.setattr(log, "describe", lambda **_: SimpleNamespace(versions=libraries or {}, blas=pools))
    assert log.versions().get("blas") == said
    monkeypatch.setattr(log, "describe", lambda **_: SimpleNamespace(versions={}, blas=[scipy] if pools else []))
    assert log.versions().get("blas") == (None if said is None else "B 3, threads: 4")


def test_the_libraries_are_those_of_the_engine_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(gpu: bool = False, engine: str | None = None) -> Any:
        return SimpleNamespace(versions={f"for {engine}": "1.0"}, blas=[], why="")

    monkeypatch.setattr(log, "describe", told)
    for engine, model in (("plain", {"engine": "plain"}), (None, {})):
        assert header(seed=0, config={"model": model})["versions"][f"for {engine}"] == "1.0"


def test_what_is_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the folder after a file was made or replaced, and a line before `append` returns."""
    flushed: list[Any] = []
    path = tmp_path / "log.jsonl"
    monkeypatch.setattr(log, "flush_directory", flushed.append)
    start(path, {"kind": "header", "step": 0})
    assert flushed == [tmp_path]
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(path.read_bytes().splitlines()[-1]))
    append(path, {"step": 1})
    append(path, {"step": 2})
    assert flushed[1:] == [b'{"step": 1}', b'{"step": 2}']
    before = path.stat()
    rewind(path, 2)  # nothing to remove: the file stays as it is
    assert (flushed[3:], path.stat().st_ino) == ([], before.st_ino)
    rewind(path, 1)
    assert flushed[-1] == tmp_path


def test_a_full_disk_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LogError, match=r"cannot write to .*log\.jsonl: No space left on device"):
        append(path, {"step": 40})


def test_a_file_of_gigabytes_is_no_log(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**31 + 1)
    with pytest.raises(LogError, match="it has 2,147,483,649 bytes, expected at most 2,147,483,648"):
        read(path)


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


@pytest.mark.parametrize(
    "bad",
    [b"\0" * 40, b"[1, 2]", b'{"no": "step"}', b'{"step": "x"}', b'{"step": true}', b"[" * 10**5, b"\xff\xfe", b""],
)
def test_a_bad_line_in_the_middle(path: Path, bad: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], bad + b"\n", *lines[2:]]))
    with pytest.raises(LogError, match=r"line 3 of .* is not a record"):
        read(path)
    assert steps(rewind(path, 20)) == [0, 10, 20]
    assert path.read_bytes() == b"".join(lines[:3])


@pytest.mark.parametrize(
    ("bad", "why"), [(b'{"step": "a"}\n', "step is 'a', expected an integer"), (b"step 3\n", "it is no JSON: b'step 3")]
)
def test_why_a_line_is_bad(path: Path, bad: bytes, why: str) -> None:
    path.write_bytes(bad + path.read_bytes())
    with pytest.raises(LogError, match=f"line 1 of .* is not a record of a log: {why}"):
        read(path)


def test_bad_records(path: Path) -> None:
    with pytest.raises(LogError, match=r"^step is None, expected an integer"):
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
    monkeypatch.setattr("sys.stderr", Terminal())
    with Progress(10, unit="word", done=4, shown=False) as progress:
        progress.advance(2, loss=0.5, regularizer=None, rate="1/s")
        progress.advance(1, loss=0.25)
        [work] = going_on.work
        assert work.told(0) == "training: 7 of 10 words, loss 0.25, rate 1/s"
        assert work.bar is None  # whoever wants no bar of its own wants no other one
    assert going_on.work == []
    with pytest.raises(KeyError, match="why"), Progress(10, shown=False):
        raise KeyError("why")
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
    classes = {**evaluation, "valid_masks": {"layer0": [0.5, 1.0]}, "note": "of my own"}
    assert log.expect_evaluations(path, [classes, evaluation], ()) == [classes, evaluation]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": MISSING}, "kind is missing, expected"),
        ({"epoch": "one"}, "epoch is 'one', expected"),
        ({"valid_loss": "low"}, "valid_loss is 'low', expected"),
        ({"valid_masks": {"layer0": [0.5, "x"]}}, r"valid_masks\.layer0\[1\] is 'x', expected"),
        ({"valid_error": MISSING}, "valid_error is missing, expected"),
    ],
)
def test_an_evaluation_of_other_types_is_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    whole = {"kind": "evaluation", "step": 2, "epoch": 1.0, "train_loss": 1.0, "regularizer": None, "valid_error": 3.0}
    record = {name: value for name, value in (whole | change).items() if value is not MISSING}
    with pytest.raises(LogError, match=rf"log\.jsonl: in a record of step 2, {said}"):
        log.expect_evaluations(tmp_path / "log.jsonl", [whole, record], ("error",))
