r"""Lines on standard error that say what a user would wonder about: each is printed once in a process."""

from __future__ import annotations

import sys
import threading

_lock = threading.Lock()
_said: set[str] = set()
_quiet = False


def say_once(text: str) -> None:
    """Print ``minadv: text``, unless this process has said it already or is to be quiet."""
    with _lock:
        if _quiet or text in _said:
            return
        _said.add(text)
    print(f"minadv: {text}", file=sys.stderr, flush=True)


def be_quiet() -> None:
    """Say nothing from now on: for a worker process, whose parent does the same work and says the same."""
    global _quiet
    _quiet = True
