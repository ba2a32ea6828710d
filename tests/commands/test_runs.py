"""Many runs: a second one of a name, more steps for a finished one, several seeds, options from a file, lists."""

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from minadv.base.files import unseal
from minadv.cli import main
from minadv.models import Classifier
from minadv.tasks.extend import extend
from minadv.tasks.fit import fit
from minadv.tasks.run import load
from minadv.training.runs import checkpoints, log
from tests.support.commands import parsed

pytest.importorskip("safetensors")

TINY = ["--hidden", "4", "--delta", "0.5", "--device", "cpu", "--workers", "1", "--no-track"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any) -> Path:
    if device.name == "gpu":
        pytest.skip("the command line chooses its device itself")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    np.savez("mine.npz", x=rng.normal(size=(60, 5, 2)) + y[:, None, None], y=y)
    return tmp_path


def test_a_second_run_of_a_name_gets_a_number(says: Any) -> None:
    for name in ("mine-add-seed0", "mine-add-seed0-2", "mine-add-seed0-3"):
        [line] = says("train", "mine.npz", *TINY, "--train-steps", 2)
        assert line.endswith(f"run in runs/{name}")


def test_overwrite(says: Any, fails: Any, place: Path) -> None:
    out = ["--train-steps", 2, "--out", "run"]
    says("train", "mine.npz", *TINY, *out)
    line = fails("train", "mine.npz", *TINY, *out)
    assert "run is a run already: resume it" in line
    assert line.endswith("or give --overwrite")
    (place / "run" / "notes.txt").write_text("mine")
    fails("train", "mine.npz", *TINY, *out, "--overwrite", "--batch", 1000)
    assert load("run").config["seed"] == 0  # a bad option has cost nothing
    says("train", "mine.npz", *TINY, *out, "--overwrite", "--seed", 5)
    assert load("run").config["seed"] == 5
    assert (place / "run" / "notes.txt").read_text() == "mine"  # only the run itself is removed
    (place / "other").mkdir()
    (place / "other" / "a").write_text("x")
    line = fails("train", "mine.npz", *TINY, "--overwrite", "--out", "other")
    assert line == "minadv: other is there already and is not a run of minadv: choose another folder"


def test_options_are_checked_before_the_folder(says: Any, fails: Any) -> None:
    says("train", "mine.npz", *TINY, "--train-steps", 2, "--out", "run")
    assert "--p 0.3: --method add has no use for it" in fails("train", "mine.npz", *TINY, "--p", 0.3, "--out", "run")


def test_more_steps_for_a_finished_run(says: Any, fails: Any, place: Path) -> None:
    says("train", "mine.npz", *TINY, "--train-steps", 6, "--eval-every", 2, "--out", "run")
    before = load("run")
    for few in (6, 5, 1):
        assert "is for 6 already: give more than these" in fails("train", "--resume", "run", "--train-steps", few)
    assert "--workers is 500, expected at most" in fails("train", "--resume", "run", "--workers", 500)
    assert "needs --train-steps, the new length" in fails("train", "--resume", "run", "--patience", 3)
    assert "leave out --lr" in fails("train", "--resume", "run", "--train-steps", 9, "--lr", 1)
    [line] = says("train", "--resume", "run", "--train-steps", 10)
    assert " of 10; run in run" in line
    after = load("run")
    assert (before.step, after.step, after.config["recipe"]["steps"]) == (6, 10, 10)
    assert [record["step"] for record in after.records] == [2, 4, 6, 8, 10]
    assert after.records[:3] == before.records
    old, new = before.config["recipe"]["lr_schedule"], after.config["recipe"]["lr_schedule"]
    assert new["epochs"] == pytest.approx(old["epochs"] * 10 / 6)
    assert says("train", "--resume", "run") == ["run is finished: nothing to resume"]
    says("train", "--resume", "run", "--train-steps", 11)
    assert len(unseal(place / "run" / "config.json")["config"]["before"]) == 2
    assert [record["kind"] for record in log.read(place / "run" / "log.jsonl")].count("resumed") == 2


def test_a_run_that_its_patience_ended(says: Any) -> None:
    options = ["--train-steps", 50, "--eval-every", 1, "--patience", 1, "--lr", 1e-9]
    says("train", "mine.npz", *TINY, *options, "--out", "run")
    assert load("run").step < 50
    says("train", "--resume", "run", "--train-steps", 52)
    assert load("run").step == 52
    assert load("run").config["recipe"]["patience"] is None


def test_patience_stays_without_a_checkpoint(says: Any, place: Path) -> None:
    says("train", "mine.npz", *TINY, "--train-steps", 4, "--patience", 7, "--out", "run")
    for path in (place / "run" / "checkpoints").iterdir():
        path.unlink()
    extend(place / "run", 9)
    assert unseal(place / "run" / "config.json")["config"]["recipe"]["patience"] == 7


def test_the_same_extension_once_more_after_a_stop(says: Any, fails: Any, place: Path) -> None:
    """Killed after the new configuration was written: the same command goes on, to the bits of a run never stopped."""
    for name in ("run", "whole"):
        says("train", "mine.npz", *TINY, "--train-steps", 4, "--eval-every", 2, "--out", name)
    extend(place / "run", 8)
    says("train", "--resume", "run", "--train-steps", 8)
    says("train", "--resume", "whole", "--train-steps", 8)
    assert load("run").step == 8
    assert load("run").records[-1]["valid_loss"] == load("whole").records[-1]["valid_loss"]
    assert len(load("run").config["before"]) == 1
    assert "is for 8 already: give more than these" in fails("train", "--resume", "run", "--train-steps", 8)


def test_an_extension_that_cannot_go_on_changes_nothing(says: Any, fails: Any, place: Path) -> None:
    says("train", "mine.npz", *TINY, "--train-steps", 4, "--out", "run")
    before = (place / "run" / "config.json").read_bytes()
    np.savez("other.npz", x=np.random.default_rng(1).normal(size=(60, 5, 2)), y=np.arange(60) % 2)
    extended = ["train", "--resume", "run", "--train-steps", 9, "--data-dir"]
    assert "was made with other data" in fails(*extended, "other.npz")
    assert "none.npz" in fails(*extended, "none.npz")
    assert (place / "run" / "config.json").read_bytes() == before


def test_a_foreign_checkpoint_is_still_foreign(says: Any, place: Path) -> None:
    for name in ("a", "b"):
        says("train", "mine.npz", *TINY, "--train-steps", 2, "--seed", len(name) + ord(name), "--out", name)
    extend(place / "a", 5)
    newest = checkpoints.latest("b")
    assert newest is not None
    for path in (place / "b" / "checkpoints").iterdir():
        path.replace(place / "a" / "checkpoints" / path.name)
    with pytest.raises(checkpoints.CheckpointError, match="is of another run"):
        checkpoints.verify(place / "a" / "checkpoints" / newest.name)


def test_several_seeds(says: Any, fails: Any) -> None:
    *lines, last = says("train", "mine.npz", *TINY, "--train-steps", 2, "--seeds", 3, 4)
    assert [line.rpartition(" ")[2] for line in lines] == ["runs/mine-add-seed3", "runs/mine-add-seed4"]
    values = [float(line.split()[2]) for line in lines]
    found = re.fullmatch(r"test error over 2 seeds: ([\d.]+) \+- ([\d.]+) % \(mean and standard deviation\)", last)
    assert found
    assert [float(n) for n in found.groups()] == pytest.approx([np.mean(values), np.std(values, ddof=1)], abs=0.02)
    assert "expected different seeds, and no --seed besides" in fails("train", "mine.npz", *TINY, "--seeds", 1, 1)
    assert "no --seed besides" in fails("train", "mine.npz", *TINY, "--seeds", 1, 2, "--seed", 3)
    says("train", "mine.npz", *TINY, "--train-steps", 1, "--seeds", 1, 2, "--out", "x")
    assert (load("x-seed1").config["seed"], load("x-seed2").config["seed"]) == (1, 2)


def test_a_taken_folder_of_a_later_seed_costs_nothing(fails: Any, place: Path) -> None:
    (place / "x-seed2").mkdir()
    (place / "x-seed2" / "a").write_text("mine")
    seeds = ["--train-steps", 1, "--seeds", 1, 2, "--out", "x"]
    assert "x-seed2 is there already" in fails("train", "mine.npz", *TINY, *seeds)
    assert not (place / "x-seed1").exists()


def test_a_batch_or_a_size_too_large_leaves_no_folder(fails: Any, place: Path) -> None:
    assert "batch" in fails("train", "mine.npz", *TINY, "--batch", 1000, "--out", "x")
    assert "lower n_hidden" in fails("train", "mine.npz", *TINY[2:], "--hidden", 900_000, "--out", "x")
    assert not (place / "x").exists()


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_options_from_a_file(kind: str, place: Path, capsys: Any) -> None:
    held = {"task": "images", "data-dir": "mine.npz", "hidden": 4, "delta": 0.5, "train_steps": 2, "track": False}
    held |= {"device": "cpu", "workers": 1, "search": "relax", "stages": [3]}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in held.items())
    (place / f"my.{kind}").write_text(lines if kind == "toml" else json.dumps(held))
    assert main(["train", "--config", f"my.{kind}", "--hidden", "6", "--out", "run"]) == 0
    said = capsys.readouterr().err
    config = load("run").config
    assert (config["model"]["n_hidden"], config["track"], config["regularizer"]["search"]["stages"]) == (6, None, [3])
    for line in ("hidden = 6", "delta = 0.5", "track = false", "train-steps = 2", "batch = 4", "stages = [3]"):
        assert f"\n{line}\n" in said
    (place / "again.toml").write_text(
        said[said.index("task =") : said.index("\nimages:")]
    )  # what was printed is such a file
    assert main(["train", "--config=again.toml", "--out", "other"]) == 0
    assert {**load("other").config, "about": 0} == {**config, "about": 0}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("hiden = 4", "my.toml has 'hiden', expected names of options: adv-steps"),
        ("out = 'x'", "my.toml has 'out', expected names of options"),
        ("hidden = true", "my.toml: hidden is True, expected a number, a text, or a list of them"),
        ("rows = 3", "my.toml: rows is 3, expected true or false"),
        ("hidden = ", "my.toml is neither TOML nor, by its name, JSON"),
        ("hidden = 'many'", "argument --hidden: 'many' is not a positive whole number"),
        ("embed = 3", "unrecognized arguments: --embed=3"),
        ("\0", "holds a NUL byte"),
    ],
)
def test_what_is_wrong_with_a_file_of_options(content: str, says: str, place: Path, fails: Any) -> None:
    (place / "my.toml").write_text(content)
    assert says in fails("train", "mine.npz", "--config", "my.toml")
    assert not (place / "runs").exists()


def test_a_file_of_options_that_is_not_there(fails: Any) -> None:
    assert "No such file" in fails("train", "mine.npz", "--config", "none.toml")


def test_layers_mean_the_same_in_every_task(fails: Any) -> None:
    for task in ("digits", "text", "lm"):
        assert parsed("train", task, "--layers", "3").layers == 3
    family = parsed("train", "lm").family
    sizes = {"--layers 3": (100, 100, 100), "--layers 2 --hidden 7": (7, 7), "--hidden 5 6": (5, 6), "": (100, 100)}
    for given, hidden in sizes.items():
        args = parsed("train", "lm", *given.split())
        data = type("Text", (), {"vocabulary": range(9), "name": "pydoc"})
        assert family.arguments(args, data)["model"].hidden == hidden
    assert "layers is 3 and hidden is 5 6: give one size" in fails("train", "lm", "--hidden", 5, 6, "--layers", 3)


@pytest.fixture
def two(says: Any) -> None:
    for method, more in (("add", TINY), ("none", [*TINY[:2], *TINY[4:]])):
        says("train", "mine.npz", *more, "--method", method, "--train-steps", 4, "--eval-every", 2)


@pytest.mark.usefixtures("two")
def test_runs_are_listed_and_compared(says: Any, place: Path) -> None:
    head, *rows = says("runs")
    assert head.split()[:5] == ["run", "task", "method", "seed", "steps"]
    assert [row.split()[:4] for row in rows] == [
        ["runs/mine-add-seed0", "images", "AdD", "0"],
        ["runs/mine-none-seed0", "images", "Plain", "0"],
    ]
    best = min(record["valid_error"] for record in load("runs/mine-add-seed0").records)
    assert f"4 of 4  error {best:.2f} at step" in rows[0]
    lines = says("runs", "runs/mine-add-seed0", "runs/mine-none-seed0", "--compare")
    assert any(line.split() == ["regularizer.kind", '"AdD"', '"Plain"'] for line in lines)
    assert not any(line.startswith("recipe.steps") for line in lines)
    assert (
        says("runs", "runs/mine-add-seed0", "runs/mine-add-seed0", "--compare")[-1] == "the runs have the same settings"
    )
    pytest.importorskip("matplotlib")
    assert says("runs", "--draw", "figures/all.png")[-1] == "figures/all.png"
    assert (place / "figures" / "all.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("two")
def test_a_run_that_cannot_be_read_hides_no_other(says: Any, place: Path) -> None:
    (place / "runs" / "mine-add-seed0" / "config.json").write_text("{")
    _, *rows = says("runs")
    assert [row.split()[0] for row in rows] == ["runs/mine-none-seed0", "runs/mine-add-seed0"]
    assert "cannot be read: runs/mine-add-seed0 is not a run of minadv" in rows[1]
    assert {row["run"] for row in csv.DictReader(io.StringIO("\n".join(says("runs", "--csv"))))} == {
        "runs/mine-none-seed0"
    }


def test_the_best_evaluation_is_that_of_the_weights(says: Any) -> None:
    """A run that watches the loss has the weights of the least loss, not of the least error."""
    held = np.load("mine.npz")
    model = Classifier(2, 4, 2)
    run = fit(model, (held["x"], held["y"]), steps=30, eval_every=1, monitor="loss", lr=0.03, out="run")
    assert run.records
    best = min(run.records, key=lambda record: record["valid_loss"])
    least = min(run.records, key=lambda record: record["valid_error"])
    assert best["step"] != least["step"]
    assert says("runs", "run")[1].endswith(f"error {best['valid_error']:.2f} at step {best['step']}")
    card = says("export", "run")[1]
    assert json.loads(Path(card).read_text())["best"]["step"] == best["step"]


@pytest.mark.usefixtures("two")
def test_logs_for_other_programs(says: Any, fails: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(csv.DictReader(io.StringIO("\n".join(says("runs", "--csv")))))
    assert [(row["run"], row["step"]) for row in rows] == [
        (f"runs/mine-{method}-seed0", step) for method in ("add", "none") for step in ("2", "4")
    ]
    record = load("runs/mine-add-seed0").records[1]
    assert float(rows[1]["valid_loss"]) == record["valid_loss"]
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert 'need tensorboardX: pip install "minadv[tensorboard]"' in _last(fails, "runs", "--tensorboard", "tb")
    written: list[Any] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((self.folder, name, value, step))

        def close(self) -> None:
            written.append((self.folder, "closed", 0.0, 0))

    module = ModuleType("tensorboardX")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    assert says("runs", "--tensorboard", "tb")[-1] == "tb/mine-none-seed0"
    assert ("tb/mine-add-seed0", "valid_loss", record["valid_loss"], 4) in written
    assert not any(name == "step" for _, name, _, _ in written)
    shutil.copytree("runs/mine-add-seed0", "other/mine-add-seed0")
    said = says("runs", "runs/mine-add-seed0", "other/mine-add-seed0", "--tensorboard", "tb")
    assert said[-2:] == ["tb/runs-mine-add-seed0", "tb/other-mine-add-seed0"]  # two runs do not share a folder


def _last(fails: Any, *arguments: Any) -> str:
    """The error of a command that has printed its list already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", _to_stderr_only)
        line: str = fails(*arguments)
    return line


def _to_stderr_only(*values: Any, file: Any = None, **how: Any) -> None:
    if file is not None:
        file.write(" ".join(map(str, values)) + "\n")


def test_no_runs(says: Any, fails: Any, place: Path) -> None:
    [line] = says("runs")
    assert line == "there are no runs here yet: minadv train makes the first, in the folder runs"
    (place / "empty").mkdir()
    assert "empty is no run and holds none" in fails("runs", "empty")
