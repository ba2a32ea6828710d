r"""Worker processes: how one is started, asked and ended, and `Processes`, which read the batches of an evaluation.

A process is started afresh, without the program of its parent, and ends with its parent, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from minadv.base import machine, notices
from minadv.fast import limit_threads
from minadv.training.loop import TrainingError
from minadv.training.parallel.workers import Inference, Readers, counting, most_readers

Made = TypeVar("Made")


class WorkerError(TrainingError):
    """A worker process cannot go on, or is gone; the message says which and why."""


class Member:
    """A worker process, with one BLAS thread, that runs a function ``main`` with a `Connection` to this process.

    ``remedy`` says what the user can do if the process is gone.
    """

    def __init__(
        self, name: str, main: Any, arguments: Sequence[object] = (), fds: Sequence[int] = (), *, remedy: str
    ) -> None:
        ours, theirs = socket.socketpair()
        self.name, self._remedy = name, remedy
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", f"from {__name__} import start; start()"),
                *(main.__module__, main.__name__, str(theirs.fileno()), *map(str, arguments)),
            ],
            pass_fds=(theirs.fileno(), *fds),
            env={**machine.one_thread(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the parent, with which this process ends
        )
        theirs.close()
        self.connection = Connection(ours.detach())

    def send(self, message: bytes) -> None:
        """Send a pickled message."""
        try:
            self.connection.send_bytes(message)
        except OSError:
            raise self._gone() from None

    def receive(self) -> Any:
        """Its answer; an error that it answers with is raised."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def outcome(self) -> Any:
        """Its answer, or the error, which is not raised."""
        try:
            return self.receive()
        except Exception as error:
            return error

    def _gone(self) -> WorkerError:
        return WorkerError(f"{self.name} is gone (exit code {self.process.wait()}): {self._remedy}")

    def hang_up(self) -> None:
        """Let it end; `end` waits for that."""
        self.connection.close()

    def end(self) -> None:
        """Wait for its end, and kill it if it does not come."""
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start() -> None:
    """A worker process: its arguments are the module and name of its function, the socket, and what that is given."""
    from importlib import import_module

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent, with which this process ends, may have to save first
    module, name, fd, *arguments = sys.argv[1:]
    warnings.simplefilter("ignore", UserWarning)  # the parent process computes a part of the batch as well, and warns
    notices.be_quiet()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        getattr(import_module(module), name)(Connection(int(fd)), *arguments)


@dataclass(frozen=True)
class Batches:
    """A request to read some batches of an inference."""

    inference: Inference[Any]
    numbers: range
    each: int  # batches that all processes together read while this one reads one

    def read(self) -> list[Any]:
        """What is read of each."""
        read = counting(self.inference, self.each)
        return [read(number) for number in self.numbers]


def share_by(members: Sequence[Member], inference: Inference[Made]) -> list[Made]:
    """What is read of each batch of an inference, in their order, by this process and worker processes in turn."""
    members = members[: most_readers(inference) - 1]
    count = len(members) + 1
    turns = [range(k, len(inference), count) for k in range(count)]
    for member, numbers in zip(members, turns[1:], strict=True):
        member.send(pickle.dumps(Batches(inference, numbers, count)))
    try:
        own: Any = Batches(inference, turns[0], count).read()
    except Exception as error:
        own = error
    read = [own, *(member.outcome() for member in members)]  # all of them: nothing is left for the next request
    for made in read:
        if isinstance(made, Exception):
            raise made
    return [read[number % count][number // count] for number in range(len(inference))]


def read_batches(connection: Connection) -> None:
    """The life of a process of `Processes`: requests to read batches, until the parent is gone."""
    while True:
        answer: Any
        try:
            answer = pickle.loads(connection.recv_bytes()).read()  # from our own parent, over a socket of its own
        except (EOFError, OSError):
            return
        except Exception as error:
            answer = error
        connection.send(answer)


class Processes(Readers):
    """Processes that share inferences, ``n`` of them, this one included."""

    def __init__(self, n: int) -> None:
        self._members: list[Member] = []
        self._held = contextlib.ExitStack()
        self._held.enter_context(limit_threads(1))
        try:
            for index in range(1, n):
                remedy = "begin again, with fewer workers if memory was short"
                self._members.append(Member(f"worker {index} of {n}", read_batches, remedy=remedy))
        except BaseException:
            self.close()
            raise

    def share(self, inference: Inference[Made]) -> list[Made]:
        return share_by(self._members, inference)

    def close(self) -> None:
        end_all(self._members)
        self._members = []
        self._held.close()


def end_all(members: Sequence[Member]) -> None:
    """End processes: all are told before the first is waited for."""
    for member in members:
        member.hang_up()
    for member in members:
        member.end()


def can_be_sent(inference: Inference[Any]) -> bool:
    """Whether another process can read an inference: it knows no class or function of the user's own program."""
    try:
        return b"__main__" not in pickle.dumps(inference)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
