"""One worker process: what it begins with, that it says nothing of its own, and how it ends."""

import os
import signal
import subprocess
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minadv.base import machine, notices
from minadv.training.parallel.members import Member, WorkerError


@pytest.fixture(autouse=True)
def host(device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("worker processes are for the host; several GPUs go over MPI")


def tell(connection: Connection, fd: str, *arguments: str) -> None:
    """The life of a worker process that says what it found."""
    warnings.warn("said by the parent as well", stacklevel=1)
    notices.say_once("said by the parent as well")
    connection.send(
        {
            "arguments": arguments,
            "file": os.read(int(fd), 4),
            "variables": {name: os.environ.get(name) for name in (*machine.BLAS_VARIABLES, machine.CORES)},
            "folder": Path.cwd(),
            "a group of its own": os.getpgrp() == os.getpid(),
            "ends by SIGTERM": signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN,
            "input": sys.stdin.read(),
            "path": sys.path,
        }
    )
    connection.recv()


def test_what_a_worker_process_begins_with(tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.syspath_prepend(str(tmp_path / "libraries"))
    (tmp_path / "given.txt").write_text("text")
    kept = os.dup(0)
    with (tmp_path / "given.txt").open() as file, (tmp_path / "given.txt").open() as typed:
        os.dup2(typed.fileno(), 0)
        try:
            member = Member("worker", tell, [file.fileno(), 3], [file.fileno()], remedy="begin again")
            found = member.receive()
        finally:
            os.dup2(kept, 0)
            os.close(kept)
    member.hang_up()
    member.end()
    assert member.process.returncode == 0  # also where it was in the middle of a request
    with pytest.raises(WorkerError, match=r"^worker is gone \(exit code 0\): begin again$"):
        member.send(b"")
    path = found.pop("path")
    assert found == {
        "arguments": ("3",),
        "file": b"text",
        "variables": dict.fromkeys((*machine.BLAS_VARIABLES, machine.CORES), "1"),
        "folder": Path.cwd(),
        "a group of its own": True,
        "ends by SIGTERM": False,
        "input": "",
    }
    assert [place for place in sys.path if place and place not in path] == []
    assert capfd.readouterr().err == ""


class Stubborn:
    """A process that ends only if it is killed."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def wait(self, timeout: float | None = None) -> None:
        if "killed" not in self.done:
            assert timeout is not None, "this process never ends"
            raise subprocess.TimeoutExpired("worker", timeout)
        self.done.append("waited for")

    def kill(self) -> None:
        self.done.append("killed")


def test_a_process_that_does_not_end_is_killed() -> None:
    stubborn = Stubborn()
    Member.end(SimpleNamespace(process=stubborn))
    assert stubborn.done == ["killed", "waited for"]
