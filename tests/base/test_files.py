"""A save that is cut short, by a kill, a full disk or Ctrl-C, leaves the older checkpoints as they were."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base import files
from minadv.training.runs import log
from minadv.training.runs.checkpoints import CheckpointError, save
from minadv.training.runs.log import LogError
from tests.support.runs import assert_sound, names, tree_at

pytest.importorskip("safetensors")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with sound checkpoints at steps 10 and 20."""
    for step in (10, 20):
        save(tmp_path, step, tree_at(step), {"at": step})
    return tmp_path


KILLED = """
import os, sys
from pathlib import Path
from minadv.training.runs import checkpoints
from tests.support.runs import tree_at
run, call, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
real, seen = getattr(os, call), []
def deadly(*args):
    seen.append(args)
    if len(seen) == at:
        os._exit(9)
    return real(*args)
setattr(os, call, deadly)
checkpoints.save(run, 30, tree_at(30), {"at": 30})
"""


@pytest.mark.parametrize(
    ("call", "at", "survives"),
    [("fsync", 1, 20), ("replace", 1, 20), ("fsync", 2, 20), ("replace", 2, 20), ("fsync", 3, 30), ("fsync", 4, 30)],
)
def test_killed_while_saving(run: Path, call: str, at: int, survives: int) -> None:
    """The process ends on the spot, before the n-th flush or rename: no cleaning up, no handlers."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(run), call, str(at)], cwd=root, check=False)
    assert done.returncode == 9
    assert_sound(run, survives)
    save(run, 40, tree_at(40), {"at": 40})
    assert_sound(run, 40)
    kept = [10, 20, 40] if survives == 20 else [20, 30, 40]
    assert [name for name in names(run) if name.endswith("json")] == [f"step-{step:08d}.json" for step in kept]
    assert len(names(run)) == 6  # three pairs, no temporary files, no arrays without their JSON


@pytest.mark.parametrize(("call", "at"), [("fsync", 1), ("fsync", 2), ("replace", 1), ("replace", 2)])
@pytest.mark.parametrize("cause", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_an_error_while_saving(
    run: Path, call: str, at: int, cause: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disk full, or Ctrl-C: the old checkpoints stay, nothing of the new one does."""
    before, seen, real = names(run), [], getattr(os, call)

    def failing(*args: Any) -> Any:
        seen.append(args)
        if len(seen) == at:
            raise cause
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, failing)
        if isinstance(cause, OSError):
            with pytest.raises(CheckpointError, match=r"No space left on device; the newest one is still .*20\.json"):
                save(run, 30, tree_at(30), {"at": 30})
        else:
            with pytest.raises(KeyboardInterrupt):
                save(run, 30, tree_at(30), {"at": 30})
    assert names(run) == before
    assert_sound(run, 20)


def test_a_write_that_really_fails(run: Path) -> None:
    """The system itself cuts the file off in the middle."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = names(run)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"could not write checkpoint .*; the newest one is still"):
            save(run, 30, {"large": np.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(run) == before
    assert_sound(run, 20)


def test_a_first_save_that_fails(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where a folder should be")
    with pytest.raises(CheckpointError, match=r"could not write checkpoint .*: Not a directory; there is none yet"):
        save(tmp_path / "run", 1, tree_at(1), {})


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the temporary one nor none, as the system does where a disk is full."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    for path in (tmp_path / "a", tmp_path / "missing" / "a"):
        with pytest.raises(OSError, match="No s") as caught:
            files.write_whole(path, b"")
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    large.write_bytes(b"abc")
    assert files.read_regular(large, 3) == b"abc"
    with pytest.raises(OSError, match="it has 3 bytes, expected at most 2"):
        files.read_regular(large, 2)
    with large.open("wb") as file:
        file.truncate(files.MOST + 1)
    with pytest.raises(files.SealError, match=r"cannot read .*large: it has 268,435,457 bytes, expected at most 268,4"):
        files.unseal(large)
    if hasattr(os, "mkfifo"):
        os.mkfifo(pipe)
        with pytest.raises(files.SealError, match=r"cannot read .*pipe: it is no regular file"):
            files.unseal(pipe)
        with pytest.raises(LogError, match=r"cannot read .*pipe: it is no regular file"):
            log.read(pipe)
