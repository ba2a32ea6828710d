"""How a language model's run draws its masks: new ones by keys, those begun before as they were begun."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.streams import stream
from minadv.models.language.model import TokenBatch
from minadv.regularizers import VD, AdD
from minadv.tasks.config import build, build_recipe, today
from minadv.tasks.fit import plan
from minadv.tasks.language.finetune import plan_finetuning
from minadv.tasks.language.task import LanguageTask
from minadv.tasks.run import open_run
from minadv.training.parallel.workers import Part
from minadv.training.runs import log
from minadv.training.runs.folder import read_config
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_runs import NOISY, corpus, model
from tests.support.networks import Watched

TEXT = corpus()
OLD = Path(__file__).parent / "old_runs"
GIVEN: dict[str, Any] = {"batch_size": 4, "bptt": 7, "steps": 2, "regularizer": AdD(budgets=2)}


def task(put: Any, **options: Any) -> LanguageTask:
    parts = (put(part) for part in (TEXT.train, TEXT.valid, TEXT.test))
    return LanguageTask(model(TEXT, **NOISY), *parts, batch_size=4, bptt=7, **options)


def test_a_new_run_says_how_it_draws(tmp_path: Path, device: Any) -> None:
    pytest.importorskip("safetensors")
    run = plan(model(TEXT, **NOISY), TEXT, out=tmp_path / "run", device=device, **GIVEN).train(progress=False)
    assert run.config["draws"] == read_config(tmp_path / "run")["draws"] == "philox-1"
    assert log.read(tmp_path / "run" / "log.jsonl")[0]["config"]["draws"] == "philox-1"


def test_a_step_has_masks_of_keys(put: Any) -> None:
    """By the stream of the step they are others: those that the model draws with a plain generator."""
    found = {}
    for draws in ("philox-1", "stream"):
        lm = task(put, draws=draws)
        watched = Watched(lm.model)
        lm.term(lm.init(), 3, weight=1.0, carry=lm.first_carry(), model=watched)
        found[draws] = to_host(watched.forward[0]["noise"])
    by_stream = task(put).model.noise(stream(0, "masks", 3), put(TokenBatch(np.zeros((2, 4), int))))
    assert_same_bits(found["stream"], to_host(by_stream))
    assert any((a != b).any() for a, b in zip(found["philox-1"].U, found["stream"].U, strict=True))


@pytest.mark.parametrize("regularizer", [VD(p=0.4), AdD(budgets=2, share_noise=False)], ids=["VD", "AdD"])
def test_workers_draw_the_same_masks(regularizer: Any, put: Any) -> None:
    lm = task(put, regularizer=regularizer, dtype="float64")
    params, carry = lm.init(), lm.first_carry()
    whole, _ = lm.term(params, 3, weight=1.0, carry=carry)
    parts = [lm.term(params, 3, weight=1.0, carry=carry, part=Part(n, 2))[0] for n in range(2)]
    for name in ("value", "nll"):
        assert_close(np.concatenate([to_host(getattr(part, name)) for part in parts]), getattr(whole, name), 1e-11)


@pytest.fixture
def old(tmp_path: Path, device: Any) -> Path:
    pytest.importorskip("safetensors")
    if device.name != "cpu":
        pytest.skip("the run was made on a CPU")
    return Path(shutil.copytree(OLD / "language" / "stopped", tmp_path / "run"))


def test_a_run_begun_before_draws_as_it_did(old: Path) -> None:
    """By `fit` with ``resume=True`` as well, whatever is the default now; test_old_runs.py has the bits."""
    assert "draws" not in read_config(old)
    config = today(read_config(old))
    assert config["draws"] == "stream"
    run = open_run(old, data_dir=str(OLD / "data" / "words"))
    names = ("batch_size", "bptt", "dtype", "every", "fresh", "random_lengths", "columns")
    same = {
        **{name: build(config[name]) for name in names},
        "regularizer": build(config["regularizer"]),
        "recipe": build_recipe(config["recipe"]),
        "seed": config["seed"],
    }
    planned: Any = plan(run.model, run.data, out=old, resume=True, **same)
    assert planned.task.draws == planned.config["draws"] == "stream"
    new: Any = plan(run.model, run.data, out=old.parent / "new", **same)
    assert new.task.draws == new.config["draws"] == "philox-1"


def test_fine_tuning_is_a_new_run(old: Path) -> None:
    finished = Path(shutil.copytree(OLD / "language" / "finished", old.parent / "finished"))
    run = open_run(finished, data_dir=str(OLD / "data" / "words"))
    tuned: Any = plan_finetuning(run, run.data, out=old.parent / "tuned")
    assert tuned.task.draws == "philox-1"


def test_another_way_to_draw_is_refused(put: Any) -> None:
    with pytest.raises(ValueError, match="draws is 'philox-9', expected"):
        plan(model(TEXT, **NOISY), TEXT, draws="philox-9", **GIVEN)
