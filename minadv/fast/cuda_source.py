r"""The CUDA sources of the passes, and what their launches ask of a device; nothing here needs CuPy or a GPU.

============================  ======================================================================================
``cuda_cells.cu``             what the kernels share: the arrays of a pass, and the way back through one unit
``cuda_pass.cu``              a whole pass in one launch: a block takes an example and keeps U in its registers
``cuda_step.cu``              one step of all passes between two matrix products
============================  ======================================================================================

A kernel is compiled for one cell, and that of a whole pass for one H too. The sources have no include, so that NVRTC
compiles them as they are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CELLS = ("rnn", "gru", "lstm")
GATES = {"rnn": 1, "gru": 3, "lstm": 4}  # blocks of H columns in U, W and b
KEPT = {"rnn": 0, "gru": 4, "lstm": 4}  # numbers kept for each step and unit, beside its states
GRADIENTS = {"rnn": 1, "gru": 4, "lstm": 4}  # gradients of each step and unit
FIELDS = (
    *("x", "h0", "c0", "m", "valid", "a", "c", "h", "h_last", "c_last"),
    *("dh", "dh_last", "dc_last", "dh0", "dc0", "dm"),
)  # of `struct Pass`, in its order

MOST_PASSES = 8  # of one launch; 128 bytes of arguments each
MOST_UNITS = 128  # of a whole pass in one launch
MOST_INPUTS = 8  # that a kernel multiplies with W itself; more are one product for all steps
MOST_QUADRUPLES = 25  # of weights that a thread keeps in registers: 100 of its 128
MOST_THREADS = 512  # of a block, so that each may have 128 registers


@dataclass(frozen=True)
class PassSize:
    """What one block of a whole pass takes: its threads, and bytes of shared memory forward and backward."""

    threads: int
    forward: int  # bytes of shared memory whose size the launch says, the weights that do not fit the registers
    backward: int
    fixed: int  # bytes that the kernels have of themselves, the larger of both

    @property
    def shared(self) -> int:
        """The most shared memory that a block needs, in bytes."""
        return max(self.forward, self.backward) + self.fixed


def pass_size(cell: str, H: int) -> PassSize:
    """The size of a block for H units: ``cuda_pass.cu`` asserts that they are its own."""
    gates, quads = GATES[cell], -(-H // 4)
    sixteens = -(-gates * H // 16)
    threads = -(-16 * quads // 32) * 32
    forward = 4 * gates * max(0, quads - MOST_QUADRUPLES) * threads
    backward = 4 * 4 * max(0, sixteens - MOST_QUADRUPLES) * threads
    return PassSize(threads, forward, backward, 4 * 2 * max(4 * quads, 16 * sixteens))


def fits_one_launch(cell: str, shape: tuple[int, int, int], H: int, dtype: str, shared_limit: int) -> bool:
    """Whether a pass over x of a shape (T, B, I) is one launch; a block may have so many bytes of shared memory."""
    T, B, I = shape
    small = H <= MOST_UNITS and (T + 1) * B * max(4 * H, I) < 2**32  # places in an array have 32 bits
    return dtype == "float32" and small and pass_size(cell, H).shared <= shared_limit


def pass_source(cell: str, H: int, leak: Literal["clean", "masked"] = "clean") -> str:
    """The source of ``forward_pass`` and ``backward_pass`` for a cell of H units."""
    sizes = {"MOST_INPUTS": MOST_INPUTS, "MOST_QUADRUPLES": MOST_QUADRUPLES, "MOST_THREADS": MOST_THREADS}
    size = pass_size(cell, H)
    sizes |= {"BLOCK_THREADS": size.threads, "FORWARD_BYTES": size.forward, "BACKWARD_BYTES": size.backward}
    return _defined(cell, leak, "float", H=H, **sizes) + _text("cuda_cells.cu") + _text("cuda_pass.cu")


def step_source(cell: str, dtype: str, leak: Literal["clean", "masked"] = "clean") -> str:
    """The source of ``forward_step`` and ``backward_step`` for a cell."""
    real = {"float32": "float", "float64": "double"}[dtype]
    return _defined(cell, leak, real) + _text("cuda_cells.cu") + _text("cuda_step.cu")


def _defined(cell: str, leak: str, real: str, **sizes: int) -> str:
    cells = {name.upper(): int(name == cell) for name in CELLS}
    macros = {**cells, "MASKED_LEAK": int(leak == "masked"), "real": real, "MOST": MOST_PASSES, **sizes}
    return "".join(f"#define {name} {value}\n" for name, value in macros.items())


@functools.cache
def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
