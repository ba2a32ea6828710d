r"""How many threads the matrix products use: set through threadpoolctl, unless the user has set it already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def users_setting() -> str | None:
    """The environment variable by which the user chose a number of BLAS threads, as ``NAME=VALUE``, or None."""
    return next((f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)), None)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def blas_threads(n: int | None) -> Iterator[None]:
    """Within it BLAS uses ``n`` threads; None, a user's own setting or a missing threadpoolctl leave it as it is."""
    controller = _controller() if n is not None and users_setting() is None else None
    if controller is None:
        yield
        return
    with controller.limit(limits=n, user_api="blas"):
        _limits.append(n)
        try:
            yield
        finally:
            _limits.pop()
            if not _limits:
                _late.close()


_limits: list[int | None] = []  # of the `blas_threads` that are under way, the innermost last
_late = ExitStack()


def limit_here(n: int) -> None:
    """In a thread of one's own, as its first act: `blas_threads` for its whole life.

    Most libraries have one number of threads for the whole process, but those that use OpenMP have one for each thread.
    """
    controller = _controller() if users_setting() is None else None
    if controller is not None:
        controller.limit(limits=n, user_api="blas")


def can_limit() -> bool:
    """Whether the number of threads can be set, or is the user's own choice."""
    return users_setting() is not None or bool(blas())


def limit_latecomers() -> None:
    """Give a BLAS that was loaded within `blas_threads` as many threads as the others, until its end."""
    controller = _controller() if _limits else None
    if controller is not None:
        _late.enter_context(controller.limit(limits=_limits[-1], user_api="blas"))


def one_thread_each() -> dict[str, str]:
    """The environment of a worker process: one BLAS thread, unless the user has chosen another number."""
    return dict(os.environ) if users_setting() else {**os.environ, **dict.fromkeys(VARIABLES, "1")}


def blas() -> list[dict[str, Any]]:
    """The BLAS libraries in this process with their version and threads; empty if threadpoolctl is not there."""
    controller = _controller()
    return [] if controller is None else [lib for lib in controller.info() if lib["user_api"] == "blas"]


def _controller() -> Any:
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController()
