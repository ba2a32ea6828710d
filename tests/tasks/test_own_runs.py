"""Runs with a model or a regularizer of one's own: they hold the weights, and say what they need to be loaded with."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import minadv
from minadv.models.classifier import Classifier
from minadv.regularizers import Plain, Regularizer
from minadv.tasks.config import KINDS, ConfigError
from minadv.tasks.resume import is_finished
from minadv.terms import Setting, Term
from minadv.training.loop import Interrupted
from minadv.training.runs.folder import RunError, read_config
from tests.support.compare import assert_same_bits
from tests.support.problems import MODEL, sequences

pytest.importorskip("safetensors")

DATA = sequences()
HOW: dict[str, Any] = {"steps": 6, "eval_every": 2, "batch_size": 10, "progress": False, "workers": 1}


class Mine:
    """A model that is not a record: all that is known of it is its class."""

    def __init__(self, of: Classifier = MODEL) -> None:
        self.of = of

    def __getattr__(self, name: str) -> Any:
        if name in ("of", "engine", "bodies", "bodies_backward", "scope"):
            raise AttributeError(name)
        return getattr(self.of, name)


@dataclass(frozen=True)
class Nothing(Regularizer):
    """The likelihood alone, written by somebody else."""

    def term(self, on: Setting) -> Term:
        return Plain().term(on)


def stop(record: dict[str, Any]) -> None:
    if record["step"] == 4:
        raise KeyboardInterrupt


@pytest.fixture
def kinds() -> Iterator[None]:
    """What is registered here is forgotten after the test."""
    before = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(before)


def test_a_run_says_what_it_needs_to_be_loaded_with(tmp_path: Path) -> None:
    run = minadv.fit(Mine(), DATA, regularizer=Nothing(), out=tmp_path / "run", **HOW)
    config = read_config(tmp_path / "run")
    assert config["model"] == {"kind": "Own", "name": f"{Mine.__module__}.Mine"}
    assert config["regularizer"] == {"kind": "Own", "name": f"{Nothing.__module__}.Nothing"}
    with pytest.raises(
        ConfigError, match=r"run has a model of its maker's own, .*\.Mine: give it, model=Mine\(\.\.\.\)"
    ):
        minadv.load(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"model is a Classifier, expected the .*\.Mine of .*run"):
        minadv.load(tmp_path / "run", model=MODEL)
    with pytest.raises(ConfigError, match="the run has a model of its maker's own"):
        is_finished(tmp_path / "run")
    again = minadv.load(tmp_path / "run", DATA, model=Mine())
    assert_same_bits((again.params, again.last), (run.params, run.last))
    assert again.test() == run.test()
    assert again.predict(DATA.test.x).shape == (24, 3)


def test_it_goes_on_with_what_it_was_made_with(tmp_path: Path) -> None:
    out, whole = tmp_path / "run", minadv.fit(Mine(), DATA, regularizer=Nothing(), **HOW)
    with pytest.raises(Interrupted):
        minadv.fit(Mine(), DATA, regularizer=Nothing(), out=out, on_evaluation=stop, **HOW)
    with pytest.raises(
        ConfigError, match=r"run has a regularizer of its maker's own, .*: give it, regularizer=Nothing"
    ):
        minadv.resume(out, DATA, model=Mine())
    with pytest.raises(RunError, match="was made with another regularizer"):
        minadv.fit(Mine(), DATA, out=out, resume=True, **HOW)
    again = minadv.resume(out, DATA, model=Mine(), regularizer=Nothing(), progress=False)
    assert_same_bits((again.params, again.last), (whole.params, whole.last))


def test_a_run_that_describes_its_model_takes_no_other(tmp_path: Path) -> None:
    minadv.fit(MODEL, DATA, out=tmp_path / "run", **HOW)
    with pytest.raises(ConfigError, match="run describes its model itself, a Classifier: leave model out"):
        minadv.load(tmp_path / "run", model=MODEL)
    with pytest.raises(ConfigError, match="run describes its regularizer itself, a Plain: leave regularizer out"):
        minadv.resume(tmp_path / "run", DATA, regularizer=Nothing())


@pytest.mark.usefixtures("kinds")
def test_two_lines_register_a_class(tmp_path: Path) -> None:
    @minadv.register
    @dataclass(frozen=True)
    class Wide(Classifier):
        """A record whose fields are those of its configuration."""

        twice: bool = True

    minadv.register(Nothing)
    run = minadv.fit(Wide(2, 6, 3, twice=False), DATA, regularizer=Nothing(), out=tmp_path / "run", **HOW)
    again = minadv.load(tmp_path / "run", DATA)
    assert (type(again.model), again.model.twice) == (Wide, False)
    assert again.test() == run.test()
    assert minadv.resume(tmp_path / "run", DATA, progress=False).step == 6
    del KINDS["Wide"]
    with pytest.raises(RunError, match=r"model is of kind 'Wide', .*is registered by @minadv.register, before this"):
        minadv.load(tmp_path / "run", DATA)


def test_what_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match=r"Mine is no dataclass: put @dataclass\(frozen=True\) below @minadv.register"):
        minadv.register(Mine)
    with pytest.raises(ValueError, match="minadv has a Classifier of its own: choose another name"):
        minadv.register(dataclass(frozen=True)(type("Classifier", (), {})))
