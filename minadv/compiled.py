r"""Who makes the LSTM's element-wise step: `gates`, or one compiled loop or kernel with the same formulas.

On a GPU it is always one kernel (`compiled_cuda`). On a processor Numba is optional (``pip install minadv[fast]``,
`compiled_lstm`): with it a training step of a small LSTM in single precision takes about three quarters of the time,
and each process about 120 MB more. Double precision there takes `gates`, the definition. Results are the same up to
rounding. ``MINADV_COMPILED=0`` in the environment turns both off.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import metadata
from typing import NamedTuple

import numpy as np

from minadv import gates
from minadv.backend import Array, is_device

VARIABLE = "MINADV_COMPILED"


class Steps(NamedTuple):
    """An LSTM's step and the way back through it, called as those of `gates`."""

    lstm_step: Callable[..., None]
    lstm_step_backward: Callable[..., None]


DEFINITION = Steps(gates.lstm_step, gates.lstm_step_backward)


def lstm_steps(like: Array) -> Steps:
    """The fastest that there are for arrays such as ``like``."""
    if switched_off():
        return DEFINITION
    if is_device(like):
        return by_cupy()
    return by_numba() or DEFINITION if like.dtype == np.float32 else DEFINITION


def switched_off() -> bool:
    """Whether the user wants `gates` everywhere."""
    return os.environ.get(VARIABLE) == "0"


@functools.cache
def by_cupy() -> Steps:
    """One kernel each."""
    from minadv import compiled_cuda

    return Steps(compiled_cuda.lstm_step, compiled_cuda.lstm_step_backward)


@functools.cache
def by_numba() -> Steps | None:
    """The compiled steps; None where Numba is not installed."""
    try:
        from minadv import compiled_lstm
    except ImportError:
        return None
    return Steps(compiled_lstm.lstm_step, compiled_lstm.lstm_step_backward)


def version() -> dict[str, str]:
    """Numba's, by its name, where it has a part in the numbers."""
    try:
        return {} if switched_off() else {"numba": metadata.version("numba")}
    except metadata.PackageNotFoundError:
        return {}


def why() -> str:
    """Who makes the element-wise step on the processor, and why, in one line."""
    if switched_off():
        return f"NumPy, as {VARIABLE}=0 says"
    if by_numba() is None:
        return "NumPy: pip install minadv[fast] compiles the LSTM's steps"
    return f"Numba {metadata.version('numba')} for the LSTM in single precision, NumPy for all else"
