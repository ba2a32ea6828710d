"""The README tells the truth: its example runs and prints what is shown, its commands are the ones CI runs."""

import doctest
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import minadv

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(marker: str) -> str:
    """The fenced block under `<!-- marker -->`."""
    found = re.search(rf"^<!-- {marker} -->\n```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no block under <!-- {marker} -->"
    return found[1]


def test_the_example_is_the_script() -> None:
    script = (ROOT / "docs" / "example.py").read_text()
    assert block("example") == script, "README.md and docs/example.py differ: change both"
    lines = [line for line in script.splitlines() if line.strip()]
    assert len(lines) <= 25


def test_the_example_prints_what_is_shown() -> None:
    """Executed as a doctest; only the size and the place of a rounding error may differ."""
    shown = re.sub(r"difference .*? \(", "difference ... (", block("output"))
    assert "..." in shown
    code = compile(block("example"), "README.md", "exec")
    test = doctest.DocTest(
        [doctest.Example("exec(code, {'__name__': 'example'})", shown, options={doctest.ELLIPSIS: True})],
        {"code": code},
        "README.md",
        "README.md",
        0,
        README,
    )
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert result.attempted == 1
    assert not result.failed, "".join(report)


def test_the_example_runs_as_a_script() -> None:
    assert "gradient check, tolerance 1e-06: passed" in run("docs/example.py")


def test_the_main_command_is_there() -> None:
    """CI runs it whole; here only its name and its options."""
    command = block("main command")
    assert command.count("\n") == 1, "one line"
    arguments = command.split("$VENV/bin/python ")[1].split()
    assert "table like the paper's Table 1" in " ".join(run(*arguments, "--help").split())


def test_the_python_door_opens() -> None:
    """What it prints is what is shown, but for rounding, which may decide a digit or two."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    printed: list[str] = []
    exec(compile(block("door"), "README.md", "exec"), {"print": lambda text: printed.append(str(text))})
    [said] = printed
    shown = re.search(r"it prints `([\d.]+) (% of the test digits are wrong)`", README)
    assert shown and said.endswith(shown[2])
    assert abs(float(said.split()[0]) - float(shown[1])) < 3


def run(*arguments: str) -> str:
    """What Python prints when it is run with these arguments in the clone."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_ci_runs_the_test_command() -> None:
    """`.ci/run` reads the command from the README, so that there is one place to change it."""
    assert block("test command").count("\n") == 1, "one line"
    done = subprocess.run(
        ["bash", ROOT / ".ci" / "run", "--show-command"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == block("test command")


def test_extras_in_the_commands_exist() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    asked = {name for names in re.findall(r"(?:minadv|\.)\[([\w,]+)\]", README) for name in names.split(",")}
    assert asked <= set(extras)


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_paths_in_the_layout_exist() -> None:
    layout = README.split("## What is where")[1].split("\n## ")[0]
    for row in layout.splitlines():
        paths = re.findall(r"`([\w/.]+(?:\.py|/))`", row.split("|")[1] if row.startswith("| `") else "")
        folder = Path(paths[0]).parent if paths else Path()
        for path in paths:
            assert (ROOT / path).exists() or (ROOT / folder / path).exists(), (
                f"README.md names {path}, which is not there"
            )


def test_one_version() -> None:
    assert f"## [{minadv.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {minadv.__version__}\n" in (ROOT / "CITATION.cff").read_text()
