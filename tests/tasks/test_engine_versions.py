"""A run goes on with the version of the engine that it was begun with; a new run has the newest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import minadv
from minadv.fast import ENGINES, describe
from minadv.regularizers import VD
from minadv.tasks import config, fit, resume
from minadv.training.optimizers import Adam
from minadv.training.runs.folder import RunError, read_config
from tests.support.problems import MODEL, sequences

pytest.importorskip("safetensors")

OLD = Path(__file__).parent / "old_runs"
FIRST, SECOND, NEWEST = "fast-1", "fast-2", "fast-3"
RUN: dict[str, Any] = {"regularizer": VD(), "batch_size": 10, "optimizer": Adam(0.03), "steps": 3, "progress": False}


def test_the_newest_is_what_fast_means() -> None:
    assert [describe(engine=name).engine for name in ENGINES] == [NEWEST, "plain", FIRST, SECOND, NEWEST]


@pytest.mark.parametrize("kind", ["stopped", "finished"])
@pytest.mark.parametrize("name", ["text", "images", "language", "pretraining"])
def test_runs_from_before_engines_had_versions_have_the_first(name: str, kind: str) -> None:
    assert minadv.load(OLD / name / kind).model.engine == FIRST
    assert config.today(read_config(OLD / name / kind))["model"]["engine"] == FIRST


def test_a_run_that_goes_on_is_resumed_with_its_own() -> None:
    data = str(OLD / "data" / "texts")
    assert resume.plan_resumed(OLD / "text" / "stopped", data_dir=data).model.engine == FIRST


@pytest.mark.parametrize("asked", [None, "fast"])
@pytest.mark.parametrize("begun", [None, "fast", "plain", FIRST, SECOND, NEWEST])
def test_fit_goes_on_with_what_the_run_has(begun: Any, asked: Any, tmp_path: Path) -> None:
    """Unless the readable cells began it and the fast engine is asked for: that is another run."""
    data, out = sequences(), tmp_path / "run"
    recorded = {None: NEWEST, "fast": NEWEST}.get(begun, begun)
    first = minadv.fit(replace(MODEL, engine=begun), data, **RUN, out=out)
    assert first.model.engine == read_config(out)["model"]["engine"] == recorded
    model = replace(MODEL, engine=asked)
    if (asked, begun) == ("fast", "plain"):
        with pytest.raises(RunError, match="was made with another model"):
            minadv.fit(model, data, **RUN, out=out, resume=True)
    else:
        assert minadv.fit(model, data, **RUN, out=out, resume=True).model.engine == recorded


def test_a_run_that_says_fast_alone_has_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that were begun by version 0.2 before it had the second."""
    data, out = sequences(), tmp_path / "run"
    with monkeypatch.context() as before:
        before.setattr(fit, "_engine", lambda asked, run: "fast")
        minadv.fit(MODEL, data, **RUN, out=out)
    assert minadv.load(out).model.engine == FIRST
    assert minadv.fit(MODEL, data, **RUN, out=out, resume=True).model.engine == FIRST
    assert read_config(out)["model"]["engine"] == "fast"
