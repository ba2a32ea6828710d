r"""What is read back from a device, at once: whether something was wrong on the way, and a few numbers.

Reading a number of a device waits for all that the device was asked to do before it. Within `at_once` a `check` of
device arrays is not read where it stands but noted, and `Readings.numbers` reads all of them in one copy, together with
the numbers that it is asked for. On the host, and outside `at_once`, a check is made on the spot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from minadv.backend import Array, is_device, namespace

WORDS, NUMBERS = 64, 8
"""The most checks and numbers of one reading; more checks are read before there is no room for them."""


class Readings:
    """The checks that were noted on a device and not yet read."""

    def __init__(self) -> None:
        self._memory: Any = None  # NUMBERS float64, then WORDS int32
        self._acts: list[Callable[[], object]] = []

    def word(self, like: Array) -> Array:
        """A place for the next check, int32 (1,) and zero, beside ``like`` on a device; the same one until `note`."""
        if self._memory is None:
            self._memory = namespace(like).zeros(NUMBERS + WORDS // 2, np.float64)
        n = len(self._acts)
        return self._memory[NUMBERS:].view(np.int32)[n : n + 1]  # type: ignore[no-any-return]

    def note(self, act: Callable[[], object]) -> None:
        """Call ``act`` when the place that `word` gave last is read, and not zero."""
        self._acts.append(act)
        if len(self._acts) == WORDS:
            self.numbers()

    def numbers(self, *arrays: Array) -> list[float]:
        """Read every check, which may raise or warn, and these arrays of one number each, at most `NUMBERS`."""
        if len(arrays) > NUMBERS:
            raise ValueError(f"{len(arrays)} numbers are asked for, expected at most {NUMBERS} at once")
        if not (self._acts or any(map(is_device, arrays))):
            return [float(a) for a in arrays]
        if self._memory is None:
            self.word(arrays[0])
        for n, a in enumerate(arrays):
            self._memory[n : n + 1] = a
        memory, acts = self._memory.get(), self._acts
        self._memory, self._acts = None, []
        for word, act in zip(memory[NUMBERS:].view(np.int32), acts, strict=False):
            if word:
                act()
        return [float(number) for number in memory[: len(arrays)]]


_open: ContextVar[Readings | None] = ContextVar("minadv readings", default=None)


@contextmanager
def at_once() -> Iterator[Readings]:
    """Within it the checks of device arrays are read by `Readings.numbers`, or else at its end."""
    outer = _open.get()
    if outer is not None:
        yield outer
        return
    made = Readings()
    token = _open.set(made)
    try:
        yield made
        made.numbers()
    finally:
        _open.reset(token)


def check(wrong: Array, act: Callable[[], object]) -> None:
    """Call ``act``, which raises or warns, if an entry of ``wrong`` is true: now, or when a device is next read."""
    now = _open.get() if is_device(wrong) else None
    if now is None:
        if bool(wrong.any()):
            act()
        return
    namespace(wrong).any(wrong, out=now.word(wrong).reshape(()))
    now.note(act)


def check_all(wrong: Array, act: Callable[[], object]) -> None:
    """Call ``act`` if every entry of ``wrong`` is true: see `check`."""
    now = _open.get() if is_device(wrong) else None
    if now is None:
        if bool(wrong.all()):
            act()
        return
    namespace(wrong).all(wrong, out=now.word(wrong).reshape(()))
    now.note(act)


@contextmanager
def word(like: Array, act: Callable[[], object]) -> Iterator[Array]:
    """A place on a device, int32 (1,), for a kernel to write to if something is wrong; ``act`` is then called."""
    now = _open.get()
    made = Readings() if now is None else now
    yield made.word(like)
    made.note(act)
    if now is None:
        made.numbers()
