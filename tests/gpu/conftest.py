"""`pytest -m gpu`: tests that need a GPU, and at their end one file to send back.

Without a GPU they are skipped, and the reason says what is missing. With `--backend=cupy` they run on whatever CuPy
runs on, emulated kernels too, so that they are known to work before somebody with a GPU runs them.
"""

import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.backend import BackendError, Device, choose_device
from minadv.base import gpu as facts

FILE = "minadv-gpu-tests.json"
REPORT = pytest.StashKey[dict[str, Any]]()


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest, device: Device) -> Device:
    """The GPU: that of the suite if it runs on CuPy, or else one that works here."""
    if request.config.getoption("backend") == "strict":
        pytest.skip("the stand-in for CuPy runs no kernels")
    try:
        found = device if device.name == "gpu" else choose_device("gpu")
    except BackendError as error:
        pytest.skip(f"no GPU: {error}")
    about = facts.facts(found.xp)
    request.config.stash[REPORT] = {"minadv": minadv.__version__, "gpu": about, "python": platform.python_version()}
    request.config.stash[REPORT] |= {"numpy": np.__version__, "platform": platform.platform(), "tests": {}}
    return found


@pytest.fixture
def note(request: pytest.FixtureRequest, gpu: Device) -> Iterator[dict[str, Any]]:
    """Numbers of a test for the file that is sent back."""
    found: dict[str, Any] = {}
    yield found
    request.config.stash[REPORT]["tests"].setdefault(request.node.name, {}).update(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call" and REPORT in item.config.stash:
        tests = item.config.stash[REPORT]["tests"]
        tests.setdefault(item.name, {}).update(outcome=report.outcome, seconds=round(report.duration, 3))
        if report.failed:
            tests[item.name]["said"] = str(report.longrepr)[-2000:]
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the file, if these tests were asked for and there was a GPU to run them on."""
    if config.option.markexpr == "gpu" and REPORT in config.stash:
        path = Path(FILE).resolve()
        path.write_text(json.dumps(config.stash[REPORT], indent=1))
        terminalreporter.write_line(f"the file to send back: {path}")
