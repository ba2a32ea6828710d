"""One switch for the whole suite, `--backend=numpy|cupy|strict`: a test takes its array module from the fixture `xp`.

`strict` is the stand-in for CuPy of `tests.support.strict`, for whoever has no CuPy: it keeps CuPy's rules.

The Hypothesis profile is chosen by the environment variable HYPOTHESIS_PROFILE: `quick` (the default), `deep`, `one` (a
single example a property, for CuPy), or `mutants` (a failure is all that is asked, so it is not made smaller).
"""

import os
import signal
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

from minadv.backend import BackendError, Device, choose_device, to_device
from minadv.base import pulse
from minadv.cli import main
from tests.support import strict

settings.register_profile("quick", max_examples=20, deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("deep", max_examples=500, deadline=None)
settings.register_profile("one", max_examples=1, deadline=None, derandomize=True)
settings.register_profile("mutants", settings.get_profile("quick"), derandomize=True, phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

BACKENDS = ("numpy", "cupy", "strict")
DEVICE = pytest.StashKey[Device]()
pulse.EVERY = float("inf")  # on a busy machine a test may take long, and yet a command says what the test expects


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", choices=BACKENDS, default="numpy", help="array module of every test")


def pytest_configure(config: pytest.Config) -> None:
    """Try the device once, before anything is collected: a suite asked to run on CuPy never runs on something else."""
    backend = config.getoption("backend")
    if backend == "strict":
        sys.modules["cupy"], os.environ["MINADV_COMPILED"] = strict.module, "0"  # it runs no kernels
    try:
        config.stash[DEVICE] = choose_device("cpu" if backend == "numpy" else "gpu")
    except BackendError as error:
        raise pytest.UsageError(f"--backend={backend}: {error}") from error
    if backend == "cupy":  # a kernel compiler may leave its files to the garbage collector
        config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a suite in the background; its tests of Ctrl-C need it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On CuPy only what asks for an array module is run: any other test is the same test on every backend.

    Tests of many passes are slow tests there.
    """
    if config.getoption("backend") == "cupy":
        for item in items:
            if item.get_closest_marker("many_passes"):
                item.add_marker("slow")
    if config.getoption("backend") != "numpy":
        other = [item for item in items if "device" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if "device" in getattr(item, "fixturenames", ())]


def pytest_report_header(config: pytest.Config) -> str:
    return f"backend: {config.stash[DEVICE].why}"


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    return request.config.stash[DEVICE]


@pytest.fixture(scope="session")
def xp(device: Device) -> Any:
    """The array module under test."""
    return device.xp


@pytest.fixture(scope="session")
def put(device: Device) -> Callable[[Any], Any]:
    """Moves a tree of host arrays to the backend under test."""
    return lambda tree: to_device(tree, device)


@pytest.fixture
def kernels(request: pytest.FixtureRequest) -> None:
    """Skips a test of kernels where none can run."""
    if request.config.getoption("backend") == "strict":
        pytest.skip("the stand-in for CuPy runs no kernels")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of the test's own, the same in every run. A Hypothesis test draws a seed instead."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Runs a command that must succeed; what it prints, line by line."""

    def run(*arguments: Any) -> list[str]:
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail; the one line that it says."""

    def run(*arguments: Any) -> str:
        capsys.readouterr()
        try:
            code: Any = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # the parser's own
            code = stopped.code
        said = capsys.readouterr()
        assert code == 2
        assert said.out == ""
        [line] = said.err.splitlines()
        return line

    return run
