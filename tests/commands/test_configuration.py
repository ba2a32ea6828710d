"""The options in force: what is printed says the numbers of the run, and is a file that makes the same run again."""

import argparse
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minadv.cli import main
from minadv.commands import configuration
from minadv.data.split import Split
from minadv.data.texts.documents import Documents
from minadv.tasks.family import TASKS, of_kind, of_task
from minadv.tasks.methods import expect_used
from minadv.tasks.run import load
from tests.support.commands import parsed

pytest.importorskip("safetensors")

LENGTHS = np.full(200, 8)
TEXTS = Documents(np.zeros(1600, np.int32), np.cumsum(LENGTHS) - LENGTHS, LENGTHS, np.arange(200) % 2)
DATA = {
    "classify": SimpleNamespace(train=Split(np.zeros((200, 5, 2)), np.arange(200) % 2), classes=2),
    "text": SimpleNamespace(train=TEXTS, unlabelled=TEXTS, vocabulary=range(50), classes=("a", "b")),
    "pretrain": SimpleNamespace(train=TEXTS, unlabelled=TEXTS, vocabulary=range(50), classes=("a", "b")),
    "lm": SimpleNamespace(train=range(5000), vocabulary=range(50), name="folder"),
}
SEARCHES = ("greedy", "reselect", "relax", "random")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any) -> Path:
    if device.name == "gpu":
        pytest.skip("the command line chooses its device itself")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    np.savez("mine.npz", x=rng.normal(size=(60, 5, 2)) + y[:, None, None], y=y)
    return tmp_path


def in_force(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """What is printed, and the arguments of the run, with the recipe that they make."""
    family, data = args.family, DATA[args.family.kind]
    args.task = getattr(args, "task", None) or args.text
    if family.methods:
        expect_used(args)
    else:
        args.method = "none"
    family.check(args)
    about = family.about(args)
    args.preset = replace(args.preset, values={**args.preset.values, **family.fitted(args, data)})
    arguments = family.arguments(args, data)
    told = configuration.effective(args, about, arguments)
    return told, {**arguments, "recipe": arguments["recipe"](7), "about": about}


CASES = [("train", task, ["--method", method]) for task in TASKS for method in of_task(task).methods]
CASES += [("train", task, ["--search", search]) for task in ("digits", "text", "lm") for search in SEARCHES]
CASES += [("pretrain", text, []) for text in of_kind("pretrain").presets]
CASES += [
    ("train", "lm", ["--optimizer", "adam"]),
    ("train", "lm", ["--optimizer", "asgd", "--epochs", "3"]),
    ("train", "lm", ["--hidden", "5", "6", "7", "--delta", "0.3"]),
    ("train", "lm", ["--layers", "3", "--budget", "1", "2", "1"]),
    ("train", "lm", ["--fresh"]),
    ("train", "digits", ["--hidden", "12"]),
    ("train", "digits", ["--scale", "inverted", "--p", "0.2", "--train-steps", "9"]),
    ("train", "digits", ["--search", "exact", "--hidden", "5", "--delta", "0.3", "--batch", "17"]),
    ("train", "imdb", ["--epochs", "2", "--batch", "1000"]),
    ("train", "docstrings", ["--seed", "5", "--variant", "authors"]),
    ("pretrain", "text", ["--candidates", "7", "--train-steps", "5"]),
]


@pytest.mark.parametrize(
    ("command", "task", "more"), CASES, ids=lambda case: " ".join([case] if isinstance(case, str) else case)
)
def test_what_is_printed_makes_the_same_run(command: str, task: str, more: list[str], place: Path) -> None:
    own = ["--data-dir", str(place)] if task in ("text", "images") else []
    told, made = in_force(parsed(command, task, *own, *more))
    assert f"minadv {command} --config FILE" in told
    (place / "again.toml").write_text(told)
    again, same = in_force(parsed(command, "--config", "again.toml"))
    assert tomllib.loads(again) == tomllib.loads(told)
    assert same == made


def test_the_numbers_are_those_of_the_run() -> None:
    def values(*arguments: str) -> dict[str, Any]:
        return tomllib.loads(in_force(parsed(*arguments))[0])

    adam = values("train", "lm", "--optimizer", "adam")
    assert adam["lr"] == 0.001
    assert "weight-decay" not in adam
    assert values("train", "lm", "--hidden", "5", "6", "7", "--delta", "0.3")["layers"] == 3
    assert (values("train", "digits")["delta"], values("train", "lm")["delta"]) == (0.03, [0.06])
    assert "delta" not in values("train", "lm", "--hidden", "12", "--layers", "2")  # of which three units may flip
    assert values("pretrain", "docstrings")["candidates"] == 25  # half of the words
    assert values("train", "pmnist")["permuted"] is True
    assert not {"norm", "p", "max-masks", "test-share"} & values("train", "docstrings").keys()


def test_sizes_of_a_language_model_are_in_force(place: Path, says: Any, capsys: Any) -> None:
    for n in range(24):
        path = place / "films" / ("good", "bad")[n % 2] / f"{n}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the film is {path.parent.name} it was {path.parent.name}")
    small = ["--device", "cpu", "--workers", "1", "--train-steps", "2"]
    says("pretrain", "films", *small, "--hidden", "6", "--embed", "3", "--candidates", "3", "--out", "lm")
    (place / "my.toml").write_text("delta = 0.25")
    assert main(["train", "films", *small, "--config", "my.toml", "--pretrained", "lm", "--out", "run"]) == 0
    said = capsys.readouterr().err
    assert "\nembed = 3\nhidden = 6\n" in said
    (place / "again.toml").write_text(said[said.index("task =") : said.index("\nfolder:")])
    assert main(["train", "--config", "again.toml", "--out", "other"]) == 0
    assert load("other").config == load("run").config


def test_a_seed_for_each_run(capsys: Any, place: Path) -> None:
    (place / "my.toml").write_text("hidden = 4\ndelta = 0.5\nseeds = [3, 4]\nstages = [2, 3]\nsearch = 'relax'")
    small = ["--train-steps", "1", "--device", "cpu", "--workers", "1"]
    assert main(["train", "--no-track", *small, "--config", "my.toml", "mine.npz"]) == 0  # a list before the task
    said = capsys.readouterr().err
    assert ("\nseed = 3\n" in said, "\nseed = 4\n" in said, "\nseeds = " in said) == (True, True, False)


def test_seeds_beside_a_file_that_names_the_task(place: Path) -> None:
    (place / "my.toml").write_text("task = 'images'\ndata-dir = 'mine.npz'\nhidden = 4\ndelta = 0.5\ntrack = false")
    small = ["--train-steps", "1", "--device", "cpu", "--workers", "1"]
    assert main(["train", "--config", "my.toml", *small, "--seeds", "3", "4", "--out", "run"]) == 0
    assert [load(f"run-seed{n}").config["seed"] for n in (3, 4)] == [3, 4]


@pytest.mark.parametrize("cut", ["--conf", "--co", "--config"])
def test_the_option_cut_short(cut: str, capsys: Any, place: Path) -> None:
    (place / "my.toml").write_text("hidden = 4\ndelta = 0.5\ntrain-steps = 1\ntrack = false\ndevice = 'cpu'")
    for n, given in enumerate(([cut, "my.toml"], [f"{cut}=my.toml"])):
        assert main(["train", "mine.npz", *given, "--workers", "1", "--out", f"run{n}"]) == 0
        assert load(f"run{n}").model.n_hidden == 4
        assert "hidden = 4" in capsys.readouterr().err
