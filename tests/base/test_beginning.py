"""Ctrl-C while modules are imported, by a signal at the import of one: what a command ends with, and all else."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
COMMAND = "sys.argv[:] = ['/usr/bin/minadv', 'doctor']\nfrom minadv.cli import main\nsys.exit(main())"
MODULE_COMMAND = (
    "import runpy\nsys.argv[:], sys.orig_argv = ['-m', 'doctor'], ['python', '-m', 'minadv']\n"
    "runpy.run_module('minadv', run_name='__main__')"
)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")


def ended(module: str, program: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", f"MODULE = {module!r}{SCRIPT}{program}"], capture_output=True, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "module", ["numpy._core.multiarray", "scipy", "minadv.training.loop", "minadv.commands.doctor"]
)
def test_a_command_ends_without_a_word(module: str) -> None:
    assert ended(module, COMMAND) == (130, "")


def test_the_module_is_a_command_as_well() -> None:
    assert ended("minadv.lstm", MODULE_COMMAND) == (130, "")


def test_within_its_work_as_before() -> None:
    work = "import minadv.commands.doctor as d\nd.work = lambda args: __import__('late')\n"
    assert ended("late", COMMAND.replace("sys.exit", work + "sys.exit")) == (130, "")


def test_another_program_is_interrupted_as_usual() -> None:
    code, said = ended("minadv.lstm", "import minadv")
    assert code == -signal.SIGINT
    assert said.endswith("KeyboardInterrupt\n")
