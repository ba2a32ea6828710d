"""A run that is killed, interrupted or out of disk, and resumed, ends in the bits of one that was left alone."""

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base import files
from minadv.cli import main
from minadv.fast import choice
from minadv.training.runs import checkpoints, log
from minadv.training.runs.folder import read_config
from tests.support.idxfiles import write_four

pytest.importorskip("safetensors")

ROOT = Path(__file__).parents[2]
KILLS, LONG = 20, 100  # steps: more than that many kills let it make
SHORT = "smnist --pool 7 --rows --hidden 6 --delta 0.5 --batch 5 --eval-every 2 --checkpoint-every 1 --device cpu"


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the bits of a resumed run on CuPy: tests/commands/test_devices.py")


@pytest.fixture(scope="module")
def idx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("idx")
    write_four(folder, n_train=24, n_test=8)
    return folder


def command(run: Path, idx: Path, steps: int, *more: str) -> list[str]:
    """To begin the run, or to go on with it once its configuration is there: what a user would type."""
    if (run / "config.json").exists():
        return ["train", "--resume", str(run)]
    return ["train", *SHORT.split(), *more, "--data-dir", str(idx), "--train-steps", str(steps), "--out", str(run)]


def process(arguments: list[str], call: str = "fsync", n: int = 0, group: int | None = None) -> subprocess.Popen[str]:
    started = [sys.executable, "-m", "tests.support.deadly", call, str(n), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(started, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, process_group=group)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are processes: where the steps are compiled they would be threads."""
    monkeypatch.setenv(choice.COMPILED, "0")


def wait_until_stopped(child: subprocess.Popen[str]) -> None:
    """Until it has stopped itself; with SIGCONT it goes on."""
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def ends(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last checkpoint, leaf by leaf, and the evaluations of the log but for their times."""
    path = checkpoints.latest(run)
    assert path is not None
    leaves, _ = checkpoints.load(path)
    header, *records = log.read(run / "log.jsonl")
    assert header["kind"] == "header"
    assert {record["kind"] for record in records} <= {"evaluation", "resumed"}
    bits = {name: np.asarray(leaf).tobytes() for name, leaf in leaves.items()}
    return bits, [{**record, "time": None} for record in records if record["kind"] == "evaluation"]


@pytest.fixture(scope="module")
def whole(idx: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """How runs of few and of many steps end that nothing happens to."""
    found = {}
    for steps in (8, LONG):
        run = tmp_path_factory.mktemp("whole") / str(steps)
        assert main(command(run, idx, steps)) == 0
        found[steps] = ends(run)
        assert [record["step"] for record in found[steps][1]] == list(range(2, steps + 1, 2))
    return found


def test_twenty_kills(idx: Path, whole: dict[int, Any], tmp_path: Path) -> None:
    """At random moments, and inside the writing of configuration, log and checkpoints, in turns."""
    rng, run, steps = np.random.default_rng(0), tmp_path / "run", []
    for kill in range(KILLS):
        call = ("fsync", "replace")[kill // 2 % 2]
        call += f":{rng.uniform(1e-6, 0.01):.6f}" if kill % 2 else ""
        child = process(command(run, idx, LONG), call, int(rng.integers(1, 9)))
        child.communicate()
        assert child.returncode == -(signal.SIGALRM if kill % 2 else signal.SIGKILL)
        found = checkpoints.latest(run)
        steps.append(-1 if found is None else int(found.stem.removeprefix("step-")))
    assert steps == sorted(steps)  # never back
    assert len(set(steps)) > KILLS / 3  # and not always killed at the same place
    assert steps[-1] < LONG
    assert main(command(run, idx, LONG)) == 0
    assert ends(run) == whole[LONG]


@pytest.mark.parametrize(("call", "n"), [("fsync", 1), ("replace", 1), ("fsync", 2), ("fsync", 3), ("replace", 2)])
def test_killed_before_its_first_checkpoint(
    call: str, n: int, idx: Path, whole: dict[int, Any], tmp_path: Path
) -> None:
    """In the writing of config.json, of the log's header, and of the first checkpoint."""
    run = tmp_path / "run"
    child = process(command(run, idx, 8), call, n)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert checkpoints.latest(run) is None
    assert main(command(run, idx, 8)) == 0
    assert ends(run) == whole[8]


def test_what_is_remembered_survives_kills(idx: Path, tmp_path: Path) -> None:
    """In the middle of writing a checkpoint, whose table holds what the search found for each example."""
    run, whole, remember = tmp_path / "run", tmp_path / "whole", ("--search", "memory")
    assert main(command(whole, idx, 20, *remember)) == 0
    for call, n in (("fsync", 7), ("replace", 5), ("fsync", 12)):
        child = process(command(run, idx, 20, *remember), call, n)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    assert main(command(run, idx, 20)) == 0
    assert ends(run) == ends(whole)
    assert "carry.flips.layer0" in ends(run)[0]


def test_ctrl_c(idx: Path, whole: dict[int, Any], tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    child = process(command(run, idx, LONG), "fsync:stop", 16)
    wait_until_stopped(child)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGCONT)
    _, said = child.communicate()
    assert child.returncode == 130
    last = said.splitlines()[-1]
    step = int(last.split()[4])
    assert last == (f"minadv: stopped at step {step} and saved in {run}; go on with: minadv train --resume {run}")
    assert "Traceback" not in said
    assert checkpoints.latest(run) == run / "checkpoints" / f"step-{step:08d}.json"
    assert main(last.partition("go on with: minadv ")[2].split()) == 0
    assert ends(run) == whole[LONG]
    capsys.readouterr()
    assert main(["train", "--resume", str(run)]) == 0
    assert capsys.readouterr().out == f"{run} is finished: nothing to resume\n"
    assert ends(run) == whole[LONG]


@pytest.mark.usefixtures("processes")
def test_ctrl_c_while_workers_start(idx: Path, tmp_path: Path) -> None:
    """To the whole group, as a terminal sends it: the worker, which is still importing, does not say a word."""
    run = tmp_path / "run"
    child = process([*command(run, idx, LONG), "--workers", "2"], group=0)
    while not (run / "log.jsonl").exists():
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("minadv: stopped ")
    assert said.splitlines()[-1].endswith(f"; go on with: minadv train --resume {run}")


def workers_of(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_two_workers(victim: str, idx: Path, tmp_path: Path) -> None:
    """The default of a large task: either of two processes is killed, and the run resumed with two again."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("nothing here says which processes a process has started")
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert main([*command(whole, idx, LONG), "--workers", "2"]) == 0
    child = process([*command(run, idx, LONG), "--workers", "2"], "fsync:stop", 30)
    wait_until_stopped(child)
    [worker] = workers_of(child.pid)
    os.kill(child.pid if victim == "parent" else worker, signal.SIGKILL)
    child.send_signal(signal.SIGCONT)
    _, said = child.communicate()
    good = checkpoints.latest(run)
    assert good is not None
    assert 5 <= int(good.stem.removeprefix("step-")) < LONG
    assert "Traceback" not in said
    if victim == "parent":
        assert child.returncode == -signal.SIGKILL
    else:
        assert child.returncode == 1
        assert said.splitlines()[-1] == (
            "minadv: worker 1 of 2 is gone (exit code -9): resume the run; the last good checkpoint is "
            f"{good}; go on with: minadv train --resume {run}"
        )
    assert main(["train", "--resume", str(run)]) == 0
    [resumed] = [record for record in log.read(run / "log.jsonl") if record["kind"] == "resumed"]
    assert resumed["step"] == int(good.stem.removeprefix("step-"))
    assert [resumed[name] for name in ("workers", "ranks", "device")] == [2, 1, "cpu"]
    assert read_config(run)["workers"] == 2
    assert ends(run) == ends(whole)


@pytest.mark.parametrize(
    ("n", "what"),
    [(9, r"cannot write to .*log\.jsonl"), (10, r"could not write .*02\.json"), (11, r"could not write .*02\.json")],
)
def test_disk_full(
    n: int, what: str, idx: Path, whole: dict[int, Any], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the log of step 2 is to be written, or one of the files of its checkpoint."""
    run, real, calls = tmp_path / "run", os.fsync, iter(range(1, 1000))

    def full(descriptor: int) -> None:
        if next(calls) >= n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        assert main(command(run, idx, 8)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(f"minadv: {what}: No space left on device", last)
    assert checkpoints.latest(run) == run / "checkpoints" / "step-00000001.json"
    assert main(command(run, idx, 8)) == 0
    assert ends(run) == whole[8]
