r"""Whether the LSTM's element-wise step is that of `gates` or the same compiled by Numba (`compiled_lstm`).

Numba is optional (``pip install minadv[fast]``). With it a training step of a small LSTM takes about seven tenths
of the time, and each process about 120 MB more; results are the same up to rounding. Double precision and CuPy always
take `gates`, the definition. ``MINADV_COMPILED=0`` in the environment turns it off.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import metadata
from typing import NamedTuple

import numpy as np

from minadv import gates
from minadv.backend import Array

VARIABLE = "MINADV_COMPILED"


class Steps(NamedTuple):
    """An LSTM's step and the way back through it, called as those of `gates`."""

    lstm_step: Callable[..., None]
    lstm_step_backward: Callable[..., None]


DEFINITION = Steps(gates.lstm_step, gates.lstm_step_backward)


def lstm_steps(like: Array) -> Steps:
    """The fastest that there are for arrays such as ``like``."""
    if not isinstance(like, np.ndarray) or like.dtype != np.float32 or switched_off():
        return DEFINITION
    return by_numba() or DEFINITION


def switched_off() -> bool:
    """Whether the user wants `gates` everywhere."""
    return os.environ.get(VARIABLE) == "0"


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
    """Who makes the element-wise step in single precision, and why, in one line."""
    if switched_off():
        return f"NumPy, as {VARIABLE}=0 says"
    if by_numba() is None:
        return "NumPy: pip install minadv[fast] compiles the LSTM's steps"
    return f"Numba {metadata.version('numba')} for the LSTM in single precision, NumPy for all else"
