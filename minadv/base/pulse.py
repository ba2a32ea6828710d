r"""What is being done, and how far it has come, for whoever waits: a bar on a terminal, else a line now and then.

::

    with doing("evaluating", total=40, unit="batches") as work:
        work.advance()

Within `shown`, which the command line enters, a line is printed whenever nothing else was for `EVERY` seconds, and on a
terminal work whose length is known has a bar (tqdm, where it is installed). Elsewhere nothing is shown.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVERY = 25.0  # seconds, so that nothing is silent for thirty
LOOK = 1.0  # seconds between two looks at the clock
DELAY = 2.0  # seconds before a bar is shown


class Doing:
    """A piece of work: what it is, how much of it is done, and of how much."""

    def __init__(self, what: str, total: int | None, unit: str, done: int, began: float) -> None:
        self.what, self.total, self.unit, self.done, self.began = what, total, unit, done, began
        self.note = ""
        self.bar: Any = None

    def advance(self, n: int = 1, note: str = "") -> None:
        """Say that ``n`` more units are done, and a few words about them."""
        self.done += n
        self.note = note or self.note
        if self.bar is not None:
            self.bar.update(n)

    def told(self, now: float) -> str:
        """The work in words."""
        note = f", {self.note}" if self.note else ""
        if self.total is None:
            return f"{self.what}, for {now - self.began:.0f} s{note}"
        return f"{self.what}: {self.done:,} of {self.total:,} {self.unit}{note}"


class Pulse:
    """The work that is going on, outermost first, and when something was last said of it."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.say, self.clock = say, clock
        self.work: list[Doing] = []
        self.last = clock()

    def heard(self) -> None:
        """Something else was printed just now."""
        self.last = self.clock()

    def beat(self) -> None:
        """Print a line about the work, unless one was printed within the last `EVERY` seconds, or a bar shows it."""
        now = self.clock()
        if now - self.last < EVERY or not self.work or any(doing.bar is not None for doing in self.work):
            return
        self.last = now
        inner = self.work[1:] or self.work  # the outermost is the command itself
        self.say("; ".join(doing.told(now) for doing in list(inner)))


_pulse: Pulse | None = None


@contextmanager
def doing(
    what: str, total: int | None = None, unit: str = "batches", *, done: int = 0, bar: bool = True
) -> Iterator[Doing]:
    """Within it, this work is going on; ``done`` of it was done before. ``bar=False``: it has a bar of its own."""
    pulse = _pulse
    work = Doing(what, total, unit, done, time.monotonic() if pulse is None else pulse.clock())
    if pulse is None:
        yield work
        return
    work.bar = _bar(work) if bar and total is not None else None
    pulse.work.append(work)
    try:
        yield work
    finally:
        pulse.work.remove(work)
        if work.bar is not None:
            work.bar.close()


def advance(n: int = 1) -> None:
    """Say that ``n`` more units of the innermost work are done."""
    if _pulse is not None and _pulse.work:
        _pulse.work[-1].advance(n)


def heard() -> None:
    """Say that something was printed just now."""
    if _pulse is not None:
        _pulse.heard()


@contextmanager
def shown(what: str) -> Iterator[Pulse]:
    """Within it, work is shown as it goes on; ``what`` names the whole. Within another, it is that one."""
    global _pulse
    if _pulse is not None:
        yield _pulse
        return
    pulse = _pulse = Pulse(_to_stderr)
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(pulse, ended), name="minadv pulse", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no threads here, as in a browser: then there are no lines either
        ended.set()
    try:
        with doing(what):
            yield pulse
    finally:
        _pulse = None
        if not ended.is_set():
            ended.set()
            thread.join()


def _watch(pulse: Pulse, ended: threading.Event) -> None:
    while not ended.wait(LOOK):
        pulse.beat()


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bar(work: Doing) -> Any:
    """A bar on a terminal; None elsewhere, or where tqdm is not installed."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=work.total, initial=work.done, unit=f" {work.unit}", desc=work.what, leave=False, delay=DELAY)
