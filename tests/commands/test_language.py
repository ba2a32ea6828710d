"""Language models on the command line: every command end to end on a tiny text, and what a user can do wrong."""

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.cli import main
from minadv.commands.show import units
from minadv.tasks.language.family import FAMILY
from minadv.tasks.language.presets import PRESETS
from minadv.tasks.run import load, open_run
from minadv.training.runs import checkpoints, log
from tests.support.corpora import write_corpus
from tests.support.language_runs import lines

pytest.importorskip("safetensors")

ROOT = Path(__file__).parents[2]
PLAIN = ["--hidden", "6", "5", "--batch", "4", "--bptt", "7", "--device", "cpu", "--workers", "1"]
SMALL = [*PLAIN, "--init", "flip"]
TINY = ["train", "lm", *SMALL, "--delta", "0.5", "0.4"]


@pytest.fixture(autouse=True, scope="module")  # before any run of this file is trained
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("language models on CuPy: tests/commands/test_devices.py")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = {"train": lines(60), "valid": lines(9, 1), "test": lines(11, 2)}
    return write_corpus(tmp_path_factory.mktemp("text"), **{k: "\n".join(v) + "\n" for k, v in texts.items()})


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("lm") / "run"
    options = ["--epochs", "2", "--adv-steps", "2", "--eval-every", "20", "--checkpoint-every", "7"]
    options += ["--data-dir", str(text), "--out", str(run)]
    assert main([*TINY, *options]) == 0
    return run


def test_train_without_a_download(tmp_path: Path, says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [line] = says("train", "lm", "--hidden", 8, "--delta", 0.2, "--train-steps", 2, "--batch", 40, "--workers", 1)
    assert re.fullmatch(
        r"test perplexity [\d.]+ \(loss [\d.]+\), validation perplexity [\d.]+, the best, at step 2 of 2; "
        r"run in runs/lm-add-seed0",
        line,
    )
    header, *records = log.read(Path("runs/lm-add-seed0/log.jsonl"))
    assert header["config"]["corpus"]["name"] == "pydoc"
    assert [record["step"] for record in records] == [2]


@pytest.mark.parametrize("method", FAMILY.methods)
def test_every_method(method: str, text: Path, tmp_path: Path, says: Any) -> None:
    options = [
        "--method",
        method,
        "--train-steps",
        2,
        "--dtype",
        "float64",
        "--data-dir",
        text,
        "--out",
        tmp_path / "r",
    ]
    says(*(TINY if method == "add" else ["train", "lm", *PLAIN]), *options)
    run = load(tmp_path / "r")
    kinds = {"none": "Plain", "vd": "VD", "el": "EL", "fd": "FD", "pi": "Pi", "rdrop": "RDrop", "add": "AdD"}
    found = run.config["regularizer"]
    assert found["kind"] == kinds[method]
    assert found.get("distance") == {"fd": "logit2", "pi": "logit2", "el": "js", "rdrop": "skl", "add": "js"}.get(
        method
    )
    assert found.get("share_noise") == {"fd": True, "pi": True, "el": True, "rdrop": True, "add": False}.get(method)
    assert run.config["recipe"]["weight"] == (0.1 if method in ("fd", "pi") else 1)
    assert run.params.E.dtype == np.float64
    assert run.step == 2


def test_options_reach_the_run(text: Path, tmp_path: Path, says: Any) -> None:
    given = (
        "--hidden 6 4 5 --embed 3 --untied --batch 3 --bptt 6 --equal-lengths --budget 2 1 2 --adv-steps 2 "
        "--search reselect --scale kept --distance kl --fresh words inputs --every 2 --weight 0.3 --ramp-up 2 "
        "--word-dropout 0.2 --input-dropout 0.15 --hidden-dropout 0.25 --output-dropout 0.35 --dropconnect 0.45 "
        "--ar 2 --tar 1 --optimizer asgd --nonmono 4 --lr 2 --weight-decay 0.01 --clip 0.5 --seed 7 --patience 9 "
        "--eval-every 2 --eval-columns 3 --checkpoint-every 3 --train-steps 4 --min-count 1 --workers 1"
    )
    says("train", "lm", *given.split(), "--data-dir", text, "--out", tmp_path / "run")
    config = load(tmp_path / "run").config
    model, add, recipe = config["model"], config["regularizer"], config["recipe"]
    names = ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "dropconnect", "alpha", "beta")
    assert [model[name] for name in names] == [0.2, 0.15, 0.25, 0.35, 0.45, 2, 1]
    assert (model["hidden"], model["n_embed"], model["tied"]) == ([6, 4, 5], 3, False)
    assert add["budgets"] == {"layer0": 2, "layer1": 1, "layer2": 2}
    assert [add[name] for name in ("scale", "distance", "share_noise")] == ["kept", "kl", False]
    assert add["search"] == {"kind": "Reselect", "K": 2, "swaps": 0, "start": "base"}
    names = ("batch_size", "bptt", "random_lengths", "fresh", "every", "columns", "seed")
    assert [config[name] for name in names] == [3, 6, False, ["words", "inputs"], 2, 3, 7]
    assert recipe["optimizer"] == {"kind": "ASGD", "lr": 2, "weight_decay": 0.01, "interval": 4}
    assert recipe["weight_schedule"] == {"kind": "RampUp", "length": 2}
    names = ("weight", "patience", "eval_every", "checkpoint_every", "steps", "monitor")
    assert [recipe[name] for name in names] == [0.3, 9, 2, 3, 4, "loss"]
    assert recipe["clip"]["limit"] == 0.5


def test_the_papers_presets(text: Path) -> None:
    """Table 3's sizes and settings, as `minadv train ptb --help` has them."""
    ptb, wikitext2 = (PRESETS[name].values for name in ("ptb", "wikitext2"))
    common = {"embed": 400, "hidden": (1150, 1150, 400), "bptt": 70, "lr": 30, "optimizer": "asgd", "epochs": 750}
    common |= {"weight_decay": 1.2e-6, "dropconnect": 0.5, "word_dropout": 0.1, "output_dropout": 0.4}
    assert ptb.items() >= {**common, "batch": 20, "hidden_dropout": 0.3, "input_dropout": 0.4}.items()
    assert wikitext2.items() >= {**common, "batch": 40, "hidden_dropout": 0.2, "input_dropout": 0.65}.items()


def test_names_of_the_papers_corpora(tmp_path: Path, says: Any, fails: Any) -> None:
    texts = {"train": lines(60), "valid": lines(9, 1), "test": lines(11, 2)}
    texts = {part: "\n".join(found) for part, found in texts.items()}
    write_corpus(tmp_path / "ptb", "ptb.{}.txt", compress=True, **texts)
    run = tmp_path / "run"
    says("train", "ptb", *SMALL, "--delta", 0.5, "--train-steps", 2, "--data-dir", tmp_path, "--out", run)
    assert load(run).config["corpus"]["name"] == "ptb"
    assert load(run).config["columns"] == 10
    line = fails("train", "wikitext2", *SMALL, "--delta", 0.5, "--data-dir", tmp_path, "--out", tmp_path / "no")
    assert "lacks wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens" in line
    assert not (tmp_path / "no").exists()
    assert "(there)" in next(row for row in says("data", "list", "--data-dir", tmp_path) if row.startswith("ptb"))
    assert any(row.startswith("pydoc") for row in says("data", "list"))
    assert main(["data", "check", "ptb", "--data-dir", str(tmp_path)]) == 2  # it is none of the published files


def test_eval_is_what_the_log_says(trained: Path, text: Path, says: Any, tmp_path: Path) -> None:
    best = min(load(trained).records, key=lambda r: r["valid_loss"])
    [line] = says("eval", trained, "--part", "valid")
    assert line == f"valid perplexity {best['valid_perplexity']:.2f}, loss {best['valid_loss']:.4f} (53 words)"
    [line] = says("eval", trained)
    assert re.fullmatch(r"test perplexity [\d.]+, loss [\d.]+ \(65 words\)", line)
    last = load(trained).records[-1]
    [line] = says("eval", trained, "--part", "valid", "--last")
    assert line.startswith(f"valid perplexity {last['valid_perplexity']:.2f}")
    moved = shutil.copytree(text, tmp_path / "moved")
    assert says("eval", trained, "--data-dir", moved) == says("eval", trained)


def test_a_folder_that_was_given_by_its_name_alone(text: Path, tmp_path: Path, says: Any, monkeypatch: Any) -> None:
    """A run remembers where its text is, and is opened from anywhere."""
    shutil.copytree(text, tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    says(*TINY, "--train-steps", 2, "--data-dir", "text", "--out", "run")
    says("finetune", "run", "--epochs", 1, "--data-dir", "text", "--workers", 1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for run in ("run", "run-finetuned"):
        assert load(tmp_path / run).config["about"]["data_dir"] == str(tmp_path / "text")
        assert says("eval", tmp_path / run)[0].startswith("test perplexity")


def test_generate(trained: Path, says: Any, capsys: Any) -> None:
    some = says("generate", trained, "--words", 30, "--seed", 1, "--prompt", "the cat")
    assert some == says("generate", trained, "--words", 30, "--seed", 1, "--prompt", "the cat")
    assert some != says("generate", trained, "--words", 30, "--seed", 2, "--prompt", "the cat")
    assert some[0].startswith("the cat")
    cold = says("generate", trained, "--words", 30, "--temperature", 0)
    assert cold == says("generate", trained, "--words", 30, "--temperature", 0, "--seed", 5)
    assert main(["generate", str(trained), "--words", "3", "--prompt", "the unicorn"]) == 0
    assert capsys.readouterr().err == "minadv: warning: 'unicorn': not in the vocabulary, read as <unk>\n"


def test_finetune(trained: Path, says: Any, tmp_path: Path, fails: Any) -> None:
    out = tmp_path / "tuned"
    [line] = says("finetune", trained, "--epochs", 1, "--lr", 0.5, "--out", out, "--device", "cpu", "--workers", 1)
    assert line.endswith(f"run in {out}")
    tuned = load(out)
    assert tuned.config["regularizer"]["kind"] == "Plain"
    assert tuned.config["recipe"]["optimizer"] == {
        "kind": "ASGD",
        "lr": 0.5,
        "weight_decay": 1.2e-6,
        "interval": None,
    }
    assert tuned.config["seed"] == 1
    assert [tuned.config["recipe"][name] for name in ("eval_every", "checkpoint_every")] == [20, 7]
    assert says("train", "--resume", out) == [f"{out} is finished: nothing to resume"]
    assert fails("finetune", trained, "--out", out).startswith(f"minadv: {out} is a run already")
    assert "is not a run of minadv" in fails("finetune", tmp_path / "none")
    shutil.rmtree(out / "checkpoints")  # as if killed before its first one: it begins with the weights of the run
    before = tuned.params
    says("train", "--resume", out)
    assert np.array_equal(load(out).params.E, before.E)
    shutil.rmtree(out / "checkpoints")
    moved = shutil.move(trained, tmp_path / "moved")
    try:
        assert f"has no checkpoint yet and began with the weights of {trained}" in fails("train", "--resume", out)
    finally:
        shutil.move(moved, trained)


def test_attack(trained: Path, says: Any, fails: Any, capsys: Any) -> None:
    head, columns, *rows = says("attack", trained, "--examples", 40)
    assert head == "60 words of the test text in windows of 7; units flipped by layer: 3 of 6, 2 of 5"
    assert columns.split() == ["mask", "perplexity", "mean", "D"]
    found = {row[:14].strip(): [float(number) for number in row[14:].split()] for row in rows}
    assert list(found) == ["none", "random", "greedy K=1", "greedy K=2", "reselect K=2", "relax", "relax, long"]
    assert found["none"][1] == 0
    assert all(d > 0 for name, (_, d) in found.items() if name != "none")
    assert found["reselect K=2"][1] > found["random"][1]
    assert says("attack", trained, "--examples", 40) == [head, columns, *rows]
    assert main(["attack", str(trained), "--budget", "1", "--examples", "5"]) == 0
    said = capsys.readouterr()
    assert "1 of 6, 1 of 5" in said.out
    assert said.err == "one flip is spent by greedy's random start itself, so that its masks are almost random\n"
    assert "give one of the two" in fails("attack", trained, "--delta", 0.5, "--budget", 2)
    assert "budgets of layer1 is 6, expected a number of flips from 1 to H = 5" in fails(
        "attack", trained, "--budget", 6
    )


@pytest.mark.parametrize("method", ["vd", "el", "fd", "pi", "rdrop", "add"])
def test_masks_on_one_layer(method: str, text: Path, tmp_path: Path, says: Any) -> None:
    """Of training, of an attack and of the figures: the run's own layers, unless it is said otherwise."""
    run = tmp_path / "run"
    budget = ["--budget", 2] if method == "add" else []
    options = ["--method", method, "--masked-layers", 1, "--train-steps", 2, "--data-dir", text, "--out", run]
    says("train", "lm", *PLAIN, *budget, *options)
    assert load(run).config["regularizer"]["sites"] == ["layer1"]
    own = 2 if method == "add" else 1
    assert says("attack", run, "--examples", 5)[0].endswith(f"units flipped by layer: 0 of 6, {own} of 5")
    assert says("attack", run, "--examples", 5, "--budget", 3)[0].endswith("0 of 6, 3 of 5")
    assert says("attack", run, "--examples", 5, "--budget", 3, 1)[0].endswith("3 of 6, 1 of 5")
    assert says("attack", run, "--examples", 5, "--delta", 0.4, 0)[0].endswith("2 of 6, 0 of 5")


def test_a_budget_of_0_leaves_a_layer_out(text: Path, tmp_path: Path, says: Any) -> None:
    run = tmp_path / "run"
    options = ["--hidden", 6, 4, 5, "--masked-layers", 2, 0, "--budget", 0, 3, "--train-steps", 2]
    says("train", "lm", *SMALL[3:], *options, "--data-dir", text, "--out", run)
    found = load(run).config["regularizer"]
    assert (found["sites"], found["budgets"]) == (["layer2"], {"layer2": 3})
    assert says("attack", run, "--examples", 5)[0].endswith("0 of 6, 0 of 4, 3 of 5")
    pytest.importorskip("matplotlib")
    figure = units(open_run(run), 5)["units"]
    assert [axis.get_title() for axis in figure.axes] == ["layer2, budget 3 of 5"]


def test_show(trained: Path, says: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = [Path(line) for line in says("show", trained, "--out", tmp_path, "--examples", 20)]
    assert paths == [tmp_path / "curves.png", tmp_path / "units.png"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


def test_it_writes_while_it_learns(text: Path, tmp_path: Path, capsys: Any) -> None:
    """Words at each evaluation, those that generate gives, and the run is the same to the bit without them."""
    ends, said = {}, {}
    for words in (5, 0):
        run = tmp_path / f"run{words}"
        options = ["--train-steps", 9, "--eval-every", 3, "--sample", words, "--seed", 4, "--data-dir", text]
        assert main(list(map(str, [*TINY, *options, "--out", run]))) == 0
        found = capsys.readouterr().err.splitlines()
        said[words] = [line.removeprefix("it writes: ") for line in found if line.startswith("it writes: ")]
        ends[words] = checkpoints.load(checkpoints.latest(run) or "")[0]
    assert [len(line.split()) for line in said[5]] == [5, 5, 5]
    assert said[0] == []
    run = load(tmp_path / "run5")
    assert said[5][-1] == " ".join(replace(run, params=run.last).generate(5, seed=4))
    assert said[5][0] != said[5][-1]  # the random numbers are the same, the weights are not
    assert ends[5].keys() == ends[0].keys()
    assert all(np.array_equal(ends[5][name], ends[0][name]) for name in ends[5])
    numbers = [
        [{**r, "time": 0} for r in log.read(tmp_path / f"run{words}" / "log.jsonl") if r["kind"] == "evaluation"]
        for words in (5, 0)
    ]
    assert numbers[0] == numbers[1]
    for words in (5, 0):  # a run that goes on writes as many as before
        assert main(["train", "--resume", str(tmp_path / f"run{words}"), "--train-steps", "12"]) == 0
        found = [line.split() for line in capsys.readouterr().err.splitlines() if line.startswith("it writes: ")]
        assert [len(line) - 2 for line in found] == ([5] if words else [])


def deadly(arguments: list[Any], call: str, n: int) -> int:
    started = [sys.executable, "-m", "tests.support.deadly", call, str(n), *map(str, arguments)]
    return subprocess.run(started, cwd=ROOT, capture_output=True).returncode


def test_killed_and_resumed(text: Path, tmp_path: Path, says: Any) -> None:
    """As kill -9 would, once in the writing of a checkpoint in the middle of an epoch; it ends in the same bits."""
    options = ["--train-steps", 9, "--eval-every", 4, "--checkpoint-every", 2, "--data-dir", text]
    says(*TINY, *options, "--out", tmp_path / "whole")
    run = tmp_path / "run"
    assert deadly([*TINY, *options, "--out", run], "replace", 7) == -signal.SIGKILL
    saved = checkpoints.latest(run)
    assert saved is not None
    assert saved.stem == "step-00000004"
    says("train", "--resume", run)
    ends = [checkpoints.load(checkpoints.latest(path) or "")[0] for path in (run, tmp_path / "whole")]
    assert ends[0].keys() == ends[1].keys()
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])
    logs = [log.read(path / "log.jsonl") for path in (run, tmp_path / "whole")]
    records = [[{**r, "time": 0} for r in found if r["kind"] == "evaluation"] for found in logs]
    assert records[0] == records[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--budget 7", "budgets of layer0 is 7, expected a number of flips from 1 to H = 6"),
        ("--budget 2 2 2", "budget has 3 values, expected 1, or 2, one for each layer"),
        ("--delta 0.5 --budget 2", "delta is 0.5 and budget is 2: give one of the two"),
        ("--budget 0 0", "budget is 0 0, which leaves no layer to mask: expected one that is not 0"),
        ("--masked-layers 1 --budget 2 2", "budget has 2 values, expected 1"),
        ("--masked-layers 0 2", "masked-layers is 0 2, expected different numbers from 0 to 1"),
        ("--masked-layers 1 1", "masked-layers is 1 1, expected different numbers from 0 to 1"),
        ("--delta 0.01", "delta is 0.01, which allows no flip among H = 6 units"),
        ("--delta 1.5", "delta is 1.5, expected a share of the units from 0 to 1"),
        ("--hidden 6 5 --embed 4", "the last layer has 5 units and n_embed is 4: tied weights need the two equal"),
        ("--batch 400", "/train.txt) is too short: it has 360 tokens, expected at least 401, one for each of the 400"),
        ("--word-dropout 1", "argument --word-dropout: '1' is not a probability from 0 up to, but not including, 1"),
        ("--method vd --delta 7 --init base", "--delta 7.0: --method vd has no use for it, expected one of add"),
        ("--method none --delta 0.2", "--delta 0.2: --method none has no use for it, expected one of add"),
        ("--p 0.2", "--p 0.2: --method add has no use for it, expected one of vd, el, fd, pi, rdrop"),
        ("--p 1 --method vd", "argument --p: '1' is not a probability"),
        ("--init base --fresh", 'start is "base", which needs noise that differs between the two passes'),
        ("--init base --word-dropout 0", 'start is "base", which needs noise that differs between the two passes'),
        ("--fresh gates", "argument --fresh: invalid choice: 'gates'"),
        ("--optimizer sgd --nonmono 3", "nonmono is 3 and optimizer is sgd: it is for asgd"),
        ("--optimizer adam --weight-decay 0.1", "weight-decay is 0.1 and optimizer is adam: it is for sgd and asgd"),
        ("--epochs 1 --train-steps 2", "argument --train-steps: not allowed with argument --epochs"),
        ("--hidden 0", "argument --hidden: '0' is not a positive whole number"),
        ("--search exact", "argument --search: invalid choice: 'exact'"),
        ("--workers 5", "workers is 5, expected at most 4, the examples of a batch"),
    ],
)
def test_bad_options(options: str, says: str, text: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    enough = [] if "--delta" in options or "--budget" in options else ["--delta", "0.5"]
    arguments = ["train", "lm", *SMALL, *enough, *options.split(), "--data-dir", str(text), "--out", str(out)]
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


def test_bad_texts(tmp_path: Path, fails: Any) -> None:
    out = tmp_path / "run"
    options = [*TINY, "--train-steps", 2, "--out", out, "--data-dir"]
    strange = write_corpus(tmp_path / "a", train="a b\nb a\n", valid="a c\n")
    line = fails(*options, strange, "--min-count", 1)
    assert f"{strange}/valid.txt, line 1: 'c' is not among the 3 words of the training text" in line
    assert "no <unk> to stand for it: write <unk> for rare words there, or set min_count (--min-count) to 2" in line
    for part in ("train", "valid", "test"):
        folder = write_corpus(tmp_path / f"empty-{part}", **{part: "\n\n"})
        assert fails(*options, folder) == f"minadv: {folder}/{part}.txt is empty, expected lines of words"
    line = fails(*options, write_corpus(tmp_path / "short", train="<unk>\n", valid="a\n", test="a\n"))
    assert line == (
        f"minadv: train ({tmp_path}/short/train.txt) is too short: it has 2 tokens, expected at least 5, one for each "
        "of the 4 columns and one more; choose a smaller batch_size (--batch)"
    )
    short = write_corpus(tmp_path / "few", train="a <unk>\n" * 20, valid="\n".join("aaaaa"), test="a\n")
    assert fails(*options, short, "--eval-columns", 10) == (
        f"minadv: valid ({tmp_path}/few/valid.txt) is too short: it has 10 tokens, expected at least 11, one for each "
        "of the 10 columns and one more; choose fewer columns (--eval-columns)"
    )
    line = fails(*options, tmp_path / "none")
    assert line.startswith(f"minadv: the data directory {tmp_path}/none does not exist: say where the data are")
    line = fails(*options, short / "train.txt")
    assert line == f"minadv: {short}/train.txt is a file, expected the folder that holds the data"
    assert not out.exists()


def test_runs_refuse_other_texts(trained: Path, tmp_path: Path, fails: Any, capsys: Any) -> None:
    other = write_corpus(tmp_path / "other", train="\n".join(lines(50)), valid="a cat", test="a dog")
    for command in (["eval", trained], ["attack", trained], ["show", trained], ["finetune", trained, "--out", "x"]):
        line = fails(*command, "--data-dir", other)
        assert line.startswith(f"minadv: {trained} was trained on another text: folder with 10 words")
    halfway = tmp_path / "halfway"
    shutil.copytree(trained, halfway)
    for path in (halfway / "checkpoints").iterdir():
        path.unlink()
    assert main(["train", "--resume", str(halfway), "--data-dir", str(other)]) == 2
    assert "was trained on another text" in capsys.readouterr().err.splitlines()[-1]


def test_what_means_nothing_for_a_language_model(trained: Path, fails: Any) -> None:
    line = fails("predict", trained)
    assert line == f"minadv: {trained} is a run of the kind 'lm', which predict is not for"


def test_nothing_is_trained_that_cannot_be_saved(tmp_path: Path, fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    line = fails(*TINY, "--train-steps", 2, "--out", tmp_path / "run")
    assert line == "minadv: checkpoints need safetensors: pip install minadv[experiments]"
    assert not (tmp_path / "run").exists()


def test_mostly_unknown_words(tmp_path: Path, capsys: Any) -> None:
    rare = "\n".join(f"a b{n} c{n} d{n} e{n} f{n} g{n} <unk>" for n in range(20))
    folder = write_corpus(tmp_path / "text", train=f"{rare}\n", valid="a b\n", test="c a\n")
    arguments = [*TINY, "--train-steps", 2, "--data-dir", folder, "--min-count", 20, "--out", tmp_path / "run"]
    assert main(list(map(str, arguments))) == 0
    said = capsys.readouterr().err
    assert "warning: 78% of the training text is read as <unk>: perplexities say little then; lower min_count" in said


def test_an_unknown_word_without_unk(tmp_path: Path, says: Any, fails: Any) -> None:
    folder = write_corpus(tmp_path / "text", train="a b c\n" * 20, valid="a b\n", test="c a\n")
    options = [*TINY, "--min-count", 1, "--train-steps", 2, "--data-dir", folder]
    says(*options, "--out", tmp_path / "run")
    line = fails("generate", tmp_path / "run", "--prompt", "a z")
    assert line.startswith("minadv: the prompt: 'z' is not among the 4 words of the training text")


def test_help_is_complete(capsys: Any) -> None:
    for task in ("lm", "ptb", "wikitext2"):
        with pytest.raises(SystemExit) as stopped:
            main(["train", task, "--help-all"])
        assert stopped.value.code == 0
        text = capsys.readouterr().out
        assert "(default: None)" not in text
        assert "the task's" not in text
        assert f"units of each layer (default: {' '.join(map(str, PRESETS[task].values['hidden']))})" in " ".join(
            text.split()
        )
        assert all(
            f"--{name}" in text for name in ("hidden", "budget", "every", "nonmono", "min-count", "eval-columns")
        )
