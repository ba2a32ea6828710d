"""BLAS threads are set through threadpoolctl, within a context, unless the user has set them."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from minadv.base import machine
from minadv.fast import threads

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
def test_the_users_setting_wins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.blas_setting() is None
    assert {machine.one_blas_thread()[variable] for variable in machine.BLAS_VARIABLES} == {"1"}
    monkeypatch.setenv(name, "2")
    assert machine.blas_setting() == f"{name}=2"
    with threads.limit_threads(1):
        assert in_use() == {2}
    given = machine.one_blas_thread()
    assert {variable: given.get(variable) for variable in machine.BLAS_VARIABLES} == {
        variable: "2" if variable == name else None for variable in machine.BLAS_VARIABLES
    }


def test_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert threads.libraries() == []
    with threads.limit_threads(1):
        pass


@pytest.mark.parametrize(("given", "expected"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)])
def test_a_process_of_its_own(given: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker process is started with is what its BLAS uses."""
    if "openblas" not in {library["internal_api"] for library in threads.libraries()}:
        pytest.skip("the variable is OpenBLAS's")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    ask = "import numpy, threadpoolctl; print(*{p['num_threads'] for p in threadpoolctl.threadpool_info()})"
    done = subprocess.run([sys.executable, "-c", ask], env=machine.one_blas_thread(), capture_output=True, text=True)
    assert done.stdout.split() == [str(expected)]


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
        threads.limit_late_libraries()
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
