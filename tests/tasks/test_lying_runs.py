"""Runs whose files say what cannot be: one line that names file and field, exit code 2, before anything is built.

A checksum says that a file is as it was written, not that whoever wrote it told the truth: here every file is changed
and sealed again.
"""

import copy
import hashlib
import json
import math
import os
import random
import shutil
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base.files import seal, unseal
from minadv.cli import main
from minadv.models import Classifier
from minadv.tasks.schema import read_config
from minadv.training.runs import checkpoints

pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

OLD = Path(__file__).parent / "old_runs"
DATA = {"images": [], "text": ["--data-dir", str(OLD / "data" / "texts")]}
DATA |= {"language": ["--data-dir", str(OLD / "data" / "words")], "pretraining": DATA["text"]}
DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
MANY = 10**30


@pytest.fixture(autouse=True)
def host(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.name == "gpu":
        pytest.skip("the runs were made on a CPU")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def of(name: str, which: str = "finished") -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return Path(shutil.copytree(OLD / name / which, tmp_path / "run"))

    return of


@pytest.fixture
def says(capsys: Any) -> Any:
    """Runs a command; its exit code and what it says on standard error."""

    def ask(*arguments: Any) -> tuple[int, str]:
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code = main([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    return ask


def reseal(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(seal(content))


def set_config(run: Path, config: dict[str, Any]) -> None:
    """Write a configuration, and let the checkpoints of the run belong to it."""
    reseal(run / "config.json", {"format": "minadv run 1", "config": config})
    for path in (run / "checkpoints").glob("*.json"):
        reseal(path, {**unseal(path), "run": hashlib.sha256((run / "config.json").read_bytes()).hexdigest()})


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a tree of dicts and lists."""
    if at:
        yield at
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*at, key))


def changed(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    """A copy of a tree with another value, or without one, at a place."""
    tree = copy.deepcopy(tree)
    inner = tree
    for key in at[:-1]:
        inner = inner[key]
    if value is DELETE:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return tree


class Nothing:
    """Stands for a value that is taken away."""

    def __repr__(self) -> str:
        return "nothing"


DELETE = Nothing()
LIES = (DELETE, None, True, "x", "", -1, 0, 1.5, MANY, -MANY, math.nan, math.inf, [], [1, "x"], {}, {"kind": "Adam"})


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("images", "model.n_hidden", "x", "model.n_hidden is 'x', expected a whole number of at least 1"),
        ("images", "model.n_hidden", MANY, f"model.n_hidden is {MANY}, expected at most 1,000,000,000"),
        ("images", "model.n_layers", MANY, f"model.n_layers is {MANY}, expected at most 1,000"),
        ("images", "model.input_dropout", "0.5", "model.input_dropout is '0.5', expected a probability"),
        ("images", "model.remat", 1, "model.remat is 1, expected one of True, False"),
        ("images", "model.kind", [], r"model is of kind [], expected one of ASGD, AT"),
        (
            "images",
            "model",
            {"kind": "Adam", "lr": 0.1},
            "model is a Adam, expected one for a run of the kind 'classify'",
        ),
        ("images", "model", None, "model is None, expected a table of values by name"),
        ("images", "recipe.steps", "80", "recipe.steps is '80', expected a whole number of at least 1"),
        ("images", "recipe.steps", DELETE, "recipe does not fit Recipe"),
        ("images", "recipe.optimizer", 3, "recipe.optimizer is 3, expected a Optimizer"),
        ("images", "recipe.optimizer.lr", "fast", "recipe.optimizer.lr is 'fast', expected a positive number"),
        ("images", "recipe.clip.but", "ab", "recipe.clip.but is 'ab', expected a list"),
        ("images", "recipe.lr_schedule", 3, "recipe.lr_schedule is 3, expected a function or a record"),
        ("images", "recipe.monitor", "luck", "recipe.monitor is 'luck', expected one of error, loss"),
        ("images", "regularizer", {"kind": "EMA"}, "regularizer is a EMA, expected a regularizer"),
        ("images", "regularizer.adv_steps", MANY, f"K is {MANY}, expected at most 1,000"),
        ("images", "regularizer.rule_options", 3, "rule_options is 3, expected a table of values by name"),
        ("images", "regularizer.rule_options", {"nrm": 1}, "the option of a search is 'nrm', expected one of"),
        (
            "images",
            "regularizer.delta",
            "x",
            "regularizer.delta is 'x', expected a share of the units from 0 to 1 or a table",
        ),
        (
            "images",
            "regularizer.delta",
            4,
            "regularizer.delta is 4, expected a share of the units from 0 to 1 or a table",
        ),
        ("images", "recipe.step_schedule", {"kind": "FD"}, "step_schedule is FD("),
        ("images", "track.budgets", "x", "track.budgets is 'x', expected"),
        ("images", "track.delta", 4, "track.delta is 4, expected a share of the units from 0 to 1 or a table"),
        ("images", "track.model", 3, "track has 'model', expected options of minadv.find_adversary, or n"),
        ("images", "track.speed", 3, "track has 'speed', expected options of minadv.find_adversary, or n"),
        ("images", "batch_size", True, "batch_size is True, expected a whole number of at least 1"),
        ("images", "seed", -1, "seed is -1, expected a whole number of at least 0"),
        ("images", "device", "abacus", "device is 'abacus', expected one of 'cpu', 'gpu'"),
        ("images", "dtype", "complex64", "dtype is 'complex64', expected one of 'float32', 'float64'"),
        ("images", "about", None, "about is None, expected a table of values by name"),
        ("images", "about.pool", "x", "about.pool is 'x', expected a whole number of at least 1"),
        ("images", "about.by", DELETE, "about.by is missing, expected one of 'pixel', 'row'"),
        (
            "images",
            "about.images",
            ["digits"],
            "about.images is ['digits'], expected one of 'digits', 'mnist', 'fashion'",
        ),
        ("images", "data", [], "data is [], expected a table of values by name"),
        ("text", "about.min_count", None, "about.min_count is None, expected a whole number of at least 1"),
        ("text", "about.valid_share", 2, "about.valid_share is 2, expected"),
        ("text", "about.pretrained", 5, "about.pretrained is 5, expected a text, or None"),
        ("text", "vocabulary.counts", "1 2 x", "vocabulary.counts holds what is no whole number"),
        (
            "text",
            "vocabulary.words",
            "<unk> <eos> a",
            "vocabulary: counts has shape (33,), expected a count for each of 3",
        ),
        ("text", "classes", ["sun"], "model.n_classes is 2, expected 1, as many as the run has"),
        ("text", "classes", 7, "classes is 7, expected a list"),
        ("text", "corpus.words", "33", "corpus.words is '33', expected a whole number"),
        ("text", "max_tokens", 0, "max_tokens is 0, expected a whole number of at least 1, or None"),
        ("language", "vocabulary", "the <eos>", "model.n_words is 14, expected 2, as many as the run has"),
        ("language", "bptt", 0, "bptt is 0, expected a whole number of at least 1"),
        ("language", "model.hidden", [8, "x"], "model.hidden[1] is 'x', expected a whole number of at least 1"),
        ("language", "fresh", [1], "fresh[0] is 1, expected a text"),
        ("language", "batch_size", DELETE, "batch_size is missing, expected a positive whole number"),
        ("language", "bptt", DELETE, "bptt is missing, expected a positive whole number"),
        ("images", "batch_size", DELETE, "batch_size is missing, expected a positive whole number"),
        ("text", "max_tokens", DELETE, "max_tokens is missing, expected a positive whole number"),
        ("pretraining", "held_out", DELETE, "held_out is missing, expected a positive whole number"),
        ("pretraining", "T", None, "T is None, expected a whole number of at least 1"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_configuration(name: str, at: str, value: Any, message: str, run: Any, says: Any) -> None:
    path = run(name)
    config = unseal(path / "config.json")["config"]
    set_config(path, changed(config, tuple(at.split(".")), value))
    for command in (["eval", path, *DATA[name]], ["train", "--resume", path, *DATA[name]]):
        code, said = says(*command)
        assert code == 2
        [line] = said.splitlines()
        assert line.startswith(f"minadv: {path}/config.json: ")
        assert message in line


@pytest.mark.parametrize("command", [["eval"], ["train", "--resume"], ["train", "--train-steps", "99", "--resume"]])
def test_sizes_that_no_machine_or_no_checkpoint_has(
    command: list[str], run: Any, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: object, **__: object) -> None:
        raise AssertionError("parameters were drawn")

    path = run("images")
    config = unseal(path / "config.json")["config"]
    monkeypatch.setattr(Classifier, "init", drawn)
    for size, begins, ends in (
        (10**7, "the run needs 4", "lower n_hidden (--hidden), which is 10,000,000"),
        (1000, "the model has 4,0", "model.n_hidden is 1000, which cannot be what was trained"),
    ):
        set_config(path, changed(config, ("model", "n_hidden"), size))
        code, said = says(*command, path)
        assert code == 2 and said.startswith(f"minadv: {path}/config.json: {begins}") and said.endswith(f"{ends}\n")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        ("batch_size", 10**6, "the batch size is 1000000, expected 1 to "),
        ("track", {"budgets": 999}, "budgets of layer0 is 999, expected a number of flips from 1 to H = "),
        ("regularizer.delta", 1e-30, "delta is 1e-30, which allows no flip among H = "),
        ("about.pool", 10**6, "pool is 1000000, expected a divisor of both sides"),
    ],
)
def test_values_that_fit_nothing_else_there(at: str, value: Any, message: str, run: Any, says: Any) -> None:
    path = run("images", "stopped")
    config = unseal(path / "config.json")["config"]
    set_config(path, changed(config, tuple(at.split(".")), value))
    before = (path / "log.jsonl").read_bytes()
    code, said = says("train", "--resume", path)
    assert code == 2 and said.startswith(f"minadv: {path}/config.json: {message}")
    assert (path / "log.jsonl").read_bytes() == before


def test_files_that_are_no_tables(run: Any, says: Any) -> None:
    for content, message in (
        ({"format": "minadv run 1"}, "config.json: config is NoneType, expected a table of values by name"),
        ({"format": "minadv run 1", "config": [1]}, "config.json: config is list, expected a table of values by name"),
        ([], "config.json holds a list, expected a table of values by name"),
    ):
        path = run("images")
        reseal(path / "config.json", content)  # type: ignore[arg-type]
        code, said = says("eval", path)
        assert code == 2 and said.endswith(f"{path}/{message}\n")
    body = b"[" * 100_000
    (path / "config.json").write_bytes(
        b'{"sha256": "%s",\n"content": %s}\n' % (hashlib.sha256(body).hexdigest().encode(), body)
    )
    code, said = says("eval", path)
    assert code == 2 and "config.json holds no JSON" in said


@pytest.mark.parametrize("name", ["images", "language"])
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", DELETE, "kind is missing, expected a text"),
        ("kind", 3, "kind is 3, expected a text"),
        ("MONITOR", DELETE, "MONITOR is missing, expected a finite number"),
        ("MONITOR", "low", "MONITOR is 'low', expected a finite number"),
        ("epoch", None, "epoch is None, expected zero or a positive number"),
        ("train_loss", 2**2000, "train_loss is a whole number of 2001 bits, expected at most"),
        ("valid_mean_mask", {"layer0": [MANY]}, f"valid_mean_mask.layer0[0] is {MANY}, expected a share from 0 to 1"),
        ("train_loss", [], r"train_loss is [], expected a finite number, or None"),
    ],
)
def test_a_log(name: str, field: str, value: Any, message: str, run: Any, says: Any) -> None:
    watched = "valid_error" if name == "images" else "valid_loss"
    field, message = (text.replace("MONITOR", watched) for text in (field, message))
    path = run(name)
    lines = (path / "log.jsonl").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if '"evaluation"' in line)
    lines[at] = json.dumps(changed(json.loads(lines[at]), (field,), value))
    (path / "log.jsonl").write_text("\n".join(lines) + "\n")
    code, said = says("eval", path, *DATA[name])
    assert code == 2
    assert said.startswith(f"minadv: {path}/log.jsonl: in a record of step {json.loads(lines[at])['step']}, {message}")
    stopped = run(name, "stopped")
    lines = (stopped / "log.jsonl").read_text().splitlines()
    lines[1] = json.dumps(changed(json.loads(lines[1]), (field,), value))
    (stopped / "log.jsonl").write_text("\n".join(lines) + "\n")
    code, said = says("train", "--resume", stopped, *DATA[name])
    assert code == 2 and message in said


def newest(path: Path) -> Path:
    found = checkpoints.latest(path)
    assert found is not None
    return found


def set_tensors(path: Path, blob: bytes) -> None:
    """Give a run's only checkpoint other arrays, under checksums of their own."""
    content = unseal(path)
    sha256 = hashlib.sha256(blob).hexdigest()
    file = f"{path.stem}-{sha256[:16]}.safetensors"
    path.with_name(file).write_bytes(blob)
    reseal(path, {**content, "tensors": {"file": file, "bytes": len(blob), "sha256": sha256}})


def header(blob: bytes) -> tuple[dict[str, Any], bytes]:
    n = struct.unpack("<Q", blob[:8])[0]
    return json.loads(blob[8 : 8 + n]), blob[8 + n :]


def with_header(about: Any, rest: bytes) -> bytes:
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + rest


@pytest.mark.parametrize(
    "spoil",
    [
        lambda about, name: {**about, name: {**about[name], "shape": [3, 3]}},
        lambda about, name: {**about, name: {**about[name], "shape": "x"}},
        lambda about, name: {**about, name: {**about[name], "shape": [-1]}},
        lambda about, name: {**about, name: {**about[name], "dtype": "F65"}},
        lambda about, name: {**about, name: {**about[name], "data_offsets": [0, MANY]}},
        lambda about, name: {**about, name: 3},
        lambda about, name: [],
        lambda about, name: None,
    ],
)
def test_a_header_of_arrays(spoil: Any, run: Any, says: Any) -> None:
    path = run("images")
    for other in sorted((path / "checkpoints").glob("*.json"))[:-1]:
        other.unlink()
    file = newest(path)
    about, rest = header(next((path / "checkpoints").glob(f"{file.stem}-*.safetensors")).read_bytes())
    set_tensors(file, with_header(spoil(about, "params.V"), rest))
    code, said = says("eval", path)
    assert code == 2
    [line] = said.splitlines()
    assert f"{path}/checkpoints/{file.stem}" in line
    assert "is no file of arrays" in line or "does not fit" in line


@pytest.mark.parametrize(
    "at", ["tensors", "scalars", "meta", "step", "tensors.file", "tensors.bytes", "tensors.sha256"]
)
@pytest.mark.parametrize("value", [DELETE, None, "x", -1, [], {}], ids=str)
def test_the_json_file_of_a_checkpoint(at: str, value: Any, run: Any, says: Any) -> None:
    path = run("images")
    for file in (path / "checkpoints").glob("*.json"):
        reseal(file, changed(unseal(file), tuple(at.split(".")), value))
    code, said = says("eval", path)
    harmless = at in ("meta", "scalars") and value == {}
    assert code == (0 if harmless and at == "meta" else 2)
    assert "Error" not in said


@pytest.mark.parametrize("command", ["eval", "attack", "predict", "show"])
def test_weights_that_are_nan(command: str, run: Any, says: Any) -> None:
    path = run("images")
    file = newest(path)
    about, rest = header(next((path / "checkpoints").glob(f"{file.stem}-*.safetensors")).read_bytes())
    data = bytearray(rest)
    for name in ("params.V", "best.V"):
        begin, end = about[name]["data_offsets"]
        data[begin:end] = np.full((end - begin) // 4, np.nan, np.float32).tobytes()
    set_tensors(file, with_header(about, bytes(data)))
    assert says(command, path) == (1, f"minadv: {path} has weights that are not finite (V)\n")
    with pytest.raises(minadv.training.loop.TrainingError, match=r"not finite \(V\)"):
        minadv.load(path).predict(np.zeros((1, 8, 8)))


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("seed", range(20 if DEEP else 2))
def test_lies_at_random(name: str, seed: int, run: Any, says: Any) -> None:
    """Any value of a configuration, a log or a checkpoint replaced by any other: at worst an error of one line."""
    rng = random.Random(f"{name} {seed}")
    for _ in range(15):
        path = run(name)
        what = rng.choice(["config", "config", "config", "log", "checkpoint"])
        if what == "config":
            config = unseal(path / "config.json")["config"]
            spot, lie = rng.choice(list(places(config))), rng.choice(LIES)
            set_config(path, changed(config, spot, lie))
        elif what == "log":
            lines = (path / "log.jsonl").read_text().splitlines()
            n = rng.randrange(len(lines))
            record = json.loads(lines[n])
            spot, lie = rng.choice(list(places(record))), rng.choice(LIES)
            lines[n] = json.dumps(changed(record, spot, lie))
            (path / "log.jsonl").write_text("\n".join(lines) + "\n")
        else:
            file = rng.choice(sorted((path / "checkpoints").glob("*.json")))
            content = unseal(file)
            spot, lie = rng.choice(list(places(content))), rng.choice(LIES)
            reseal(file, changed(content, spot, lie))
        for command in (["eval", path], ["train", "--resume", path]):
            try:
                code, said = says(*command, *DATA[name])
            except Exception as error:
                raise AssertionError(f"{what} {spot} = {lie!r}: {command[0]} ends in {error!r}") from error
            assert code in (0, 1, 2), f"{what} {spot} = {lie!r}: {command[0]} exits with {code}"
            if code == 2:
                assert all(not x for x in ("not supported between", "NoneType' is not", "object is not") if x in said)


def test_what_a_schema_reads_is_what_the_folder_says(run: Any) -> None:
    for name in DATA:
        path = run(name)
        assert read_config(path) == unseal(path / "config.json")["config"]
