r"""How many threads the matrix products use: set through threadpoolctl, unless the user has set it already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from minadv.base.machine import blas_setting

_limits: list[int | None] = []  # the numbers of the `limit_threads` contexts under way, the innermost last
_late = ExitStack()  # the limits of libraries that were loaded within a context


def limit_threads(n: int | None, *, this_thread: bool = False) -> AbstractContextManager[None]:
    """A context in which matrix products use ``n`` threads.

    None, a user's own setting or a missing threadpoolctl leave everything as it is. ``this_thread=True`` is for the
    first act of a pool's thread: it limits that thread from now on, without a context. Most libraries have one number
    of threads for the whole process, but those that use OpenMP have one for each thread.
    """
    if not this_thread:
        return _within(n)
    controller = _controller() if blas_setting() is None else None
    if controller is not None:
        controller.limit(limits=n, user_api="blas")
    return nullcontext()


@contextmanager
def _within(n: int | None) -> Iterator[None]:
    controller = _controller() if n is not None and blas_setting() is None else None
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


def limit_late_libraries() -> None:
    """Give a BLAS that was loaded within `limit_threads` as many threads as the others, until that context ends."""
    controller = _controller() if _limits else None
    if controller is not None:
        _late.enter_context(controller.limit(limits=_limits[-1], user_api="blas"))


def libraries() -> list[dict[str, Any]]:
    """The BLAS libraries in this process with their version and threads; empty if threadpoolctl is not there."""
    controller = _controller()
    return [] if controller is None else [lib for lib in controller.info() if lib["user_api"] == "blas"]


def _controller() -> Any:
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController()
