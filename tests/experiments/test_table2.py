"""Table 2 in miniature: pre-trained, searched, run, resumed, told."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments import table2
from experiments.parts import records, reporting, text_comparison, text_jobs, text_verdicts
from experiments.parts.text_jobs import Base, Job
from experiments.parts.text_methods import METHODS, SUMS, Setting
from minadv.cli import main
from minadv.models.text import TextClassifier
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.tasks.run import load
from minadv.training.loop import Interrupted
from minadv.training.runs.folder import RunError
from tests.support.text_problems import corpus
from tests.support.text_tiny import OF, TINY


@pytest.fixture(autouse=True)
def small(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus from memory instead of one from files, in this process: processes of their own take longer."""
    if device.name == "gpu":
        pytest.skip("the comparison runs on the host")
    for module in (text_jobs, table2):
        monkeypatch.setattr(module, "open_data", lambda about: OF)
    monkeypatch.setattr(reporting, "run_all", lambda work, tasks, **how: [work(task) for task in tasks])
    monkeypatch.setitem(table2.PRESETS, "docstrings", TINY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All rows, by the command itself."""
    root = tmp_path_factory.mktemp("table2")
    with pytest.MonkeyPatch.context() as patch:
        for module in (text_jobs, table2):
            patch.setattr(module, "open_data", lambda about: OF)
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
    assert {load(path).step for path in left} == {3}


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
    monkeypatch.setattr(text_jobs, "fit", None)
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
    monkeypatch.setattr(table2, "open_data", lambda about: corpus(40, unlabelled=21))
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
    same = AdD(delta=0.04, search=Greedy(start="base", keep="last"), share_noise=False)
    monkeypatch.setattr(text_jobs, "regularizer", lambda *given: same)
    monkeypatch.setattr(TextClassifier, "noise", lambda *given: None)  # the same in both passes: none
    assert text_jobs.work(job)["zero_maps"] == 2 * 5  # labelled and unlabelled texts of five steps
    with pytest.warns(UserWarning, match="other"), text_jobs.noting_zero_maps(tmp_path):
        warnings.warn("other", UserWarning, stacklevel=1)


def test_it_stops_where_it_is_told_to(tmp_path: Path) -> None:
    parts = {"pretrain": ["lm"], "base": ["base", "lm", "made"], "search": ["base", "final", "lm", "made"]}
    for until, there in parts.items():
        run(tmp_path, "--until", until, "--methods", "VD")
        assert sorted(path.name for path in (tmp_path / "runs" / "tiny").iterdir()) == there
        assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "runs" / "tiny" / "final").iterdir())) == 3


def test_the_command_line_opens_its_runs(whole: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minadv.tasks.text.corpus.reviews.load", lambda name, **how: OF)
    for r in data(whole)["results"][:3]:
        name = r["method"].replace(" ", "_")
        [folder] = (path.parent for path in (whole / "runs" / "tiny" / "final").glob(f"{name}-*/result.json"))
        assert main(["eval", str(folder)]) == 0
        assert capsys.readouterr().out.startswith(f"test error {r['test']['error']:.2f} %")


def test_the_form_reaches_the_run(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    shutil.copytree(whole / "runs" / "tiny" / "lm", tmp_path / "tiny" / "lm")
    job = Job(replace(TINY, variant="paper"), "AdD K=2", 0, Setting(), Base(1e-2, "all"), "final", tmp_path, None)
    assert text_jobs.work(job)["zero_maps"] == 0
    described = load(job.folder).config["regularizer"]
    assert (described["search"]["start"], described["share_noise"]) == ("base", False)
    assert "AdD searches\nfrom one random flip" in (whole / "out" / "table2-tiny.md").read_text()
    assert set(text_verdicts.FORMS) == {p.variant for p in table2.PRESETS.values()}


def test_runs_that_choose_keep_the_weights_of_least_loss(whole: Path) -> None:
    for part, monitor in (("base", "loss"), ("final", "error")):
        folder = next(path for path in (whole / "runs" / "tiny" / part).iterdir())
        assert load(folder).config["recipe"]["monitor"] == monitor


def test_the_chosen_run_goes_on_to_the_bits_of_one_that_was_never_stopped(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    shutil.copytree(whole / "runs" / "tiny" / "lm", tmp_path / "tiny" / "lm")
    row = next(r for r in data(whole)["results"] if r["method"] == "FD")
    job = Job(TINY, "FD", 0, Setting(**row["setting"]), Base(**row["base"]), "final", tmp_path, None)
    stopped = json.loads((whole / "runs" / "tiny" / row["run"] / "result.json").read_text())
    assert json.loads(json.dumps(text_jobs.work(job))) == stopped
    assert {"run": row["run"], **records.plain(stopped)} == row
    look = text_jobs.look(job)  # of a run that has gone past it
    assert look["valid"]["loss"] == stopped["curve"][0][4]


def test_a_language_model_serves_every_preset_that_has_the_same(whole: Path) -> None:
    path = whole / "runs" / "tiny" / "lm" / "result.json"
    for preset, fits in ((replace(TINY, steps=99), True), (replace(TINY, lm_steps=99), False)):
        assert (text_jobs.found_result(path, preset, text_jobs.OF_LM) is not None) == fits
        assert text_jobs.found_result(path, preset) is None


def test_learning_rates_fall_as_the_preset_says(whole: Path) -> None:
    for part, rate in (("lm", 0.9), ("base/*", 0.8), ("final/*", 0.8)):
        for folder in (whole / "runs" / "tiny").glob(part):
            assert load(folder).config["recipe"]["step_schedule"]["rate"] == pytest.approx(rate)
