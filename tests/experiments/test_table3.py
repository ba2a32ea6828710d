"""Table 3 in miniature: language models searched, trained, resumed, tuned, told."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import table3
from experiments.parts import language_comparison, language_report, reporting
from experiments.parts.language_comparison import AVAILABLE, METHODS, REPEATED, Preset, best_setting, compare, settings
from minadv.base.errors import DataError
from minadv.cli import main
from minadv.data.language import corpus
from minadv.data.language.windows import Windows
from minadv.models.language.model import TokenBatch
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.tasks.language import presets
from minadv.tasks.language.task import evaluate
from minadv.tasks.methods import LM_DELTA
from minadv.tasks.run import load, open_run
from minadv.training.runs import checkpoints
from minadv.training.runs.folder import RunError
from minadv.training.schedules import Constant
from tests.support.commands import parsed
from tests.support.corpora import write_corpus
from tests.support.language_runs import lines

SMALL = Preset(
    "small",
    "a toy",
    "folder",
    hidden=(6, 5),
    epochs=2,
    dropouts=(0.4, 0.1, 0.1, 0.1, 0.1),
    lr=2.0,
    batch=4,
    bptt=7,
    every=2,
    delta=0.4,
    search=True,
    reach=12,
)


@pytest.fixture(autouse=True)
def in_this_process(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own take longer than the work."""
    if device.name == "gpu":
        pytest.skip("the comparison runs on the host")
    monkeypatch.setattr(language_comparison.reporting, "run_all", lambda work, jobs, **how: [work(job) for job in jobs])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table3")


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    """With many words, so that two draws of those that are dropped are never the same."""
    words = [f"w{n}" for n in range(40)]
    texts = {"train": [*lines(60), *words], "valid": [*lines(9, 1), *words[:5]], "test": lines(11, 2)}
    return str(write_corpus(root / "text", **{part: "\n".join(found) + "\n" for part, found in texts.items()}))


def small(
    root: Path, text: str, preset: Preset = SMALL, methods: Any = ("none", "FD", "AdD K=1"), seeds: int = 2
) -> Any:
    return compare(preset, methods=methods, seeds=seeds, workers=1, root=root / "runs", data_dir=text)


def test_searched_then_run(root: Path, text: str) -> None:
    searched, results = small(root, text)
    tried = [("AdD K=1", *s) for s in settings("AdD K=1", 0.4)] + [("FD", *s) for s in settings("FD")]
    assert [(r["method"], r["strength"], r["weight"]) for r in searched] == tried
    assert all(len(settings(method)) == 3 for method in AVAILABLE if method != "none")  # the same chance for each
    assert [(r["method"], r["seed"]) for r in results] == [
        *(("AdD K=1", 0), ("FD", 0), ("none", 0), ("AdD K=1", 1), ("FD", 1), ("none", 1)),
    ]
    for r in results:
        best = [s for s in searched if s["method"] == r["method"]]
        if best:
            chosen = min(best, key=lambda s: s["valid"])
            assert (r["strength"], r["weight"]) == (chosen["strength"], chosen["weight"])
        assert r["valid"] == pytest.approx(min(v for _, v in r["curve"]), rel=1e-5)
        assert r["before"] == {part: r[part] for part in ("valid", "test")}  # it was not tuned
        assert 1 < r["test"] < 50
    [run] = (root / "runs" / "small" / "final").glob("FD-*-seed1")
    opened = open_run(run)
    beginning = opened.data.train[: len(opened.data.valid)]
    clean = evaluate(opened.model, opened.params, beginning, window=SMALL.bptt)["perplexity"]
    assert [r["clean"] for r in results if (r["method"], r["seed"]) == ("FD", 1)] == [pytest.approx(clean, rel=1e-12)]


def test_a_second_call_does_no_work(root: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small(root, text)
    monkeypatch.setattr(language_comparison, "fit", None)
    assert json.dumps(small(root, text)) == json.dumps(first)


def test_a_killed_run_goes_on(root: Path, text: str) -> None:
    small(root, text)
    [run] = (root / "runs" / "small" / "final").glob("FD-*-seed0")
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").unlink()
    newest = checkpoints.latest(run)
    assert newest is not None
    newest.unlink()
    small(root, text)
    again = json.loads((run / "result.json").read_text())
    assert {**again, "words_per_second": 0} == {**result, "words_per_second": 0}


def test_the_command_line_opens_its_runs(root: Path, text: str, capsys: Any) -> None:
    small(root, text)
    for run in (root / "runs" / "small" / "final").iterdir():
        result = json.loads((run / "result.json").read_text())
        assert main(["eval", str(run)]) == 0
        assert capsys.readouterr().out.startswith(f"test perplexity {result['test']:.2f}")


def test_all_methods_averaged_and_tuned(tmp_path: Path, text: str) -> None:
    preset = replace(
        SMALL, name="tuned", search=False, optimizer="asgd", ramp_down=0.0, finetune=1, epochs=1, nonmono=1
    )
    searched, results = small(tmp_path, text, preset, METHODS, seeds=2)
    assert searched == []
    counts = {method: sum(r["method"] == method for r in results) for method in METHODS}
    assert counts == {method: 2 if method in REPEATED else 1 for method in METHODS}
    assert all(r["before"]["valid"] >= r["valid"] for r in results)  # tuning keeps the better weights
    assert any(r["before"]["valid"] > r["valid"] for r in results)
    folders = {path.name for path in (tmp_path / "runs" / "tuned" / "final").iterdir()}
    assert {"FD-0.1-0.1-seed1", "FD-0.1-0.1-seed1-finetuned"} <= folders
    again = small(tmp_path, text, preset, METHODS, seeds=2)
    assert json.dumps(again[1]) == json.dumps(results)


def result(method: str, seed: int, valid: float, clean: float = 90.0, **more: Any) -> dict[str, Any]:
    base = {"method": method, "seed": seed, "strength": 0.1, "weight": 1.0, "weights": 2_652_400, "train": 100.0}
    speed = {"words_per_second": 1234.5, "curve": [(1, 300.0), (2, valid)], "text": "0123456789abcdef"}
    return {**base, **speed, "valid": valid, "test": valid - 4, "clean": clean, **more}


RESULTS = [
    *(result("none", seed, 110 + seed) for seed in range(3)),
    *(result("FD", seed, 108 + seed) for seed in range(3)),
    result("AdD K=1", 0, 110.5, 95.0),
    result("AdD K=2", 0, 111.0, 85.0),
]
SHOWN = ("none", "FD", "AdD K=1", "AdD K=2")


def test_settings_are_chosen_by_validation() -> None:
    trials = [result("FD", 0, 5.0, strength=0.1), result("FD", 0, 4.0, strength=0.2, test=99.0), result("VD", 0, 1.0)]
    assert best_setting(trials, "FD") == (0.2, 1.0)
    assert best_setting(trials, "EL") is None


def test_table() -> None:
    preset = replace(SMALL, paper=(("FD", "67.5 / 64.9"),))
    head, rule, *rows = language_report.table(preset, RESULTS, SHOWN).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(head.split("|")) == len(rule.split("|"))
    parts = ["111.00 ± 1.00", "107.00 ± 1.00", "90.00 ± 0.00", "100.00 ± 0.00"]
    assert cells[0] == ["none", "3", "", *parts, "1,234", ""]
    assert cells[1][2:4] + cells[1][-1:] == ["0.1, 1", "109.00 ± 1.00", "67.5 / 64.9"]
    assert cells[2][3:6] == ["110.50", "106.50", "95.00"]
    assert "published" not in language_report.table(SMALL, RESULTS, SHOWN)
    tuned = [{**r, "before": {"valid": r["valid"] + 7}} for r in RESULTS]
    head, _, row, *_ = language_report.table(replace(preset, finetune=5.0), tuned, SHOWN).splitlines()
    shown = dict(zip(*([cell.strip() for cell in line.split("|")[1:-1]] for line in (head, row)), strict=True))
    assert shown["validation before tuning"] == "118.00 ± 1.00"


def test_verdict() -> None:
    """AdD has seed 0 only: it is compared with seed 0 of the others, whose means are higher."""
    overfits = (
        "- `none` has perplexity 90.0 on training text and 111.0 on validation text, both without noise: it overfits, "
        "so that there is something to regularize."
    )
    underfits = (
        "- AdD K=1 is not below `none` on validation. Training text has perplexity 95.0, with `none` 90.0: it fits "
        "what it has seen less well too, and underfits at this length and strength."
    )
    elsewhere = (
        "- AdD K=2 is not below `none` on validation. Training text has perplexity 85.0, with `none` 90.0: it fits "
        "what it has seen no less well, so that the loss is in what it has not seen."
    )
    assert language_report.verdict(replace(SMALL, reach=120), RESULTS, SHOWN).splitlines() == [
        "- Validation perplexity from low to high (1 seed): FD 108.0, none 110.0, AdD K=1 110.5, AdD K=2 111.0.",
        "  - FD against none: validation 2.00 lower, test 2.00 lower (3 seeds)",
        "  - AdD K=1 against none: validation 0.50 higher, test 0.50 higher (1 seed)",
        "  - AdD K=2 against none: validation 1.00 higher, test 1.00 higher (1 seed)",
        "  - AdD K=1 against FD: validation 2.50 higher, test 2.50 higher (1 seed)",
        "  - AdD K=2 against AdD K=1: validation 0.50 higher, test 0.50 higher (1 seed)",
        "- `none` reaches a validation perplexity of 120: 111.0.",
        *(overfits, underfits, elsewhere),
    ]
    under = [{**r, "clean": 105.0} for r in RESULTS]
    said = language_report.verdict(replace(SMALL, reach=100), under, SHOWN)
    assert "`none` does not reach a validation perplexity of 100" in said
    assert "it does not overfit (a ratio of 1.1 or less), so that there is little to regularize" in said
    assert "not below" not in language_report.verdict(SMALL, RESULTS, ("none", "FD"))


def test_the_presets_are_those_of_the_table() -> None:
    ptb, wikitext2, fd1 = (table3.PRESETS[name] for name in ("ptb", "wikitext2", "ptb-fd1"))
    assert round(ptb.model(10_000).n_params / 1e6) == 24
    assert round(wikitext2.model(33_278).n_params / 1e6) == 34
    assert dict(fd1.paper) == {"FD": "67.5 / 64.9"}
    for preset in (ptb, wikitext2):
        assert all(f"| {dict(preset.paper)[m]} |" in table3.PAPER for m in ("none", "FD", "AdD K=1"))
    small = table3.PRESETS["ptb-small"]
    assert (small.corpus, small.hidden, small.epochs, small.reach) == ("ptb", (200,), 10, 120)


@pytest.mark.parametrize("name", table3.PRESETS)
def test_every_preset_decays_its_weights(name: str, tmp_path: Path) -> None:
    preset = table3.PRESETS[name]
    job = language_comparison.Job(preset, "none", 0, 0.0, 0.0, "final", tmp_path, None)
    made = language_comparison.recipe(job, 100).optimizer
    assert (type(made).__name__.lower(), made.lr, made.weight_decay) == (preset.optimizer, preset.lr, 1.2e-6)
    facts = {"command": "c", "seconds": 1, "cores": 2, "cpu": "x", "numpy": "2"}
    said = " ".join(table3.heading(preset, RESULTS, facts).split())
    assert "weight decay 1.2e-06" in said
    assert ("averaged (NT-ASGD)" in said) == (preset.optimizer == "asgd")


def test_few_columns_are_without_a_word_that_differs(rng: np.random.Generator) -> None:
    """Where both passes drop the same words of a column, its influence map at the full mask is zero."""
    preset, text = table3.PRESETS["ptb-small"], corpus.load("pydoc")
    assert language_comparison.regularizer(
        language_comparison.Job(preset, "AdD K=1", 0, 0.06, 1.0, "final", Path(), None)
    ) == AdD(delta=0.06, search=Greedy(start="base", keep="last"), share_noise=False)
    windows = Windows(text.train, preset.batch, preset.bptt)
    model = preset.model(len(text.vocabulary))

    def alike(window: Any) -> Any:
        batch = TokenBatch(window.x, window.y)
        one, two = (model.noise(rng, batch).words for _ in range(2))
        return (one[window.x] == two[window.x]).all(axis=0)

    shares = [alike(windows.window(step)).mean() for step in range(windows.per_epoch)]
    assert np.mean(shares) < 0.04


@pytest.mark.parametrize("task", ["ptb", "wikitext2"])
def test_the_papers_presets_are_those_of_the_command_line(task: str) -> None:
    """Field by field: `minadv train ptb` and row `none` of Table 3 are the same model, trained alike."""
    args, preset = parsed("train", task, "--method", "none"), table3.PRESETS[task]
    assert preset.model(50) == presets.model_of(args, 50)
    job = language_comparison.Job(preset, "none", 0, 0.0, 1.0, "final", Path(), None)
    ours, theirs = language_comparison.recipe(job, 100), presets.recipe(args, 100)
    schedules = ("lr_schedule", "weight_schedule")
    but = {**dict.fromkeys(schedules, Constant()), "checkpoint_every": None}
    assert replace(ours, **but) == replace(theirs, **but)
    for recipe in (ours, theirs):
        assert [getattr(recipe, name)(epoch) for name in schedules for epoch in (0.0, 749.9)] == [1.0] * 4  # constant
    own = presets.PRESETS[task].values
    assert (preset.batch, preset.bptt, preset.columns) == (own["batch"], own["bptt"], own["eval_columns"])
    assert (preset.corpus, preset.delta) == (task, LM_DELTA)


def test_fraternal_dropout_as_published(tmp_path: Path, text: str) -> None:
    """In ptb-fd1 its passes draw all noise apart and have no recurrent mask; elsewhere the mask alone differs."""
    fd1, ptb = table3.PRESETS["ptb-fd1"], table3.PRESETS["ptb"]
    assert (fd1.hidden, fd1.fresh) == ((655,), ("words", "inputs", "outputs", "U"))
    assert (fd1.batch, fd1.bptt, fd1.lr, fd1.optimizer, fd1.finetune) == (64, 35, 30.0, "sgd", 0.0)
    words, inputs, _, outputs, U = fd1.dropouts
    assert (words, inputs, outputs, U, fd1.kappa, fd1.weight_decay) == (0.1, 0.65, 0.4, 0.5, 0.15, 1.2e-6)
    assert settings("FD", fresh=True, kappa=fd1.kappa) == [(0.0, 0.15), (0.0, 0.75), (0.1, 0.15)]
    preset = replace(SMALL, name="fd1", search=False, epochs=0.3, fresh=fd1.fresh)
    small(tmp_path, text, preset, ("FD", "AdD K=1"), seeds=1)
    fd, add = (
        load(tmp_path / "runs" / "fd1" / "final" / name).config for name in ("FD-0-0.1-seed0", "AdD_K=1-0.4-1-seed0")
    )
    assert (fd["fresh"], fd["regularizer"]["share_noise"], fd["regularizer"]["p"]) == (list(fd1.fresh), False, 0)
    assert (add["fresh"], add["regularizer"]["share_noise"]) == (["words"], False)
    facts = {"command": "c", "seconds": 1, "cores": 2, "cpu": "x", "numpy": "2"}
    said = [" ".join(table3.heading(preset, RESULTS, facts).split()) for preset in (fd1, ptb)]
    assert "FD's two passes draw all noise apart, as published" in said[0]
    assert "FD's two passes share all noise but their recurrent masks" in said[1]


def test_main(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(table3.PRESETS, "pydoc", replace(SMALL, name="pydoc", search=False, epochs=1))
    options = ["--methods", "none", "VD", "--data-dir", text, "--runs", str(tmp_path / "runs"), f"--out={tmp_path}"]
    table3.main(["--preset", "pydoc", *options])
    data = json.loads((tmp_path / "table3-pydoc.json").read_text())
    assert (len(data["search"]), len(data["results"]), data["facts"]["seeds"]) == (0, 2, 1)
    shown = "python -m experiments.table3 --preset pydoc --methods none VD --data-dir DIR --runs DIR --out=DIR"
    assert data["facts"]["command"] == shown
    written = (tmp_path / "table3-pydoc.md").read_text()
    assert str(tmp_path) not in written + json.dumps(data)
    assert language_report.verdict(SMALL, data["results"], ["none", "VD"]) in written
    assert table3.PAPER in written
    assert (tmp_path / "table3-pydoc.png").read_bytes().startswith(b"\x89PNG")
    assert "written:" in capsys.readouterr().out


def test_made_in_pieces(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of other methods stay, though their runs are gone; those of another preset or setting do not."""
    preset = replace(SMALL, name="pydoc", search=False, epochs=0.3)
    monkeypatch.setitem(table3.PRESETS, "pydoc", preset)

    def call(runs: str, *methods: str) -> tuple[list[tuple[str, int]], str]:
        options = ["--data-dir", text, "--runs", str(tmp_path / runs), "--out", str(tmp_path)]
        table3.main(["--preset", "pydoc", "--methods", *methods, *options])
        data = json.loads((tmp_path / "table3-pydoc.json").read_text())
        return [(r["method"], r["seed"]) for r in data["results"]], (tmp_path / "table3-pydoc.md").read_text()

    call("here", "VD", "FD")
    rows, written = call("there", "none", "FD")
    assert sorted(rows) == [("FD", 0), ("VD", 0), ("none", 0)]
    shown = [line.split("|")[1].strip() for line in written.splitlines() if line.startswith("| ")]
    assert shown[1:4] == ["none", "VD", "FD"]  # in the table's own order
    assert "Rows were made on: " in written
    monkeypatch.setitem(table3.PRESETS, "pydoc", replace(preset, lr=1.0))
    assert call("anew", "EL")[0] == [("EL", 0)]


def test_runs_on_another_text_are_not_taken_over(tmp_path: Path, text: str) -> None:
    other = write_corpus(
        tmp_path / "b", **{part: "\n".join(lines(30, 5)) + "\n" for part in ("train", "valid", "test")}
    )
    preset = replace(SMALL, search=False, epochs=0.3)
    small(tmp_path, text, preset, ("none",), seeds=1)
    with pytest.raises(RunError, match="was trained on another text"):
        small(tmp_path, str(other), preset, ("none",), seeds=1)
    write_corpus(tmp_path / "ptb", **dict.fromkeys(("train", "valid", "test"), "a b\n" * 30))
    with pytest.raises(DataError, match=r"these are not the files of ptb that results are published for: .*sha256"):
        small(tmp_path, str(tmp_path), replace(preset, corpus="ptb"), ("none",), seeds=1)


def test_an_earlier_row_in_another_setting_goes(tmp_path: Path, capsys: Any) -> None:
    preset = json.loads(json.dumps(asdict(SMALL)))
    preset["about"] = "the same in other words"
    found = [result("FD", seed, 100.0, strength=s, preset=preset) for seed, s in ((0, 0.1), (1, 0.1), (2, 0.2))]
    found.append(result("FD", 3, 100.0, strength=0.1, preset=preset, text="of another text"))
    path = reporting.write_json(tmp_path / "table.json", {"search": [*found[:1]], "results": found})
    now = result("FD", 0, 99.0, strength=0.1, preset=preset)
    text = now["text"]
    searched, results = language_comparison.with_earlier(path, SMALL, text, [], [now])
    assert "had 2 rows of another preset, text or setting, which are left out now: FD" in capsys.readouterr().err
    assert (searched, results) == (json.loads(json.dumps(found[:1])), [json.loads(json.dumps(found[1])), now])
    assert language_comparison.with_earlier(path, SMALL, text, [now], [])[0] == [now]


def test_figure(tmp_path: Path) -> None:
    path = reporting.save_figure(language_report.figure(SMALL, RESULTS, SHOWN), tmp_path / "small.png")
    assert path.stat().st_size > 10_000


def test_a_run_that_is_left_alone_has_all_cores(tmp_path: Path) -> None:
    first, second = (
        language_comparison.Job(SMALL, "none", seed, 0.0, 0.0, "final", tmp_path, None) for seed in range(2)
    )
    assert language_comparison.share_cores([first, second], 2) == [first, second]
    path = first.folder / language_comparison.RESULT
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"preset": asdict(SMALL), "text": ""}))
    assert language_comparison.share_cores([first, second], 2) == [first, replace(second, workers=2)]
