"""What a GPU says of itself, and each of its usual faults: one line that says what to do."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minadv.backend import BackendError, choose_device
from minadv.base import gpu, notices
from minadv.cli import main
from minadv.commands import doctor
from tests.support import strict


class CUDARuntimeError(RuntimeError):
    """CuPy's name."""


class OutOfMemoryError(MemoryError):
    """CuPy's name."""


class CompileException(Exception):
    """CuPy's name."""


LONG = "Failed to import CuPy.\n\nIf you installed CuPy via wheels, ...\n\nOriginal error:\n  ImportError: {}"
FAULTS: dict[str, tuple[Exception, str]] = {
    "no CuPy": (
        ModuleNotFoundError("No module named 'cupy'", name="cupy"),
        'CuPy is not installed: pip install "minadv',
    ),
    "no library": (
        RuntimeError("CuPy failed to load libnvrtc.so.13: OSError: libnvrtc.so.13: cannot open shared object file"),
        'CUDA\'s library libnvrtc.so.13 is missing: pip install "minadv[cuda13]"',
    ),
    "no BLAS": (
        ImportError(LONG.format("libcublas.so.12: cannot open shared object file: No such file or directory")),
        "CUDA's library libcublas.so.12 is missing: pip install",
    ),
    "no headers": (
        CompileException('cupy_f16.cu(1): catastrophic error: cannot open source file "cuda_fp16.h"'),
        "CUDA's headers are missing, without which CuPy cannot compile: pip install",
    ),
    "no driver": (
        ImportError(LONG.format("libcuda.so.1: cannot open shared object file: No such file or directory")),
        "NVIDIA's driver is not installed, or not visible in this container: install it until nvidia-smi runs",
    ),
    "no device": (
        CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected"),
        "no GPU is visible to CUDA: CUDA_VISIBLE_DEVICES is '7', see nvidia-smi",
    ),
    "driver too old": (
        CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"),
        "the driver is too old for this CUDA (it is for 12.4 and CuPy for 13.0): update the driver, or install",
    ),
    "out of memory": (
        OutOfMemoryError("Out of memory allocating 8,589,934,592 bytes."),
        "the GPU has no memory left (Out of memory allocating 8,589,934,592 bytes): take smaller batches (--batch), a ",
    ),
    "out of memory in BLAS": (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), "the GPU has no memory left"),
    "a GPU that CUDA 13 leaves out": (
        CompileException("nvrtc: error: invalid value for --gpu-architecture (-arch)"),
        "-architecture (-arch)): install the extra cuda12 for a GPU of compute capability below 7.5, or update CuPy",
    ),
    "one that cuBLAS leaves out": (RuntimeError("CUBLAS_STATUS_ARCH_MISMATCH"), "this CUDA is not for this GPU"),
    "a kernel": (CompileException('minadv.cu(3): error: identifier "__shfl" is undefined'), "MINADV_COMPILED=0"),
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CuPy that works, of which a test breaks something."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("MINADV_COMPILED", "0")  # else the doctor may have to say that Numba compiles, in a fresh tree
    made = strict._make_module()
    made.cuda.runtime.driverGetVersion = lambda: 12040
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_a_line_with_its_remedy(name: str, fake: Any, capsys: Any) -> None:
    error, line = FAULTS[name]

    def fail(*_: Any) -> Any:
        raise error

    fake.tanh = fail
    assert line in (gpu.fault(error) or "")
    assert line in choose_device("auto").why
    with pytest.raises(BackendError) as raised:
        choose_device("gpu")
    assert line in str(raised.value)
    assert raised.value.__cause__ is error
    assert main(["doctor", "--device", "gpu"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["out of memory", "out of memory in BLAS", "a kernel"])
def test_a_fault_in_the_middle_of_the_work(name: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    error, line = FAULTS[name]

    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(doctor, "work", fail)
    assert main(["doctor"]) == 1
    [said] = capsys.readouterr().err.splitlines()
    assert line in said


def test_no_driver_at_all(fake: Any) -> None:
    fake.cuda.runtime.driverGetVersion = lambda: 0
    assert "driver is not installed" in (gpu.fault(FAULTS["driver too old"][0]) or "")


def test_other_errors_are_left_alone(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.fault(ValueError("x has shape (3,)")) is None

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "work", fail)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_the_cause_is_looked_at_too() -> None:
    error = RuntimeError("something else")
    error.__cause__ = FAULTS["no device"][0]
    assert "no GPU is visible" in (gpu.fault(error) or "")


def test_what_a_device_tells(fake: Any) -> None:
    calls: list[Any] = []
    fake._core = SimpleNamespace(
        set_compute_type=lambda dtype, kind: calls.append((dtype, kind)), get_compute_type=lambda dtype: calls[-1][1]
    )
    fake.cuda.runtime.getDeviceProperties = lambda _: {"name": b"GeForce", "major": 8, "minor": 9}
    fake.cuda.runtime.memGetInfo = lambda: (3 * 2**30, 4 * 2**30)
    device = choose_device("gpu")
    told = "CuPy 0.0, CUDA 13.0, driver for CUDA 12.4, GeForce, compute capability 8.9, 3.0 of 4.0 GiB free, TF32 "
    assert (device.name, device.xp, device.why, device.tf32) == ("gpu", fake, told + "off", False)
    device = choose_device("gpu", tf32=True)
    assert device.why == told + "on"
    assert device.tf32
    assert calls == [(np.float32, gpu.DEFAULT), (np.float32, gpu.TF32)]
    choose_device("gpu")
    assert calls[-1] == (np.float32, gpu.DEFAULT)
    assert gpu.used()["compute_capability"] == "8.9"


def test_processes_on_one_machine_use_different_devices(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    fake.cuda.Device = lambda number: SimpleNamespace(use=lambda: used.append(number))
    fake.cuda.runtime.getDeviceCount = lambda: 2
    choose_device("gpu")
    assert used == []  # a process alone stays on the device that CUDA gives it
    monkeypatch.setenv("PMI_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("PMI_RANK", rank)
        monkeypatch.setenv("MPI_LOCALRANKID", rank)
        choose_device("gpu")
    assert used == [0, 1]


def test_what_a_device_does_not_tell_is_left_out(fake: Any) -> None:
    del fake.cuda.runtime.memGetInfo
    assert "GiB" not in choose_device("gpu").why
    assert "TF32" not in choose_device("gpu").why  # the stand-in has none


def test_tf32_where_there_is_none(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"tf32 is for products on a GPU, and the device is the CPU: leave it out"):
        choose_device("cpu", tf32=True)
    with pytest.raises(ValueError, match=r"compute capability 8\.0 or more, and this one has 0\.0: leave it out"):
        choose_device("gpu", tf32=True)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendError, match=r"^TF32, which is for GPUs, was asked for but CuPy does not work here"):
        choose_device("auto", tf32=True)


@pytest.mark.parametrize("state", ["empty", "missing", "full"])
def test_whoever_waits_for_the_compiler_is_told(
    state: str, fake: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_said", set())
    folder = tmp_path if state != "missing" else tmp_path / "a" / "b"
    if state == "full":
        (tmp_path / "kernel.cubin").touch()
    monkeypatch.setenv(gpu.CACHE, str(folder))
    choose_device("gpu")
    choose_device("gpu")
    line = f"minadv: CuPy compiles each kernel when it is first used, once for this GPU, and keeps it in {folder}\n"
    assert capsys.readouterr().err == ("" if state == "full" else line)


def test_kernels_that_cannot_be_kept(fake: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_said", set())
    monkeypatch.setattr(gpu.os, "access", lambda *_: False)
    monkeypatch.setenv(gpu.CACHE, str(tmp_path))
    choose_device("gpu")
    assert "cannot keep compiled kernels" in capsys.readouterr().err
