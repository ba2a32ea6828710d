"""What all experiments share: errors of one line, parallel work that stops at the first failure."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")
pytest.importorskip("tqdm", reason="experiments show progress")

from threadpoolctl import threadpool_limits

from experiments import digits, figure3, table1, table2, table3
from experiments.parts import reporting
from minadv import fast
from minadv.backend import BackendError
from minadv.base.errors import DataError
from minadv.base.machine import BLAS_VARIABLES, CORES, blas_setting
from minadv.training.loop import Interrupted, TrainingError
from minadv.training.runs import log
from minadv.training.runs.folder import RunError


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


@pytest.mark.parametrize(
    ("experiment", "arguments"),
    [
        (digits, "--seeds 0"),
        (table1, "--workers 0"),
        (table1, "--seeds few"),
        (figure3, "--draws 0"),
        (table2, "--seeds 0"),
        (table3, "--seeds -1"),
    ],
)
def test_numbers_are_positive(experiment: Any, arguments: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        experiment.main(arguments.split())
    assert stopped.value.code == 2
    option, value = arguments.split()
    [line] = capsys.readouterr().err.splitlines()
    name = f"python -m {experiment.__name__}"
    assert line == f"{name}: argument {option}: '{value}' is not a positive whole number (see {name} --help)"


def test_data_is_looked_for_before_any_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(reporting, "run_all", None)
    arguments = ["--data-dir", str(tmp_path), "--device", "cpu", "--runs", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        table1.main(arguments)
    assert stopped.value.code == 2
    chosen, line = capsys.readouterr().err.splitlines()
    assert chosen == "device: NumPy, as asked"
    name = table1.__name__
    assert line.startswith(f"python -m {name}: {tmp_path} lacks train-images-idx3-ubyte.gz, train-labels")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (DataError("no data"), 2, "no data"),
        (BackendError("no GPU"), 2, "no GPU"),
        (RunError("another recipe"), 2, "another recipe; or delete its folder, or give another one with --runs"),
        (TrainingError("not finite"), 1, "not finite"),
        (MemoryError("of 9 GiB"), 1, "out of memory (of 9 GiB): fewer --workers need less"),
        (
            BrokenProcessPool(),
            1,
            "a process was killed, for want of memory perhaps; give the same command again to go on",
        ),
        (KeyboardInterrupt(), 130, "stopped; give the same command again to go on"),
        (Interrupted("at step 3"), 130, "stopped; give the same command again to go on"),
    ],
)
def test_errors_are_one_line(error: BaseException, code: int, says: str, capsys: Any) -> None:
    @reporting.one_line_errors
    def main(argv: Any = None) -> None:
        raise error

    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == code
    assert capsys.readouterr().err.lstrip() == f"python -m experiments.test_reporting: {says}\n"


def test_mistakes_of_the_program_keep_their_traceback() -> None:
    @reporting.one_line_errors
    def main(argv: Any = None) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        main([])


def mark(path: Path) -> None:
    """A task that fails at once, or takes a moment."""
    if path.name == "0":
        raise DataError("the first one")
    path.touch()
    time.sleep(0.1)


def blas_threads(_: int) -> set[int]:
    """A task that tells how many BLAS threads it has."""
    return {library["num_threads"] for library in fast.describe().blas}


@pytest.mark.parametrize("users", [None, "2"])
@pytest.mark.parametrize("workers", [1, 2])
def test_one_thread_each_whatever_the_user_has_set(
    workers: int, users: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if users is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", users)
    with threadpool_limits(2, user_api="blas"):
        found = reporting.run_all(blas_threads, [0, 1], workers=workers, title="")
    assert found == [{1}] * 2
    assert blas_setting() == (users and f"OPENBLAS_NUM_THREADS={users}")  # nothing is left behind
    assert CORES not in os.environ


def test_the_first_failure_stops_the_rest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the first one"):
        reporting.run_all(mark, [tmp_path / str(n) for n in range(600)], workers=2, title="")
    assert len(list(tmp_path.iterdir())) < 300


SLEEPY = """
import sys, time
from pathlib import Path
from experiments.parts import reporting

def nap(folder):
    Path(folder, "begun").touch()
    time.sleep(3600)

@reporting.one_line_errors
def main(argv=None):
    reporting.run_all(nap, [sys.argv[1]] * 2, workers=2, title="")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("when", ["while they start", "later"])
def test_ctrl_c_ends_parallel_runs(when: str, tmp_path: Path) -> None:
    """Sent to the whole group, as a terminal does; the processes end with their parent, which says one line."""
    script = tmp_path / "sleepy.py"
    script.write_text(SLEEPY)
    env = {**os.environ, "PYTHONPATH": str(Path(reporting.__file__).parents[2])}
    child = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stderr=subprocess.PIPE, text=True, env=env, process_group=0
    )
    patience = time.monotonic() + 600
    while not (tmp_path / "begun").exists() and time.monotonic() < patience:
        tasks = Path(f"/proc/{child.pid}/task").glob("*/children")
        if when == "while they start" and len(" ".join(path.read_text() for path in tasks).split()) >= 3:
            break  # the two, and multiprocessing's own
        time.sleep(0.01)
    time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=600)
    assert child.returncode == 130
    assert said.strip() == "python -m experiments.sleepy: stopped; give the same command again to go on"


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    """They would otherwise train on, beside those of the same command given again."""
    script = tmp_path / "sleepy.py"
    script.write_text(SLEEPY)
    env = {**os.environ, "PYTHONPATH": str(Path(reporting.__file__).parents[2])}
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=env)
    patience = time.monotonic() + 600
    while not (tmp_path / "begun").exists() and time.monotonic() < patience:
        time.sleep(0.01)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert len(children) >= 2
    child.kill()
    child.wait()

    def alive(pid: str) -> bool:
        path = Path("/proc") / pid / "stat"
        return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"

    while any(map(alive, children)) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not any(map(alive, children))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    nothing = {"commit": None, "dirty": None}
    assert reporting.commit(tmp_path) == nothing
    git("init")
    assert reporting.commit(tmp_path) == nothing
    (tmp_path / "code.py").write_text("1\n")
    git("add", ".")
    git("commit", "-m", "first")
    clean = {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert reporting.commit(tmp_path) == clean
    (tmp_path / "results.md").write_text("2\n")  # what an experiment writes does not change its code
    assert reporting.commit(tmp_path) == clean
    (tmp_path / "code.py").write_text("3\n")
    assert reporting.commit(tmp_path) == {**clean, "dirty": True}
    inside = tmp_path / "installed"
    inside.mkdir()
    assert reporting.commit(inside) == nothing  # the checkout around it is another project's


def test_facts_in_words() -> None:
    about = reporting.facts(time.time())
    assert (about["commit"], about["dirty"]) == tuple(reporting.commit().values())
    assert reporting.at_commit({"commit": "0123456789", "dirty": False}) == "commit 0123456"
    assert reporting.at_commit({"commit": "0123456789", "dirty": True}) == "commit 0123456 with changes"
    assert reporting.at_commit({"commit": None, "minadv": "0.1"}) == "minadv 0.1, no commit known"
    assert reporting.core_time([{"seconds": 1800.0}, {"seconds": 5400.0}]) == "core time 2.00 h"
    assert reporting.core_time([{"seconds": 1800.0}, {}]) == "core time 0.50 h (not known of 1 of 2 runs)"
    assert reporting.core_time([{}, {}]) == "core time not recorded"


def test_time_by_the_log(tmp_path: Path) -> None:
    """From a beginning to its evaluations, on all its cores; not between a kill and the next beginning."""
    said = [
        ("header", "10:00:00", {"config": {"workers": 2}}),
        ("evaluation", "10:00:05", {}),
        ("evaluation", "10:00:09", {}),
        ("resumed", "11:00:00", {"workers": 1}),
        ("evaluation", "11:00:07", {}),
    ]
    path = tmp_path / "log.jsonl"
    for n, (kind, at, more) in enumerate(said):
        log.append(path, {"kind": kind, "step": n, "time": f"2026-01-01T{at}+00:00", **more})
    assert reporting.trained(tmp_path) == 2 * 9 + 7
    assert reporting.day_of(tmp_path) == "2026-01-01"


def test_where_runs_were_made() -> None:
    made = {"cpu": "one", "minadv": "1.0", "commit": "abcdef0123", "dirty": False}
    other = {**made, "cpu": "another"}
    assert reporting.made_by([{"made": made}, {"made": made}]) == "one, commit abcdef0"
    assert reporting.made_by([{"made": {**made, "before": [other]}}]) == "another, commit abcdef0; one, commit abcdef0"
    told = reporting.made_by([{"made": made}, {}, {"made": other}])
    assert told == "another, commit abcdef0; one, commit abcdef0; not known of 1 of 3"


def test_a_run_that_goes_on_with_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit that has a part in it is told; one that is begun anew has nothing of those before."""
    run, now = tmp_path / "run", {"cpu": "one", "minadv": "1.0", "commit": "a", "dirty": False}
    monkeypatch.setattr(reporting, "machine", lambda: now)
    assert reporting.made(run) == now
    reporting.begins(run)
    run.mkdir()
    reporting.begins(run)
    assert reporting.made(run) == now
    first, now = now, {**now, "commit": "b"}
    reporting.begins(run)
    assert reporting.made(run) == {**now, "before": [first]}
    run.rmdir()
    reporting.begins(run)
    assert reporting.made(run) == now
    (tmp_path / "old").mkdir()
    reporting.begins(tmp_path / "old")
    assert reporting.made_by([{"made": reporting.made(tmp_path / "old")}]) == (
        "not noted, minadv of its time, no commit known; one, commit b"
    )
