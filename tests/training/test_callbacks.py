"""Whom the loop calls back, in which order and with what; and what a process that is not the chief leaves undone."""

from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minadv.training import loop
from minadv.training.ema import EMA
from minadv.training.loop import LOG, Interrupted, Recipe, Stop, train
from minadv.training.parallel.workers import OneWorker
from minadv.training.progress import Progress
from minadv.training.runs import checkpoints, log
from tests.support.compare import assert_same_bits
from tests.support.problems import Scripted, task

pytest.importorskip("safetensors")

RECIPE = Recipe(steps=5, eval_every=2, checkpoint_every=3, ema=EMA(0.5))


def listeners(seen: list[Any]) -> dict[str, Any]:
    """Callbacks that note what they are told, but for the seconds of a step."""
    return {
        "on_step": lambda record: seen.append(("step", record["step"], record["epoch"])),
        "on_evaluation": lambda record: seen.append(("evaluation", record["step"])),
        "on_weights": lambda step, weights: seen.append(("weights", step, weights)),
        "on_checkpoint": lambda path: seen.append(("checkpoint", path.stem)),
        "on_step_time": lambda seconds, left: seen.append(("left", left)),
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    log.start(tmp_path / LOG, {"kind": "header", "step": 0})
    return tmp_path


def test_who_is_told_what_and_when(run: Path, put: Any) -> None:
    seen: list[Any] = []
    state, records = train(task(put), RECIPE, run, **listeners(seen))
    assert [told[:2] for told in seen] == [
        ("step", 1),
        *(("left", 3), ("step", 2), ("evaluation", 2), ("weights", 2)),
        *(("step", 3), ("checkpoint", "step-00000003")),
        *(("step", 4), ("evaluation", 4), ("weights", 4)),
        *(("step", 5), ("evaluation", 5), ("weights", 5), ("checkpoint", "step-00000005")),
    ]
    assert [told[2] for told in seen if told[0] == "step"] == [step / 6 for step in range(1, 6)]
    assert_same_bits(next(told[2] for told in seen if told[:2] == ("weights", 5)), state.ema.average)
    assert [record["step"] for record in log.read(run / LOG)] == [0, 2, 4, 5]
    assert checkpoints.load(run / "checkpoints" / "step-00000005.json")[1] == {"monitor": "error"}
    seen.clear()
    more = Recipe(steps=8, eval_every=2, checkpoint_every=3, ema=EMA(0.5))
    _, again = train(task(put), more, run, **listeners(seen))
    assert [told[:2] for told in seen] == [
        *(("step", 6), ("evaluation", 6), ("weights", 6), ("checkpoint", "step-00000006")),
        *(("left", 1), ("step", 7)),
        *(("step", 8), ("evaluation", 8), ("weights", 8), ("checkpoint", "step-00000008")),
    ]
    assert again[: len(records)] == records
    assert [record["step"] for record in again] == [2, 4, 5, 6, 8]
    seen.clear()
    train(task(put), more, run, **listeners(seen))
    assert seen == []


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each bar is begun with."""
    begun: list[Any] = []

    class Noted(Progress):
        def __init__(self, total: int, **given: Any) -> None:
            begun.append((total, given))
            super().__init__(total, **given)

    monkeypatch.setattr(loop, "Progress", Noted)
    return begun


def test_the_bar_counts_from_where_a_run_goes_on(run: Path, put: Any, bars: list[Any]) -> None:
    train(task(put), Recipe(steps=2), run, title="AdD", progress=False)
    train(task(put), Recipe(steps=6), run)
    assert bars == [
        (20, {"done": 0, "unit": "sequence", "title": "AdD", "shown": False}),
        (60, {"done": 20, "unit": "sequence", "title": "", "shown": True}),
    ]


def test_the_seconds_of_a_step_are_those_of_the_second(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=count(10, 5).__next__))  # the first begins at 10
    train(task(put), Recipe(steps=4), on_step_time=lambda *given: told.append(given))
    assert told == [(5, 2)]


@pytest.mark.parametrize(("monitor", "name"), [("error", "valid accuracy %"), ("loss", "valid loss")])
def test_the_bar_is_told_what_is_watched(monitor: str, name: str, put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(Progress, "advance", lambda self, n, **values: told.append((n, values)))
    _, [record] = train(task(put), Recipe(steps=2, eval_every=2, monitor=monitor))
    assert [(n, list(values)) for n, values in told] == [
        (10, ["loss", "regularizer"]),
        (10, ["loss", "regularizer", name]),
    ]
    assert told[1][1][name] == (100 - record["valid_error"] if monitor == "error" else record["valid_loss"])


class Follower(OneWorker):
    """One of several processes that is not their chief: it agrees to what the chief, which is not stopped, makes."""

    chief = False  # type: ignore[assignment]

    def agree(self, make: Any) -> Any:
        return False if isinstance(make, partial) and make.func is loop._stops else make()


def test_only_the_chief_writes_shows_and_calls_back(run: Path, put: Any, bars: list[Any]) -> None:
    seen: list[Any] = []
    toy, before = task(put), (run / LOG).read_bytes()
    state, _ = train(toy, RECIPE, run, workers=Follower(toy), resumed={"kind": "resumed"}, **listeners(seen))
    assert seen == []
    assert not bars[0][1]["shown"]
    assert (run / LOG).read_bytes() == before
    assert [path.name for path in run.iterdir()] == [LOG]
    assert_same_bits(state.params, train(toy, RECIPE)[0].params)


def test_checkpoints_are_as_frequent_as_evaluations(run: Path, put: Any) -> None:
    seen: list[Any] = []
    train(task(put), Recipe(steps=4, eval_every=2), run, **listeners(seen))
    assert [told[1] for told in seen if told[0] == "checkpoint"] == ["step-00000002", "step-00000004"]
    (run / "epochs").mkdir()
    log.start(run / "epochs" / LOG, {"kind": "header", "step": 0})
    seen.clear()
    train(task(put), Recipe(steps=7), run / "epochs", **listeners(seen))
    assert [told[:2] for told in seen if told[0] in ("evaluation", "checkpoint")] == [
        *(("evaluation", 6), ("checkpoint", "step-00000006")),
        *(("evaluation", 7), ("checkpoint", "step-00000007")),
    ]


def test_the_last_checkpoint_is_that_of_the_last_step(run: Path, put: Any) -> None:
    """Also where patience ends the training, and of as many as the recipe keeps."""
    toy, seen = Scripted(task(put), [5, 6, 7, 8]), []  # type: ignore[var-annotated]
    recipe = Recipe(steps=50, eval_every=2, checkpoint_every=3, patience=2, keep=1)
    state, _ = train(toy, recipe, run, **listeners(seen))
    assert state.step == 6
    assert [told[1] for told in seen if told[0] == "checkpoint"] == ["step-00000003", "step-00000006"]
    assert len(list((run / "checkpoints").glob("*.json"))) == 1


@pytest.mark.parametrize("first", ["on_step", "on_evaluation"])
def test_a_callback_may_stop_at_any_step(first: str, run: Path, put: Any) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 2:
            raise Stop

    state, records = train(task(put), Recipe(steps=9, eval_every=2, checkpoint_every=3), run, **{first: stop})
    assert state.step == 2
    assert checkpoints.latest(run) == run / "checkpoints" / "step-00000002.json"
    assert [record["step"] for record in records] == [2]


def test_ctrl_c_where_nothing_is_saved(put: Any) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(task(put), Recipe(steps=4), on_step=interrupt)


def test_ctrl_c_saves_as_many_as_the_recipe_keeps(run: Path, put: Any) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if record["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^stopped at step 4 and saved in "):
        train(task(put), Recipe(steps=6, eval_every=2, keep=1), run, on_evaluation=interrupt)
    [path] = (run / "checkpoints").glob("*.json")
    assert (path.stem, checkpoints.load(path)[1]) == ("step-00000004", {"monitor": "error"})
