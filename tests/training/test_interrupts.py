"""Ctrl-C is remembered and obeyed between two steps; a second one at once; other handlers and threads keep theirs."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minadv.training.interrupts import SIGNALS, CtrlC, sigterm_as_ctrl_c
from minadv.training.loop import Interrupted, Recipe, train
from minadv.training.runs import checkpoints
from tests.support.problems import Around, task

either = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def command_line() -> Iterator[None]:
    """SIGTERM is Ctrl-C within a test, and what it was behind it."""
    with sigterm_as_ctrl_c():
        yield
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def as_before() -> bool:
    return all(signal.getsignal(number) is signal.default_int_handler for number in SIGNALS)


@either
@pytest.mark.usefixtures("command_line")
def test_the_first_waits_for_the_step_and_the_second_for_nothing(number: int) -> None:
    with CtrlC() as ctrl_c:
        ctrl_c.obey()
        os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.obey()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert as_before()


def test_another_handler_is_left_alone() -> None:
    seen: list[int] = []
    handler = lambda number, frame: seen.append(number)  # noqa: E731
    before = signal.signal(signal.SIGINT, handler)
    try:
        with CtrlC() as ctrl_c:
            os.kill(os.getpid(), signal.SIGINT)
            ctrl_c.obey()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_sigterm_ends_a_program_that_trains_unless_it_is_told_otherwise() -> None:
    with CtrlC():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_another_handler_of_sigterm_is_left_alone() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with sigterm_as_ctrl_c(), CtrlC():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_leaves_it_to_the_main_one() -> None:
    def work() -> None:
        with sigterm_as_ctrl_c(), CtrlC():
            seen.extend(map(signal.getsignal, SIGNALS))

    seen: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, signal.SIG_DFL]


@either
@pytest.mark.usefixtures("command_line")
def test_the_step_is_finished(number: int, put: Any, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")

    class Asking(Around):
        def term(self, params: Any, step: int, **given: Any) -> Any:
            if step == 2:
                os.kill(os.getpid(), number)
            return self.task.term(params, step, **given)

    (tmp_path / "log.jsonl").touch()
    with pytest.raises(Interrupted, match="stopped at step 3 and saved in"):
        train(Asking(task(put)), Recipe(steps=6), tmp_path)
    assert checkpoints.latest(tmp_path) == tmp_path / "checkpoints" / "step-00000003.json"
    assert as_before()
