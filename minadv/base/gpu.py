r"""What a GPU and its libraries say of themselves, and what to do about each of their usual faults, in one line.

Nothing here imports CuPy: `facts` and `set_tf32` are given the module, and `fault` knows errors by their names, because
a CuPy that does not import cannot tell its classes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minadv.base.notices import say_once

DEFAULT, TF32 = 1, 7  # what CuPy calls COMPUTE_TYPE_DEFAULT and COMPUTE_TYPE_TF32
CACHE = "CUPY_CACHE_DIR"
"""Environment variable: the folder in which CuPy keeps compiled kernels."""

NOT_FOR_THIS_GPU = ("gpu-architecture", "ARCH_MISMATCH", "NoKernelImageForDevice", "NO_BINARY_FOR_GPU")
"""What NVRTC, cuBLAS, the runtime and the driver say of a GPU that their CUDA leaves out, as CUDA 13 old ones."""

INSTALL = 'pip install "minadv[cuda13]", or "minadv[cuda12]" for a driver of CUDA 12'


def facts(cupy: Any) -> dict[str, Any]:
    """Versions of CuPy, CUDA and the driver's CUDA; the device, its compute capability and memory; whether TF32 is on.

    What a device does not tell is left out: a log is written of it, and must not fail for it.
    """
    runtime = cupy.cuda.runtime
    asked: dict[str, Callable[[], Any]] = {
        "cupy": lambda: str(cupy.__version__),
        "cuda": lambda: version(runtime.runtimeGetVersion()),
        "driver": lambda: version(runtime.driverGetVersion()),
        "device": lambda: str(runtime.getDeviceProperties(runtime.getDevice())["name"].decode()),
        "compute_capability": lambda: capability(cupy),
        "free_memory": lambda: int(runtime.memGetInfo()[0]),
        "memory": lambda: int(runtime.memGetInfo()[1]),
        "tf32": lambda: bool(cupy._core.get_compute_type(np.float32) == TF32),
    }
    found: dict[str, Any] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except Exception:
            continue
    return found


def in_words(found: dict[str, Any]) -> str:
    """The facts of a GPU in one line."""
    words = {"cupy": "CuPy {}", "cuda": "CUDA {}", "driver": "driver for CUDA {}", "device": "{}"}
    words["compute_capability"] = "compute capability {}"
    said = [text.format(found[name]) for name, text in words.items() if name in found]
    if "free_memory" in found and "memory" in found:
        said.append(f"{found['free_memory'] / 2**30:.1f} of {found['memory'] / 2**30:.1f} GiB free")
    if "tf32" in found:
        said.append(f"TF32 {'on' if found['tf32'] else 'off'}")
    return ", ".join(said)


def used() -> dict[str, Any]:
    """The facts of the GPU that this process uses; nothing if it has not imported CuPy."""
    cupy = sys.modules.get("cupy")
    return {} if cupy is None else facts(cupy)


def version(number: int) -> str:
    """CUDA's number of a version as people write it: 13020 is 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def capability(cupy: Any) -> str:
    """The compute capability of the device in use, such as ``"8.0"``."""
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(runtime.getDevice())
    return f"{properties['major']}.{properties['minor']}"


def set_tf32(cupy: Any, on: bool) -> None:
    """Let products in single precision round their factors to TF32, or not, whatever CUPY_TF32 says.

    A number in TF32 has 11 significant bits, and one in single precision 24. Raises ValueError for a device without it.
    """
    if on and tuple(map(int, capability(cupy).split("."))) < (8, 0):
        raise ValueError(
            f"TF32 needs a GPU of compute capability 8.0 or more, and this one has {capability(cupy)}: leave it out"
        )
    core: Any = getattr(cupy, "_core", None)
    if hasattr(core, "set_compute_type"):
        core.set_compute_type(np.dtype(np.float32), TF32 if on else DEFAULT)
    elif on:
        raise ValueError(f"CuPy {cupy.__version__} does not let TF32 be chosen: leave it out")


def tell_of_compiling() -> None:
    """Say, once, that the first steps will wait for CuPy's compiler, if it has not kept a kernel yet."""
    folder = Path(os.environ.get(CACHE) or Path.home() / ".cupy" / "kernel_cache")
    try:
        empty = next(folder.iterdir(), None) is None
    except OSError:
        empty = True
    place = folder if folder.exists() else next(parent for parent in folder.parents if parent.exists())
    if not os.access(place, os.W_OK):
        say_once(f"CuPy cannot keep compiled kernels in {folder}, so every process compiles them: set {CACHE}")
    elif empty:
        say_once(f"CuPy compiles each kernel when it is first used, once for this GPU, and keeps it in {folder}")


def fault(error: BaseException) -> str | None:
    """One line that says what is wrong with a GPU or its libraries, and what to do; None for any other error."""
    seen: BaseException | None = error
    while seen is not None:
        line = _fault(seen)
        if line is not None:
            return line
        seen = seen.__cause__ or seen.__context__
    return None


def _fault(error: BaseException) -> str | None:
    said, kind = str(error), type(error).__name__
    first = (said.strip().splitlines() or [""])[0].rstrip(".")
    if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
        return f"CuPy is not installed: {INSTALL}"
    too_old = "InsufficientDriver" in said or "UnsupportedPtx" in said or "UNSUPPORTED_PTX" in said
    if "libcuda.so" in said or "nvcuda.dll" in said or (too_old and _versions()[:1] == (0,)):
        return "NVIDIA's driver is not installed, or not visible in this container: install it until nvidia-smi runs"
    library = re.search(r"\b(?:lib)?(cublas|cublasLt|nvrtc|cudart|curand|cusparse|cusolver|cufft)[\w.-]*", said)
    if library and (isinstance(error, ImportError | OSError) or "load" in said or "cannot open" in said):
        return f"CUDA's library {library[0]} is missing: {INSTALL}"
    if "cuda_fp16.h" in said or "Failed to find CUDA headers" in said or "cannot open source file" in said:
        return f"CUDA's headers are missing, without which CuPy cannot compile: {INSTALL}"
    if "cudaErrorNoDevice" in said or "cudaErrorInvalidDevice" in said or "CUDA_ERROR_NO_DEVICE" in said:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        because = "see nvidia-smi" if visible is None else f"CUDA_VISIBLE_DEVICES is {visible!r}, see nvidia-smi"
        return f"no GPU is visible to CUDA: {because}"
    if too_old:
        told = "" if not _versions() else " (it is for {} and CuPy for {})".format(*map(version, _versions()))
        return f"the driver is too old for this CUDA{told}: update the driver, or install the extra for its CUDA"
    if any(word in said for word in NOT_FOR_THIS_GPU):
        return (
            f"this CUDA is not for this GPU ({first}): install the extra cuda12 for a GPU of compute capability below "
            "7.5, or update CuPy for a new one"
        )
    if kind == "OutOfMemoryError" or "cudaErrorMemoryAllocation" in said or "ALLOC_FAILED" in said:
        return (
            f"the GPU has no memory left ({first}): take smaller batches (--batch), a smaller network (--hidden), "
            "or --device cpu"
        )
    if kind == "CompileException" or "NVRTC_ERROR" in said:
        return (
            f"a kernel does not compile for this GPU ({first}): update CuPy, or set MINADV_COMPILED=0, which needs "
            "none of minadv's own kernels"
        )
    return None


def _versions() -> tuple[int, ...]:
    """For which CUDA the driver is, 0 without a driver, and for which CuPy is; nothing where CuPy cannot tell."""
    try:
        runtime = sys.modules["cupy"].cuda.runtime
        return int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    except Exception:
        return ()
