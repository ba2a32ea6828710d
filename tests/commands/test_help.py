"""The help of a task says what stands for options that are not given."""

import argparse

import pytest

from minadv.cli import main
from minadv.commands.parsing import Help, Parser, tell_defaults


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
    ],
)
def test_of_tasks(task, says, capsys):
    with pytest.raises(SystemExit):
        main(["train", task, "--help"])
    assert says in " ".join(capsys.readouterr().out.split())
