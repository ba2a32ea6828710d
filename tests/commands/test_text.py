"""Every command on texts, end to end, in a folder of short ones; and what a user can do wrong, in one line each."""

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.base.files import seal
from minadv.cli import main
from minadv.commands import train
from minadv.data.texts import reviews
from minadv.models.text import TextClassifier
from minadv.tasks.methods import ADVERSARIAL, regularizer
from minadv.tasks.run import load, open_run
from minadv.tasks.text.family import FAMILY, model_of
from minadv.training.runs import checkpoints, log
from tests.support import commands
from tests.support.commands import parsed
from tests.support.reviewfiles import write_elec

pytest.importorskip("safetensors")

ROOT = Path(__file__).parents[2]
SMALL = ["--embed", "6", "--hidden", "8", "--batch", "4", "--workers", "1", "--device", "cpu", "--min-count", "1"]
LM = [*SMALL, "--window", "5", "--candidates", "5", "--held-out", "50"]
PLAIN = [*SMALL, "--train-steps", "3"]
SHORT = [*PLAIN, "--delta", "0.25"]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("MINADV_DATA", raising=False)
        yield


@pytest.fixture(autouse=True, scope="module")  # before any run of this file is trained
def host(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("texts on CuPy: tests/commands/test_devices.py")


def write(folder: Path, *, seed: int = 0) -> Path:
    """Two classes, 14 texts of each to train on, 6 to test, 10 without labels."""
    rng = np.random.default_rng(seed)
    for part, many in (("train/good", 14), ("train/bad", 14), ("test/good", 6), ("test/bad", 6), ("train/unsup", 10)):
        (folder / part).mkdir(parents=True)
        for n in range(many):
            label = part.split("/")[1] if part != "train/unsup" else ("good", "bad")[n % 2]
            words = rng.choice(["the", "film", "is", "it", label, f"very {label}"], size=rng.integers(3, 9))
            (folder / part / f"{n}.txt").write_text(" ".join([*words, label]))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("texts") / "films")


@pytest.fixture(scope="module")
def lm(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("lm") / "run"
    assert main(["pretrain", str(texts), *LM, "--epochs", "2", "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def trained(texts: Path, lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("text") / "run"
    options = ["--train-steps", "40", "--lr", "0.02", "--delta", "0.25", "--batch", "4", "--workers", "1"]
    given = ["--data-dir", str(texts), "--pretrained", str(lm), "--out", str(run), *options]
    assert main(["train", "text", *given]) == 0
    return run


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts bytes on standard input."""
    return lambda content: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_folders_that_were_given_by_their_names_alone(
    texts: Path, says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run remembers where its texts are, and is opened from anywhere."""
    monkeypatch.chdir(texts.parent)
    says("pretrain", texts.name, *LM, "--train-steps", 1, "--out", tmp_path / "lm")
    says("train", "text", "--data-dir", texts.name, *SHORT, "--out", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for run in ("lm", "run"):
        assert load(run).config["about"]["data_dir"] == str(texts)
        assert len(says("eval", run)) == 1


def test_pretrain(texts: Path, says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [line] = says("pretrain", texts, *LM, "--train-steps", 8, "--eval-every", 4, "--lr", 0.01, "--lr-decay", 0.9)
    found = re.fullmatch(r"held-out perplexity ([\d.]+) \(loss [\d.]+\), the best, at step 8 of 8; run in (.*)", line)
    assert found
    assert found[2] == "runs/films-lm-seed0"
    config = load(found[2]).config
    assert (config["kind"], config["batch_size"], config["T"], config["held_out"]) == ("pretrain", 4, 5, 50)
    assert (config["model"]["n_embedding"], config["model"]["n_hidden"], config["model"]["n_candidates"]) == (6, 8, 5)
    assert config["recipe"]["step_schedule"]["rate"] == 0.9
    [line] = says("eval", found[2])
    assert re.fullmatch(r"test perplexity [\d.]+, loss [\d.]+ \(about 50 words\)", line)
    assert says("pretrain", "--resume", found[2]) == [f"{found[2]} is finished: nothing to resume"]


def test_pretrain_names_its_folder_as_train_does(
    texts: Path, says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [line] = says("pretrain", "text", "--data-dir", texts, *LM, "--train-steps", 1)
    assert line.endswith("run in runs/films-lm-seed0")
    by_name = tmp_path / "by-name"
    says("pretrain", texts, *LM, "--train-steps", 1, "--out", by_name)
    mine, theirs = (load(run).config for run in ("runs/films-lm-seed0", by_name))
    assert mine["about"] == theirs["about"]
    assert mine["corpus"] == theirs["corpus"]


@pytest.mark.parametrize(
    "before",
    [
        "--seed 1",
        "--seed=1 --stop-base",
        "--no-stop-base --seed 1 --stop",
        "--out text --seed 1",
        "--data-dir lm --seed 1 --method none",
    ],
)
def test_options_may_come_before_the_task(before: str) -> None:
    args = parsed("train", *before.split(), "imdb", "--hidden", "8")
    assert (args.task, args.seed, args.hidden, args.family, args.work) == ("imdb", 1, 8, FAMILY, train.work)
    images = parsed("train", "--rows", "--seed", "1", "smnist", "--out", "text")
    assert (images.task, images.rows, images.seed, images.out) == ("smnist", True, 1, "text")


def test_train_begins_with_the_language_model(trained: Path, lm: Path, texts: Path, says: Any) -> None:
    """Its sizes and its vocabulary are not said again."""
    run, before = load(trained), load(lm)
    assert run.vocabulary.fingerprint == before.vocabulary.fingerprint
    assert (run.model.n_embedding, run.model.n_hidden, run.model.truncate) == (6, 8, 400)
    assert run.config["about"]["min_count"] == 1
    assert run.config["about"]["pretrained"] == str(lm)
    [line] = says("eval", trained)
    error = re.fullmatch(r"test error ([\d.]+) %, loss [\d.]+ \(12 texts\)", line)
    assert error
    assert float(error[1]) < 30
    best = min(record["valid_error"] for record in run.records)
    [line] = says("eval", trained, "--part", "valid", "--data-dir", texts)
    assert line.startswith(f"valid error {best:.2f} %")
    [line] = says("eval", trained, "--part", "train", "--last")
    assert line.endswith("(24 texts)")


@pytest.mark.parametrize("method", FAMILY.methods)
def test_every_method(method: str, texts: Path, capsys: Any, tmp_path: Path) -> None:
    """At K = 2, where there is a K: no map is zero, or there would be a warning."""
    run = tmp_path / "run"
    extra = [*SHORT, "--adv-steps", 2] if method in ADVERSARIAL else PLAIN
    given = [*extra, "--method", method, "--out", run]
    assert main(list(map(str, ["train", "text", "--data-dir", texts, *given]))) == 0
    said = capsys.readouterr()
    assert said.out.startswith("test error ")
    assert "warning:" not in said.err
    names = ("Plain", "AT", "VAT", "VD", "EL", "FD", "Pi", "RDrop", "AdD", "AdD", "Sum")
    kinds = dict(zip(FAMILY.methods, names, strict=True))
    described = load(run).config["regularizer"]
    assert described["kind"] == kinds[method]
    if method == "last":
        assert described["sites"] == ["readout"]


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        "",
        "--search reselect",
        "--variant paper",
        "--variant authors",
        "--init base --noise independent --distance kl --stop-base --rule authors",
    ],
)
def test_adversarial_dropout(K: int, options: str, texts: Path, capsys: Any, tmp_path: Path) -> None:
    given = [*SHORT, "--adv-steps", K, *options.split(), "--out", tmp_path / "run"]
    assert main(list(map(str, ["train", "text", "--data-dir", texts, *given]))) == 0
    assert "warning:" not in capsys.readouterr().err
    config = load(tmp_path / "run").config["regularizer"]
    assert config["search"]["K"] == K
    base = "base" in options or "variant" in options
    assert config["share_noise"] is not base
    assert config["search"]["start"] == ("base" if base else "flip")


MINADV = ("flip", True, "js", False, "none", "strict", None)
PAPER = ("base", False, "js", False, "none", "strict", None)


@pytest.mark.parametrize(
    ("task", "options", "form"),
    [
        ("docstrings", "", MINADV),
        ("text", "--method last", MINADV),
        ("imdb", "", PAPER),
        ("elec", "--method last --adv-steps 2", PAPER),
        ("imdb", "--variant minadv", MINADV),
        ("text", "--variant paper", PAPER),
        ("text", "--variant paper --init flip --noise shared --distance kl", ("flip", True, "kl", *MINADV[3:])),
        ("text", "--variant authors", ("base", False, "kl", True, "kept", "authors", "text")),
        ("imdb", "--variant authors --no-stop-base --scale none --rule strict", ("base", False, "kl", *PAPER[3:])),
        ("text", "--rule authors", (*MINADV[:5], "authors", "text")),
    ],
)
def test_variants(task: str, options: str, form: tuple[Any, ...]) -> None:
    args = parsed("train", task, *options.split())
    found = regularizer(args, model_of(args, 2, 2))
    search, of_add = found.search, [getattr(found, name) for name in ("share_noise", "distance", "stop_base", "scale")]
    assert (search.start, *of_add, search.rule, search.variant) == form
    assert search.keep == "last"


@pytest.mark.parametrize("method", ["el", "fd", "pi", "rdrop"])
def test_variants_are_of_add_alone(method: str) -> None:
    args = parsed("train", "imdb", "--variant", "authors", "--method", method)
    found = regularizer(args, model_of(args, 2, 2))
    assert (found.share_noise, found.distance, getattr(found, "stop_base", False)) == (
        *(True, "skl" if method == "rdrop" else "js"),
        False,
    )


def test_a_zero_map_is_said(texts: Path, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextClassifier, "noise", lambda *given: None)  # the same in both passes: none
    given = [*SHORT, "--init", "base", "--noise", "independent", "--out", tmp_path / "run"]
    assert main(list(map(str, ["train", "text", "--data-dir", texts, *given]))) == 0
    assert "minadv: warning: the influence map is zero up to rounding" in capsys.readouterr().err


def test_options_reach_the_run(texts: Path, says: Any, tmp_path: Path) -> None:
    given = "--method el --p 0.25 --noise independent --stop-base --weight 0.5 --seed 7 --max-tokens 4 --truncate 3"
    more = (
        "--relu 5 --output sigmoid --layers 2 --cell gru --dropout 0.3 --unlabelled 2 --ema 0 --clip 0.5 --patience 9"
    )
    rest = (
        "--vocab-size 9 --valid-share 0.3 --dtype float64 --lr 0.01 --lr-decay 0.99 --eval-every 2 --checkpoint-every 1"
    )
    run = tmp_path / "run"
    options = [*PLAIN, *given.split(), *more.split(), *rest.split()]
    says("train", "text", "--data-dir", texts, *options, "--out", run)
    found = load(run)
    model, recipe, config = found.model, found.config["recipe"], found.config
    assert (model.n_relu, model.output, model.n_layers, model.cell, model.truncate) == (5, "sigmoid", 2, "gru", 3)
    assert (model.embedding_dropout, model.n_words, found.params.b.dtype) == (0.3, 9, np.float64)
    assert (config["max_tokens"], config["unlabelled_size"], config["seed"]) == (4, 2, 7)
    names = ("p", "share_noise", "stop_base", "distance")
    assert [config["regularizer"][name] for name in names] == [0.25, False, True, "js"]
    assert (recipe["optimizer"]["lr"], recipe["step_schedule"]["rate"], recipe["ema"]) == (0.01, 0.99, None)
    assert [recipe[name] for name in ("weight", "patience", "eval_every", "checkpoint_every")] == [0.5, 9, 2, 1]
    assert recipe["clip"] == {"kind": "Clip", "limit": 0.5, "how": "norm", "only": None, "but": ["encoder.E"]}
    assert config["corpus"]["valid"] == 8


def test_embeddings_alone(texts: Path, lm: Path, says: Any, tmp_path: Path) -> None:
    """With cells of another size, and the vocabulary of the language model."""
    given = ["--take", "embeddings", "--hidden", 12, "--batch", 4, "--train-steps", 1, "--delta", 0.25, "--lr", 1e-9]
    says("train", "text", "--data-dir", texts, "--pretrained", lm, *given, "--ema", 0, "--out", tmp_path / "run")
    run = load(tmp_path / "run")
    assert (run.model.n_hidden, run.model.n_embedding, run.config["take"]) == (12, 6, "embeddings")
    np.testing.assert_allclose(run.params.encoder.E, load(lm).params.encoder.E, atol=1e-6)


def test_elec_files(says: Any, tmp_path: Path) -> None:
    write_elec(tmp_path / "elec")
    run = tmp_path / "run"
    assert says("train", "elec", "--data-dir", tmp_path, *SMALL, "--delta", 0.25, "--train-steps", 1, "--out", run)
    found = load(run)
    assert (found.classes, found.config["corpus"]["name"], found.vocabulary.split) == (("1", "2"), "elec", "spaces")
    elec, imdb = (FAMILY.presets[name].values for name in ("elec", "imdb"))
    assert (elec["train_steps"], imdb["train_steps"], imdb["hidden"]) == (10_000, 15_000, 1024)


def test_docstrings_need_no_data(says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default: its texts are made few here by taking the two largest files of each class."""
    every = {label: reviews.docstrings._files(label) for label in reviews.docstrings.CLASSES}
    largest = {label: sorted(files.items(), key=lambda f: -f[1].stat().st_size)[:2] for label, files in every.items()}
    monkeypatch.setattr(reviews.docstrings, "_files", lambda label: dict(largest[label]))
    lm, run = tmp_path / "lm", tmp_path / "run"
    assert says("pretrain", "docstrings", *LM, "--train-steps", 2, "--out", lm)
    assert says(
        "train", "docstrings", "--pretrained", lm, "--batch", 4, "--train-steps", 2, "--delta", 0.3, "--out", run
    )
    assert load(run).classes == tuple(sorted(reviews.docstrings.CLASSES))
    assert load(run).config["max_tokens"] == 100


def test_predict(trained: Path, says: Any, lines: Any, tmp_path: Path) -> None:
    texts = "the film is very good good\nit is bad bad bad\n\u00fcber good"
    lines(texts.encode())
    rows = [line.split("\t") for line in says("predict", trained)]
    run = load(trained)
    p = run.predict(texts.split("\n"))
    assert rows == [[run.classes[q.argmax()], f"{q.max():.4f}"] for q in p]
    assert [row[0] for row in rows[:2]] == ["good", "bad"]
    (tmp_path / "lines.txt").write_text(texts)
    assert [line.split("\t") for line in says("predict", trained, tmp_path / "lines.txt")] == rows
    lines(b"")
    assert says("predict", trained) == []


def test_predict_the_texts_of_a_table(trained: Path, says: Any, fails: Any, tmp_path: Path) -> None:
    texts = ["the film is, very good", "it is bad bad bad"]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    rows = says("predict", trained, tmp_path / "lines.txt")
    for name, held in (
        ("both.csv", f'label,text\ngood,"{texts[0]}"\nbad,{texts[1]}\n'),
        ("more.tsv", f"n\ttext\twhen\n1\t{texts[0]}\tnow\n2\t{texts[1]}\tthen\n"),
        ("one.csv", f'whatever\n"{texts[0]}"\n{texts[1]}\n'),
        ("empty.csv", f'text\n"{texts[0]}"\n""\n{texts[1]}\n'),
        ("some.jsonl", "".join(json.dumps({"review": text, "stars": 3}) + "\n" for text in texts)),
    ):
        (tmp_path / name).write_text(held)
        answers = says("predict", trained, tmp_path / name)
        assert answers == ([rows[0], "(empty)\t", rows[1]] if name == "empty.csv" else rows)
    (tmp_path / "none.csv").write_text("a,b,c\n1,2,3\n")
    said = "none.csv has the columns 'a', 'b', 'c', and none is called 'text': rename the one that is meant"
    assert said in fails("predict", trained, tmp_path / "none.csv")
    (tmp_path / "none.csv").write_text("tweet,stars\ngreat film,5\nbad film,1\n")
    assert "columns 'tweet', 'stars', and none is called 'text'" in fails("predict", trained, tmp_path / "none.csv")
    (tmp_path / "none.csv").write_text("")
    assert "none.csv begins with '', expected the name of a column" in fails("predict", trained, tmp_path / "none.csv")
    (tmp_path / "none.csv").write_text("text\n")
    assert "none.csv has no rows, expected texts" in fails("predict", trained, tmp_path / "none.csv")
    (tmp_path / "nul.jsonl").write_text('{"text": "a\\u0000b"}\n')
    assert "line 1 of" in fails("predict", trained, tmp_path / "nul.jsonl")


def test_predict_and_explain(trained: Path, says: Any, lines: Any) -> None:
    """Label and probability as without; then units, the largest change first, each with what it does."""
    texts = b"the film is very good good\nit is bad bad bad\n"
    lines(texts)
    plain = [line.split("\t") for line in says("predict", trained)]
    lines(texts)
    rows = [line.split("\t") for line in says("predict", trained, "--explain", "--units", 3)]
    assert [row[:2] for row in rows] == plain
    for row in rows:
        units = [re.fullmatch(r"(\d):([+-][\d.]+)( good| bad)?", cell) for cell in row[2:]]
        assert len(units) == 3
        assert all(units)
        changes = [abs(float(unit[2])) for unit in units if unit]
        assert changes == sorted(changes, reverse=True)
        assert changes[0] > 0
        for unit in units:  # the answer turns where its probability falls below one half, and only there
            assert unit is not None
            assert (unit[3] is not None) == (float(row[1]) + float(unit[2]) < 0.5)
    lines(texts)
    assert [len(line.split("\t")) for line in says("predict", "--explain", trained)] == [7, 7]


def test_attack(trained: Path, says: Any) -> None:
    head, columns, *rows = says("attack", trained, "--budget", 2, "--examples", 10)
    assert head == "10 test texts, 2 of 8 units flipped in each of 1 layer(s)"
    assert columns.split() == ["mask", "accuracy", "%", "mean", "D"]
    d = {row[:14].strip(): float(row[14:].split()[1]) for row in rows}
    assert list(d) == ["none", "random", "greedy K=1", "greedy K=2", "reselect K=2", "relax", "relax, long", "exact"]
    assert d["none"] == 0
    assert 0 < d["random"] <= d["exact"]
    assert max(d["greedy K=1"], d["greedy K=2"], d["reselect K=2"]) <= d["exact"]
    *_, last = says("attack", trained, "--examples", 3, "--max-masks", 36)
    assert last == "exact          left out: 37 masks, more than --max-masks 36"


def test_show(trained: Path, lm: Path, says: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "figures"
    lines = says("show", trained, "--out", out, "--examples", 8)
    paths = [Path(line) for line in lines[:3]]
    assert paths == [out / "curves.png", out / "influence.png", out / "confusion.png"]
    run = open_run(trained)
    assert [line.split()[0] for line in lines[5:]] == list(run.classes)
    wrong = sum(int(line.split()[-2]) for line in lines[5:])
    assert 100 * wrong / len(run.data.test) == pytest.approx(run.test()["error"])
    paths += [Path(line) for line in says("show", lm, "--out", out / "lm")]
    assert paths[3:] == [out / "lm" / "curves.png"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


def deadly(call: str, n: int, arguments: list[Any]) -> int:
    """A command in a process that kills itself, as kill -9 would, at its n-th such call."""
    command = [sys.executable, "-m", "tests.support.deadly", call, str(n), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


def ends(run: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    path = checkpoints.latest(run)
    assert path is not None
    found, _ = checkpoints.load(path)
    records = [record for record in log.read(run / "log.jsonl") if record["kind"] == "evaluation"]
    return {name: np.asarray(leaf).tobytes() for name, leaf in found.items()}, [{**r, "time": 0} for r in records]


@pytest.mark.parametrize("kind", ["pretrain", "text"])
def test_killed_and_resumed(kind: str, texts: Path, lm: Path, says: Any, tmp_path: Path) -> None:
    """In the writing of a checkpoint in the middle of an epoch; ``train --resume`` goes on with both kinds."""
    if kind == "pretrain":
        command = ["pretrain", texts, *LM]
    else:
        small = ["--batch", 4, "--workers", 1, "--device", "cpu", "--delta", 0.25]
        command = ["train", "text", "--data-dir", texts, "--pretrained", lm, "--method", "add+vat", *small]
    command += ["--train-steps", 5, "--checkpoint-every", 1, "--eval-every", 2]
    says(*command, "--out", tmp_path / "whole")
    run = tmp_path / "run"
    assert deadly("replace", 8, [*command, "--out", run]) == -signal.SIGKILL
    found = checkpoints.latest(run)
    assert found is not None
    assert 0 < int(found.stem.removeprefix("step-")) < 5
    says("train", "--resume", run)
    assert ends(run) == ends(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--method dropout", "argument --method: invalid choice: 'dropout'"),
        ("--hidden 0", "argument --hidden: '0' is not a positive whole number"),
        ("--p 1", "argument --p: '1' is not a probability"),
        ("--delta 1.5", "delta is 1.5, expected a share of the units from 0 to 1"),
        ("--delta 0.1", "delta is 0.1, which allows no flip among H = 8 units: the smallest useful delta is 1/8"),
        ("--init base", 'start is "base" with the same noise in both passes, where the influence map is zero'),
        ("--init base --noise independent --dropout 0", 'start is "base" with the same noise in both passes'),
        (
            "--method vat --delta 0.04 --noise independent",
            "--noise independent: --method vat has no use for it, expected",
        ),
        ("--search reselect --rule paper", "--rule paper: --search reselect has no use for it, expected one of greedy"),
        ("--epochs 1", "argument --epochs: not allowed with argument --train-steps"),
        ("--lr-decay 2", "rate is 2.0, expected a number in (0, 1]"),
        ("--vocab-size 2", "max_size is 2, expected at least 3"),
        ("--output sigmoid --layers 0", "argument --layers: '0' is not a positive whole number"),
        ("--speed 3", "unrecognized arguments: --speed 3"),
    ],
)
def test_bad_options(options: str, says: str, texts: Path, tmp_path: Path, fails: Any) -> None:
    line = fails("train", "text", "--data-dir", texts, *SHORT, *options.split(), "--out", tmp_path / "run")
    assert says in line.removeprefix("minadv")
    assert not (tmp_path / "run").exists()


def spoil(folder: Path, what: str) -> None:
    if what == "latin":
        (folder / "train/good/3.txt").write_bytes(b"a caf\xe9")
    elif what == "empty":
        (folder / "test/bad/2.txt").write_text(" \n")
    else:
        for path in (folder / what).iterdir():
            path.unlink()
        (folder / what).rmdir()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("latin", "train/good/3.txt is not UTF-8: byte 0xe9 at offset 5"),
        ("empty", "test/bad/2.txt is empty, expected at least one word"),
        ("test/bad", "has no documents in test/bad, expected some of each class: bad, good"),
        ("train/bad", "has the classes (good) in train, expected at least two"),
    ],
)
def test_bad_texts(what: str, says: str, tmp_path: Path, fails: Any) -> None:
    folder, run = write(tmp_path / "films"), tmp_path / "run"
    spoil(folder, what)
    for command in (["train", "text", "--data-dir", folder, *SHORT], ["pretrain", folder, *LM]):
        assert says in fails(*command, "--out", run)
        assert not run.exists()


def test_texts_that_are_not_there(tmp_path: Path, fails: Any) -> None:
    run = tmp_path / "run"
    assert "no folder is given: name the one" in fails("train", "text", *SHORT, "--out", run)
    line = fails("pretrain", tmp_path / "no", "--out", run)
    assert line.startswith(f"minadv: the data directory {tmp_path / 'no'} does not exist: say where")
    assert "lacks aclImdb_v1.tar.gz" in fails("train", "imdb", "--data-dir", tmp_path, *SHORT, "--out", run)
    assert "give a text, one of imdb, elec, docstrings, text with --data-dir or a folder" in fails("pretrain")
    assert "no folder is given: name the one" in fails("pretrain", "text", *LM, "--out", run)
    assert "give one of the two" in fails("pretrain", tmp_path, "--data-dir", tmp_path, "--out", run)
    write_elec(tmp_path / "elec", train_cat=b"1\n2\n")
    line = fails("train", "elec", "--data-dir", tmp_path, *SHORT, "--out", run)
    assert "elec-25k-train.cat holds 2 labels, expected 6, one for each line" in line
    assert not run.exists()


def test_a_vocabulary_from_another_run_is_refused(
    lm: Path, trained: Path, texts: Path, tmp_path: Path, fails: Any
) -> None:
    run, other = tmp_path / "run", write(tmp_path / "films", seed=1)
    short = ["--batch", 4, "--delta", 0.25, "--train-steps", 1, "--out", run]
    with_lm = ["train", "text", "--pretrained", lm, *short]
    line = fails(*with_lm, "--data-dir", other)
    assert re.search(r"the text has the vocabulary [0-9a-f]{12} \(\d+ words\), expected [0-9a-f]{12}, that of ", line)
    line = fails(*with_lm, "--data-dir", texts, "--vocab-size", 5)
    assert "the text has the vocabulary" in line
    line = fails(*with_lm, "--data-dir", texts, "--hidden", 9)
    assert "n_hidden is 9, expected 8, that of" in line
    assert "argument --take: invalid choice: 'some'" in fails(*with_lm, "--data-dir", texts, "--take", "some")
    line = fails("train", "text", "--pretrained", trained, "--data-dir", texts, *short)
    assert line == f"minadv: {trained} is a run of the kind 'text', expected one of minadv pretrain"
    assert not run.exists()
    line = fails("eval", trained, "--data-dir", other)
    assert line.startswith(f"minadv: {trained} was trained on another text: folder with")


@pytest.mark.parametrize("command", ["finetune", "generate"])
def test_runs_that_are_no_language_models(command: str, lm: Path, trained: Path, fails: Any, tmp_path: Path) -> None:
    """The kind is looked at before anything else, such as where the texts are."""
    images = tmp_path / "images"
    options = ["--hidden", "4", "--delta", "0.5", "--train-steps", "1", "--workers", "1", "--device", "cpu"]
    pytest.importorskip("sklearn")
    assert main(["train", "digits", "--pool", "4", *options, "--out", str(images)]) == 0
    for run, kind in ((lm, "pretrain"), (trained, "text"), (images, "classify")):
        assert fails(command, run).startswith(
            f"minadv: {run} is a run of the kind '{kind}', which {command} is not for"
        )


def test_runs_that_are_not_for_it(lm: Path, trained: Path, texts: Path, tmp_path: Path, fails: Any, lines: Any) -> None:
    for command in ("predict", "attack"):
        assert f"which {command} is not for: train a classifier that begins with it" in fails(command, lm)
    assert "is a run already: resume it" in fails("train", "text", "--data-dir", texts, *SHORT, "--out", trained)
    assert "is a run already: resume it" in fails("pretrain", texts, *LM, "--out", lm)
    line = fails("pretrain", texts, "--resume", lm, "--hidden", 3)
    assert line == "minadv: --resume goes on with the settings of the run: leave out TEXT, --hidden"
    assert "delta is 0.5 and budget is 2: give one of the two" in fails(
        "attack", trained, "--delta", 0.5, "--budget", 2
    )
    assert "is not a run of minadv" in fails("train", "text", "--data-dir", texts, *SHORT, "--pretrained", tmp_path)
    lines(b"good\n\xff\xfe bad\n")
    assert fails("predict", trained) == "minadv: line 2 of standard input is not UTF-8: byte 0xff at offset 0"
    lines(b"good\n\nbad\n")
    assert main(["predict", str(trained)]) == 0  # an empty line has its place among the answers
    assert "argument --units: '0' is not a positive whole number" in fails("predict", trained, "--units", 0)
    assert "--units is 3 without --explain, which it belongs to" in fails("predict", trained, "--units", 3)
    said = "--examples is 3, the number of test examples, beside a run of texts, whose lines are all answered: leave"
    assert said in fails("predict", trained, "--examples", 3)
    assert "No such file" in fails("predict", trained, tmp_path / "none.txt")


def test_a_configuration_from_elsewhere(trained: Path, tmp_path: Path, fails: Any) -> None:
    content = json.loads((trained / "config.json").read_text())["content"]
    content["config"]["kind"] = "sorcery"
    (tmp_path / "config.json").write_bytes(seal(content))
    assert "is a run of the kind 'sorcery', which this version of minadv does not know" in fails("eval", tmp_path)


def test_empty_lines_are_marked(trained: Path, says: Any, lines: Any) -> None:
    lines(b"it is good\n\n \nit is bad\n")
    first, *empty, last = says("predict", trained)
    assert empty == ["(empty)\t"] * 2
    lines(b"it is good\nit is bad\n")
    assert says("predict", trained) == [first, last]
    lines(b"\n")
    assert says("predict", trained, "--explain") == ["(empty)\t"]


def test_a_terminal_is_answered_line_by_line(trained: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def __iter__(self) -> Any:
            for line in ("it is good\n", "\n"):
                said.append(capsys.readouterr().out)  # what was answered before this line was read
                yield line

    monkeypatch.setattr("sys.stdin", Terminal())
    assert main(["predict", str(trained)]) == 0
    assert said[0] == ""
    assert re.fullmatch(r"(good|bad)\t[\d.]+\n", said[1])
    assert capsys.readouterr().out == "(empty)\t\n"


@pytest.mark.parametrize("task", list(FAMILY.presets))
def test_help_is_complete(task: str) -> None:
    parser = commands.command("train", task)
    text = parser.format_help()
    assert "(default: None)" not in text
    for action in parser._actions:
        assert action.help and len(action.help) > 5, action.option_strings
        assert all(option in text for option in action.option_strings)
    titles = [group.title for group in parser._action_groups[2:]]
    assert titles == ["the run", "data", "model", "method", "optimisation"]
