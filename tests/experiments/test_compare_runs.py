"""The runs of a comparison: what is found done, what is refused, and how long they took."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
pytest.importorskip("tqdm", reason="experiments show progress")


from experiments import compare
from experiments.parts import reporting
from experiments.parts.compared import images, plan, texts
from experiments.parts.compared.plan import MATCHED, Job
from experiments.parts.compared.rows import reported, row_of, rows_of
from experiments.parts.compared.work import (
    Clock,
    Known,
    described,
    done_before,
    ensembles,
    found_result,
    other_code,
    work,
)
from minadv.training.loop import Interrupted
from tests.support.comparisons import REVIEWS, TINY, given


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


def test_an_ensemble_is_the_mean_of_its_members_answers(tmp_path: Path) -> None:
    first = Job(replace(TINY, epochs=1), "FD", 0.1, 1.0, 1e-2, 0, "final", **given(tmp_path))
    for member in range(MATCHED["FD"]):
        work(replace(first, member=member))
    answers = [np.load(replace(first, member=k).folder / "answers.npy") for k in range(2)]
    (made,) = ensembles([first], Known())
    wrong = np.mean(answers, axis=0).argmax(axis=1) != images.data_of(first).test.y
    assert made["test"] == pytest.approx(100 * wrong.mean())
    assert made["networks"] == 2 and row_of(made) == "FD, 2 networks"
    alone = [100 * float((a.argmax(axis=1) != images.data_of(first).test.y).mean()) for a in answers]
    assert found_result(first)["test"] == pytest.approx(alone[0])  # type: ignore[index]


def test_core_seconds_of_a_resumed_run_are_those_of_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("experiments.parts.compared.work.time.process_time", lambda: now[0])
    folder = tmp_path / "run"
    folder.mkdir()
    first = Clock(folder)
    for step, at in ((10, 2.0), (20, 5.0)):
        now[0] = at
        first.tick({"step": step})
    now[0] = 100.0
    second = Clock(folder)  # killed after step 10's checkpoint: step 20 is done again
    now[0] = 104.0
    second.tick({"step": 20})
    assert second.seconds == 2.0 + 4.0
    folder.rmdir()
    assert Clock(folder).seconds == 0.0  # the run was deleted, and its seconds with it


def test_an_interrupted_run_keeps_the_seconds_since_its_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("experiments.parts.compared.work.time.process_time", lambda: now[0])
    job = Job(TINY, "none", 0.0, 0.0, 1e-2, 0, "final", **given(tmp_path))

    def train(job: Job, tick: Any, **how: Any) -> Any:
        job.folder.mkdir(parents=True, exist_ok=True)
        now[0] += 2.0
        tick({"step": 2})
        now[0] += 3.0
        raise Interrupted

    monkeypatch.setattr(images, "train", train)
    for seconds in (2.0 + 3.0, 2.0 + 3.0 + 3.0):  # step 2 is the same one
        with pytest.raises(Interrupted):
            work(job)
        assert Clock(job.folder).seconds == seconds


def test_fewer_seeds_than_are_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(compare.TASKS, "tiny", TINY)
    monkeypatch.setattr(images, "train", lambda *a, **k: pytest.fail("trained"))
    jobs = plan.finals(TINY, 1e-2, dict.fromkeys(TINY.methods, (0.0, 0.0)), given(tmp_path))
    held = [{**described(job), "data": images.fingerprint(job)} for job in jobs]
    done, unfinished = plan.files_of("tiny", tmp_path)
    command = ["tiny", "--workers", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]

    def refused(*more: str) -> str:
        before = {file: file.read_text() for file in (done, unfinished) if file.exists()}
        with pytest.raises(SystemExit) as stopped:
            compare.main([*command, *more])
        assert stopped.value.code == 2 and {file: file.read_text() for file in before} == before
        return capsys.readouterr().err

    for file in (done, unfinished):
        reporting.write_results(file, {"facts": {}, "results": held})
        for more in ([], ["--so-far"]):
            assert "seeds up to 1 of tiny are written already: give --seeds 2" in refused("--seeds", "1", *more)
        file.unlink()
    reporting.write_results(unfinished, {"facts": {}, "results": held})
    assert f"holds {len(held)} results, and 0 would replace them" in refused("--so-far")  # no learning rate is known


def test_a_folder_names_the_maker_that_an_older_file_does_not(tmp_path: Path) -> None:
    job = Job(replace(TINY, epochs=1), "none", 0.0, 0.0, 1e-2, 1000, "rates", **given(tmp_path))
    made = work(job)
    old = {name: value for name, value in made.items() if name != "made"}
    assert done_before(job, old) == done_before(job, None) == made
    assert made["made"]["date"] == reporting.day_of(job.folder)
    assert done_before(job, {**made, "made": {}})["made"] == {}  # type: ignore[index]
    assert done_before(replace(job, seed=1001), old) == old


def test_known_results_of_other_code_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = reporting.machine()
    old = {**here, "commit": "abcdef1234", "dirty": False}
    assert other_code([{"part": "final", "made": here}, {"part": "rates", "made": old}, {"part": "final"}]) is None
    line = other_code([{"part": "final", "made": old}, {"part": "final", "made": here}])
    assert line is not None and line.startswith("1 results that are known were made at commit abcdef1; ")


def test_what_is_done_goes_on_without_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any run, what was done by then is written down, and finished from that on another machine."""
    monkeypatch.setitem(compare.TASKS, "tiny", replace(TINY, seeds=1))
    trained: list[Job] = []
    real, stop_at = images.train, [7]

    def train(job: Job, *args: Any, **kwargs: Any) -> Any:
        if len(trained) == stop_at[0]:
            raise KeyboardInterrupt
        trained.append(job)
        return real(job, *args, **kwargs)

    monkeypatch.setattr(images, "train", train)
    wrote = tmp_path / "out" / "unfinished" / "compare-tiny.json"
    whole = 2 * 2 + 2 * 4 * 2 + 1 + 4 + 1 + 2 + 1
    for n, stop in enumerate((7, 22, whole + 1)):  # in the settings; after one network of four; never
        command = ["tiny", "--workers", "1", "--out", str(tmp_path / "out"), "--runs", str(tmp_path / f"machine-{n}")]
        stop_at[0] = stop
        if stop > whole:
            compare.main(command)
            break
        with pytest.raises(SystemExit):
            compare.main(command)
        compare.main([*command, "--so-far"])
        assert len(reporting.read_results(wrote)["results"]) == stop
    assert not wrote.exists()
    names = [job.folder.relative_to(job.root) for job in trained]
    again = {name.name for n, name in enumerate(names) if name in names[:n]}
    assert len(again) == 1 and again.pop().startswith("none")  # its ensemble was not done: once more
    table = reported(reporting.read_results(tmp_path / "out" / "compare-tiny.json"))
    assert list(table) == [*rows_of("none", TINY), *rows_of("FD", TINY), "AdD K=2"]


def test_runs_of_two_language_models_are_refused_before_any_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(compare.TASKS, "reviews", REVIEWS)
    monkeypatch.setattr(texts, "train", lambda *a, **k: pytest.fail("trained"))
    job = plan.rates(REVIEWS, given(tmp_path))[0]
    known = {**described(job), "data": texts.fingerprint(job), "began": "f" * 64, "valid": 1.0, "seconds": 1.0}
    wrote = tmp_path / "out" / "unfinished" / "compare-reviews.json"
    reporting.write_results(wrote, {"facts": {}, "results": [known]})
    with pytest.raises(SystemExit) as stopped:
        compare.main(["reviews", "--workers", "1", "--runs", str(tmp_path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the language model of" in said and "f" * 12 in said
