r"""Ctrl-C during training: it is obeyed between two steps, so that what was computed can be saved."""

from __future__ import annotations

import signal
import threading


class CtrlC:
    """Within it Ctrl-C is remembered, and obeyed between two steps; a second one is obeyed at once.

    An exception that is raised wherever the program happens to be may be lost, in a destructor for instance; this one
    is not. Where somebody else handles the signal, or in another thread than the main one, nothing is changed.
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
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
