r"""Ctrl-C during training: it is obeyed between two steps, so that what was computed can be saved.

On the command line SIGTERM is as good as Ctrl-C: batch systems and containers send it some seconds before they kill.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
        self._ours = [n for n in SIGNALS if main and signal.getsignal(n) is signal.default_int_handler]
        for number in self._ours:
            signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._ours:
            signal.signal(number, signal.default_int_handler)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Within it SIGTERM is a KeyboardInterrupt, unless somebody else handles it; in the main thread alone."""
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
