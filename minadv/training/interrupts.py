r"""Ctrl-C and SIGTERM during training: they are obeyed between two steps, so that what was computed can be saved."""

from __future__ import annotations

import signal
import threading
from typing import Any

DEFAULTS: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that end a training, and what Python does at each unless it is told otherwise."""


class CtrlC:
    """Within it Ctrl-C is remembered, and obeyed between two steps; a second one is obeyed at once.

    So is SIGTERM, which batch systems and containers send some seconds before they kill. An exception that is raised
    wherever the program happens to be may be lost, in a destructor for instance; this one is not. Where somebody else
    handles Ctrl-C, or in another thread than the main one, nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False

    def obey(self) -> None:
        """Raise KeyboardInterrupt if it was asked for."""
        if self.asked:
            raise KeyboardInterrupt

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> CtrlC:
        main = threading.current_thread() is threading.main_thread()
        self._ours = [number for number, default in DEFAULTS.items() if signal.getsignal(number) is default]
        if not main or signal.SIGINT not in self._ours:  # where Ctrl-C is somebody else's, so is the end of the process
            self._ours = []
        for number in self._ours:
            signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._ours:
            signal.signal(number, DEFAULTS[number])
