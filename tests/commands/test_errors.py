"""What a user can do wrong: one line on standard error that says it, exit code 2, and nothing written."""

import gzip
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.backend import BackendError
from minadv.base.files import seal
from minadv.cli import main
from minadv.commands import train, training
from minadv.training.runs.checkpoints import CheckpointWarning
from tests.support.idxfiles import idx, write_four
from tests.support.problems import MODEL, sequences

pytest.importorskip("safetensors")

TINY = "train smnist --rows --pool 7 --hidden 6 --delta 0.5 --train-steps 2 --device cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_four(tmp_path / "idx", n_train=24, n_test=8)
    return tmp_path / "idx"


@pytest.fixture
def fails(capsys: Any) -> Any:
    """Runs a command that must fail; the one line that it says."""

    def run(*arguments: Any, code: int = 2) -> str:
        capsys.readouterr()
        try:
            given = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # the parser's own
            given = stopped.code
        said = capsys.readouterr()
        assert given == code
        [line] = said.err.splitlines()
        assert said.out == ""
        return line

    return run


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
        command = shlex.join(map(str, (sys.executable, "-m", "minadv", *arguments)))
        return subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True)

    done = run(
        *["train", "digits", "--hidden", "6", "--train-steps", "2", "--device", "cpu", "--out"], tmp_path / "run"
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert minadv.load(tmp_path / "run").step == 2
    bad = run("eval", tmp_path / "none")
    assert bad.returncode == 2 and bad.stdout == ""
    assert bad.stderr == "" or bad.stderr.startswith("minadv: ")


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def write(array: Any, magic: int | None = None) -> Any:
    return lambda path: path.write_bytes(gzip.compress(idx(array, magic)))


@pytest.mark.parametrize(
    ("file", "spoil", "says"),
    [
        ("train-images-idx3", cut, "is a corrupt gzip file"),
        ("train-images-idx3", flip, "is a corrupt gzip file"),
        ("t10k-labels-idx1", write(np.zeros(8), 0x0802), "magic number 0x00000802, expected 0x00000801"),
        ("train-images-idx3", write(np.zeros((24, 28, 28)), 0x0D03), "magic number 0x00000d03, expected 0x00000803"),
        ("train-labels-idx1", write(np.zeros(23)), "holds 23 labels, expected 24, one for each image of train-images"),
        ("t10k-images-idx3", write(np.zeros((8, 27, 28))), "holds images of 27 x 28 pixels, expected 28 x 28"),
        ("train-labels-idx1", write(np.full(24, 10)), "holds the label 10, expected labels from 0 to 9"),
        ("t10k-images-idx3", Path.unlink, "lacks t10k-images-idx3-ubyte.gz, expected there for mnist"),
    ],
)
def test_bad_data(file: str, spoil: Any, says: str, folder: Path, tmp_path: Path, fails: Any) -> None:
    spoil(folder / f"{file}-ubyte.gz")
    line = fails(*TINY.split(), "--data-dir", folder, "--out", tmp_path / "run")
    assert line.startswith(f"minadv: {folder}")
    assert says in line
    assert not (tmp_path / "run").exists()


def test_folders_without_data(tmp_path: Path, fails: Any) -> None:
    (tmp_path / "empty").mkdir()
    line = fails(*TINY.split(), "--data-dir", tmp_path / "empty", "--out", tmp_path / "run")
    assert line.startswith(f"minadv: {tmp_path / 'empty'} lacks train-images-idx3-ubyte.gz, train-labels")
    line = fails(*TINY.split(), "--data-dir", tmp_path / "none", "--out", tmp_path / "run")
    assert (
        line
        == f"minadv: the data directory {tmp_path / 'none'} does not exist: say where the data are, with --data-dir say"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--cell transformer", "argument --cell: invalid choice: 'transformer' (choose from"),
        ("--method dropout", "argument --method: invalid choice: 'dropout'"),
        ("--hidden many", "argument --hidden: 'many' is not a positive whole number"),
        ("--hidden 0", "argument --hidden: '0' is not a positive whole number"),
        ("--batch 2.5", "argument --batch: '2.5' is not a positive whole number"),
        ("--seed -1", "argument --seed: '-1' is not zero or a positive whole number"),
        ("--epochs inf", "argument --epochs: 'inf' is not a positive number"),
        ("--lr nan", "argument --lr: 'nan' is not a positive number"),
        ("--weight -1", "argument --weight: '-1' is not zero or a positive number"),
        ("--epochs 1", "argument --epochs: not allowed with argument --train-steps"),
        ("--method vd", "--delta 0.5: --method vd has no use for it, expected one of add"),
        ("--p 0.2", "--p 0.2: --method add has no use for it, expected one of vd, el, fd, pi, rdrop"),
        (
            "--p 1 --method vd --delta 0.03",
            "argument --p: '1' is not a probability from 0 up to, but not including, 1",
        ),
        ("--delta 1.5", "delta is 1.5, expected a share of the units from 0 to 1"),
        ("--delta 0.1", "delta is 0.1, which allows no flip among H = 6 units: the smallest useful delta is 1/6"),
        ("--pool 3", "pool is 3, expected a divisor of both sides of 28 x 28 pixels"),
        ("--workers 500", "--workers is 500, expected at most 100, the examples of a batch"),
        ("--cuda-aware-mpi", "--cuda-aware-mpi is for mpiexec: put mpiexec -n N before the command, or leave it out"),
        ("--lr 1e300", "argument --lr: '1e300' is too large, expected at most 1,000,000"),
        ("--weight 1e308", "argument --weight: '1e308' is too large, expected at most 1,000,000"),
        ("--lr 1e400", "argument --lr: '1e400' is not a positive number"),
        (
            "--search exact --max-masks 9",
            "an exact search would run 42 masks, more than max_masks = 9: lower the budget",
        ),
        ("--speed 3", "unrecognized arguments: --speed 3"),
    ],
)
def test_bad_options(options: str, says: str, folder: Path, tmp_path: Path, fails: Any) -> None:
    assert says in fails(*TINY.split(), *options.split(), "--data-dir", folder, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bad_commands(fails: Any, tmp_path: Path) -> None:
    assert "invalid choice: 'trian' (choose from" in fails("trian")
    line = fails("train", "digits", "--data-dir", tmp_path)
    assert line == f"minadv: --data-dir is {tmp_path}, but digits come with scikit-learn: leave it out"
    assert "the following arguments are required: RUN" in fails("eval")
    names = "digits, docstrings, pydoc, mnist, fashion, imdb, ptb, wikitext2"
    line = fails("data", "list", "extra")
    assert line == "minadv: list takes no name: leave out extra, or give get or check"
    assert fails("train", "").startswith("minadv: train: '' is no task and no folder, expected a folder of your own or")
    assert "argument --data-dir: '' names no folder" in fails("train", "smnist", "--data-dir", "")
    assert fails("train", "--out", "") == "minadv: --out is empty, expected the name of a folder"
    assert fails("data", "check") == f"minadv: give a name, one of {names}"
    assert "name is 'cifar', expected one of 'mnist', 'fashion'" in fails("data", "get", "cifar")
    for command in (["train", "--resume"], ["eval"], ["attack"], ["predict"], ["show"]):
        line = fails(*command, tmp_path)
        assert line.startswith(f"minadv: {tmp_path} is not a run of minadv: cannot read {tmp_path}/config.json")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run(folder: Path, tmp_path: Path, capsys: Any) -> Path:
    assert main([*TINY.split(), "--data-dir", str(folder), "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_a_folder_that_is_taken(run: Path, folder: Path, fails: Any) -> None:
    before = everything(run)
    line = fails(*TINY.split(), "--data-dir", folder, "--out", run)
    assert line.startswith(f"minadv: {run} is a run already: resume it (minadv train --resume {run} or")
    for other in (folder, folder / "t10k-labels-idx1-ubyte.gz"):
        line = fails(*TINY.split(), "--data-dir", folder, "--out", other)
        assert line == f"minadv: {other} is there already and is not a run of minadv: choose another folder"
    assert everything(run) == before


def test_resume_takes_no_settings(run: Path, fails: Any) -> None:
    line = fails("train", "digits", "--resume", run, "--epochs", 3, "--no-track")
    assert line == "minadv: --resume goes on with the settings of the run: leave out TASK, --track, --epochs"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--method vd --max-masks 5", "--max-masks 5: --method vd has no use for it, expected one of add"),
        ("--search random --adv-steps 5", "--adv-steps 5: --search random has no use for it, expected one of greedy"),
        ("--search exact --adv-steps 5", "--adv-steps 5: --search exact has no use for it, expected one of greedy"),
        ("--max-masks 5", "--max-masks 5: --search greedy has no use for it, expected one of exact"),
        ("--batch 5000", "the batch size is 5000, expected 1 to 22, the number of examples"),
        ("--search exact --hidden 100 --delta 0.03", "more than max_masks = 20,000"),
    ],
)
def test_options_in_vain(options: str, says: str, folder: Path, tmp_path: Path, fails: Any) -> None:
    out = tmp_path / "run"
    tiny = TINY.replace("--delta 0.5 ", "" if "--method" in options else "--delta 0.5 ")
    assert says in fails(*tiny.split(), *options.split(), "--data-dir", folder, "--out", out)
    assert not out.exists()


def test_a_task_that_is_none(fails: Any) -> None:
    line = fails("train", "foo")
    assert line.startswith(
        "minadv: train: 'foo' is no task and no folder, expected a folder of your own or one of digits, "
    )
    assert "docstrings" in line and "wikitext2" in line


def test_a_run_below_a_file(folder: Path, tmp_path: Path, fails: Any) -> None:
    (tmp_path / "file").write_text("x")
    line = fails(*TINY.split(), "--data-dir", folder, "--out", tmp_path / "file" / "a" / "b")
    assert line == f"minadv: {tmp_path}/file is a file: choose a folder for the run that is not below it"


def test_digits_have_no_folder(tmp_path: Path, fails: Any) -> None:
    pytest.importorskip("sklearn")
    assert (
        main(["train", "--rows", "--hidden", "4", "--delta", "0.5", "--train-steps", "1", f"--out={tmp_path}/r"]) == 0
    )
    assert "digits come with scikit-learn: leave it out" in fails("eval", tmp_path / "r", "--data-dir", tmp_path)


def test_predict_what_are_not_images(run: Path, tmp_path: Path, fails: Any) -> None:
    def said(content: Any, name: str = "x.npy") -> str:
        np.save(tmp_path / name, content)
        return str(fails("predict", run, tmp_path / name))

    for shape in ((5, 8, 8), (28, 28), (0, 28, 28), (1, 28, 28, 1)):
        assert "expected (N, 28, 28) (as in mnist)" in said(np.zeros(shape))
    assert "holds values from 0 to 16, expected bytes from 0 to 255 (uint8) or numbers from 0 to 1" in said(
        np.linspace(0, 16, 784).reshape(1, 28, 28)
    )
    assert "holds values from nan to nan" in said(np.full((1, 28, 28), np.nan))
    assert "holds no array of numbers" in said(np.full((1, 28, 28), "x"))
    (tmp_path / "text.npy").write_text("1 2 3")
    assert fails("predict", run, tmp_path / "text.npy").startswith(f"minadv: cannot read {tmp_path}/text.npy as arra")
    assert "No such file" in fails("predict", run, tmp_path / "none.npy")
    np.savez(tmp_path / "several.npz", a=np.zeros(3))
    assert "several.npz lacks x, expected arrays x" in fails("predict", run, tmp_path / "several.npz")


def test_a_pickle_is_not_opened(run: Path, tmp_path: Path, fails: Any) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "allow_pickle=False" in fails("predict", run, tmp_path / "x.npy")


def test_a_configuration_from_elsewhere(run: Path, fails: Any) -> None:
    """Sealed by whoever likes, and still it names nothing but records of minadv."""
    content = json.loads((run / "config.json").read_text())["content"]
    content["config"]["model"]["kind"] = "os.system"
    (run / "config.json").write_bytes(seal(content))
    assert "model is of kind 'os.system', expected one of ASGD, AT, AdD" in fails("eval", run)


def test_a_damaged_checkpoint(run: Path, capsys: Any, fails: Any) -> None:
    shutil.copytree(run, run.with_name("copy"))
    for path in (run / "checkpoints").glob("*.safetensors"):
        cut(path)
    assert "has no sound checkpoint" in fails("eval", run)
    assert "has no sound checkpoint" in fails("train", "--resume", run)
    with pytest.warns(CheckpointWarning):
        minadv.load(_with_two(run.with_name("copy")))
    assert main(["eval", str(run.with_name("copy"))]) == 0
    assert capsys.readouterr().err.startswith("minadv: warning: ")


def _with_two(run: Path) -> Path:
    """A run whose newest checkpoint is damaged."""
    (run / "checkpoints" / "step-00000003.json").write_text("{}")
    return run


def test_attacks_that_cannot_be(run: Path, fails: Any) -> None:
    assert "delta is 0.03, which allows no flip among H = 6 units" in fails("attack", run, "--delta", 0.03)
    assert "delta is 0.5 and budget is 2: give one of the two" in fails("attack", run, "--delta", 0.5, "--budget", 2)
    assert "budgets of layer0 is 0, expected a number of flips from 1" in fails("attack", run, "--budget", 0)
    assert "budget has 2 values, expected 1" in fails("attack", run, "--budget", 1, 2)
    line = fails("attack", run, "--budget", 7)
    assert line == "minadv: budgets of layer0 is 7, expected a number of flips from 1 to H = 6"


def test_what_the_system_refuses(folder: Path, tmp_path: Path, fails: Any, capsys: Any) -> None:
    """It names the place, and not the number of the error."""
    assert main([*TINY.split(), "--data-dir", str(folder), "--out", str(tmp_path / "made")]) == 0
    (tmp_path / "file").touch()
    line = fails("show", tmp_path / "made", "--out", tmp_path / "file" / "figures")
    assert line == f"minadv: {tmp_path / 'file' / 'figures'}: Not a directory"


def test_a_run_made_in_python(tmp_path: Path, fails: Any) -> None:
    minadv.fit(MODEL, sequences(), batch_size=10, steps=2, out=tmp_path / "run")
    for command in ("eval", "attack", "show"):
        assert "was made in Python and does not say where its data is" in fails(command, tmp_path / "run")


def test_no_gpu(folder: Path, tmp_path: Path, fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str, **_: Any) -> Any:
        raise BackendError(f'device="{device}" was asked for but CuPy does not work here')

    monkeypatch.setattr(training, "choose_device", broken)
    out = tmp_path / "run"
    line = fails(*TINY.split(), "--device", "gpu", "--data-dir", folder, "--out", out)
    assert line == 'minadv: device="gpu" was asked for but CuPy does not work here'
    assert not out.exists()


def test_a_value_is_not_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """--p has a value, though it is how --permuted, which has none, begins."""
    seen = []
    monkeypatch.setattr(train, "work", lambda args: seen.append((args.task, args.p, args.permuted)))
    for arguments in (
        "--p 0.2 --method vd",
        "--method vd --p 0.2 digits",
        "--p=0.2 --perm smnist",
        "--permuted smnist",
    ):
        assert main(["train", *arguments.split()]) == 0
    assert seen == [(None, 0.2, False), ("digits", 0.2, False), ("smnist", 0.2, True), ("smnist", 0.1, True)]


def test_a_run_of_a_family_is_resumed_without_its_task(fails: Any) -> None:
    for task in ("lm", "imdb"):
        line = fails("train", task, "--resume", "run")
        assert line == "minadv: --resume goes on with the settings of the run: leave out TASK"


def test_out_of_memory(monkeypatch: pytest.MonkeyPatch, fails: Any) -> None:
    def work(args: Any) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(train, "work", work)
    line = fails("train", "digits", code=1)
    assert line == ("minadv: out of memory (Unable to allocate 9 GiB): take smaller batches, or a smaller network")


def test_a_folder_with_a_space_can_be_pasted_back(tmp_path: Path, folder: Path, fails: Any) -> None:
    out = tmp_path / "my run"
    assert main([*TINY.split(), "--data-dir", str(folder), "--out", str(out)]) == 0
    line = fails(*TINY.split(), "--data-dir", folder, "--out", out)
    assert f"resume it (minadv train --resume '{out}' or resume=True)" in line
