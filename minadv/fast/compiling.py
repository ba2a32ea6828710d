r"""Numba's compiler: whoever waits for it is told so, and what it makes is kept where the user can write.

Numba keeps compiled functions beside the package, or else in the user's cache folder. Where it can write neither, as in
a container with a read-only home, they are kept in a folder of the user's own among the temporary files.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from minadv.base.notices import say_once

COMPILING = "Numba compiles the LSTM's steps, once after an installation; it takes a minute or less"
SWITCHED_OFF = "Numba's compilation is switched off (NUMBA_DISABLE_JIT): NumPy computes all, more slowly"


@contextmanager
def announced() -> Iterator[None]:
    """Within it, `COMPILING` is said when Numba begins to compile, and not if it finds what it compiled before."""
    from numba.core import event

    class Announce(event.Listener):
        def on_start(self, event: Any) -> None:
            say_once(COMPILING)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Announce()):
        yield


def switched_off() -> bool:
    """Whether Numba runs what it should compile as Python, and then it is not used; a line says so.

    What Numba warns of when it is first imported, a variable that it cannot read say, is cut to its first line.
    """
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        import numba
    for one in found:
        warnings.warn(str(one.message).splitlines()[0], one.category, stacklevel=2)
    settings: Any = numba.config  # whose types differ from version to version
    if settings.DISABLE_JIT:
        say_once(SWITCHED_OFF)
    return bool(settings.DISABLE_JIT)


def keep_where_one_may_write() -> None:
    """Let Numba keep its files among the temporary ones, if neither the package's nor the user's folder will do."""
    import numba
    from numba.core import caching

    compiler: Any = numba  # whose types differ from version to version
    look: Any = caching.FunctionCache
    try:
        look(keep_where_one_may_write)  # it looks for a folder that can be written, as for all files beside this one
    except Exception:
        folder = private_folder(Path(tempfile.gettempdir()))
        if folder is not None:
            compiler.config.CACHE_DIR = str(folder)


def private_folder(parent: Path) -> Path | None:
    """A folder that this user alone can write, for code is loaded from it; None where there cannot be one."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = parent / f"minadv-numba-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and (os.name == "nt" or (found.st_uid == user and not found.st_mode & 0o077))
    return folder if own and os.access(folder, os.W_OK) else None


def report(module: ModuleType) -> str:
    """How many functions of a module are compiled, how many of them just now, and where they are kept."""
    compiled = [value for value in vars(module).values() if getattr(value, "signatures", None)]
    now = sum(bool(function.stats.cache_misses) for function in compiled)
    folder = compiled[0].stats.cache_path
    kept = f"kept in {folder}" if folder else "not kept: no folder can be written, so that every process compiles them"
    return f"{len(compiled)} functions of the LSTM, {now} of them compiled now, {kept}"
