r"""Which machinery there is: compiled steps by Numba or CUDA where they work, and NumPy's or CuPy's elsewhere.

On a GPU whole passes, or the steps between two products, are CUDA kernels (`minadv.fast.cuda_engine`). On a processor
Numba is optional (``pip install "minadv[fast]"``): with it a step in single precision is one loop
(`minadv.fast.numba_steps`), and where the weights are small a whole pass is compiled (`minadv.fast.numba_pass`). A
training step of a small LSTM then takes about three quarters of the time, and its passes two thirds of the memory;
Numba itself takes about 125 MB a process.
Results are the same up to rounding.

Two variables of the environment choose: ``MINADV_ENGINE=plain`` runs the readable cells themselves, and
``MINADV_COMPILED=0`` leaves out what is compiled.

An engine that rounds otherwise than before has another version, and a run goes on with the version that it was begun
with: ``"fast-1"`` compiled no pass with padding, ``"fast-2"`` does; ``"fast-3"`` has the CUDA kernels of
`minadv.fast.cuda_engine` on a GPU, where the earlier ones run `minadv.fast.columns` and `minadv.fast.rows` by CuPy, and
is ``"fast-2"`` on a processor. ``"fast"`` is the newest.

An engine is of the passes alone. What else a training step computes has no version: on a processor it is the readable
text, and on a GPU the kernels of `minadv.fast.device`, whatever engine a run was begun with.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import metadata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minadv.backend import Array, is_device
from minadv.base.checks import expect_choice
from minadv.base.machine import CORE_CACHE
from minadv.fast import compiling, elementwise, threads

ENGINE, COMPILED = "MINADV_ENGINE", "MINADV_COMPILED"
VERSIONS = ("fast-1", "fast-2", "fast-3")  # the newest last
ENGINES = ("fast", "plain", *VERSIONS)


class Steps(NamedTuple):
    """An LSTM's step and the way back through it, called as those of `minadv.fast.elementwise`."""

    lstm_step: Callable[..., None]
    lstm_step_backward: Callable[..., None]


BY_NUMPY = Steps(elementwise.lstm_step, elementwise.lstm_step_backward)


def wanted(asked: str | None = None) -> str:
    """The engine to use: ``asked`` if it names one, else what MINADV_ENGINE says, else ``"fast"``, with its version."""
    name = asked or os.environ.get(ENGINE) or "fast"
    expect_choice("engine" if asked else ENGINE, name, ENGINES)
    return VERSIONS[-1] if name == "fast" else name


def without_compiling() -> bool:
    """Whether MINADV_COMPILED=0 leaves out what is compiled."""
    return os.environ.get(COMPILED) == "0"


def lstm_steps(like: Array) -> Steps:
    """The fastest steps for arrays of the device and dtype of ``like``."""
    if without_compiling():
        return BY_NUMPY
    if is_device(like):
        return by_cupy()
    return by_numba()[0] or BY_NUMPY if like.dtype == np.float32 else BY_NUMPY


def runs_cuda_passes(asked: str | None = None) -> bool:
    """Whether the passes of arrays on a GPU are run by `minadv.fast.cuda_engine`."""
    return wanted(asked) not in ("plain", *VERSIONS[:2]) and not without_compiling()


def compiles_passes(nbytes: int, dtype: npt.DTypeLike, asked: str | None = None, *, padded: bool) -> bool:
    """Whether whole passes of an LSTM on a processor are compiled; its recurrent weights have ``nbytes`` bytes.

    Large weights are left to `minadv.fast.columns`: there two passes share their products and take less than twice as
    long as one, which saves more than compiling.
    """
    small, single = nbytes <= CORE_CACHE, np.dtype(dtype) == np.float32
    able = wanted(asked) in (VERSIONS[1:] if padded else VERSIONS)
    return small and single and able and not without_compiling() and by_numba()[0] is not None


@functools.cache
def by_cupy() -> Steps:
    """The steps as one kernel each."""
    from minadv.fast import cuda_steps

    return Steps(cuda_steps.lstm_step, cuda_steps.lstm_step_backward)


@functools.cache
def by_numba() -> tuple[Steps | None, str]:
    """The compiled steps and the version of Numba; or None and the reason, where Numba is missing or does not work."""
    try:
        installed = metadata.version("numba")
    except metadata.PackageNotFoundError:
        return None, 'pip install "minadv[fast]" compiles the LSTM\'s steps'
    try:
        if compiling.switched_off():
            return None, f"the compilation of Numba {installed} is switched off (NUMBA_DISABLE_JIT)"
        compiling.keep_where_one_may_write()
        with compiling.announced():
            from minadv.fast import numba_steps
    except Exception as error:  # such as a Numba too old for this NumPy; NumPy's own steps still work
        return None, f"Numba {installed} is installed but does not work: {error}"
    threads.limit_threads(None)  # Numba has loaded SciPy's BLAS, which has no limit yet
    return Steps(numba_steps.lstm_step, numba_steps.lstm_step_backward), f"Numba {installed}"


def compiled_code() -> str:
    """What Numba has compiled and where it is kept, in one line; it is compiled first if it was not."""
    if without_compiling() or by_numba()[0] is None:
        return "nothing is compiled"
    from minadv.fast import numba_steps

    return compiling.report(numba_steps)


def versions(asked: str | None = None) -> dict[str, str]:
    """Numba's version, where Numba may compute some of the numbers."""
    unused = wanted(asked) == "plain" or without_compiling() or by_numba()[0] is None
    return {} if unused else {"numba": metadata.version("numba")}


def why(on_gpu: bool = False, asked: str | None = None) -> str:
    """What computes the passes, and why, in one line."""
    module = "CuPy" if on_gpu else "NumPy"
    if wanted(asked) == "plain":
        return f"the readable cells by {module}, as {'was asked for' if asked else f'{ENGINE}=plain says'}"
    if without_compiling():
        return f"{module} line by line, as {COMPILED}=0 says"
    if on_gpu and not runs_cuda_passes(asked):
        return "CuPy, with one kernel each for the LSTM's steps"
    if on_gpu:
        how = "a pass in one launch in single precision with few units, else two launches a step"
        return f"CUDA kernels ({wanted(asked)}): {how}"
    steps, about = by_numba()
    return f"NumPy: {about}" if steps is None else f"{about} for the LSTM in single precision, NumPy for all else"
