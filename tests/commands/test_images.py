"""Every command, end to end, on digits that take a moment; the help names every option and says what it does."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.cli import COMMANDS, main
from minadv.commands import training
from minadv.data.images import digits
from minadv.data.images.sequences import from_description
from minadv.masks import SCALES
from minadv.searches import SEARCHES
from minadv.tasks import attack
from minadv.tasks.family import of_task
from minadv.tasks.run import open_run
from minadv.training.parallel import choose
from minadv.training.runs import checkpoints, log
from minadv.training.runs import folder as folders
from tests.support.commands import command
from tests.support.idxfiles import write_four

pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

PLAIN = ["train", "digits", "--rows", "--hidden", "8"]
TINY = [*PLAIN, "--delta", "0.25"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the CPU, which the commands answer alike on every backend; those on a GPU are in test_devices.py."""
    run = tmp_path_factory.mktemp("digits") / "run"
    assert main([*TINY, "--epochs", "4", "--lr", "0.02", "--device", "cpu", "--out", str(run)]) == 0
    return run


@pytest.fixture
def says(capsys: Any) -> Any:
    """Runs a command that must succeed; what it prints, line by line."""

    def run(*arguments: Any) -> list[str]:
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_train_learns_and_reports(tmp_path: Path, says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [line] = says(*PLAIN, "--epochs", 3, "--lr", 0.02, "--method", "vd", "--device", "cpu")
    found = re.fullmatch(r"test error ([\d.]+) % \(loss [\d.]+\), best validation error .* of 36; run in (.*)", line)
    assert found
    assert found[2] == "runs/digits-vd-seed0"
    assert float(found[1]) < 75
    first, *rest = log.read(Path(found[2]) / "log.jsonl")
    assert first["config"]["about"]["task"] == "digits"
    assert [record["epoch"] for record in rest] == [1, 2, 3]
    assert rest[-1]["valid_loss"] < rest[0]["valid_loss"]
    assert len(rest[0]["valid_mean_mask"]["layer0"]) == 8


@pytest.mark.many_passes
@pytest.mark.parametrize("method", of_task("digits").methods)
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_every_method(method: str, cell: str, tmp_path: Path, says: Any, device: Any) -> None:
    options = ["--method", method, "--cell", cell, "--layers", 2, "--train-steps", 2, "--device", device.name]
    says(
        *(TINY if method == "add" else PLAIN),
        *options,
        "--permuted",
        "--pool",
        2,
        "--no-track",
        "--dtype",
        "float64",
        "--out",
        tmp_path / "run",
    )
    run = minadv.load(tmp_path / "run")
    kinds = {"none": "Plain", "vd": "VD", "el": "EL", "fd": "FD", "pi": "Pi", "rdrop": "RDrop", "add": "AdD"}
    found = run.config["regularizer"]
    assert found["kind"] == kinds[method]
    assert found.get("distance") == {"none": None, "vd": None, "rdrop": "skl"}.get(method, "js")
    assert (run.model.cell, run.model.n_layers, run.step) == (cell, 2, 2)
    assert run.params.V.dtype == np.float64


def test_options_reach_the_run(tmp_path: Path, says: Any) -> None:
    given = "--adv-steps 2 --distance rkl --search reselect --scale kept --readout masked --seed 7 --batch 50 --pool 2"
    more = "--weight 0.5 --ramp-up 0 --optimizer rmsprop --clip 0.5 --clip-how value --patience 9 --eval-every 1"
    says(*TINY, *given.split(), *more.split(), "--train-steps", 2, "--checkpoint-every", 2, "--out", tmp_path / "run")
    config = minadv.load(tmp_path / "run").config
    add, recipe = config["regularizer"], config["recipe"]
    assert [add[name] for name in ("delta", "distance", "scale")] == [0.25, "rkl", "kept"]
    assert add["search"] == {"kind": "Reselect", "K": 2, "swaps": 0, "start": "flip"}
    assert (config["seed"], config["batch_size"], config["model"]["readout"], config["model"]["n_in"]) == (
        *(7, 50, "masked", 4),
    )
    assert (recipe["optimizer"]["kind"], recipe["clip"]["how"], recipe["clip"]["limit"]) == ("RMSProp", "value", 0.5)
    assert [recipe[name] for name in ("weight", "patience", "eval_every", "checkpoint_every", "steps")] == [
        0.5,
        9,
        1,
        2,
        2,
    ]
    assert recipe["weight_schedule"] == {"kind": "RampUp", "length": 0}


def test_digits_are_the_default(tmp_path: Path, says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [line] = says("train", *TINY[2:], "--train-steps", 1, "--device", "cpu")
    assert line.endswith("run in runs/digits-add-seed0")
    assert minadv.load("runs/digits-add-seed0").config["about"]["task"] == "digits"


def test_every_search_and_scale(tmp_path: Path, says: Any) -> None:
    """What `find_adversary` can do, ``minadv train`` can ask for."""
    for search in SEARCHES:
        says(*TINY, "--search", search, "--train-steps", 1, "--out", tmp_path / search)
        assert minadv.load(tmp_path / search).config["regularizer"]["search"]["kind"].lower() == search
    for scale in SCALES:
        p = ["--p", 0.2] if scale == "inverted" else []
        says(*TINY, "--scale", scale, *p, "--train-steps", 1, "--out", tmp_path / scale)
        add = minadv.load(tmp_path / scale).config["regularizer"]
        assert (add["scale"], add["p"]) == (scale, 0.2 if scale == "inverted" else None)


@pytest.mark.parametrize("given", [True, None])
def test_cuda_aware_mpi_reaches_the_ranks(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Workers:
        def __init__(self, *args: Any, cuda_aware: bool | None) -> None:
            seen.append(cuda_aware)
            raise KeyboardInterrupt

    two = SimpleNamespace(
        size=2, chief=True, cores=1, together=2, near=[{0}, {1}], agree=lambda make: make(), fail_together=nullcontext
    )
    monkeypatch.setattr(choose, "RankWorkers", Workers)
    for module in (folders, training):
        monkeypatch.setattr(module, "process_group", lambda: two)
    for run in ("once", "again"):  # a new run, and one that goes on
        arguments = (
            [*TINY, "--out", str(tmp_path / "run")] if run == "once" else ["train", "--resume", str(tmp_path / "run")]
        )
        assert main([*arguments, *(["--cuda-aware-mpi"] if given else [])]) == 130
    assert seen == [given, given]


@pytest.mark.parametrize("task", ["smnist", "pmnist", "fashion"])
def test_tasks_of_idx_files(task: str, tmp_path: Path, says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_four(tmp_path / "idx", n_train=24, n_test=8)
    run, idx = tmp_path / "run", tmp_path / "idx"
    monkeypatch.chdir(tmp_path)
    options = ["--pool", 4, "--hidden", 6, "--delta", 0.2, "--epochs", 1, "--data-dir", "idx", "--out", run]
    assert says("train", task, *options)
    found = minadv.load(run)
    assert found.config["about"]["data_dir"] == str(idx)  # so that it is found from everywhere
    assert found.config["batch_size"] == 22  # all there are
    assert found.config["about"]["permuted"] == (task == "pmnist")
    moved = tmp_path / "moved"
    shutil.move(idx, moved)
    [line] = says("eval", run, "--data-dir", moved)
    assert line.endswith("(8 sequences)")


def test_resume_a_finished_run(trained: Path, says: Any) -> None:
    assert says("train", "--resume", trained) == [f"{trained} is finished: nothing to resume"]


def test_eval(trained: Path, says: Any, device: Any) -> None:
    test = minadv.load(trained, as_digits(trained)).test()
    [line] = says("eval", trained)
    assert line == f"test error {test['error']:.2f} %, loss {test['loss']:.4f} (360 sequences)"
    [there] = says("eval", trained, "--device", device.name)
    assert there.split(",")[0] == line.split(",")[0]
    [valid] = says("eval", trained, "--part", "valid")
    best = min(record["valid_error"] for record in minadv.load(trained).records)
    assert valid.startswith(f"valid error {best:.2f} %")
    [last] = says("eval", trained, "--part", "valid", "--last")
    assert last.startswith(f"valid error {minadv.load(trained).records[-1]['valid_error']:.2f} %")


def as_digits(run: Path) -> Any:
    return from_description(minadv.load(run).config["about"])


def test_attack(trained: Path, says: Any) -> None:
    head, columns, *rows = says("attack", trained, "--budget", 2, "--examples", 100)
    assert head == "100 test sequences, 2 of 8 units flipped in each of 1 layer(s)"
    assert columns.split() == ["mask", "accuracy", "%", "mean", "D"]
    found = {row[:14].strip(): [float(number) for number in row[14:].split()] for row in rows}
    assert list(found) == ["none", *attack.SEARCHES]
    d = {name: distance for name, (_, distance) in found.items()}
    assert d["none"] == 0
    assert d["random"] < d["greedy K=2"] <= d["exact"]
    assert d["greedy K=1"] <= d["exact"] >= d["reselect K=2"]
    assert d["greedy K=2"] < d["relax"] <= d["relax, long"] <= d["exact"]
    assert found["exact"][0] < found["none"][0]
    assert says("attack", trained, "--budget", 2, "--examples", 100) == [head, columns, *rows]
    *_, last = says("attack", trained, "--budget", 2, "--examples", 10, "--max-masks", 36)
    assert last == "exact          left out: 37 masks, more than --max-masks 36"


@pytest.mark.parametrize(("many", "told"), [(36, True), (37, False)])
def test_a_long_exact_search_is_told(many: int, told: bool, trained: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("minadv.commands.attack.MANY", many)
    assert main(["attack", str(trained), "--budget", "2", "--examples", "10"]) == 0
    said = "exact, the last row, runs 37 masks for each example and takes longest: --max-masks 36 leaves it out"
    assert (said in capsys.readouterr().err) == told


def test_predict_explains_no_images(trained: Path, fails: Any) -> None:
    for options in (["--explain"], ["--units", 3], ["--explain", "--units", 3]):
        assert "is a run of images, and --explain is for texts: leave out" in fails("predict", trained, *options)
    line = fails("predict", trained, "x.npy", "--examples", 3)
    assert line == "minadv: --examples is 3, the number of test examples, beside the file x.npy: leave it out"


def test_predict(trained: Path, says: Any, tmp_path: Path) -> None:
    head, *rows = says("predict", trained, "--examples", 7)
    assert head.split("\t") == ["image", "class", "probability", "label"]
    data = as_digits(trained)
    p = minadv.load(trained).predict(data.test.x[:7])
    assert [row.split("\t") for row in rows] == [
        [str(n), str(p[n].argmax()), f"{p[n].max():.4f}", str(data.test.y[n])] for n in range(7)
    ]
    np.save(tmp_path / "images.npy", digits().test.x[:7])
    head, *lines = says("predict", trained, tmp_path / "images.npy")
    assert head.split("\t") == ["image", "class", "probability"]
    assert lines == [row.rpartition("\t")[0] for row in rows]
    assert says("predict", trained) == says("predict", trained, "--examples", 20)
    np.save(tmp_path / "bytes.npy", np.full((1, 8, 8), 16, np.uint8))  # scikit-learn's white
    np.save(tmp_path / "ones.npy", np.ones((1, 8, 8)))
    assert says("predict", trained, tmp_path / "bytes.npy") == says("predict", trained, tmp_path / "ones.npy")


@pytest.mark.parametrize("epochs", [1, 4])
def test_show(epochs: int, trained: Path, says: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if epochs == 1:
        trained = tmp_path / "run"
        says(*PLAIN, "--method", "none", "--epochs", 1, "--out", trained)
    out = tmp_path / "figures"
    lines = says("show", trained, "--out", out, "--examples", 30)
    paths = [Path(line) for line in lines[:4]]
    assert paths == [out / f"{name}.png" for name in ("curves", "influence", "masks", "confusion")]
    assert sorted(out.iterdir()) == sorted(paths)
    head, *rows = lines[5:]
    assert head.split("  ")[0] == "class"
    assert [row.split()[0] for row in rows] == list("0123456789")
    run = open_run(trained)
    wrong = sum(int(row.split()[-2]) for row in rows)
    assert 100 * wrong / len(run.data.test) == pytest.approx(run.test()["error"])
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


def test_show_every_layer(says: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    says(*TINY, "--layers", 2, "--train-steps", 1, "--out", tmp_path / "run")
    paths = [Path(line).name for line in says("show", tmp_path / "run", "--examples", 20) if line.endswith(".png")]
    layers = [f"{name}-layer{n}.png" for name in ("influence", "masks") for n in range(2)]
    assert paths == ["curves.png", *layers, "confusion.png"]


def test_a_run_without_an_evaluation(says: Any, tmp_path: Path) -> None:
    """As Ctrl-C in the first epoch leaves it: the weights are those of the last step, and it says so."""
    run = tmp_path / "run"
    says(*TINY, "--train-steps", 3, "--checkpoint-every", 1, "--device", "cpu", "--out", run)
    newest = checkpoints.latest(run)
    assert newest is not None
    newest.unlink()
    with pytest.warns(UserWarning, match="run has had no evaluation yet: the weights of step 2 are used"):
        found = minadv.load(run)
    np.testing.assert_array_equal(found.params.V, found.last.V)
    assert says("eval", run) == says("eval", run, "--last")
    drawn = [line for line in says("show", run, "--examples", 5) if line.endswith(".png")]
    assert drawn == [str(run / f"{name}.png") for name in ("influence", "confusion")]  # there is no curve yet


def test_data(says: Any, tmp_path: Path) -> None:
    lines = says("data", "list", "--data-dir", tmp_path)
    assert lines[0] == f"data directory: {tmp_path}"
    names = [line.split()[0] for line in lines[1:]]
    assert names == ["digits", "docstrings", "pydoc", "mnist", "fashion", "imdb", "ptb", "wikitext2"]
    assert not any("(there)" in line for line in lines)
    write_four(tmp_path / "mnist", compress=False)
    assert says("data", "list", "--data-dir", tmp_path)[4].endswith("(there)")
    (tmp_path / "mnist").rename(tmp_path / "fashion")
    checked = says("data", "check", "fashion", "--data-dir", tmp_path)
    assert len(checked) == 4
    assert all(" entries, not compressed: no checksum of the plain file is known" in line for line in checked)
    for action in ("get", "check"):
        for name in names[:3]:
            [line] = says("data", action, name)
            assert line.startswith(f"{name}: ")
            assert line.endswith(": nothing needs downloading")


def test_doctor(says: Any, device: Any) -> None:
    text = "\n".join(says("doctor", "--device", device.name))
    assert "checkpoints by safetensors" in text
    for part in (
        "python",
        "numpy",
        "minadv",
        f"device   {device.why}",
        "cores",
        "steps  ",
        "memory",
        "single precision is within",
        "passed",
        "ok   m ",
    ):
        assert part in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_complete(name: str) -> None:
    parser = command(name)
    text = parser.format_help()
    assert len(text.splitlines()) > 5
    assert "(default: None)" not in text
    for action in parser._actions:
        assert action.help and len(action.help) > 5, action.option_strings
        for option in action.option_strings:
            assert option in text


def test_help_is_grouped(capsys: Any) -> None:
    parser = command("train")
    groups = {group.title: [a.option_strings for a in group._group_actions] for group in parser._action_groups}
    assert list(groups)[2:] == ["the run", "data", "model", "method", "optimisation"]
    assert groups["options"] == [["-h", "--help"], ["--help-all"]]
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^    {name} ", shown, re.MULTILINE) for name in COMMANDS)
    for arguments, said in ((["--help"], "commands:"), (["--version"], minadv.__version__)):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0
        assert said in capsys.readouterr().out


def test_attack_with_the_runs_own_delta(trained: Path, says: Any, tmp_path: Path) -> None:
    says("train", "digits", "--rows", "--hidden", 8, "--delta", 0.5, "--train-steps", 2, "--out", tmp_path / "run")
    assert "4 of 8 units flipped" in says("attack", tmp_path / "run", "--examples", 10, "--max-masks", 1)[0]
