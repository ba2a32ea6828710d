"""Whoever waits for Numba's compiler is told so, and what it makes is kept where the user can write."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minadv.base import notices
from minadv.fast import choice, compiling

numba = pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")


def test_only_a_compilation_is_announced_and_once(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(notices, "_said", set())
    with compiling.announced():
        assert capsys.readouterr().err == ""
        for _ in range(2):
            numba.njit("int64(int64)")(lambda n: n + 1)
    assert capsys.readouterr().err == f"minadv: {compiling.COMPILING}\n"
    monkeypatch.setattr(notices, "_said", set())
    numba.njit("int64(int64)")(lambda n: n + 1)  # the user's own
    assert capsys.readouterr().err == ""


def test_what_is_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(notices, "_said", set())
    monkeypatch.setattr(notices, "_quiet", False)
    notices.be_quiet()
    notices.say_once("nothing")
    assert capsys.readouterr().err == ""


def test_compiled_functions_have_no_threads_of_their_own() -> None:
    """So that a worker's threads are those of its BLAS."""
    from minadv.fast import numba_steps

    compiled = [value for value in vars(numba_steps).values() if getattr(value, "signatures", None)]
    assert compiled and not any(function.targetoptions.get("parallel") for function in compiled)
    assert choice.by_numba()[0] is not None
    assert choice.compiled_code().startswith(f"{len(compiled)} functions of the LSTM, ")


def test_a_private_folder(tmp_path: Path) -> None:
    folder = compiling.private_folder(tmp_path)
    assert folder is not None and folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    assert compiling.private_folder(tmp_path) == folder
    folder.chmod(0o770)  # others could put code there
    assert compiling.private_folder(tmp_path) is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert compiling.private_folder(tmp_path) is None
    assert compiling.private_folder(tmp_path / "missing") is None


def test_the_folder_where_no_other_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    before = numba.config.CACHE_DIR
    monkeypatch.setattr(numba.config, "CACHE_DIR", before)  # it comes back after the test
    compiling.keep_where_one_may_write()
    assert before == numba.config.CACHE_DIR  # a folder of Numba's own choice will do here

    def refuse(function: Any) -> Any:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(caching, "FunctionCache", refuse)
    monkeypatch.setattr(compiling.tempfile, "gettempdir", lambda: str(tmp_path))
    compiling.keep_where_one_may_write()
    assert Path(numba.config.CACHE_DIR).parent == tmp_path


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("NUMBA_DISABLE_JIT", "1", f"minadv: {compiling.SWITCHED_OFF}"),
        ("NUMBA_NUM_THREADS", "abc", "minadv: warning: Environment variable 'NUMBA_NUM_THREADS' is defined but"),
    ],
)
def test_numbas_own_variables_are_one_line(variable: str, value: str, says: str) -> None:
    command = [sys.executable, "-m", "minadv", "doctor", "--device", "cpu"]
    done = subprocess.run(command, env={**os.environ, variable: value}, capture_output=True, text=True, check=True)
    [line] = [line for line in done.stderr.splitlines() if compiling.COMPILING not in line]
    assert line.startswith(says)
    off = variable == "NUMBA_DISABLE_JIT"
    assert ("compiled nothing is compiled" in done.stdout) == off
    assert (f"is switched off ({variable})" in done.stdout) == off


KEPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from minadv.fast import compiling
import minadv, numba
assert Path(minadv.__file__).is_relative_to(sys.argv[1])
compiling.keep_where_one_may_write()
function = numba.njit(cache=True)(compiling.private_folder)
print(function.stats.cache_path)
"""


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")
def test_a_package_and_a_home_that_are_read_only(tmp_path: Path) -> None:
    """A file in the way of a folder refuses root as well, who may write anywhere."""
    import shutil

    package = tmp_path / "lib" / "minadv"
    shutil.copytree(Path(compiling.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "fast" / "__pycache__").write_text("in the way")
    (tmp_path / "home").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
    }
    command = [sys.executable, "-B", "-c", KEPT, str(tmp_path / "lib")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "tmp" / f"minadv-numba-{os.getuid()}")
