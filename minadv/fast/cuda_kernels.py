r"""Kernels and matrix products on a GPU through CuPy, called with whole arrays and no views.

Imported only once there are CuPy arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import cupy
import numpy as np
from cupy.cuda import cublas, device

from minadv.backend import Array
from minadv.base import gpu
from minadv.fast import cuda_source

Leak = Literal["clean", "masked"]
_TABLE = np.dtype((np.void, 8 * len(cuda_source.FIELDS) * cuda_source.MOST_PASSES))
_ONE = {np.dtype(kind): np.ones(1, kind) for kind in ("float32", "float64")}
_ZERO = {np.dtype(kind): np.zeros(1, kind) for kind in ("float32", "float64")}


def shared_limit() -> int:
    """The most shared memory that a block may ask for on the present device, in bytes."""
    return _shared_limit(device.get_device_id())


@functools.cache
def _shared_limit(number: int) -> int:
    found = cupy.cuda.Device(number).attributes
    return int(max(found.get("MaxSharedMemoryPerBlockOptin", 0), found["MaxSharedMemoryPerBlock"]))


def pass_kernels(cell: str, H: int, leak: Leak) -> tuple[Any, Any]:
    """The whole pass forward and backward, each one launch, on the present device."""
    return _pass_kernels(cell, H, leak, device.get_device_id())


@functools.cache
def _pass_kernels(cell: str, H: int, leak: Leak, number: int) -> tuple[Any, Any]:
    """Made anew for each device, by its number: how much shared memory a kernel may take is said to each device."""
    source, size = cuda_source.pass_source(cell, H, leak), cuda_source.pass_size(cell, H)
    kernels = cupy.RawKernel(source, "forward_pass"), cupy.RawKernel(source, "backward_pass")
    for kernel, beside in zip(kernels, (size.forward, size.backward), strict=True):
        if beside + size.fixed > 48 * 1024:  # more than a launch may have that does not ask for it
            kernel.max_dynamic_shared_size_bytes = beside
    return kernels


@functools.cache
def step_kernels(cell: str, dtype: str, leak: Leak) -> tuple[Any, Any]:
    """A step of all passes, forward and backward, each one launch."""
    source = cuda_source.step_source(cell, dtype, leak)
    return cupy.RawKernel(source, "forward_step"), cupy.RawKernel(source, "backward_step")


def table(passes: Sequence[dict[str, Array | None]]) -> Any:
    """The arrays of the passes by name, as the kernels take them: a table of addresses. The arrays are contiguous."""
    addresses = np.zeros((cuda_source.MOST_PASSES, len(cuda_source.FIELDS)), np.uint64)
    for n, arrays in enumerate(passes):
        for k, name in enumerate(cuda_source.FIELDS):
            array: Any = arrays.get(name)
            if array is not None:
                addresses[n, k] = array.data.ptr
    return addresses.reshape(-1).view(_TABLE)


def product(a: Any, b: Any, out: Any, *, left: str = "n", right: str = "n", add: bool = False) -> Callable[[], None]:
    """A function that writes the product of two matrices into ``out``, or adds it to ``out``; it allocates nothing.

    ``left="t"``, ``right="t"`` transpose a factor. Rows may lie apart, so that a matrix may be some columns of another.
    Called again and again, it multiplies what the arrays hold then. It rounds to TF32 where the device was asked to.
    """
    rows, inner = a.shape if left == "n" else a.shape[::-1]
    columns = out.shape[1]
    trans = {"n": cublas.CUBLAS_OP_N, "t": cublas.CUBLAS_OP_T}
    one, other = _ONE[out.dtype].ctypes.data, (_ONE if add else _ZERO)[out.dtype].ctypes.data
    # A single row that was a column may have any stride from row to row, and cuBLAS takes none below its length.
    apart = [max(matrix.strides[0] // matrix.itemsize, matrix.shape[1]) for matrix in (b, a, out)]
    size = (device.get_cublas_handle(), trans[right], trans[left], columns, rows, inner)  # BLAS is by columns
    left_at, right_at, out_at = a.data.ptr, b.data.ptr, out.data.ptr
    if out.dtype == np.float32 and cupy._core.get_compute_type(np.float32) == gpu.TF32:
        single, how = cupy.cuda.runtime.CUDA_R_32F, (cublas.CUBLAS_COMPUTE_32F_FAST_TF32, cublas.CUBLAS_GEMM_DEFAULT)
        typed = (one, right_at, single, apart[0], left_at, single, apart[1], other, out_at, single, apart[2], *how)
        return lambda: cublas.gemmEx(*size, *typed)
    call: Any = cublas.sgemm if out.dtype == np.float32 else cublas.dgemm
    arguments = (one, right_at, apart[0], left_at, apart[1], other, out_at, apart[2])
    return lambda: call(*size, *arguments)
