r"""What is known of the machine before anything is computed: its cores, and what the user has set for its threads."""

from __future__ import annotations

import os

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
"""Variables of the environment that set how many threads a matrix product uses."""

CORE_CACHE = 2**20
"""Bytes of weights that stay in a core's own cache: larger ones are read from slower memory at every step."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blas_setting() -> str | None:
    """The variable by which the user chose a number of BLAS threads, as ``NAME=VALUE``, or None."""
    return next((f"{name}={os.environ[name]}" for name in BLAS_VARIABLES if os.environ.get(name)), None)


def one_blas_thread() -> dict[str, str]:
    """The environment of a worker process: one BLAS thread, unless the user has chosen another number."""
    return dict(os.environ) if blas_setting() else {**os.environ, **dict.fromkeys(BLAS_VARIABLES, "1")}
