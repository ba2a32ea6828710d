"""Data of a user's own, from a folder to an evaluated, attacked run; and what can be wrong with them, a line each."""

import csv
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.cli import main
from minadv.data.images import own as own_images
from minadv.data.texts.documents import Documents
from minadv.data.texts.reviews import load as load_texts
from minadv.tasks import baselines, fitting
from minadv.tasks.own import recognise
from minadv.tasks.run import load
from tests.support.commands import parsed

load_file = pytest.importorskip("safetensors.numpy").load_file

README = (Path(__file__).parents[2] / "README.md").read_text()
QUICK = ["--device", "cpu", "--workers", "1", "--train-steps", "3", "--hidden", "8", "--delta", "0.25"]
WORDS = ["the", "film", "is", "it", "was", "seen"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any) -> Path:
    if device.name == "gpu":
        pytest.skip("the command line chooses its device itself")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(n: int = 12) -> list[tuple[str, str]]:
    rng = np.random.default_rng(0)
    return [
        (" ".join([*rng.choice(WORDS, size=5), label, label]), label) for _ in range(n) for label in ("good", "bad")
    ]


def by_class(root: Path, ending: str = ".txt", part: str = "") -> Path:
    for n, (text, label) in enumerate(texts()):
        path = root / part / label / f"{n}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def table(path: Path, names: tuple[str, str] = ("text", "label"), separator: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([names, *texts()])
    return path


def json_lines(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"label": label, "text": text}) + "\n" for text, label in texts()))
    return path


def arrays(path: Path, **more: Any) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 6, 3)) + 3 * y[:, None, None] + 100
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{"x": x, "y": np.array(["cold", "warm"])[y], **more})
    return path


def pictures(root: Path, part: str = "") -> Path:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for n in range(24):
        label = ("dark", "light")[n % 2]
        (root / part / label).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 100, (6, 5)) + 150 * (n % 2)
        image.fromarray(pixels.astype(np.uint8)).save(root / part / label / f"{n}.png")
    return root


def prose(root: Path) -> Path:
    rng = np.random.default_rng(0)
    root.mkdir(parents=True, exist_ok=True)
    for n in range(3):
        sentences = [f"The {' '.join(rng.choice(WORDS, size=6))}, and so on." for _ in range(60)]
        (root / f"{n}.md").write_text("\n\n".join(sentences) + f"\n\nA word that comes once: rare{n}.\n")
    return root


@pytest.mark.parametrize(
    "make",
    [
        lambda root: by_class(root),
        lambda root: by_class(root, ".md"),
        lambda root: by_class(root, part="train"),
        lambda root: by_class(by_class(root, part="train"), part="test"),
        lambda root: table(root / "all.csv"),
        lambda root: table(root / "all.csv", ("opinion", "kind"), ";").parent,
        lambda root: table(root / "a.tsv", ("words", "kind"), "\t").parent,
        lambda root: json_lines(root / "all.jsonl"),
        lambda root: json_lines(root / "all.jsonl").parent,
        lambda root: table(table(root / "train.csv").with_name("test.csv")).parent,
    ],
)
def test_texts(make: Any, place: Path, says: Any, capsys: Any) -> None:
    data = make(place / "mine")
    assert recognise(data) == "text"
    assert main(["train", str(data), *QUICK, "--embed", "4"]) == 0
    said = capsys.readouterr()
    run = Path(re.search(r"run in (\S+)", said.out)[1])  # type: ignore[index]
    assert run == Path(f"runs/{data.stem}-add-seed0")
    assert re.search(
        r"folder: \d+ train, \d+ valid, \d+ test, 0 unlabelled texts; 2 classes \(bad \d+, good \d+\)", said.err
    )
    assert "unknown to it 0.0% of the validation words" in said.err
    assert "training texts are few" in said.err
    assert "baselines on the same test data: most frequent class 50.00 %, naive Bayes on words 0.00 %" in said.err
    found = load(run)
    assert found.classes == ("bad", "good")
    assert found.config["about"]["min_count"] == 2
    [line] = says("eval", run)
    assert line.startswith("test error ")
    assert len(says("attack", run, "--examples", 4, "--max-masks", 1)) == 10


def test_the_three_commands_of_the_readme(place: Path, says: Any, capsys: Any) -> None:
    """From data to an evaluated, attacked, exported model, as the README has it; only training is made shorter."""
    by_class(place / "films")
    arrays(place / "gestures.npz")
    prose(place / "notes")
    found = re.search(r"^<!-- own data -->\n```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found, "README.md has no block under <!-- own data -->"
    calls = [shlex.split(line, comments=True)[1:] for line in found[1].splitlines() if line]
    assert [call[0] for call in calls] == ["train", "attack", "export"] * 3
    for train, attack, export in zip(calls[::3], calls[1::3], calls[2::3], strict=True):
        assert main([*train, *QUICK]) == 0
        said = capsys.readouterr()
        metric = "perplexity" if train[1] == "notes" else "error"
        assert said.out.startswith(f"test {metric} ")
        assert re.search(r"^baselines? on the same test data: ", said.err, re.MULTILINE)
        rows = [line.split()[0] for line in says(*attack)[2:]]
        assert rows[:3] == ["none", "random", "greedy"]
        weights, card = says(*export)
        run = Path(export[1])
        assert (Path(weights), Path(card)) == (run / "minadv.safetensors", run / "minadv.safetensors.json")
        assert load_file(weights).keys() == json.loads(Path(card).read_text())["tensors"].keys()
    listed = [line.split() for line in says("runs")[1:]]
    assert [row[:2] for row in listed] == [["runs/films", "text"], ["runs/gestures", "images"], ["runs/notes", "lm"]]


def test_parts_are_the_same_in_every_run_and_share_no_text(place: Path) -> None:
    by_class(place / "mine")
    corpus, again = (load_texts("folder", data_dir=place / "mine", cache=False) for _ in range(2))
    parts = [{tuple(part[n].tolist()) for n in range(len(part))} for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [16, 4, 4]
    assert parts == [
        {tuple(part[n].tolist()) for n in range(len(part))} for part in (again.train, again.valid, again.test)
    ]
    assert corpus.test.labels is not None
    assert sorted(corpus.test.labels.tolist()) == [0, 0, 1, 1]


def test_unlabelled_texts(place: Path, says: Any) -> None:
    by_class(place / "mine")
    (place / "mine" / "unsup").mkdir()
    (place / "mine" / "unsup" / "1.txt").write_text("it was the film")
    rows = [*texts(), ("a film without a label", "")]
    (place / "table.jsonl").write_text("".join(json.dumps({"text": t, "label": l or None}) + "\n" for t, l in rows))
    for data in ("mine", "table.jsonl"):
        says("train", data, *QUICK, "--embed", 4, "--out", f"run-{data}")
        assert load(f"run-{data}").config["corpus"]["unlabelled"] == 1


def test_the_language_model_and_its_classifier_have_the_same_parts(place: Path, says: Any) -> None:
    by_class(place / "mine")
    small = [*QUICK[:6], "--hidden", 8, "--embed", 4, "--test-share", 0.3]
    says("pretrain", "mine", *small, "--candidates", 3, "--out", "lm")
    says("train", "mine", *QUICK, "--pretrained", "lm", "--out", "run")
    assert load("run").config["corpus"] == load("lm").config["corpus"]
    assert load("run").config["corpus"]["test"] == 8


@pytest.mark.parametrize("name", ["mine.npz", "mine/some.npz"])
def test_arrays(name: str, place: Path, says: Any, capsys: Any) -> None:
    arrays(place / name)
    data = Path(name).parts[0]
    assert recognise(Path(data)) == "images"
    assert main(["train", data, *QUICK[:4], "--hidden", "8", "--delta", "0.25", "--epochs", "6"]) == 0
    said = capsys.readouterr()
    assert "28 train, 4 valid, 8 test sequences of 6 steps and 3 inputs; 2 classes (cold 14, warm 14)" in said.err
    assert "most frequent class 50.00 %, a linear classifier 0.00 %" in said.err
    run = load("runs/mine-add-seed0")
    assert run.config["batch_size"] == 4
    np.testing.assert_allclose(run.config["scaling"]["mean"], 101.5, atol=0.3)
    assert says("eval", run.path)[0].startswith("test error 0.00 %")
    header, *rows = [line.split("\t") for line in says("predict", run.path, "--examples", 8)]
    assert header == ["sequence", "class", "probability", "label"]
    assert all(row[1] == row[3] and row[1] in ("cold", "warm") for row in rows)
    with np.load(name) as held:
        np.save("some.npy", held["x"][:4])
    assert [line.split("\t")[1] for line in says("predict", run.path, "some.npy")[1:]] == ["cold", "warm"] * 2


def test_naive_bayes_by_hand() -> None:
    """Three texts to learn from, whose words lie scattered in a longer text; the empty one is told by the classes."""
    text = np.array([9, 0, 1, 9, 0, 0, 2, 1, 1, 2], dtype=np.int32)

    def documents(starts: list[int], lengths: list[int], labels: list[int]) -> Documents:
        return Documents(text, *(np.array(a, dtype=np.int64) for a in (starts, lengths, labels)))

    train = documents([7, 1, 4], [3, 2, 3], [1, 0, 0])  # 1 1 2 | 0 1 | 0 0 2
    test = documents([4, 7, 0, 1], [2, 2, 0, 1], [0, 1, 0, 1])
    counts = {0: np.array([3, 1, 1]) + 1.0, 1: np.array([0, 2, 1]) + 1.0}
    prior = {0: np.log(3), 1: np.log(2)}
    score = {c: np.log(n / n.sum()) for c, n in counts.items()}
    answers = [max((0, 1), key=lambda c, w=w: prior[c] + score[c][w].sum()) for w in ([0, 0], [1, 1], [], [0])]
    assert answers == [0, 1, 0, 0]
    assert baselines.naive_bayes(train, test, 3, 2) == 25  # the last is wrong


def test_sequences_of_different_lengths(place: Path, says: Any, fails: Any, capsys: Any) -> None:
    lengths = np.arange(40) % 5 + 2
    x = np.random.default_rng(0).normal(size=(40, 6, 3))
    x[np.arange(6) >= lengths[:, None]] = 1e6  # padding, which counts for nothing
    arrays(place / "mine.npz", x=x, lengths=lengths)
    assert main(["train", "mine.npz", *QUICK, "--out", "run"]) == 0
    assert "test sequences of 2 to 6 (half of them up to 4) steps and 3 inputs" in capsys.readouterr().err
    run = load("run")
    np.testing.assert_allclose(run.config["scaling"]["mean"], 0, atol=0.3)
    assert says("eval", "run")[0].startswith("test error")
    data = own_images.load(place / "mine.npz")
    assert data.test.lengths is not None
    assert set(data.test.lengths.tolist()) <= set(range(2, 7))
    for bad, says_what in ((lengths[:3], "expected 40 whole numbers"), (lengths + 2, "is 7 in row 3, expected 1 to 6")):
        arrays(place / "bad.npz", lengths=bad)
        assert says_what in fails("train", "bad.npz", *QUICK)


def test_padding_decides_nothing(place: Path, says: Any, capsys: Any) -> None:
    """The label stands in the padding: neither the baseline nor an answer may see it."""
    rng, y = np.random.default_rng(0), np.arange(80) % 2
    lengths = np.arange(80) // 2 % 3 + 2
    x = rng.normal(size=(80, 6, 3))
    x[np.arange(6) >= lengths[:, None]] = 0
    told = x + np.where(np.arange(6) >= lengths[:, None], 50 * y[:, None], 0)[..., None]
    for name, held in (("clean", x), ("told", told)):
        np.savez(f"{name}.npz", x=held, y=y, lengths=lengths)
        assert main(["train", f"{name}.npz", *QUICK, "--out", name]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("baselines")]
    assert len(lines) == 2
    assert lines[0] == lines[1]
    answers = [says("predict", name, "--examples", 16) for name in ("clean", "told")]
    assert answers[0] == answers[1]
    assert says("predict", "told", "clean.npz") == says("predict", "told", "told.npz")
    np.save("told.npy", told)
    assert says("predict", "told", "told.npy") != says("predict", "told", "told.npz")  # which knows no lengths


def test_what_is_wrong_with_arrays_to_predict(place: Path, says: Any, fails: Any) -> None:
    arrays(place / "mine.npz")
    says("train", "mine.npz", *QUICK, "--out", "run")
    np.savez("bad.npz", a=np.zeros(3))
    assert "bad.npz lacks x, expected arrays x" in fails("predict", "run", "bad.npz")
    np.savez("bad.npz", x=np.zeros((2, 6, 3)), lengths=[1, 7])
    assert "is 7 in row 1, expected 1 to 6" in fails("predict", "run", "bad.npz")


def test_classes_that_are_floats(place: Path) -> None:
    assert own_images.load(arrays(place / "a.npz", y=np.arange(40) % 2 + 9.0)).names == ("9", "10")


def test_arrays_in_parts(place: Path) -> None:
    x, y = np.zeros((4, 6, 3)), np.array(["warm", "cold"] * 2)
    arrays(place / "a.npz", x_test=x, y_test=y, x_valid=x[:2], y_valid=y[:2])
    data = own_images.load(place / "a.npz")
    assert [len(part) for part in (data.train, data.valid, data.test)] == [40, 2, 4]
    assert data.names == ("cold", "warm")
    assert data.test.y.tolist() == [1, 0, 1, 0]
    numbers = own_images.load(arrays(place / "b.npz", y=np.arange(40) % 2 + 9))
    assert numbers.names == ("9", "10")


@pytest.mark.parametrize("part", ["", "train"])
def test_images(part: str, place: Path, says: Any, capsys: Any) -> None:
    pictures(place / "mine", part)
    assert recognise(place / "mine") == "images"
    assert main(["train", "mine", *QUICK]) == 0
    assert "16 train, 4 valid, 4 test sequences of 6 steps and 5 inputs; 2 classes (dark 8, light 8)" in (
        capsys.readouterr().err
    )
    run = load("runs/mine-add-seed0")
    assert (run.model.n_in, run.config["about"]["by"]) == (5, "row")
    np.save("some.npy", np.zeros((2, 6, 5), np.uint8))
    assert len(says("predict", run.path, "some.npy")) == 3
    assert main(["train", "mine", *QUICK, "--no-rows", "--out", "pixels"]) == 0
    assert load("pixels").model.n_in == 1


def test_language(place: Path, says: Any, capsys: Any) -> None:
    prose(place / "mine")
    assert recognise(place / "mine") == "lm"
    options = [*QUICK[:6], "--hidden", "8", "--delta", "0.25"]
    assert main(["train", "mine", *options]) == 0
    said = capsys.readouterr()
    found = re.search(r"texts: ([\d,]+) train, ([\d,]+) valid, ([\d,]+) test words; vocabulary (\d+)", said.err)
    assert found
    sizes = [int(n.replace(",", "")) for n in found.groups()]
    assert 0.07 < sizes[1] / sum(sizes[:3]) < 0.13
    assert 0.07 < sizes[2] / sum(sizes[:3]) < 0.13
    assert "baseline on the same test data: words by their frequency, perplexity" in said.err
    run = load("runs/mine-add-seed0")
    assert {"<unk>", ",", ".", "The"} <= set(run.vocabulary.words)
    assert run.config["about"]["min_count"] == 2
    per_epoch = sizes[0] / (run.config["batch_size"] * run.config["bptt"])
    assert per_epoch > 12
    assert says("eval", run.path)[0].startswith("test perplexity")
    made = " ".join(says("generate", run.path, "--prompt", "The film , it", "--words", 300))
    assert "<unk>" not in made
    assert "<unk>" in " ".join(says("generate", run.path, "--words", 300, "--unknown", "--temperature", 5))


def test_rare_words_of_own_text(place: Path, says: Any) -> None:
    """Words of the validation part that the training part lacks are read as <unk>."""
    for part, line in (("train", "a b c\n" * 30), ("valid", "a new b\n" * 4), ("test", "c other\n" * 4)):
        (place / f"{part}.txt").write_text(line)
    says("train", "lm", "--data-dir", place, *QUICK[:6], "--hidden", 8, "--delta", 0.25, "--out", "run")
    assert load("run").vocabulary.unk is not None
    (place / "train.txt").write_text("a b <unk>\n" * 30)
    says("train", "lm", "--data-dir", place, *QUICK[:6], "--hidden", 8, "--delta", 0.25, "--out", "other")
    assert load("other").config["about"]["min_count"] is None


def test_a_task_wins_over_a_folder_of_its_name(place: Path, says: Any) -> None:
    pytest.importorskip("sklearn")
    arrays(place / "digits" / "a.npz")
    assert parsed("train", "digits").preset.data == "digits"
    assert parsed("train", "./digits").preset.data == "folder"
    says("train", "./digits", *QUICK)
    assert load("runs/digits-add-seed0").config["about"]["data_dir"] == str(place / "digits")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: None, "is no task and no folder, expected a folder of your own or one of digits"),
        (lambda root: root.mkdir(), "holds nothing that minadv can train on: expected CLASS/"),
        (lambda root: root.write_text("x"), "is a file that minadv cannot train on: expected .csv"),
        (
            lambda root: table(root / "a.csv", ("x", "x")),
            "begins with 'x,x', where 'x' stands twice: rename one of the columns",
        ),
        (lambda root: table(root / "a.csv", ("", "")), "expected the names of two or more columns"),
        (
            lambda root: [table(root / f"{n}.csv") for n in "ab"],
            "holds the tables a.csv, b.csv, expected one, or train",
        ),
        (
            lambda root: _write(root / "a.csv", "id,text,day\n1,b,c\n"),
            "the columns 'id', 'text', 'day', and none is called 'label': rename the one that is meant",
        ),
        (lambda root: _write(root / "a.csv", "text,label\na\n"), "line 2 of"),
        (lambda root: _write(root / "a.csv", 'text,label\n"a,b\n'), "is not CSV"),
        (lambda root: _write(root / "a.jsonl", "[1]\n"), "line 1 of"),
        (lambda root: _write(root / "a.jsonl", "{\n"), "is not JSON"),
        (
            lambda root: _write(
                root / "a.jsonl", '{"text": "a b", "label": "x"}\n{"text": "a\\u0000b", "label": "y"}\n'
            ),
            r"/mine/a.jsonl holds '\x00', which is no character of a text: remove it",
        ),
        (
            lambda root: _write(root / "a.jsonl", '{"text": "a b", "label": "\\ud800"}\n'),
            r"/mine/a.jsonl holds '\ud800', which is no character of a text: remove it",
        ),
        (lambda root: _write(root / "a.jsonl", "\n"), "has no rows, expected texts and labels"),
        (
            lambda root: _write(root / "a.csv", "text,label\na,x\nb,x\nc,x\nd,y\n"),
            "has 1 text of the class 'y', expected",
        ),
        (
            lambda root: _write(root / "a.csv", "text,label\n" + "a b,x\n" * 9),
            "has the classes (x) in train, expected at",
        ),
        (lambda root: _write(root / "x" / "a.txt", "word"), "has 1 text of the class 'x', expected at least 3"),
        (
            lambda root: _write(root / "a.txt", "word\n" * 9),
            "holds 9 lines or paragraphs of text, expected at least 50",
        ),
        (lambda root: _write(root / "a.npz", "x"), "cannot read"),
        (lambda root: arrays(root / "a.npz", y=np.zeros(3)), "expected 40 classes, one for each x"),
        (
            lambda root: arrays(root / "a.npz", y=np.arange(40) / 2),
            "is 0.5 in row 1 (float64), expected classes: whole",
        ),
        (
            lambda root: arrays(root / "a.npz", y=np.zeros(40, complex)),
            "is complex128, expected classes: whole numbers",
        ),
        (lambda root: arrays(root / "a.npz", x=np.zeros(40)), "expected numbers (N, T, I) or (N, T)"),
        (lambda root: arrays(root / "a.npz", x=np.full((40, 2, 2), np.nan)), "x[0] of"),
        (
            lambda root: arrays(root / "a.npz", y=np.zeros(40, int)),
            "has the classes (0) to train on, expected at least",
        ),
        (lambda root: arrays(root / "a.npz", y=np.array([1] + 39 * [0])), "has 1 example of the class '1', expected"),
        (lambda root: [arrays(root / f"{n}.npz") for n in "ab"], "holds a.npz, b.npz, expected one file, or train"),
        (lambda root: _write(root / "x" / "a.png", "no image"), "cannot read"),
    ],
)
def test_what_is_wrong_with_own_data(spoil: Any, says: str, place: Path, fails: Any) -> None:
    spoil(place / "mine")
    line = fails("train", "mine", *QUICK)
    assert says in line
    assert not (place / "runs").exists()


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_images_of_two_sizes(place: Path, fails: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    pictures(place / "mine")
    image.new("L", (3, 3)).save(place / "mine" / "light" / "z.png")
    assert "z.png has 3 x 3 pixels, expected 5 x 6, the size of 0.png" in fails("train", "mine", *QUICK)


def test_images_need_pillow(place: Path, fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(place / "mine")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert fails("train", "mine", *QUICK) == "minadv: images need Pillow: pip install minadv[experiments]"


def test_both_a_folder_and_a_data_dir(place: Path, fails: Any) -> None:
    by_class(place / "mine")
    assert fails("train", "mine", "--data-dir", "other").endswith("and the data are mine: give one of the two")
    assert "no folder is given" in fails("train", "images", *QUICK)
    line = fails("train", "digits", "--test-share", 0.5)
    assert line.endswith("--valid-share and --test-share are for data of your own: digits has its parts")
    assert "but docstrings has a part for the test: leave it out" in fails("train", "docstrings", "--test-share", 0.5)


def test_sizes_that_fit() -> None:
    assert [fitting.batch_of(n, 64) for n in (1, 3, 24, 95, 100, 306, 1000, 1535, 1536, 10**6)] == [
        *(1, 3, 4, 4, 4, 8, 32, 32, 64, 64),
    ]
    assert fitting.window_of(10**6, 20, 35) == (20, 35)
    columns, steps = fitting.window_of(5000, 20, 35)
    assert 5000 // (columns * steps) >= 24
    assert fitting.window_of(100, 20, 35) == (2, 4)
    assert fitting.epochs_of(24, 30) == 30
    assert fitting.epochs_of(10_000, 30) == 3
    assert fitting.norm_of(400, 256) == 5.0  # the paper's


def test_the_norm_of_vat_fits_the_sizes(place: Path, says: Any) -> None:
    """7 words and the end of sequence, embeddings of 4: 32 numbers; the paper's presets keep 5."""
    by_class(place / "mine")
    says("train", "mine", *QUICK[:-2], "--embed", 4, "--method", "vat", "--out", "run")
    assert load("run").config["regularizer"]["norm"] == fitting.norm_of(8, 4) == 0.088
    says("train", "mine", *QUICK[:-2], "--embed", 4, "--method", "vat", "--norm", 2, "--out", "other")
    assert load("other").config["regularizer"]["norm"] == 2
    assert parsed("train", "imdb", "--method", "vat").preset.values["norm"] == 5.0


def test_simple_methods() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    x = rng.normal(size=(200, 4, 2)) + 4 * np.eye(3)[y][:, :2].repeat(4, axis=0).reshape(200, 4, 2)
    assert baselines.linear((x[:150], y[:150]), (x[150:], y[150:]), 3) < 10
    wide = np.concatenate([np.repeat(x, 1500, axis=1), np.zeros((len(x), 3, x.shape[2]))], axis=1)
    assert wide[0].size > 2 * baselines.WIDEST  # of which evenly spaced ones are read
    assert baselines.linear((wide[:150], y[:150]), (wide[150:], y[150:]), 3) < 10
    assert baselines.majority(np.array([0, 0, 1]), np.array([0, 1, 1, 1])) == 75
    even = baselines.unigram(np.arange(10), np.arange(10), 10)
    assert even == pytest.approx(10)
    assert baselines.of_classes("x", 10.0, 8.0, 50.0).endswith("the run is better, an error 2.00 lower")
    assert baselines.of_classes("x", 10.0, 12.0, 11.0).endswith("the run is worse, an error 2.00 higher")
    assert baselines.of_words(10.0, 10.0).endswith("the run is no better than that")
