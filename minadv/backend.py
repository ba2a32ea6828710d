r"""The array-module switch: NumPy on the CPU, CuPy on a GPU, and the data decide.

A public function of minadv begins with ``xp = namespace(...)`` and computes with ``xp`` from there on, so that one text
serves both. Nothing here moves an array unless it is asked to (`to_device`, `to_host`), and CuPy is imported only when
an array or a device choice asks for it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from minadv.base import gpu, launch
from minadv.base.trees import tree_map

Array: TypeAlias = npt.NDArray[Any]
"""A NumPy array, or a CuPy array that stands in for one: the type checker knows only NumPy's."""

DeviceName: TypeAlias = Literal["auto", "cpu", "gpu"]
Tree = TypeVar("Tree")


class BackendError(RuntimeError):
    """The device that was asked for does not work; the message says why."""


def is_host(array: object) -> bool:
    """Whether this is a NumPy array (a NumPy scalar counts)."""
    return isinstance(array, np.ndarray | np.generic)


def is_device(array: object) -> bool:
    """Whether this is a CuPy array; does not import CuPy, because no such array can exist before it is imported."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def namespace(*arrays: object, **named: object) -> Any:
    """The module, ``numpy`` or ``cupy``, of the given arrays; ``None`` among them is passed over.

    Arrays given by keyword are called by that name in errors, the others by their place.

    Raises TypeError for anything that is not an array, and for host and device arrays together.
    """
    if len(arrays) == 1 and not named and type(arrays[0]) is np.ndarray:  # the common case, once a step in the cells
        return np
    host: list[str] = []
    device: list[str] = []
    for name, array in [*((f"argument {n}", a) for n, a in enumerate(arrays, 1)), *named.items()]:
        if array is None:
            continue
        if is_host(array):
            host.append(name)
        elif is_device(array):
            device.append(name)
        else:
            raise TypeError(f"{name} is a {type(array).__name__}, expected a NumPy or CuPy array")
    if host and device:
        raise TypeError(
            f"{', '.join(host)} on the host (NumPy) but {', '.join(device)} on the device (CuPy): "
            "move them together first, with minadv.backend.to_device or to_host"
        )
    return sys.modules["cupy"] if device else np


@dataclass(frozen=True)
class Device:
    """A device that has been tried: its name, its array module, and one line on how it was chosen.

    ``tf32``: products in single precision round their factors to TF32 there.
    """

    name: Literal["cpu", "gpu"]
    xp: Any
    why: str
    tf32: bool = False


def choose_device(device: DeviceName = "auto", *, tf32: bool = False) -> Device:
    """Choose where to compute: ``"cpu"``, ``"gpu"``, or ``"auto"`` for the GPU if it works and else the CPU.

    A CUDA wheel can import and still not work, so the GPU is tried with an allocation, a matrix product, a kernel and
    a read back. ``"auto"`` says in `Device.why` what made it fall back; ``"gpu"`` raises BackendError from the cause.
    TF32 is off in the whole process, whatever CUPY_TF32 says, unless ``tf32`` asks for it.
    """
    if not isinstance(device, str) or device not in ("auto", "cpu", "gpu"):
        raise ValueError(f'device is {device!r}, expected "auto", "cpu" or "gpu"')
    if device == "cpu":
        if tf32:
            raise ValueError("tf32 is for products on a GPU, and the device is the CPU: leave it out (--tf32)")
        return Device("cpu", np, "NumPy, as asked")
    try:
        cupy = _try_cupy()
    except Exception as cause:  # whatever goes wrong between a wheel and a driver, it means "not this device"
        message = str(cause).strip()
        reason = f"{type(cause).__name__}: {message.splitlines()[0]}" if message else type(cause).__name__
        reason = gpu.fault(cause) or reason
        if device == "gpu" or tf32:
            asked = 'device="gpu"' if device == "gpu" else "TF32, which is for GPUs,"
            raise BackendError(f"{asked} was asked for but CuPy does not work here ({reason})") from cause
        return Device("cpu", np, f"NumPy, because CuPy does not work here ({reason})")
    gpu.set_tf32(cupy, tf32)
    gpu.tell_of_compiling()
    return Device("gpu", cupy, gpu.in_words(gpu.facts(cupy)), tf32)


def _try_cupy() -> Any:
    """Import CuPy and do one small piece of real work with it; any failure raises."""
    import cupy

    if launch.this_process().size > 1:  # processes that mpiexec started on one machine take different GPUs
        cupy.cuda.Device(launch.own_gpu(cupy.cuda.runtime.getDeviceCount())).use()
    a = cupy.asarray(np.arange(6.0).reshape(2, 3) / 10)
    seen = cupy.asnumpy(cupy.tanh(a @ a.T))
    if not np.allclose(seen, np.tanh([[0.05, 0.14], [0.14, 0.5]])):
        raise RuntimeError(f"a 2 x 2 matrix product came back wrong: {seen.tolist()}")
    return cupy


def to_device(tree: Tree, device: DeviceName | Device = "auto") -> Tree:
    """Copy every array of a tree (an array, or dataclasses, dicts and tuples of them) to a device."""
    target = device if isinstance(device, Device) else choose_device(device)
    if target.name == "cpu":
        return to_host(tree)
    return tree_map(lambda a: target.xp.asarray(a) if is_host(a) else a, tree)


def to_host(tree: Tree) -> Tree:
    """Copy every CuPy array of a tree to the host; NumPy arrays stay as they are."""
    return tree_map(lambda a: a.get() if is_device(a) else a, tree)


def as_host(value: Any) -> Array:
    """Whatever can be made one: a list, an array of NumPy or CuPy, or a tensor of PyTorch, as a NumPy array."""
    if hasattr(value, "detach"):  # a tensor, which may belong to a graph and lie on a GPU
        value = value.detach().cpu()
    return np.asarray(value.get() if is_device(value) else value)


def same_place(array: Array, like: Array) -> Array:
    """A host array, such as fresh random numbers, as an array of the module of ``like``."""
    moved: Array = namespace(like).asarray(array)
    return moved
