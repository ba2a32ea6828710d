"""Ctrl-C is remembered and obeyed between two steps; a second one at once; other handlers and threads keep theirs."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from minadv.training.interrupts import CtrlC
from minadv.training.loop import Interrupted, Recipe, train
from minadv.training.runs import checkpoints
from tests.support.problems import Around, task


def test_the_first_waits_for_the_step_and_the_second_for_nothing() -> None:
    with CtrlC() as ctrl_c:
        ctrl_c.obey()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.obey()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_is_left_alone() -> None:
    seen: list[int] = []
    handler = lambda number, frame: seen.append(number)  # noqa: E731
    before = signal.signal(signal.SIGINT, handler)
    try:
        with CtrlC() as ctrl_c:
            os.kill(os.getpid(), signal.SIGINT)
            ctrl_c.obey()
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_another_thread_leaves_it_to_the_main_one() -> None:
    def work() -> None:
        with CtrlC():
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_ctrl_c_lets_the_step_finish(put: Any, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")

    class Asking(Around):
        def term(self, params: Any, step: int, **given: Any) -> Any:
            if step == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return self.task.term(params, step, **given)

    (tmp_path / "log.jsonl").touch()
    with pytest.raises(Interrupted, match="stopped at step 3 and saved in"):
        train(Asking(task(put)), Recipe(steps=6), tmp_path)
    assert checkpoints.latest(tmp_path) == tmp_path / "checkpoints" / "step-00000003.json"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
