"""BLAS threads are limited through threadpoolctl, within a context, and never above what the user has set."""

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from minadv.base import machine, notices
from minadv.fast import describe, threads

threadpoolctl = pytest.importorskip("threadpoolctl")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No setting of the user's, and two threads to begin with."""
    np.ones((2, 2)) @ np.ones((2, 2))
    for name in machine.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def in_use() -> set[int]:
    return {library["num_threads"] for library in threads.libraries()}


def test_threads_within_and_after() -> None:
    assert in_use() == {2}
    with threads.limit_threads(1):
        assert in_use() == {1}
        with threads.limit_threads(None):
            assert in_use() == {1}
    assert in_use() == {2}


def test_threads_after_an_error() -> None:
    with pytest.raises(RuntimeError), threads.limit_threads(1):
        raise RuntimeError
    assert in_use() == {2}


@pytest.mark.parametrize("name", machine.BLAS_VARIABLES)
def test_the_users_setting_is_the_most(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.blas_setting() is None and machine.blas_most() is None
    monkeypatch.setenv(name, "1")
    assert machine.blas_setting() == f"{name}=1"
    with threads.limit_threads(2):
        assert in_use() == {1}
    monkeypatch.setenv(name, "2")
    with threads.limit_threads(1):
        assert in_use() == {1}
    assert in_use() == {2}
    assert {machine.one_thread()[variable] for variable in (*machine.BLAS_VARIABLES, machine.CORES)} == {"1"}


def test_a_limit_never_gives_more_threads() -> None:
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        with threads.limit_threads(2):
            assert in_use() == {1}
        assert in_use() == {1}
    with threads.limit_threads(1), threads.limit_threads(2):
        assert in_use() == {1}


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_limits_of_two_python_threads(first_leaves_first: bool) -> None:
    """The least of them holds until whoever asked for it leaves; then what was there before comes back."""
    entered, leave = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def hold(n: int) -> None:
        with threads.limit_threads(1):
            entered[n].set()
            assert leave[n].wait(60)

    both = [threading.Thread(target=hold, args=(n,)) for n in range(2)]
    for thread, event in zip(both, entered, strict=True):
        thread.start()
        assert event.wait(60)
        assert in_use() == {1}
    order = (0, 1) if first_leaves_first else (1, 0)
    for n, left in zip(order, ({1}, {2}), strict=True):
        leave[n].set()
        both[n].join()
        assert in_use() == left


def test_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Then a worker's BLAS threads cannot be limited, which is said, unless the user has set them to one."""
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    monkeypatch.setenv("MINADV_COMPILED", "0")  # what Numba has still to compile is said as well
    monkeypatch.setattr(notices, "_said", set())
    assert threads.libraries() == []
    assert not describe().limits_threads
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert describe().limits_threads
    with threads.limit_threads(1):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not describe().limits_threads
    for _ in range(2):
        with threads.limit_threads(1):
            pass
    assert capsys.readouterr().err == (
        "minadv: BLAS cannot be limited to one thread a worker: pip install threadpoolctl, or set "
        "OPENBLAS_NUM_THREADS=1\n"
    )


@pytest.mark.parametrize("given", [{}, {"OPENBLAS_NUM_THREADS": "2"}])
def test_a_process_of_its_own(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker process is started with is what its BLAS uses."""
    if "openblas" not in {library["internal_api"] for library in threads.libraries()}:
        pytest.skip("the variable is OpenBLAS's")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    ask = "import numpy, threadpoolctl; print(*{p['num_threads'] for p in threadpoolctl.threadpool_info()})"
    done = subprocess.run([sys.executable, "-c", ask], env=machine.one_thread(), capture_output=True, text=True)
    assert done.stdout.split() == ["1"]


LATE = """
import numpy, sys, threadpoolctl
from minadv.fast import threads

def counts():
    return sorted(library["num_threads"] for library in threads.libraries())

threadpoolctl.threadpool_limits(3, user_api="blas")
with threads.limit_threads(2):
    with threads.limit_threads(1):
        assert "scipy" not in sys.modules
        import scipy.linalg.blas
        late = max(counts())
        before = counts()
        threads.limit_threads(None)
        within = counts()
after = counts()
print(len(before), set(within), after == sorted([3, late]))
"""


def test_a_blas_that_comes_late() -> None:
    """SciPy's, which compiled passes call, is loaded with the first of them."""
    environment = {name: value for name, value in os.environ.items() if name not in machine.BLAS_VARIABLES}
    done = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True, check=True)
    if done.stdout.startswith("1 "):
        pytest.skip("NumPy and SciPy share one BLAS here")
    assert done.stdout == "2 {1} True\n"
