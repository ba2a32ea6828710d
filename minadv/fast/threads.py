r"""How many threads the matrix products use, set through threadpoolctl and never more than the user's own setting.

NumPy's and SciPy's BLAS have a number each, which holds for the whole process; Numba's products are SciPy's, and none
of minadv's compiled functions has threads of its own. Because Python threads that train or evaluate at the same time
share those numbers, the limits in use are counted: the least of them holds, and what was there before comes back when
the last of them ends.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from minadv.base.machine import BLAS_VARIABLES, blas_most
from minadv.base.notices import say_once

ONE_THREAD = f"{BLAS_VARIABLES[0]}=1"

_lock = threading.RLock()
_limits: dict[object, int] = {}  # the numbers of the `limit_threads` contexts under way, of all Python threads
_before: dict[str, int] = {}  # what each library, by its file, had before the first of them


def limit_threads(n: int | None) -> AbstractContextManager[None]:
    """A context in which matrix products use at most ``n`` threads, in all Python threads of this process.

    A missing threadpoolctl leaves everything as it is. A library never gets more threads than it had, nor more than the
    user's own setting (`minadv.base.machine.BLAS_VARIABLES`). None adds no limit, and lets the limits in use hold for
    what did not know of them: a library that was loaded meanwhile, and a Python thread that was started meanwhile,
    since libraries that use OpenMP have a number for each thread, where others have one for the whole process.
    """
    if n is not None:
        return _within(n)
    with _lock:
        _apply()
    return nullcontext()


@contextmanager
def _within(n: int) -> Iterator[None]:
    key = object()
    with _lock:
        _limits[key] = min(n, blas_most() or n)
        _apply()
    try:
        yield
    finally:
        with _lock:
            del _limits[key]
            _apply()


def _apply() -> None:
    """Give each library the least of the limits, or what it had before if there are none; the lock is held."""
    least = min(_limits.values(), default=None)
    for library in _libraries():
        if least is not None:
            before = _before.setdefault(library.filepath, library.num_threads)
            _set(library, min(before, least))
        elif library.filepath in _before:
            _set(library, _before[library.filepath])
    if least is None:
        _before.clear()


def _set(library: Any, n: int) -> None:
    """Set a library's threads, also where threadpoolctl lets only the Python thread that set them first do so.

    The limits of all Python threads are counted here, and afterwards any thread may set them again.
    """
    let_go = getattr(library, "clear_controlling_thread", lambda force: None)
    let_go(force=True)
    library.set_num_threads(n)
    let_go(force=True)


def libraries() -> list[dict[str, Any]]:
    """The BLAS libraries in this process with their version and threads; empty if threadpoolctl is not there."""
    return [library.info() for library in _libraries()]


def _libraries() -> list[Any]:
    try:
        import threadpoolctl
    except ImportError:
        if _limits and blas_most() != 1:
            say_once("BLAS cannot be limited to one thread a worker: pip install threadpoolctl, or set " + ONE_THREAD)
        return []
    return _loaded(threadpoolctl, len(sys.modules))


@functools.lru_cache(maxsize=1)
def _loaded(threadpoolctl: Any, modules: int) -> list[Any]:
    """The BLAS libraries, looked for again where the number of imported modules has changed: it takes milliseconds."""
    found: list[Any] = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return found
