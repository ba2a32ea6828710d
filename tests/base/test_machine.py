"""The cores that a process may use: its affinity, the quotas of its control groups and MINADV_CORES."""

from pathlib import Path
from typing import Any

import pytest

from minadv.base import machine

V2 = "0::/user.slice/job.scope"
V1 = "3:cpuset:/\n4:cpu,cpuacct:/jobs/7\n2:memory:/jobs/7"


def groups(root: Path, lines: str, files: dict[str, str]) -> Path:
    """A system's files: the control groups of this process, and what stands in their files."""
    for name, content in {"proc/self/cgroup": lines + "\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def v1(folder: str, quota: str, period: str = "100000") -> dict[str, str]:
    return {
        f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": f"{period}\n",
    }


@pytest.mark.parametrize(
    ("lines", "files", "quota"),
    [
        (V2, {}, None),
        (V2, {"sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000\n"}, None),
        (V2, {"sys/fs/cgroup/user.slice/job.scope/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"sys/fs/cgroup/user.slice/cpu.max": "200000 50000\n"}, 4),  # a group above it
        (
            V2,
            {"sys/fs/cgroup/user.slice/cpu.max": "1 1", "sys/fs/cgroup/user.slice/job.scope/cpu.max": "3 1"},
            1,
        ),
        (V2, {"sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),  # a container, which sees no path of its own
        (V2, {"sys/fs/cgroup/unified/user.slice/job.scope/cpu.max": "3 2"}, 1.5),  # both versions at once
        (V2, {"sys/fs/cgroup/user.slice/job.scope/cpu.max": "what is this"}, None),
        (V1, v1("cpu,cpuacct/jobs/7", "-1"), None),
        (V1, v1("cpu,cpuacct/jobs/7", "300000"), 3),
        (V1, v1("cpu/jobs", "50000", "100000"), 0.5),
        (V1, v1("cpu", "200000"), 2),
        (V1, v1("memory/jobs/7", "200000"), None),  # not the group of the processor
        ("", {}, None),
    ],
)
def test_the_quota_of_control_groups(lines: str, files: dict[str, str], quota: Any, tmp_path: Path) -> None:
    assert machine.quota(groups(tmp_path, lines, files)) == quota


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert machine.quota(tmp_path) is None


@pytest.mark.parametrize(
    ("own", "quota", "setting", "cores"),
    [
        (8, None, None, 8),
        (8, 3.9, None, 3),
        (2, 3.9, None, 2),
        (8, 0.5, None, 1),
        (8, 4.0, "3", 3),
        (2, None, "64", 2),
        (8, None, "", 8),
    ],
)
def test_cores(own: int, quota: Any, setting: Any, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "affinity", lambda: frozenset(range(own)))
    monkeypatch.setattr(machine, "quota", lambda: quota)
    monkeypatch.delenv(machine.CORES, raising=False)
    if setting is not None:
        monkeypatch.setenv(machine.CORES, setting)
    assert machine.cores() == cores
    assert machine.cores(range(2)) == min(2, cores)


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_a_number_of_cores_that_is_none(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.CORES, given)
    with pytest.raises(ValueError, match=f"MINADV_CORES is '{given}', expected a number of cores, at least 1"):
        machine.cores()


@pytest.mark.parametrize(
    ("setting", "most"), [(None, None), ("3", 3), ("4,2", 4), (" 2 ", 2), ("0", None), ("all", None)]
)
def test_the_most_blas_threads(setting: Any, most: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in machine.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert machine.blas_most() == most


MAX = {"max": "1000", "current": "900", "stat": "anon 1\ninactive_file 50\n"}
V1_MAX = {"limit_in_bytes": "1000", "usage_in_bytes": "300", "stat": "cache 7\ntotal_inactive_file 20\n"}


@pytest.mark.parametrize(
    ("lines", "folder", "files", "left"),
    [
        (V2, "user.slice/job.scope", MAX, 150),
        (V2, "user.slice", MAX, 150),  # a group above it
        (V2, ".", MAX, 150),  # a container, which sees no path of its own
        (V2, "user.slice/job.scope", {**MAX, "max": "max"}, None),
        (V2, "user.slice/job.scope", {**MAX, "current": "2000"}, 0),
        (V1, "memory/jobs/7", V1_MAX, 720),
        (V1, "cpu,cpuacct/jobs/7", V1_MAX, None),  # not the group of the memory
        ("", ".", MAX, None),
    ],
)
def test_the_memory_that_control_groups_leave(
    lines: str, folder: str, files: dict[str, str], left: Any, tmp_path: Path
) -> None:
    held = {f"sys/fs/cgroup/{folder}/memory.{name}": text for name, text in files.items()}
    assert machine._of_groups(groups(tmp_path, lines, held)) == left


def test_memory() -> None:
    if Path("/proc/meminfo").exists():
        found = machine.memory()
        assert 0 < (machine.free_memory() or 0) <= found["MemTotal"]
    else:
        assert machine.memory() == {} and machine.free_memory() is None
