"""Ctrl-C and SIGTERM are remembered and obeyed between two steps; a second one at once; other handlers stay."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from minadv.training.interrupts import DEFAULTS, CtrlC
from minadv.training.loop import Interrupted, Recipe, train
from minadv.training.runs import checkpoints
from tests.support.problems import Around, task

either = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def as_before() -> bool:
    return all(signal.getsignal(number) is default for number, default in DEFAULTS.items())


@either
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


def test_another_handler_of_sigterm_is_left_alone() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with CtrlC() as ctrl_c:
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                ctrl_c.obey()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_leaves_it_to_the_main_one() -> None:
    def work() -> None:
        with CtrlC():
            seen.extend(map(signal.getsignal, DEFAULTS))

    seen: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == list(DEFAULTS.values())


@either
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
