"""The command line on a GPU: every task trains to what it trains to on the CPU, resumes, and answers every command.

With `--backend=cupy` the GPU is CuPy's; in the everyday suite it is the stand-in for CuPy, `tests.support.strict`.
"""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.backend import choose_device
from minadv.base.gpu import TF32
from minadv.base.trees import leaves
from minadv.cli import main
from minadv.commands import training
from minadv.tasks.resume import device_of
from minadv.tasks.run import load
from minadv.training.runs import checkpoints, log
from tests.commands.test_text import write
from tests.support import strict
from tests.support.compare import assert_close
from tests.support.corpora import write_corpus
from tests.support.language_runs import lines

pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

DIGITS = "train digits --rows --hidden 6 --delta 0.34 --batch 40"
SMALL = "--embed 4 --hidden 6 --batch 4"
READS = "--window 4 --candidates 5 --held-out 30"
RUNS = {
    "digits, rnn": f"{DIGITS} --no-track --cell rnn",
    "digits, lstm": f"{DIGITS} --pool 2 --cell lstm",
    "digits, gru": f"{DIGITS} --no-track --cell gru",
    "docstrings, pre-training": f"pretrain docstrings --vocab-size 300 {SMALL} {READS}",
    "docstrings": f"train docstrings --vocab-size 300 {SMALL} --max-tokens 4 --delta 0.34",
    "texts, pre-training": f"pretrain TEXTS --min-count 1 {SMALL} {READS}",
    "texts": "train text --data-dir TEXTS --pretrained LM --delta 0.34 --batch 4 --method add+vat",
    "language model": "train lm --data-dir WORDS --hidden 6 5 --delta 0.34 0.4 --batch 4 --bptt 5 --init flip",
}
"""Command lines; names in capitals stand for folders."""

LAST = ["--dtype", "float64", "--workers", "1"]
SHORT = ["--train-steps", 3, "--eval-every", 2]


@pytest.fixture(scope="module", autouse=True)
def gpu(device: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """While this file's tests run, ``--device gpu`` is CuPy, or the stand-in if the suite runs on NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if device.name == "cpu":
            patch.setitem(sys.modules, "cupy", strict.module)
            patch.setenv("MINADV_COMPILED", "0")
        yield


@pytest.fixture(scope="module")
def folders(gpu: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("data")
    words = {"train": lines(30), "valid": lines(3, 1), "test": lines(3, 2)}
    found = {
        "TEXTS": write(root / "films"),
        "WORDS": write_corpus(root / "words", **{part: "\n".join(text) + "\n" for part, text in words.items()}),
        "LM": root / "lm",
    }
    train(found, "texts, pre-training", found["LM"], "--device", "cpu", "--train-steps", 2)
    return found


def train(folders: dict[str, Path], name: str, out: Path, *options: Any, code: int = 0) -> None:
    given = [str(folders.get(word, word)) for word in RUNS[name].split()]
    assert main([*given, *LAST, *map(str, options), "--out", str(out)]) == code


@pytest.fixture(scope="module")
def trained(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of each command line on the GPU: made when it is asked for."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("runs") / "run"
            train(folders, name, made[name], "--device", "gpu", *SHORT)
        return made[name]

    return make


@pytest.mark.parametrize("name", RUNS)
def test_as_on_the_cpu(name: str, trained: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    train(folders, name, tmp_path / "cpu", "--device", "cpu", *SHORT)
    there, here = load(trained(name)), load(tmp_path / "cpu")
    assert there.config["device"] == "gpu"
    assert all(isinstance(leaf, np.ndarray) for _, leaf in leaves((there.params, there.last)))
    assert_close((there.params, there.last), (here.params, here.last), 1e-9)
    for mine, theirs in zip(there.records, here.records, strict=True):
        numbers = {key: value for key, value in mine.items() if isinstance(value, float) and "second" not in key}
        assert numbers == pytest.approx({key: theirs[key] for key in numbers}, rel=1e-9)


def ends(run: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The last state, bit for bit, and the evaluations."""
    path = checkpoints.latest(run)
    assert path is not None
    found, _ = checkpoints.load(path)
    records = [record for record in log.read(run / "log.jsonl") if record["kind"] == "evaluation"]
    return {name: np.asarray(leaf).tobytes() for name, leaf in found.items()}, [{**r, "time": 0} for r in records]


@pytest.mark.parametrize("name", RUNS)
def test_resumed_to_the_bit(
    name: str, trained: Any, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training, "tell", stop)
        train(folders, name, run, "--device", "gpu", *SHORT, code=130)
    assert load(run).step == 2
    assert main(["train", "--resume", str(run)]) == 0
    assert ends(run) == ends(trained(name))
    header, *_ = log.read(run / "log.jsonl")
    resumed = next(record for record in log.read(run / "log.jsonl") if record["kind"] == "resumed")
    for record in (header, resumed):  # what was the GPU of a run can be told later
        assert {"cupy", "cuda", "driver", "device", "compute_capability", "free_memory"} <= record["gpu"].keys()


def answers(says: Any, *command: Any) -> list[str]:
    """What a command says on the GPU, which is what it says on the CPU."""
    there, here = says(*command, "--device", "gpu"), says(*command)
    numbers = [
        [float(word) for word in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", "\n".join(said))] for said in (there, here)
    ]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.0002, rel=1e-4)
    return there  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["digits, lstm", "texts", "language model", "texts, pre-training"])
def test_eval(name: str, trained: Any, says: Any) -> None:
    [line] = answers(says, "eval", trained(name))
    assert line.startswith("test ")


@pytest.mark.parametrize("name", ["digits, lstm", "texts", "language model"])
def test_attack(name: str, trained: Any, says: Any) -> None:
    head, _, *rows = answers(says, "attack", trained(name), "--examples", 6, "--budget", 1, "--max-masks", 30)
    assert head.startswith(("6 test", "12 words of the test text"))
    assert [row.split()[0] for row in rows][:3] == ["none", "random", "greedy"]


def test_predict(trained: Any, says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(answers(says, "predict", trained("digits, lstm"), "--examples", 3)) == 4

    def lines_of_input(*command: Any) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the film is good\nvery bad\n")))
        return says(*command)  # type: ignore[no-any-return]

    assert len(answers(lines_of_input, "predict", trained("texts"))) == 2
    [first, _] = answers(lines_of_input, "predict", trained("texts"), "--explain", "--units", 2)
    assert len(first.split("\t")) == 4


def test_generate(trained: Any, says: Any) -> None:
    run = trained("language model")
    for temperature in (0, 1):
        there, here = (
            says("generate", run, "--words", 4, "--temperature", temperature, "--device", on) for on in ("gpu", "cpu")
        )
        assert there == here


@pytest.mark.parametrize("name", ["digits, lstm", "texts", "language model"])
def test_show(name: str, trained: Any, says: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = says("show", trained(name), "--examples", 5, "--device", "gpu", "--out", tmp_path)
    drawn = [line for line in drawn if line.endswith(".png")]
    assert len(drawn) > 1
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_the_device_is_told(trained: Any, capsys: Any) -> None:
    assert main(["eval", str(trained("digits, lstm")), "--device", "gpu"]) == 0
    told = capsys.readouterr().err
    assert re.search(
        r"^device: CuPy [\d.]+, CUDA [\d.]+, driver for CUDA [\d.]+, .*, compute capability \d", told, re.M
    )
    assert main(["doctor", "--device", "gpu"]) == 0
    assert re.search(r"^device +CuPy [\d.]+, CUDA .* GiB free", capsys.readouterr().out, re.M)


def test_tf32(device: Any, folders: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    """Off unless it is asked for; a run says that it has it, and keeps it when it goes on."""
    options = ["--train-steps", "1", "--device", "gpu", "--tf32"]
    if device.name == "cpu":
        train(folders, "digits, rnn", tmp_path / "run", *options, code=2)
        assert "TF32 needs a GPU of compute capability 8.0 or more" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
        return
    train(folders, "digits, rnn", tmp_path / "run", *options)
    header, *_ = log.read(tmp_path / "run" / "log.jsonl")
    assert header["config"]["tf32"] is True
    assert header["gpu"]["tf32"] is True
    assert "TF32 on" in capsys.readouterr().err
    assert device_of(header["config"]).tf32
    assert not device_of(header["config"], "cpu").tf32
    assert device.xp._core.get_compute_type(np.dtype(np.float32)) == TF32
    choose_device("gpu")
    assert device.xp._core.get_compute_type(np.dtype(np.float32)) != TF32
