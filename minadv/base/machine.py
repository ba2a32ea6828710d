r"""What is known of the machine before anything is computed: the cores, and what the user has set for threads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
"""Variables of the environment that set how many threads a matrix product uses."""

CORES = "MINADV_CORES"
"""Environment variable: the most cores that this process may use, for workers and BLAS threads together."""

CORE_CACHE = 2**20
"""Bytes of weights that stay in a core's own cache: larger ones are read from slower memory at every step."""


def cores(among: Iterable[int] | None = None) -> int:
    """How many cores this process may use, of those in ``among`` (default: of those it may run on), at least one.

    That is as many as its affinity, the quotas of its control groups and the variable `CORES` all allow.
    """
    most = [float(len(affinity() if among is None else set(among)))]
    most += [found for found in (quota(), _setting(CORES)) if found is not None]
    return max(1, int(min(most)))


def affinity() -> frozenset[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def quota(root: Path = Path("/")) -> float | None:
    """How many cores' time the control groups of this process, and all above them, grant it; None if they set no limit.

    A group of version 2 says it in ``cpu.max``, one of version 1 in ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``.
    """
    return min((cpus for cpus in map(_quota_of, _groups("cpu", root)) if cpus is not None), default=None)


def _groups(controller: str, root: Path) -> list[Path]:
    """The folders of this process's control groups that may limit its cores or memory, and of all groups above them.

    In a container the path of a group may not exist in the container's view: then the nearest folder above it counts.
    """
    lines = _text(root / "proc/self/cgroup").splitlines()
    found: list[Path] = []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if controllers and controller not in controllers.split(","):
            continue
        for mount in (controllers, controller) if controllers else ("unified", "."):
            top = root / "sys/fs/cgroup" / mount
            group = top / path.lstrip("/")
            found += [folder for folder in (group, *group.parents) if folder.is_relative_to(top)]
    return found


def _quota_of(group: Path) -> float | None:
    """The quota of one control group in cores, whichever of the two versions its folder is of."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota_us, period_us = " ".join((group / name).read_text() for name in files).split()
            if quota_us != "max" and int(quota_us) > 0 and int(period_us) > 0:
                return int(quota_us) / int(period_us)
        except (OSError, ValueError):
            continue
    return None


def _setting(name: str) -> int | None:
    given = os.environ.get(name)
    if not given:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"{name} is {given!r}, expected a number of cores, at least 1")
    return int(given)


def blas_setting() -> str | None:
    """The variable by which the user chose a number of BLAS threads, as ``NAME=VALUE``, or None."""
    return next((f"{name}={os.environ[name]}" for name in BLAS_VARIABLES if os.environ.get(name)), None)


def blas_most() -> int | None:
    """The most BLAS threads by the user's setting, the first number of a list of OpenMP's; None without a setting."""
    first = (blas_setting() or "").partition("=")[2].split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def one_thread(cores: int = 1) -> dict[str, str]:
    """The environment of a worker process: one BLAS thread, and ``cores`` of the cores, which it shares with others."""
    return {**os.environ, **dict.fromkeys(BLAS_VARIABLES, "1"), CORES: str(cores)}


def free_memory() -> int | None:
    """The bytes of memory that are available, where the system tells them."""
    return memory().get("MemAvailable")


def memory() -> dict[str, int]:
    """The system's memory in bytes, by the names of ``/proc/meminfo``; empty where that does not exist."""
    fields = (line.split(":") for line in _text(Path("/proc/meminfo")).splitlines())
    return {name: 1024 * int(value.split()[0]) for name, value in fields if value.endswith(" kB")}


def available_memory() -> int | None:
    """Bytes that this process may still take, as the system, a container and ``ulimit -v`` say; None if none tells."""
    return min((found for found in (_of_system(), _of_groups(), _of_process()) if found is not None), default=None)


def _of_system() -> int | None:
    """What the system can give without swapping; where it does not tell, all that it has."""
    there = free_memory()
    if there is not None:
        return there
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows, and systems that do not know the names
        return None


def _of_groups(root: Path = Path("/")) -> int | None:
    """What the control groups of this process, in which containers run, leave it."""
    return min((left for left in map(_left_by, _groups("memory", root)) if left is not None), default=None)


def _left_by(group: Path) -> int | None:
    """What one control group, of either version, leaves; files that it keeps in memory can be dropped."""
    version_2 = ("max", "current", "inactive_file")
    for most, now, files in (version_2, ("limit_in_bytes", "usage_in_bytes", "total_inactive_file")):
        limit, used = (_text(group / f"memory.{name}").strip() for name in (most, now))
        if limit.isdigit() and used.isdigit():
            facts = dict(line.split() for line in _text(group / "memory.stat").splitlines())
            return max(0, int(limit) - int(used) + int(facts.get(files, 0)))
    return None


def _of_process() -> int | None:
    """What ``ulimit -v`` leaves."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _text(Path("/proc/self/statm")).split()
    if limit == resource.RLIM_INFINITY or not pages:
        return None
    return max(0, limit - int(pages[0]) * resource.getpagesize())


def _text(path: Path) -> str:
    """The text of a file; nothing where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
