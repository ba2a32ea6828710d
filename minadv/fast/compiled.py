r"""Who makes the LSTM's element-wise step: `gates`, or one compiled loop or kernel with the same formulas.

On a GPU it is one kernel (`cuda_steps`). On a processor Numba is optional (``pip install "minadv[fast]"``): with it
a step in single precision is one loop (`numba_steps`), and where the weights are small a whole pass is compiled
(`numba_pass`). A training step of a small LSTM then takes about three quarters of the time and two thirds of the
memory of its passes, and each process about 125 MB more. Double precision takes `gates` and the loop of `lstm`, the
definition. Results are the same up to rounding. ``MINADV_COMPILED=0`` in the environment turns all of it off.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from importlib import metadata
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minadv.backend import Array, is_device
from minadv.fast import elementwise, threads

VARIABLE = "MINADV_COMPILED"
COMPILING = "minadv: Numba compiles the LSTM's steps, once after an installation; it takes half a minute or less"


class Steps(NamedTuple):
    """An LSTM's step and the way back through it, called as those of `gates`."""

    lstm_step: Callable[..., None]
    lstm_step_backward: Callable[..., None]


DEFINITION = Steps(elementwise.lstm_step, elementwise.lstm_step_backward)


def lstm_steps(like: Array) -> Steps:
    """The fastest that there are for arrays such as ``like``."""
    if switched_off():
        return DEFINITION
    if is_device(like):
        return by_cupy()
    return by_numba()[0] or DEFINITION if like.dtype == np.float32 else DEFINITION


SMALL = 2**20
"""Bytes of recurrent weights that stay in a core's own cache."""


def takes_whole_passes(U: Array) -> bool:
    """Whether passes with these recurrent weights are compiled as a whole, by `whole_pass`.

    Where the weights are large, two passes that share their products (`lstm.forward_together`) take less than twice as
    long as one: that is worth more.
    """
    return not is_device(U) and takes(U.nbytes, U.dtype)


def takes(nbytes: int, dtype: npt.DTypeLike) -> bool:
    """Whether those with so many bytes of recurrent weights of this type are, on a processor."""
    small, single = nbytes <= SMALL, np.dtype(dtype) == np.float32
    return small and single and not switched_off() and by_numba()[0] is not None


def whole_pass() -> ModuleType:
    """`numba_pass`, which needs Numba."""
    from minadv.fast import numba_pass

    return numba_pass


def switched_off() -> bool:
    """Whether the user wants `gates` everywhere."""
    return os.environ.get(VARIABLE) == "0"


@functools.cache
def by_cupy() -> Steps:
    """One kernel each."""
    from minadv.fast import cuda_steps

    return Steps(cuda_steps.lstm_step, cuda_steps.lstm_step_backward)


@functools.cache
def by_numba() -> tuple[Steps | None, str]:
    """The compiled steps and their maker; None, and why not, where Numba is not there or does not work."""
    try:
        installed = metadata.version("numba")
    except metadata.PackageNotFoundError:
        return None, 'pip install "minadv[fast]" compiles the LSTM\'s steps'
    notice = threading.Timer(2, print, [COMPILING], {"file": sys.stderr, "flush": True})
    notice.daemon = True
    notice.start()
    try:
        from minadv.fast import numba_steps
    except Exception as error:  # such as a Numba that is too old for this NumPy: gates can do without
        return None, f"Numba {installed} is installed but does not work: {error}"
    finally:
        notice.cancel()
    threads.limit_latecomers()  # SciPy's BLAS has come with it
    return Steps(numba_steps.lstm_step, numba_steps.lstm_step_backward), f"Numba {installed}"


def version() -> dict[str, str]:
    """Numba's, by its name, where it may have a part in the numbers."""
    return {} if switched_off() or by_numba()[0] is None else {"numba": metadata.version("numba")}


def why(on_gpu: bool = False) -> str:
    """Who makes the element-wise step, and why, in one line."""
    if switched_off():
        return f"{'CuPy' if on_gpu else 'NumPy'} line by line, as {VARIABLE}=0 says"
    if on_gpu:
        return "one kernel each for the LSTM"
    steps, said = by_numba()
    return f"NumPy: {said}" if steps is None else f"{said} for the LSTM in single precision, NumPy for all else"
