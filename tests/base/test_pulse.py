"""Nothing is silent for more than thirty seconds: every line is due by a clock that the tests move themselves."""

import importlib.util
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minadv.base import pulse
from minadv.base.pulse import Pulse, doing
from minadv.data.split import Split
from minadv.models import Classifier
from minadv.tasks.attack import Target, table
from minadv.tasks.images import task as images
from minadv.training.progress import Progress
from minadv.training.task import Load

EVERY = 25.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Pulse, Clock, list[str]]]:
    """A pulse that the command line would have, with lines instead of a terminal, whose clock stands still."""
    clock, said = Clock(), list[str]()
    monkeypatch.setattr(pulse, "EVERY", EVERY)
    made = Pulse(said.append, clock)
    monkeypatch.setattr(pulse, "_pulse", made)
    with doing("minadv test"):
        yield made, clock, said


def test_a_line_whenever_nothing_was_said(beating: tuple[Pulse, Clock, list[str]]) -> None:
    made, clock, said = beating
    with doing("evaluating", 40) as work:
        for _ in range(60):
            clock.now += 1
            work.advance(n=1 if work.done < 40 else 0)
            made.beat()
    assert said == ["evaluating: 25 of 40 batches", "evaluating: 40 of 40 batches"]
    made.beat()
    assert len(said) == 2
    clock.now += EVERY
    made.heard()  # something else was printed
    made.beat()
    assert len(said) == 2
    clock.now += EVERY
    made.beat()
    assert said[-1] == f"minadv test, for {60 + 2 * EVERY:.0f} s"  # even if nobody said what is being done


def test_work_within_work(beating: tuple[Pulse, Clock, list[str]]) -> None:
    made, clock, said = beating
    with doing("training", 100, "images", done=20, bar=False) as outer, doing("loading"):
        outer.advance(5, note="loss 0.5")
        clock.now += EVERY
        made.beat()
    assert said == [f"training: 25 of 100 images, loss 0.5; loading, for {EVERY:.0f} s"]
    assert [work.what for work in made.work] == ["minadv test"]


def test_a_bar_is_enough(beating: tuple[Pulse, Clock, list[str]]) -> None:
    made, clock, said = beating
    with doing("evaluating", 40) as work:
        work.bar = SimpleNamespace(update=lambda n: None, close=lambda: None)
        clock.now += 10 * EVERY
        made.beat()
    assert said == []


def test_training_and_its_evaluations_are_work(beating: tuple[Pulse, Clock, list[str]]) -> None:
    made, clock, said = beating
    with Progress(1000, unit="image", done=100, shown=False) as progress:
        progress.advance(50, loss=0.25)
        clock.now += EVERY
        made.beat()
    assert said == ["training: 150 of 1,000 images, loss 0.25"]
    model = Classifier(n_in=2, n_hidden=3, n_classes=2)
    split = Split(np.zeros((9, 4, 2)), np.zeros(9, np.int64))
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulse, "advance", lambda n=1: seen.append(made.work[-1].told(clock.now)))
        images.evaluate(model, model.init(np.random.default_rng(0), dtype=np.float64), split, batch_size=2)
    assert seen == ["reading: 0 of 5 batches"] * 5


def test_an_attack_counts_the_batches_of_all_searches(beating: tuple[Pulse, Clock, list[str]]) -> None:
    made, clock, said = beating
    run = SimpleNamespace(model=SimpleNamespace(body=lambda *a, **k: (_tick(), None, None)), params=np.zeros(1))

    def _tick() -> None:
        clock.now += EVERY
        made.beat()

    given: Any = {"count": len, "score": lambda *_: 1.0, "result": float, "number": "", "load": Load(0, 0, 1)}
    target = Target(run, {}, [([0], None), ([0], None)], "", "", **given)
    table(target, ["none"], lambda *_: None, seed=0, distance="js", scale="none", max_masks=1)
    assert said == [f"attacking: {n} of 2 batches of all searches" for n in (0, 1)]


def test_the_thread_ends_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "LOOK", 0.001)
    monkeypatch.setattr(pulse, "EVERY", 0.0)
    said: list[str] = []
    heard = threading.Event()
    monkeypatch.setattr(pulse, "_to_stderr", lambda text: (said.append(text), heard.set()))
    with pulse.shown("minadv eval") as made, pulse.shown("again") as same:
        assert made is same
        assert heard.wait(60)
    assert said[0].startswith("minadv eval, for ")
    assert not [thread for thread in threading.enumerate() if thread.name == "minadv pulse"]
    assert pulse._pulse is None


def test_the_shipped_numbers_leave_no_thirty_seconds_silent() -> None:
    """Read anew from the file: the tests themselves run with a pulse that never beats."""
    spec = importlib.util.spec_from_file_location("shipped_pulse", pulse.__file__)
    assert spec is not None and spec.loader is not None
    shipped = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shipped)
    assert shipped.LOOK > 0 and shipped.EVERY > 0 and shipped.EVERY + shipped.LOOK < 30
