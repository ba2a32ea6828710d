"""A run's folder: what may be written where, what a run goes on from, and what is not a run."""

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minadv.base.errors import DataError
from minadv.base.files import CONFIG, seal
from minadv.training.ema import EMA
from minadv.training.loop import LOG, Interrupted, Recipe, start, train
from minadv.training.optimizers import SGD
from minadv.training.parallel.ranks import ProcessGroup
from minadv.training.runs import checkpoints, folder, log
from minadv.training.runs.folder import Blank, RunError, expect_free, expect_same, only_writer, read_config, run_task
from minadv.training.runs.overwriting import ASIDE
from tests.support.compare import assert_same_bits
from tests.support.problems import task

pytest.importorskip("safetensors")

RECIPE = Recipe(steps=4, eval_every=2)
CONFIGURATION: dict[str, Any] = {"seed": 7, "kind": "toy", "device": "cpu"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "a run"


def trained(toy: Any, out: Path | None, recipe: Recipe = RECIPE, **how: Any) -> Any:
    return run_task(toy, recipe, config=how.pop("config", CONFIGURATION), seed=7, out=out, progress=False, **how)


def kinds(out: Path) -> list[tuple[str, int]]:
    return [(record["kind"], record["step"]) for record in log.read(out / LOG)]


def test_a_run_is_written_and_read(out: Path, put: Any) -> None:
    toy, seen = task(put), []
    state, records = trained(toy, out, on_evaluation=seen.append)
    alone, _ = train(toy, RECIPE)
    assert_same_bits(state.params, alone.params)
    assert records == seen
    config = read_config(out)
    assert config == {**CONFIGURATION, "workers": 1, "ranks": 1}
    first, *rest = log.read(out / LOG)
    assert (first["kind"], first["seed"], first["config"]) == ("header", 7, config)
    assert rest == records
    blank = Blank(toy.init())
    assert (blank.carry, blank.first_carry()) == (None, None)
    assert Blank(None, "carry").first_carry() == "carry"
    assert_same_bits(folder.restore(out, blank, RECIPE).params, state.params)
    assert folder.is_finished(out, blank, RECIPE)
    assert not folder.is_finished(out, blank, replace(RECIPE, steps=5))
    assert [record["step"] for record in folder.records(out, 4)] == [2, 4]
    assert [record["step"] for record in folder.records(out, 3, ("error",))] == [2]
    with pytest.raises(log.LogError, match="valid_luck is missing"):
        folder.records(out, 4, ("luck",))


def test_without_a_folder_nothing_is_said_of_it(put: Any) -> None:
    assert trained(task(put), None)[0].step == 4


def test_a_run_goes_on_and_says_so(out: Path, put: Any) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        trained(task(put), out, on_evaluation=stop)
    assert not folder.is_finished(out, Blank(task(put).init()), RECIPE)
    with pytest.raises(RunError, match="is a run already"):
        trained(task(put), out)
    older = {**CONFIGURATION, "device": "gpu"}  # may differ
    state, _ = trained(task(put), out, resume=True, config=older, today=lambda config: {**config, "seed": 7})
    assert kinds(out) == [("header", 0), ("evaluation", 2), ("resumed", 2), ("evaluation", 4)]
    said = log.read(out / LOG)[2]
    assert (said["workers"], said["ranks"], said["device"]) == (1, 1, "gpu")
    assert_same_bits(state.params, train(task(put), RECIPE)[0].params)
    with pytest.raises(RunError, match="was made with another seed: resume it as it was configured"):
        trained(task(put), out, resume=True, today=lambda config: {**config, "seed": 8})
    trained(task(put, seed=1), out, overwrite=True)
    assert kinds(out) == [("header", 0), ("evaluation", 2), ("evaluation", 4)]


def test_what_is_resumed_and_was_not_begun_begins(out: Path, put: Any) -> None:
    trained(task(put), out, resume=True)
    (out / LOG).unlink()  # as a kill just before its first line leaves it
    for path in (out / checkpoints.FOLDER).iterdir():
        path.unlink()
    trained(task(put), out, resume=True)
    assert kinds(out) == [("header", 0), ("evaluation", 2), ("evaluation", 4)]


def test_a_run_of_workers_says_how_many(out: Path, put: Any) -> None:
    with pytest.raises(ValueError, match="workers is 11, expected at most 10"):
        trained(task(put), out, workers=11)
    assert not out.exists()


def test_what_is_removed_is_the_run_alone(out: Path, put: Any) -> None:
    folder.clear(out)  # nothing there
    trained(task(put), out)
    (out / "letter.txt").write_text("dear")
    trained(task(put, seed=1), out, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == [checkpoints.FOLDER, CONFIG, "letter.txt", LOG]
    for path in (CONFIG, LOG):
        (out / path).unlink()
    with pytest.raises(RunError, match="is there already and is not a run"):
        folder.clear(out)


def test_a_run_has_one_writer_at_a_time(out: Path) -> None:
    out.mkdir(parents=True)
    with only_writer(out):
        with pytest.raises(RunError, match="is being trained by another process"), only_writer(out):
            pass
        (out / CONFIG).write_bytes(b"")
        with pytest.raises(RunError, match="is being trained by another process"):
            folder.clear(out)
    with pytest.raises(KeyError), only_writer(out):
        raise KeyError
    with only_writer(out):
        pass


def test_who_trains_a_run(out: Path, put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers that are started for it; ranks go on once the chief has written all there is to read."""
    told: list[Any] = []

    class Ranks(ProcessGroup):
        def meet(self) -> None:
            told.append("meet")

    @contextmanager
    def start_workers(task: Any, n: int, ranks: Any, *, cuda_aware_mpi: Any) -> Iterator[str]:
        told.append(("start", n, type(ranks), cuda_aware_mpi))
        yield "workers"
        told.append("end")

    monkeypatch.setattr(folder, "process_group", Ranks)
    monkeypatch.setattr(folder, "choose_workers", lambda task, workers, ranks: workers)  # of a GPU there is one
    monkeypatch.setattr(folder, "start_workers", start_workers)
    monkeypatch.setattr(folder, "train", lambda *_, workers, **__: told.append(f"train by {workers}"))
    trained(task(put), out, workers=2, cuda_aware_mpi=True)
    assert told == [("start", 2, Ranks, True), "train by workers", "meet", "end"]


def test_a_configuration_is_on_the_disk_before_the_log_begins(
    out: Path, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with a log and no configuration would be no run."""
    there: list[Any] = []
    monkeypatch.setattr(folder, "flush_directory", lambda path: there.append([file.name for file in path.iterdir()]))
    trained(task(put), out)
    assert there == [[CONFIG]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "a run is not a run of minadv: .*config.json is truncated or was not written by minadv"),
        (seal({"format": "minadv run 9", "config": {}}), "format 'minadv run 9', expected 'minadv run 1'"),
        (seal({"format": "minadv run 1", "config": [1]}), "config is list, expected a table of values by name"),
        (seal({"format": "minadv run 1"}), "config is NoneType, expected a table"),
    ],
)
def test_a_configuration_that_is_none(content: bytes, said: str, out: Path) -> None:
    out.mkdir(parents=True)
    (out / CONFIG).write_bytes(content)
    with pytest.raises(RunError, match=said):
        read_config(out)


def test_what_a_run_of_the_first_version_is() -> None:
    assert folder.kind_of({}) == "classify"
    assert folder.kind_of({"kind": "language"}) == "language"


def test_a_run_without_a_checkpoint(out: Path, put: Any) -> None:
    blank = Blank(task(put).init())
    assert not folder.is_finished(out, blank, RECIPE)
    with pytest.raises(RunError, match=r"has no checkpoint yet: .* minadv train --resume '.*/runs/a run'"):
        folder.restore(out, blank, RECIPE)


def test_the_best_weights_are_those_of_an_evaluation(put: Any) -> None:
    recipe = replace(RECIPE, ema=EMA(0.5), optimizer=SGD(0.1))
    state = replace(start(task(put), recipe), step=3, params="last", ema=EMA(0.5).init("mean"), best="best")
    for path, named in ((None, "the run"), (Path("here"), "here")):
        with pytest.warns(UserWarning, match=f"^{named} has had no evaluation yet: the weights of step 3") as said:
            assert folder.best_weights(path, recipe, state) == "mean"
        assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert folder.best_weights(None, recipe, replace(state, best_score=1.0)) == "best"
    assert math.isinf(state.best_score)


def test_where_a_new_run_may_be(out: Path) -> None:
    expect_free(out)
    out.mkdir(parents=True)
    expect_free(out)
    (out / f".{CONFIG}.tmp").write_text("{")
    expect_free(out)
    (out / "letter.txt").write_text("dear")
    for path in (out, out / "letter.txt"):
        with pytest.raises(RunError, match="is there already and is not a run of minadv: choose another folder"):
            expect_free(path)
    with pytest.raises(RunError, match=r"letter\.txt is a file: choose a folder for the run that is not below it"):
        expect_free(out / "letter.txt" / "deep" / "run")
    (out / CONFIG).write_bytes(b"")
    with pytest.raises(RunError, match=r"is a run already: resume it \(minadv train --resume '.*/a run' or resume="):
        expect_free(out)


def test_without_safetensors_no_run_begins(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(ImportError, match="checkpoints need safetensors"):
        expect_free(out)


def test_what_may_differ_when_a_run_goes_on() -> None:
    sizes = {part: {"n": n} for part, n in (("train", 9), ("valid", 3), ("test", 2))}
    theirs = {"seed": 1, "lr": (1, 2), "device": "cpu", "data": sizes, "about": "then"}
    expect_same(Path("run"), theirs, json.loads(json.dumps(theirs)))
    expect_same(Path("run"), theirs, {**theirs, "device": "gpu", "workers": 2, "ranks": 3, "about": "now"})
    expect_same(Path("run"), {"seed": 1}, {"seed": 1, "data": sizes, "kind": "classify"})  # which it did not say
    expect_same(Path("run"), theirs, {"seed": 1})  # what is not said today
    with pytest.raises(RunError, match=r"^run was made with another seed, new: resume it as it was configured$"):
        expect_same(Path("run"), theirs, {**theirs, "seed": 2, "new": 0})
    other = {**sizes, "test": {"n": 4}}
    with pytest.raises(RunError, match=r"^run was made with other data: test has 4 examples, not 2;"):
        expect_same(Path("run"), theirs, {**theirs, "seed": 2, "data": other})
    with pytest.raises(RunError, match="another kind"):
        expect_same(Path("run"), {"kind": "a"}, {"kind": "b"})


def test_the_parts_of_the_data_that_differ() -> None:
    theirs = {"train": {"n": 2000, "crc32": 1}, "test": {"n": 3, "crc32": 2}}
    folder.expect_same_data("run", theirs, dict(theirs))
    more = {"train": {"n": 2000, "crc32": 5}, "test": {"n": 3, "crc32": 2}, "unlabelled": {"n": 1000, "crc32": 0}}
    told = "the 2,000 examples of train are not the same, unlabelled has 1,000 examples, not 0"
    with pytest.raises(RunError, match=f"^run was made with other data: {told}; name its own with --data-dir, or eval"):
        folder.expect_same_data("run", theirs, more)
    with pytest.raises(RunError, match=r"^run was made with other data: test has 0 examples, not 3;"):
        folder.expect_same_data("run", theirs, {"train": theirs["train"]})


def test_where_a_wrong_value_stands() -> None:
    told = folder.configured_error(Path("a"), ValueError("n is 3"))
    assert isinstance(told, RunError) and str(told) == "a/config.json: n is 3"
    for error in (DataError("b is missing"), RunError("c is no run")):
        assert folder.configured_error(Path("a"), error) is error


@pytest.mark.parametrize("killed", [False, True])
def test_an_overwritten_run_stays_until_the_new_one_has_a_checkpoint(
    killed: bool, out: Path, put: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    trained(task(put), out)

    def everything() -> dict[str, bytes]:
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def stop(record: dict[str, Any]) -> None:
        assert (out / ASIDE / CONFIG).read_bytes() == before[CONFIG]
        assert folder.restore(out / ASIDE, Blank(task(put).init()), RECIPE).step == 4
        raise ZeroDivisionError

    before, other = everything(), {**CONFIGURATION, "seed": 8}
    with monkeypatch.context() as patch:
        if killed:  # then nothing is put back, and the next one finds it
            patch.setattr(folder, "_settle", lambda path: None)
        with pytest.raises(ZeroDivisionError):
            trained(task(put), out, config=other, overwrite=True, on_step=stop)
    assert (everything() == before) is not killed
    assert (f"{out} is the run of before again" in capsys.readouterr().err) is not killed
    with pytest.raises(ZeroDivisionError):
        trained(task(put), out, config=other, overwrite=True, on_step=stop)
    assert everything() == before
    trained(task(put), out, config=other, overwrite=True)
    assert read_config(out)["seed"] == 8 and not (out / ASIDE).exists()


def test_what_cannot_be_written_is_said_before_any_work(out: Path, put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(task(put), out)
    (out / LOG).unlink()
    (out / LOG).mkdir()
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"log.jsonl is no regular file, expected the log of a run: move it away"):
            trained(task(put), out, resume=not overwrite, overwrite=overwrite)
    (out / LOG).rmdir()
    (out / checkpoints.FOLDER).rename(out / "elsewhere")
    (out / checkpoints.FOLDER).write_text("x")
    with pytest.raises(RunError, match=r"checkpoints is a file, expected a folder of checkpoints: move it away"):
        folder.expect_writable(out)
    if Path("/proc/self").exists():  # where nobody can write
        with pytest.raises(RunError, match=r"cannot write to /proc: .*: choose another folder for the run"):
            expect_free(Path("/proc/there/run"))


def test_nothing_else_is_written_over_a_file_of_a_run(out: Path, tmp_path: Path) -> None:
    for where in (out, tmp_path / "other"):
        (where / checkpoints.FOLDER).mkdir(parents=True)
    (out / CONFIG).touch()
    for name in (CONFIG, LOG, f"{checkpoints.FOLDER}/any"):
        with pytest.raises(RunError, match=f"is the name of a file of the run {out}: choose another name"):
            folder.expect_foreign(out / name)
        folder.expect_foreign(tmp_path / "other" / name)
    folder.expect_foreign(out / "drawn.png")
