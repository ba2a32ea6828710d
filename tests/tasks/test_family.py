"""The table of families, and that a family is imported only when it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from minadv.commands.options import OPTIONS
from minadv.tasks.family import FAMILIES, MODELS, TASKS, of_kind, of_task
from minadv.tasks.methods import FIELDS
from minadv.training.runs.folder import RunError

ROOT = Path(__file__).parents[2]
OTHERS = ("minadv.tasks.text", "minadv.tasks.pretrain", "minadv.tasks.language", "minadv.data.texts")


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_table_says_what_the_records_say(kind: str) -> None:
    family = of_kind(kind)
    assert family.kind == kind
    assert kind in ("classify", MODELS.get(f"{family.model.__module__}.{family.model.__name__}"))
    if kind != "pretrain":
        assert {task for task in TASKS if TASKS[task] == kind} == set(family.presets)
        assert set(family.methods) <= {*FIELDS, "add+vat"}
    names = " ".join(family.options.values()).split()
    assert set(names) <= set(OPTIONS)
    assert set(family.changes) <= set(names)


def test_every_option_belongs_to_a_family() -> None:
    used = {name for kind in FAMILIES for names in of_kind(kind).options.values() for name in names.split()}
    assert used == set(OPTIONS)


def test_what_is_not_in_the_table() -> None:
    with pytest.raises(RunError, match="runs/x is a run of the kind 'sorcery', which this version of minadv does not"):
        of_kind("sorcery", "runs/x")
    with pytest.raises(ValueError, match="task is 'foo', expected one of 'digits'"):
        of_task("foo")


@pytest.mark.parametrize(
    ("code", "imported"),
    [
        ("import minadv", ()),
        ("from minadv.cli import main; main(['--help'])", ()),
        ("from minadv.cli import main; main(['train', 'digits', '--help'])", ()),
        ("from minadv.cli import main; main(['train', 'ptb', '--help'])", ("minadv.tasks.language",)),
        ("from minadv.cli import main; main(['data', 'list'])", ()),
        ("from minadv.cli import main; main(['train', '--resume', 'nowhere'])", ()),
    ],
)
def test_families_are_imported_when_they_are_used(code: str, imported: tuple[str, ...]) -> None:
    program = f"try:\n    {code}\nexcept SystemExit:\n    pass\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert tuple(name for name in OTHERS if name in modules) == imported


def test_python_m_minadv() -> None:
    done = subprocess.run([sys.executable, "-m", "minadv", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "minadv")
