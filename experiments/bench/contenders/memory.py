r"""Peak memory of processes, as Linux tells it under /proc; NaN where it does not.

Two measures. The **peak** is the sum over a process and its children of the most that was resident in each (VmHWM):
exact in time, but pages that two processes share, such as libraries, count twice. The **sampled** one sums proportional
shares (Pss), in which a shared page counts once, some hundred times a second.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

MB = 1e6


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(task).split():
            found += tree(int(child))
    return found


def resident(pid: int | None = None) -> float:
    """MB resident now, in this process or another."""
    return _status(os.getpid() if pid is None else pid, "VmRSS")


def peak(pids: Sequence[int]) -> float:
    """MB, the sum of the processes' and their descendants' peaks since `reset`."""
    return sum(_status(one, "VmHWM") for pid in pids for one in tree(pid))


def reset(pids: Sequence[int]) -> None:
    """Let the peaks start from what is resident now, where the system allows it."""
    for one in (one for pid in pids for one in tree(pid)):
        try:
            Path(f"/proc/{one}/clear_refs").write_text("5")
        except OSError:
            return


class Sampler:
    """A thread that looks at the proportional shares of processes and keeps the largest sum."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids, self.largest = list(pids), math.nan
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            now = sum(proportional(one) for pid in self.pids for one in tree(pid))
            if not math.isnan(now):
                self.largest = now if math.isnan(self.largest) else max(self.largest, now)
            time.sleep(0.01)


def proportional(pid: int) -> float:
    """MB resident now, every page divided by the number of processes that share it."""
    return _field(_read(Path(f"/proc/{pid}/smaps_rollup")), "Pss")


def _status(pid: int, name: str) -> float:
    return _field(_read(Path(f"/proc/{pid}/status")), name)


def _field(text: str, name: str) -> float:
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024 / MB
    return math.nan


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no such system, or the process has ended
        return ""
