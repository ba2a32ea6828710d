"""The commands that the how-to pages name exist, with their options and presets; their examples run in the build."""

import importlib
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minadv.cli import COMMANDS, build_parser, main
from tests.site.support import DOCS, ROOT

PAGES = sorted([*(DOCS / "howto").glob("*.md"), DOCS / "faq.md"])
LINE = re.compile(r"^(?:mpiexec -n \d+ )?(minadv|python -m) (.*?)(?:  +#.*)?$")
INLINE = re.compile(r"`(minadv|python -m) ([^`]*)`")


def commands(text):
    """Every command of a page, in a block or in a line, as (program, words)."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [match for block in blocks for line in block.splitlines() if (match := LINE.match(line))]
    return [(m[1], shlex.split(m[2])) for m in [*lines, *INLINE.finditer(text)]]


def options_of(page):
    """The file of options that a page shows."""
    return re.search(r"^```toml\n(.*?)^```$", (DOCS / "howto" / page).read_text(), re.MULTILINE | re.DOTALL)[1]


ALL = [(page.name, *command) for page in PAGES for command in commands(page.read_text())]


def test_there_are_commands():
    names = {name for name, _, _ in ALL}
    assert {"own_data.md", "own_runs.md", "gpu.md", "mpi.md", "resume.md", "tables.md"} <= names
    assert len(ALL) > 25


@pytest.mark.parametrize(("page", "words"), [(page, words) for page, program, words in ALL if program == "minadv"])
def test_a_command_of_minadv_is_understood(page, words, tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / "FOLDER" / name).mkdir(parents=True)
        (tmp_path / "FOLDER" / name / "text.txt").write_text(f"a text of the class {name}")
    (tmp_path / "digits.toml").write_text(options_of("own_runs.md"))
    monkeypatch.chdir(tmp_path)
    assert words[0] in COMMANDS, f"{page}: minadv has no command {words[0]}"
    build_parser().parse_args(words)  # exits with a message if it does not understand


def test_the_commands_about_own_runs_run_in_their_order(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    pytest.importorskip("matplotlib", reason="curves are drawn with it")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.toml").write_text(options_of("own_runs.md"))
    written = []

    class Writer:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, name, value, step):
            assert isinstance(value, float | int)

        def close(self):
            pass

    module = ModuleType("tensorboardX")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    said = []
    for page, _, words in ALL:
        if page == "own_runs.md":
            assert main([*words, "--workers", "1"] if words[0] == "train" else words) == 0, words
            said.append(capsys.readouterr().out)
    names = ["add", "plain", "plain-seed1", "plain-seed2"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names
    assert "over 2 seeds" in said[2]
    assert "at step" in said[3] and "of 200" in said[3]
    assert [Path(folder).name for folder in written] == names
    assert (tmp_path / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize(("page", "words"), [(page, words) for page, program, words in ALL if program == "python -m"])
def test_an_experiment_exists_with_its_options(page, words):
    if words[0] == "http.server":
        return
    path = ROOT / f"{words[0].replace('.', '/')}.py"
    path = path if path.exists() else ROOT / words[0].replace(".", "/") / "__main__.py"
    assert path.exists(), f"{page}: there is no {words[0]}"
    shared = ROOT / "experiments" / "parts"
    source = path.read_text() + "".join(part.read_text() for part in shared.glob("*.py"))
    for option in (word for word in words if word.startswith("--")):
        assert f'"{option}"' in source, f"{page}: {words[0]} has no {option}"
    if "--preset" in words:
        module = importlib.import_module(words[0])
        assert words[words.index("--preset") + 1] in module.PRESETS
