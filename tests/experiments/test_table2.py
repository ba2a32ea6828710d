"""Table 2 in miniature: pre-trained, searched, run, resumed, told; and the naive Bayes that stands beside it."""

import dataclasses
import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import (
    bench_text,
    naive_bayes,
    reporting,
    table2,
    text_comparison,
    text_jobs,
    text_methods,
    text_verdicts,
)
from experiments.text_comparison import best_setting
from experiments.text_jobs import Base, Job, Preset
from experiments.text_methods import METHODS, SUMS, Setting, settings
from minadv.adversary import find_budgets
from minadv.cli import main
from minadv.commands import text_settings
from minadv.data.documents import Documents
from minadv.models.text import TextClassifier
from minadv.regularizers import AdD, Sum
from minadv.training.folders import RunError
from minadv.training.loop import Interrupted
from minadv.training.text import load_text
from tests.training.text_problems import corpus

OF = corpus(40, unlabelled=20)
DOCSTRINGS = table2.PRESETS["docstrings"]
TINY = Preset(
    *("tiny", "toy", None, 4, 50, 0.2, 6, None, 1.0),
    *(6, 4, 5, 1e-2, 0.9, 5),
    *(5, 8, (1e-2,), 0.8, ("all", "embeddings"), 1, 1, 2),
    about="toys",
)


@pytest.fixture(autouse=True)
def small(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus from memory instead of one from files, in this process: processes of their own take longer."""
    if device.name == "gpu":
        pytest.skip("the comparison runs on the host")
    for module in (text_jobs, table2, bench_text):
        monkeypatch.setattr(module, "corpus_of", lambda about: OF)
    monkeypatch.setattr(reporting, "run_all", lambda work, tasks, **how: [work(task) for task in tasks])
    monkeypatch.setitem(table2.PRESETS, "docstrings", TINY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All rows, by the command itself."""
    root = tmp_path_factory.mktemp("table2")
    with pytest.MonkeyPatch.context() as patch:
        for module in (text_jobs, table2):
            patch.setattr(module, "corpus_of", lambda about: OF)
        patch.setattr(reporting, "run_all", lambda work, tasks, **how: [work(task) for task in tasks])
        patch.setitem(table2.PRESETS, "docstrings", TINY)
        run(root)
    return root


def run(root: Path, *options: str) -> None:
    table2.main(
        ["--runs", str(root / "runs"), "--out", str(root / "out"), "--device", "cpu", "--workers", "1", *options]
    )


def data(root: Path) -> Any:
    return json.loads((root / "out" / "table2-tiny.json").read_text())


def test_every_row_is_searched_alike_and_run(whole: Path) -> None:
    found = data(whole)
    searched = {m: [r["setting"] for r in found["search"] if r["method"] == m] for m in METHODS}
    assert all(len(searched[m]) == (0 if m == "none" or m in SUMS else 3) for m in METHODS)
    assert {r["seed"] for r in found["tried"]} == {text_comparison.BASE_SEED}
    assert {(r["seed"], r["step"]) for r in found["search"]} == {(0, 3)}
    assert [t["base"]["take"] for t in found["tried"]] == ["all", "embeddings"]
    best = min(found["tried"], key=lambda t: t["valid"]["loss"])["base"]
    assert all(r["base"] == best == found["base"] for r in (*found["search"], *found["results"]))
    assert [r["method"] for r in found["results"]] == list(METHODS)
    for r in found["results"]:
        assert r["test"]["error"] == pytest.approx(100 * len(r["wrong"]) / 12)
        if r["method"] not in SUMS and r["method"] != "none":
            trials = [s for s in found["search"] if s["method"] == r["method"]]
            best = min(trials, key=lambda s: s["valid"]["loss"])
            assert r["setting"] == best["setting"]
    assert found["lm"]["valid"]["perplexity"] > 1
    final = whole / "runs" / "tiny" / "final"
    assert len(list(final.glob("*/result.json"))) == len(METHODS)
    assert len(list(final.glob("*/compared.json"))) == len(found["search"]) == 3 * 9
    left = [path for path in final.iterdir() if not (path / "result.json").exists()]
    assert {load_text(path).step for path in left} == {3}


def test_what_is_written_says_where_it_comes_from_and_names_no_folder(whole: Path) -> None:
    text = (whole / "out" / "table2-tiny.md").read_text()
    assert str(whole) not in text
    assert "`python -m experiments.table2 --runs DIR --out DIR --device cpu --workers 1`" in text
    assert str(whole) not in json.dumps(data(whole)["facts"])
    assert all(f"\n| {method} " in text for method in (*METHODS, "naive Bayes"))
    assert "held-out perplexity" in text
    assert "with dropout 0.2 (the paper's: 0.5)" in text
    assert "a forget bias\nof 1 at first (the paper's: 0)" in text
    assert (whole / "out" / "table2-tiny.png").stat().st_size > 10_000
    assert reporting.command("table2", ["--data-dir=/a", "--preset", "imdb", "--out", "/b"]) == (
        "python -m experiments.table2 --data-dir=DIR --preset imdb --out DIR"
    )


def test_as_many_evaluations_as_the_heading_says(whole: Path) -> None:
    """Five steps in two parts: evaluations after the third and the last, not after the second and fourth as well."""
    text = (whole / "out" / "table2-tiny.md").read_text()
    assert "those of the best of 2 validation errors" in text
    for r in data(whole)["results"]:
        assert [point[0] for point in r["curve"]] == [3, 5]
        assert r["epochs"] == pytest.approx(5 / (len(OF.train) // 8))
        assert r["classes"] == 2


def test_a_second_call_does_no_work(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(whole, tmp_path / "again")
    for name in ("fit_text", "pretrain_text"):
        monkeypatch.setattr(text_jobs, name, None)
    run(tmp_path / "again")
    first, second = data(whole), data(tmp_path / "again")
    assert json.dumps([first["results"], first["search"]]) == json.dumps([second["results"], second["search"]])


def test_a_killed_run_goes_on(whole: Path, tmp_path: Path) -> None:
    """Without its results, and back before its last checkpoint, it ends where it ended; more seeds join the table.

    The record of how settings were chosen is that of all methods, not of those of the last call alone.
    """
    shutil.copytree(whole, tmp_path / "again")
    root = tmp_path / "again" / "runs" / "tiny"
    [folder] = (path.parent for path in (root / "final").glob("AdD_K=2-*/result.json"))

    def told(path: Path) -> dict[str, Any]:
        return json.loads((path / "result.json").read_text())

    before = {path: told(path) for path in (folder, root / "lm")}
    for path in before:
        (path / "result.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    run(tmp_path / "again", "--methods", "AdD K=2", "none", "--seeds", "2")
    for path, result in before.items():
        assert told(path) == result
    first, second = data(whole), data(tmp_path / "again")
    assert [second[part] for part in ("base", "tried", "search")] == [
        first[part] for part in ("base", "tried", "search")
    ]
    rows = [(r["method"], r["seed"]) for r in second["results"]]
    assert rows == [(m, seed) for m in METHODS for seed in range(2 if m in ("none", "AdD K=2") else 1)]
    assert "| none " in (tmp_path / "again" / "out" / "table2-tiny.md").read_text()


def test_a_run_of_another_preset_is_not_looked_at(whole: Path, tmp_path: Path) -> None:
    """Its log has an evaluation at the very step, of a network that was trained otherwise."""
    shutil.copytree(whole / "runs", tmp_path / "runs")
    row = data(whole)["search"][0]
    job = Job(TINY, row["method"], 0, Setting(**row["setting"]), Base(**row["base"]), "final", tmp_path / "runs", None)
    (job.folder / "compared.json").unlink()
    assert text_jobs.look(job)["valid"] == row["valid"]
    with pytest.raises(RunError, match="was made with another batch_size"):
        text_jobs.look(replace(job, preset=replace(TINY, batch=9)))
    renamed = replace(job, preset=replace(TINY, about="the same under another name"))
    assert text_jobs.look(renamed)["valid"] == row["valid"]


def test_an_interrupt_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*given: Any) -> None:
        raise Interrupted("at step 1")

    monkeypatch.setattr(text_jobs, "train", train)
    job = Job(TINY, "VD", 0, Setting(), Base(1e-2, "all"), "final", tmp_path, None)
    with pytest.raises(Interrupted, match="at step 1"):
        text_jobs.look(job)


def test_texts_that_have_changed_are_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    shutil.copytree(whole / "runs", tmp_path / "runs")
    monkeypatch.setattr(table2, "corpus_of", lambda about: corpus(40, unlabelled=21))
    with pytest.raises(SystemExit):
        run(tmp_path)
    assert "was made of other texts" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_alone_do_not_replace_the_whole(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(whole / "runs", tmp_path / "runs")
    monkeypatch.setattr(reporting, "RESULTS", tmp_path / "results")
    options = ["--runs", str(tmp_path / "runs"), "--device", "cpu", "--workers", "1"]
    for path in (tmp_path / "runs" / "tiny" / "final").glob("VAT-*"):
        shutil.rmtree(path)
    table2.main([*options, "--methods", "VD"])
    assert (tmp_path / "runs" / "table2-tiny.md").exists()
    assert not (tmp_path / "results").exists()
    table2.main(options)
    assert (tmp_path / "results" / "table2-tiny.md").exists()


def test_time_and_origin_of_all_runs(whole: Path) -> None:
    """A run that was compared and then went on is one run; its time is that of its log."""
    found = data(whole)
    folders = [path for part in ("base", "final") for path in (whole / "runs" / "tiny" / part).iterdir()]
    assert found["n_runs"] == len(folders) == 2 + 9 * 3 + 3
    assert found["seconds"]["runs"] == sum(map(reporting.trained, folders))
    text = (whole / "out" / "table2-tiny.md").read_text()
    assert f"the runs were made on:\n{found['facts']['cpu']}, {reporting.at_commit(found['facts'])}." in text
    assert f"{found['n_runs']} other runs by their logs" in text


def test_zero_maps_are_counted(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None in the rows of the table; those of a search that has no slope are, and other warnings are what they were."""
    assert [r["zero_maps"] for r in data(whole)["results"]] == [0] * len(METHODS)
    job = Job(TINY, "AdD K=1", 0, Setting(), Base(1e-2, "all"), "base", tmp_path, None)
    (tmp_path / "tiny").mkdir()
    shutil.copytree(whole / "runs" / "tiny" / "lm", tmp_path / "tiny" / "lm")
    same = AdD(delta=0.04, init="base", share_noise=False)
    monkeypatch.setattr(text_jobs, "regularizer", lambda *given: same)
    monkeypatch.setattr(TextClassifier, "noise", lambda *given: None)  # the same in both passes: none
    assert text_jobs.work(job)["zero_maps"] == 2 * 5  # labelled and unlabelled texts of five steps
    with pytest.warns(UserWarning, match="other"), text_jobs.noting_zero_maps(tmp_path):
        warnings.warn("other", UserWarning, stacklevel=1)


def test_it_stops_where_it_is_told_to(tmp_path: Path) -> None:
    for until, there in (("pretrain", ["lm"]), ("base", ["base", "lm"]), ("search", ["base", "final", "lm"])):
        run(tmp_path, "--until", until, "--methods", "VD")
        assert sorted(path.name for path in (tmp_path / "runs" / "tiny").iterdir()) == there
        assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "runs" / "tiny" / "final").iterdir())) == 3


def test_the_command_line_opens_its_runs(whole: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minadv.commands.text_settings.reviews.load", lambda name, **how: OF)
    for r in data(whole)["results"][:3]:
        name = r["method"].replace(" ", "_")
        [folder] = (path.parent for path in (whole / "runs" / "tiny" / "final").glob(f"{name}-*/result.json"))
        assert main(["eval", str(folder)]) == 0
        assert capsys.readouterr().out.startswith(f"test error {r['test']['error']:.2f} %")


def test_the_methods() -> None:
    setting = Setting(delta=0.1, norm=2.0, weight=3.0)
    both = text_methods.regularizer("AdD K=2 + VAT", setting)
    assert isinstance(both, Sum)
    assert (both.parts[0].adv_steps, both.parts[1].norm, both.weights) == (2, 2.0, (3.0, 1.0))
    assert text_methods.weight("AdD K=2 + VAT", setting) == 1.0
    assert text_methods.weight("AdD K=2", setting) == 3.0
    last = text_methods.regularizer("AdD last", setting)
    assert last == AdD(delta=0.1, sites=("readout",))
    reselect = text_methods.regularizer("AdD reselect", setting)
    assert (reselect.search, reselect.adv_steps) == ("reselect", 2)


@pytest.mark.parametrize("method", [m for m in METHODS if m.startswith("AdD")])
def test_the_paper_s_presets_run_its_form(method: str) -> None:
    """From the base mask, with independent noise; the small ones from one random flip, with shared noise."""
    for name, form in (("imdb", ("base", False)), ("elec", ("base", False)), ("imdb-small", ("flip", True))):
        found = text_methods.regularizer(method, Setting(), table2.PRESETS[name].variant)
        add = found.parts[0] if isinstance(found, Sum) else found
        assert isinstance(add, AdD)
        assert (add.init, add.share_noise, add.distance, add.stop_base) == (*form, "js", False)


def test_the_form_reaches_the_run(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    shutil.copytree(whole / "runs" / "tiny" / "lm", tmp_path / "tiny" / "lm")
    job = Job(replace(TINY, variant="paper"), "AdD K=2", 0, Setting(), Base(1e-2, "all"), "final", tmp_path, None)
    assert text_jobs.work(job)["zero_maps"] == 0
    described = load_text(job.folder).config["regularizer"]
    assert (described["init"], described["share_noise"]) == ("base", False)
    assert "AdD searches\nfrom one random flip" in (whole / "out" / "table2-tiny.md").read_text()
    assert set(text_verdicts.FORMS) == {p.variant for p in table2.PRESETS.values()}


def trial(method: str, error: float, loss: float = 1.0, **setting: float) -> dict[str, Any]:
    return {"method": method, "setting": vars(Setting(**setting)), "valid": {"error": error, "loss": loss}}


def test_settings_are_chosen_by_validation_loss() -> None:
    """Not by the error: that of a few hundred texts is noise."""
    trials = [
        trial("VAT", 5.0, loss=0.7, norm=5.0),
        trial("VAT", 4.0, loss=0.6, norm=2.0),
        trial("VAT", 4.5, loss=0.5, norm=10.0),
        trial("AdD K=1", 3.0, loss=0.5, delta=0.08, weight=3.0),
        trial("AdD K=1", 2.0, loss=0.9, delta=0.04),
    ]
    assert best_setting(trials, "VAT") == Setting(norm=10.0)
    assert best_setting(trials, "AdD K=1 + VAT") == Setting(delta=0.08, weight=3.0, norm=10.0)
    assert best_setting(trials, "FD") == settings("FD")[0]


def test_runs_that_choose_keep_the_weights_of_least_loss(whole: Path) -> None:
    for part, monitor in (("base", "loss"), ("final", "error")):
        folder = next(path for path in (whole / "runs" / "tiny" / part).iterdir())
        assert load_text(folder).config["recipe"]["monitor"] == monitor


def test_the_chosen_run_goes_on_to_the_bits_of_one_that_was_never_stopped(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    shutil.copytree(whole / "runs" / "tiny" / "lm", tmp_path / "tiny" / "lm")
    row = next(r for r in data(whole)["results"] if r["method"] == "FD")
    job = Job(TINY, "FD", 0, Setting(**row["setting"]), Base(**row["base"]), "final", tmp_path, None)
    straight = json.loads(json.dumps(text_jobs.work(job)))
    assert {**straight, "run": row["run"]} == row
    look = text_jobs.look(job)  # of a run that has gone past it
    assert look["valid"]["loss"] == row["curve"][0][4]


def test_a_language_model_serves_every_preset_that_has_the_same(whole: Path) -> None:
    path = whole / "runs" / "tiny" / "lm" / "result.json"
    for preset, fits in ((replace(TINY, steps=99), True), (replace(TINY, lm_steps=99), False)):
        assert (text_jobs.found_result(path, preset, text_jobs.OF_LM) is not None) == fits
        assert text_jobs.found_result(path, preset) is None


def test_the_paper_s_delta_is_a_budget_of_four_in_the_small_preset() -> None:
    assert find_budgets(TextClassifier(9, 4, DOCSTRINGS.hidden, n_classes=2), delta=0.04) == {"layer0": 4}


def result(method: str, wrong: list[int], seed: int = 0, **more: Any) -> dict[str, Any]:
    base = {"method": method, "seed": seed, "setting": vars(Setting()), "valid": {"error": 10.0}, "wrong": wrong}
    curve = [(1, 0.7, 0.0, 50.0, 0.69), (2, 0.6, 0.0, 20.0, 0.65)]
    return {
        **base,
        "curve": curve,
        "epochs": 8.25,
        "classes": 2,
        "zero_maps": 0,
        "test": {"error": float(len(wrong))},
        **more,
    }


BAYES = {"binary": True, "alpha": 1.0, "valid": {"error": 16.0}, "test": {"error": 16.0}, "wrong": list(range(16))}
ROWS = [
    result("none", list(range(20, 40))),
    result("FD", list(range(20, 32))),
    result("AdD K=1", list(range(20, 31))),
    result("AdD K=2", list(range(20, 31))),
]


def gathered(rows: list[dict[str, Any]], lr: float = 0.2, tried: tuple[float, ...] = ()) -> dict[str, Any]:
    bases = [{"base": {"lr": one, "take": "all"}} for one in tried]
    return {"results": rows, "bayes": BAYES, "base": {"lr": lr, "take": "all"}, "tried": bases}


def test_how_far_training_is() -> None:
    """A run whose best evaluation is not its last is at its end; a learning rate at the end of its grid is told."""
    over = [(1, 0.7, 0.0, 20.0, 0.6), (2, 0.1, 0.0, 30.0, 0.9)]
    rows = [result("none", [1], curve=over), result("FD", [1])]
    assert text_verdicts.how_far(gathered(rows)) == "In 1 of 2 runs the best evaluation was the last."
    for lr, says in ((0.1, "is the least of those"), (0.2, None), (0.3, "is the largest of those")):
        told = text_verdicts.how_far(gathered(rows, lr, (0.1, 0.2, 0.3)))
        assert ("learning rate" in told) == (says is not None)
        assert says is None or says in told


def test_table() -> None:
    imdb = replace(TINY, corpus="imdb")
    head, _, *rows = text_verdicts.table(imdb, ROWS, BAYES).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert head.split("|")[-2].strip() == "paper"
    assert [row[0] for row in cells] == ["none", "FD", "AdD K=1", "AdD K=2", "naive Bayes"]
    assert cells[0] == ["none", "20.00", "10.00", "1", "", "", "7.164"]
    assert cells[2] == ["AdD K=1", "11.00", "10.00", "1", "δ = 0.04", "0.0039", "6.155"]
    assert cells[4][1:6] == ["16.00", "16.00", "", "presence of words, α = 1", "0.62"]
    assert "paper" not in text_verdicts.table(TINY, ROWS, BAYES)
    assert text_verdicts.told("VAT", {**vars(Setting()), "weight": 3.0}) == "norm 5, weight 3"
    assert text_verdicts.told("AdD K=2 + VAT", vars(Setting())) == "δ = 0.04, norm 5"
    assert text_verdicts.told("FD", vars(Setting())) == "p = 0.1"
    heavy = {**vars(Setting()), "weight": 3.0}
    assert text_verdicts.told("AdD K=2 + VAT", heavy) == "δ = 0.04 with weight 3, norm 5"
    assert text_verdicts.told("AdD K=2", heavy) == "δ = 0.04, weight 3"


def test_verdict() -> None:
    lines = text_verdicts.verdict(replace(TINY, corpus="imdb"), gathered(ROWS)).splitlines()
    assert lines[0] == "- From low test error to high: AdD K=1 11.00, AdD K=2 11.00, FD 12.00, none 20.00."
    assert lines[1] == (
        "- The LSTM without a regularizer does not beat naive Bayes on the same words: 20.00 % against 16.00 %. "
        "After 8.2 epochs its training loss is 0.60 and its validation loss 0.65, where a guess among 2 classes has "
        "0.69: it is still learning, and more steps may help."
    )
    assert lines[2] == "- Lower than none: FD, AdD K=1, AdD K=2; not lower: no method."
    assert lines[3] == (
        "- In 4 of 4 runs the best evaluation was the last: most were still learning, so that the order is one of how "
        "fast they learn as much as of how well."
    )
    assert lines[4] == (
        "- AdD K=1 against FD: 1.00 points lower (McNemar P = 1, not to be told from chance); the paper: -0.19."
    )
    assert (
        lines[5]
        == "- AdD K=2 against AdD K=1: no difference (McNemar P = 1, not to be told from chance); the paper: -0.15."
    )
    assert lines[6].startswith("- Rank correlation with the paper's column over 4 rows: +0.9")
    assert lines[7] == "- Batches with an influence map that was zero in every text: none in any row."
    some = [*ROWS[:2], result("AdD K=1", [1], zero_maps=2), result("AdD K=1", [1], seed=1, zero_maps=1)]
    assert "zero in every text: 3 in the runs of AdD K=1." in text_verdicts.verdict(TINY, gathered(some))
    better = text_verdicts.verdict(TINY, gathered([result("none", [1, 2])]))
    assert "influence map" not in better
    assert "The LSTM without a regularizer beats naive Bayes on the same words: 2.00 % against 16.00 %." in better


@pytest.mark.parametrize(
    ("train", "valid", "classes", "says"),
    [
        (0.36, 0.9, 2, "it is still learning"),
        (0.34, 0.9, 2, "it fits its labelled texts and not others"),
        (0.34, 0.34, 2, "neither short training nor overfitting shows"),
        (0.6, 1.0, 6, "it fits its labelled texts and not others"),
        (1.0, 1.0, 6, "it is still learning"),
    ],
)
def test_where_training_is(train: float, valid: float, classes: int, says: str) -> None:
    """The last losses against log(classes), wherever training began."""
    for first in (0.1, 5.0):
        curve = [(1, first, 0.0, 50.0, first), (2, train, 0.0, 20.0, valid)]
        told = text_verdicts.where_it_is([result("none", [1], curve=curve, classes=classes)])
        assert f"its training loss is {train:.2f} and its validation loss {valid:.2f}" in told
        assert says in told


def test_naive_bayes_against_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.naive_bayes")
    V = len(OF.vocabulary)
    for binary, alpha in naive_bayes.SETTINGS:
        x, y = (naive_bayes.counts(d, V, 4, binary) for d in (OF.train, OF.test))
        theirs = sklearn.MultinomialNB(alpha=alpha).fit(x, OF.train.labels).predict(y)
        np.testing.assert_array_equal(naive_bayes.wrong(OF, "test", 4, binary, alpha), theirs != OF.test.labels)
    dense = naive_bayes.counts(OF.test, V, 3, False).toarray()
    np.testing.assert_array_equal(dense[5], np.bincount(OF.test[5][-3:], minlength=V))
    found = naive_bayes.naive_bayes(OF, None)
    assert found["test"]["error"] == pytest.approx(100 * len(found["wrong"]) / len(OF.test))
    errors = [naive_bayes.wrong(OF, "valid", None, *s).mean() for s in naive_bayes.SETTINGS]
    assert found["valid"]["error"] == pytest.approx(100 * min(errors))


def test_naive_bayes_reads_what_the_networks_read() -> None:
    """Texts that all end in the same word: whoever reads only that gives all of them one class."""
    text = np.tile([2, 2, 4, 3, 3, 4], 6)
    part = Documents(text, np.arange(0, 36, 3), np.full(12, 3), np.tile([0, 1], 6))
    of = replace(OF, train=part, valid=part, test=part)
    assert naive_bayes.naive_bayes(of, None)["wrong"] == []
    assert len(naive_bayes.naive_bayes(of, 1)["wrong"]) == 6


def test_the_paper_is_quoted_rightly() -> None:
    """Table 2 of the paper; the row that is minadv's own has no figure there."""
    assert set(text_verdicts.PAPER) == set(METHODS) - {"AdD reselect"}
    assert text_verdicts.PAPER["none"] == (7.164, 6.155)
    assert min(text_verdicts.PAPER.values()) == text_verdicts.PAPER["AdD K=2 + VAT"] == (5.687, 5.621)
    sizes = {name: table2.PRESETS[name] for name in ("imdb", "elec")}
    assert [(p.embed, p.hidden, p.steps, p.truncate, p.lm_steps) for p in sizes.values()] == [
        (256, 1024, 15_000, 400, 100_000),
        (512, 1024, 10_000, 400, 100_000),
    ]
    for p in sizes.values():
        assert (p.lrs, p.lr_decay, p.batch, p.takes, p.seeds) == ((5e-4,), 0.9998, 64, ("all",), 5)
        assert (p.lm_lr, p.lm_lr_decay, p.lm_batch, p.candidates) == (1e-3, 0.9999, 256, 1024)
        assert (p.dropout, p.forget_bias, p.max_tokens, p.min_documents) == (0.5, 0.0, None, 2)


@pytest.mark.parametrize("name", ["imdb", "elec"])
def test_the_paper_s_presets_are_those_of_the_command_line(name: str) -> None:
    theirs, ours = text_settings.PRESETS[name], table2.PRESETS[name]
    other = {"train_steps": "steps", "lm_train_steps": "lm_steps"}
    about = text_jobs.about_data(ours, None)
    for field in dataclasses.fields(theirs):
        if field.name in ("min_count", "valid_share"):
            assert about[field.name] == getattr(theirs, field.name)
        elif field.name == "lr":
            assert ours.lrs == (theirs.lr,)
        elif field.name != "about":
            assert getattr(ours, other.get(field.name, field.name)) == getattr(theirs, field.name)


def test_learning_rates_fall_as_the_preset_says(whole: Path) -> None:
    for part, rate in (("lm", 0.9), ("base/*", 0.8), ("final/*", 0.8)):
        for folder in (whole / "runs" / "tiny").glob(part):
            assert load_text(folder).config["recipe"]["step_schedule"]["rate"] == pytest.approx(rate)


def test_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The rows that are there already stay; the padding is held to its limit."""
    monkeypatch.setattr(bench_text, "call", lambda name, threads, **given: bench_text.measure(**given))
    options = ["--preset", "docstrings", "--rounds", "2", "--workers", "1", "--out", str(tmp_path)]
    for row in ("AdD K=1", bench_text.PRETRAINING):
        bench_text.main([*options, "--rows", row])
    found = json.loads((tmp_path / "bench_text.json").read_text())
    assert list(found["rows"]) == [bench_text.PRETRAINING, "AdD K=1"]
    alone = found["rows"]["AdD K=1"]["alone"]
    assert len(alone["seconds"]) == 2
    assert all(0 < real <= padded for real, padded in zip(alone["real"], alone["padded"], strict=True))
    assert found["rows"][bench_text.PRETRAINING]["alone"]["real"] == [4 * 5, 4 * 5]
    text = (tmp_path / "bench_text.md").read_text()
    assert "| AdD K=1 " in text
    assert "times its real tokens: within the limit of 1.3." in text
    assert str(tmp_path) not in text
    assert "written:" in capsys.readouterr().out


def test_speed_is_of_all_steps_together() -> None:
    """A mean of tokens over a median of seconds would say 200 here."""
    assert bench_text.speed({"real": [100, 100, 400], "seconds": [1.0, 1.0, 10.0]}) == "50 (40 to 100)"


def test_every_method_reads_the_same_labelled_texts() -> None:
    tasks = [bench_text.make_task(TINY, OF, row) for row in METHODS]
    for step in range(3):
        rows = [np.concatenate(task.readings[0].buckets.groups(step)).tolist() for task in tasks]
        assert rows == [rows[0]] * len(METHODS)


def test_counts_of_documents_side_by_side() -> None:
    documents = Documents(np.array([5, 5, 3, 3, 5]), np.array([0, 2]), np.array([2, 3]))
    dense = naive_bayes.counts(documents, 6, None, False).toarray()
    np.testing.assert_array_equal(dense[:, [3, 5]], [[0, 2], [2, 1]])
    np.testing.assert_array_equal(naive_bayes.counts(documents, 6, 2, True).toarray()[:, [3, 5]], [[0, 1], [1, 1]])
