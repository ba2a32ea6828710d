"""Help: the first screen, the common options of a task with what stands for those not given, and all options."""

import argparse
import re

import pytest

from minadv.cli import COMMANDS, main
from minadv.commands.options import COMMON
from minadv.commands.parsing import Help, Parser, tell_defaults
from minadv.searches import SEARCHES
from minadv.tasks.family import TASKS, of_task
from tests.support.commands import command


def test_defaults_are_told():
    parser = Parser(prog="p", formatter_class=Help)
    parser.add_argument("--sizes", nargs="+", help="of layers")
    parser.add_argument("--lr", help="rate (default: the task's)")
    parser.add_argument("--share", help="of all")
    parser.add_argument("--own", help="its own (default: own)")
    parser.add_argument("--set", default=3, help="set")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    tell_defaults(parser, {"sizes": (3, 4), "lr": 20.0, "share": "40%", "own": 1, "set": 5, "other": 1})
    text = " ".join(parser.format_help().split())
    for said in ("of layers (default: 3 4)", "rate (default: 20)", "of all (default: 40%)", "(default: own)"):
        assert said in text
    assert "set (default: 3)" in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("docstrings", "units a layer (default: 64, or that of --pretrained)"),
        ("docstrings", "gradients go back; 0: all (default: 0)"),
        ("imdb", "gradients go back; 0: all (default: 400)"),
        ("lm", "learning rate falls (default: 40% of them)"),
        ("ptb", "passes over the data (default: 750)"),
        ("text", "passes over the data (default: 30, fewer for many texts)"),
        ("text", "number of steps, instead of --epochs --"),
    ],
)
def test_of_tasks(task, says, capsys):
    assert says in " ".join(shown(capsys, "train", task, "--help-all").split())


def shown(capsys, *arguments):
    """What a call that ends in help prints on standard output."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    said = capsys.readouterr()
    assert (stopped.value.code, said.err) == (0, "")
    return said.out


def options_in(text):
    return re.findall(r"^  (?:-\w, )?--([\w-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("task", TASKS)
def test_help_of_a_task_is_short(task, capsys, monkeypatch):
    """A dozen options, each with the number that the task has for it, and at the end where the others are."""
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(capsys, "train", task, "--help")
    names = options_in(text)
    assert names == [name for name in COMMON if name in " ".join(of_task(task).options.values()).split()]
    assert 12 <= len(names) <= 14
    assert len(text.splitlines()) <= 50
    assert text.splitlines()[-1] == f"minadv train {task} --help-all shows all options"
    about = dict(zip(names, re.split(r"^  --", text, flags=re.MULTILINE)[1:], strict=True))
    values = of_task(task).presets[task].values
    for name in ("hidden", "delta", "weight", "batch", "lr", "epochs" if "epochs" in values else "train-steps"):
        told = re.search(r"default: ([\d. ]*\d)", " ".join(about[name].split()))
        assert told, f"the help of --{name} has no number"
        if name.replace("-", "_") in values:
            value = values[name.replace("-", "_")]
            assert [float(n) for n in told[1].split()] == list(value if isinstance(value, tuple) else (value,))


@pytest.mark.parametrize("how", ["--help", "--help-all"])
def test_each_task_has_a_line(how, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.findall(r"^    (\w+) +(\S.*)", shown(capsys, "train", how), re.MULTILINE)
    assert [task for task, _ in lines] == list(TASKS)
    assert all(of_task(task).presets[task].about.startswith(about) for task, about in lines)


@pytest.mark.parametrize("arguments", [("train",), ("train", "text"), ("train", "lm"), ("pretrain", "docstrings")])
def test_help_all_shows_all(arguments, capsys):
    every = {a.option_strings[-1] for a in command(*arguments)._actions if a.option_strings}
    text = shown(capsys, *arguments, "--help-all")
    assert len(every) > 25
    assert all(option in text for option in every)
    assert set(options_in(shown(capsys, *arguments, "-h"))) < set(options_in(text))


def test_help_all_is_no_value_of_an_option_and_has_none(capsys):
    assert shown(capsys, "train", "--help-all", "ptb") == shown(capsys, "train", "ptb", "--help-all")
    assert shown(capsys, "train", "--help", "ptb") == shown(capsys, "train", "ptb", "-h")


def test_the_first_screen_is_a_screen_and_its_path_is_of_commands(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) < 80
    assert text == shown(capsys, "--help")
    path = [re.split(r"  +", line.strip())[0].split()[1:] for line in lines if line.startswith("  minadv ")]
    assert [call[0] for call in path] == ["doctor", "train", "attack", "export", "train"]
    assert path[1][1] in TASKS
    for call in path[2:4]:
        assert call[1] == f"runs/{path[1][1]}-add-seed0"
    assert [line.split()[0] for line in lines[-len(COMMANDS) :]] == list(COMMANDS)


@pytest.mark.parametrize("task", ["digits", "docstrings", "lm"])
def test_only_searches_that_one_can_choose_are_explained(task):
    [search] = [action for action in command("train", task)._actions if action.dest == "search"]
    told = {name for name in SEARCHES if re.search(rf"\b{name}\b(?=[:,])", search.help)}
    assert {"greedy", "relax"} <= told <= set(search.choices)
