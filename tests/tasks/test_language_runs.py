"""Runs of language models: trained, killed, resumed, opened, tuned, asked for words."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base.errors import DataError
from minadv.data.language.corpus import from_lines
from minadv.data.language.windows import Windows
from minadv.data.vocabulary import EOS
from minadv.models.language.model import TokenBatch
from minadv.models.language.reading import next_word_probabilities
from minadv.regularizers import AdD, Plain
from minadv.tasks.language.finetune import finetune
from minadv.tasks.language.task import LanguageTask
from minadv.tasks.run import Run, load, open_run
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import ASGD, SGD, Adam
from minadv.training.runs import checkpoints
from minadv.training.runs.folder import RunError
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_runs import NOISY, corpus, lines, model
from tests.support.problems import MODEL, sequences

pytest.importorskip("safetensors")

TEXT = corpus()
TINY: dict[str, Any] = {"batch_size": 4, "bptt": 7, "progress": False, "workers": 1}


def net(**options: Any) -> Any:
    return model(TEXT, **NOISY, **options)


def fit(out: Path | None = None, *, steps: int = 23, **options: Any) -> Run:
    """Steps that end in the middle of an epoch; ASGD starts to average on the way."""
    recipe = Recipe(
        steps=steps,
        optimizer=ASGD(3.0, 1e-4, interval=1),
        clip=Clip(0.25),
        eval_every=5,
        checkpoint_every=3,
        monitor="loss",
        weight=0.5,
    )
    given: dict[str, Any] = {"regularizer": AdD(budgets=2, share_noise=False), "recipe": recipe, **TINY, **options}
    return minadv.fit(net(alpha=0.5, beta=0.5), TEXT, out=out, **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: Any) -> Run:
    return fit(tmp_path_factory.mktemp("language") / "run", device=device)


@pytest.fixture
def host(device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("on the device a run is trained, resumed and opened; the rest is the same there")


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", [5, 10, 20])
def test_killed_in_an_epoch_and_resumed(at: int, run: Run, tmp_path: Path, device: Any) -> None:
    """It goes on from the checkpoint before, with the state of that window, to the same bits."""
    if device.name != "cpu" and at != 20:
        pytest.skip("once is enough on a device")

    def kill(record: dict[str, Any]) -> None:
        if record["step"] == at:
            raise Killed

    per_epoch = LanguageTask(net(), TEXT.train, TEXT.valid, TEXT.test, batch_size=4, bptt=7).per_epoch
    saved = at - 1 - (at - 1) % 3
    assert saved % per_epoch != 0
    other = tmp_path / "other"
    with pytest.raises(Killed):
        fit(other, device=device, on_evaluation=kill)
    assert checkpoints.latest(other) == other / "checkpoints" / f"step-{saved:08d}.json"
    again = fit(other, device=device, resume=True)
    assert_same_bits(again.params, run.params)
    assert_same_bits(again.last, run.last)
    paths = [checkpoints.latest(path) for path in (other, run.path) if path is not None]
    one, two = (checkpoints.load(path)[0] for path in paths if path is not None)
    assert one.keys() == two.keys()
    assert_same_bits(one, two)
    assert float(abs(one["carry.0.h"]).max()) > 0
    assert one["optimizer.started"]
    assert [{**r, "time": 0} for r in again.records] == [{**r, "time": 0} for r in run.records]


@pytest.mark.usefixtures("host")
def test_training_learns() -> None:
    """To near the text's own perplexity, that of one word in four, one in three and one in four, in a line of six."""
    learnt = minadv.fit(model(TEXT), TEXT, epochs=14, optimizer=Adam(0.03), **TINY)
    assert 48 ** (1 / 6) < learnt.evaluate("valid")["perplexity"] < 2.5
    assert learnt.records[0]["valid_perplexity"] > 4


def test_the_log_is_the_evaluation(run: Run) -> None:
    assert run.path is not None
    found = load(run.path, TEXT)
    assert_same_bits(found.params, run.params)
    best = min(run.records, key=lambda r: r["valid_loss"])
    assert found.evaluate("valid") == run.evaluate("valid")
    assert found.evaluate("valid")["loss"] == pytest.approx(best["valid_loss"], rel=1e-6)
    assert found.test() == run.test()
    assert found.records == run.records
    assert found.vocabulary.words == TEXT.vocabulary.words
    assert load(run.path).vocabulary.words == TEXT.vocabulary.words
    with pytest.raises(RunError, match="made in Python and does not say where its data is"):
        load(run.path).test()
    with pytest.raises(RunError, match="made in Python and does not say where its data is"):
        open_run(run.path)


@pytest.mark.usefixtures("host")
def test_workers_end_where_one_process_does(run: Run, tmp_path: Path) -> None:
    both = fit(tmp_path / "two", workers=2)
    assert both.config["workers"] == 2
    assert_close(both.params, run.params, 1e-4)


@pytest.mark.usefixtures("host")
def test_runs_know_their_text(run: Run) -> None:
    assert run.path is not None
    other = from_lines("other", {"train": lines(60, 5), "valid": lines(9), "test": lines(11)})
    assert len(other.vocabulary) == len(TEXT.vocabulary)
    says = r"run was trained on another text: toy with 10 words .* and this one, other, .* --data-dir"
    with pytest.raises(RunError, match=says):
        load(run.path, other)
    with pytest.raises(RunError, match=says):
        minadv.fit(run.model, other, steps=30, out=run.path, resume=True, **TINY)
    with pytest.raises(RunError, match=r"was made with another .*recipe"):
        fit(run.path, steps=30, resume=True)
    with pytest.raises(RunError, match="is a run already"):
        fit(run.path)


@pytest.mark.usefixtures("host")
def test_runs_of_another_kind(run: Run, tmp_path: Path) -> None:
    assert run.path is not None
    with pytest.raises(RunError, match="of the kind 'lm', which predict is not for"):
        run.predict(["a text"])
    images = minadv.fit(MODEL, sequences(), batch_size=10, steps=2, out=tmp_path / "images", progress=False)
    with pytest.raises(RunError, match="of the kind 'classify', which generate is not for"):
        images.generate(3)
    with pytest.raises(TypeError, match=r"data is a Images, expected a minadv\.data\.language\.corpus\.Corpus for"):
        minadv.fit(net(), sequences(), steps=1)
    with pytest.raises(
        TypeError, match=r"bptt: expected settings of a Classifier \(batch_size, track\), lr, or fields"
    ):
        minadv.fit(MODEL, sequences(), steps=1, bptt=7)
    with pytest.raises(RunError, match=r"was made with another kind, model"):
        minadv.fit(MODEL, sequences(), batch_size=10, steps=2, out=run.path, resume=True)


@pytest.mark.usefixtures("host")
def test_how_long_to_train() -> None:
    with pytest.raises(ValueError, match="give epochs, steps or a recipe, one of them"):
        minadv.fit(net(), TEXT, **TINY, epochs=1, steps=2)
    with pytest.raises(ValueError, match=r"a recipe was given, and \['lr_schedule'\] besides"):
        minadv.fit(net(), TEXT, recipe=Recipe(steps=1), lr_schedule=None, **TINY)
    with pytest.raises(ValueError, match="n_words is 9, expected 10, the words of the corpus"):
        minadv.fit(replace(net(), n_words=9), TEXT, steps=1, **TINY)
    for given in ({"steps": 1, "monitor": "error"}, {"recipe": Recipe(steps=1, monitor="accuracy")}):
        with pytest.raises(ValueError, match=r"monitor is '.*', expected one of 'perplexity', 'loss'"):
            minadv.fit(net(), TEXT, **TINY, **given)
    short = minadv.fit(net(), TEXT, recipe=Recipe(steps=2, optimizer=SGD(1.0)), **TINY)  # monitors "error" by default
    assert short.records[0]["valid_loss"] == pytest.approx(short.evaluate("valid")["loss"], rel=1e-6)
    per_epoch = LanguageTask(net(), TEXT.train, TEXT.valid, TEXT.test, batch_size=4, bptt=7).per_epoch
    assert minadv.fit(net(), TEXT, epochs=0.3, **TINY).step == round(0.3 * per_epoch)


@pytest.mark.usefixtures("host")
def test_finetune(run: Run, tmp_path: Path) -> None:
    tuned = finetune(run, TEXT, epochs=1, out=tmp_path / "tuned", progress=False, workers=1)
    recipe = tuned.config["recipe"]
    assert tuned.config["regularizer"] == {"kind": "Plain"}
    assert recipe["optimizer"] == {"kind": "ASGD", "lr": 3.0, "weight_decay": 1e-4, "interval": None}
    assert recipe["clip"]["limit"] == 0.25
    assert [tuned.config[name] for name in ("seed", "dtype", "batch_size", "bptt")] == [1, "float32", 4, 7]
    assert tuned.step == Windows(TEXT.train, 4, 7, 1).per_epoch
    state, _ = checkpoints.load(checkpoints.latest(tmp_path / "tuned") or "")
    assert state["optimizer.averaged"] == tuned.step  # from the first step on
    assert abs(tuned.last.E - state["params.E"]).max() > 0  # an average, as what the log evaluated, not the iterate
    assert tuned.evaluate("valid", last=True)["loss"] == pytest.approx(tuned.records[-1]["valid_loss"], rel=1e-6)
    again = load(tmp_path / "tuned", TEXT)
    assert again.evaluate("valid", last=True) == tuned.evaluate("valid", last=True)
    still = finetune(run, TEXT, epochs=0.1, lr=1e-12, progress=False, workers=1)
    assert_close(still.params, run.params, 1e-7)  # it begins with the best weights
    with pytest.raises(ValueError, match=r"the run has no folder, .* train it with out="):
        finetune(still, TEXT, epochs=1)


@pytest.mark.usefixtures("host")
def test_finetune_after_adam(tmp_path: Path) -> None:
    before = minadv.fit(net(), TEXT, steps=2, optimizer=Adam(1e-3), out=tmp_path / "run", **TINY)
    after = finetune(before, TEXT, out=tmp_path / "tuned", progress=False, workers=1)
    assert after.config["recipe"]["optimizer"]["lr"] == 30
    assert after.evaluate("valid")["loss"] <= before.evaluate("valid")["loss"]
    assert after.config["about"]["start"] == str((tmp_path / "run").resolve())
    assert (after.step, after.config["recipe"]["optimizer"]["weight_decay"]) == (2, 0)


@pytest.mark.usefixtures("host")
def test_a_tuned_run_that_was_killed(run: Run, tmp_path: Path) -> None:
    """Before its first checkpoint it needs the weights it began with; then not."""

    def kill(record: dict[str, Any]) -> None:
        raise Killed

    options: dict[str, Any] = {"progress": False, "workers": 1}
    whole = finetune(run, TEXT, epochs=2, out=tmp_path / "whole", **options)
    with pytest.raises(Killed):
        finetune(run, TEXT, epochs=2, out=tmp_path / "tuned", on_evaluation=kill, **options)
    assert run.params.E is not None
    other = replace(run, params=replace(run.params, E=run.params.E + 1))
    with pytest.raises(RunError, match="made with another start"):
        finetune(other, TEXT, epochs=2, out=tmp_path / "tuned", resume=True, **options)
    again = finetune(run, TEXT, epochs=2, out=tmp_path / "tuned", resume=True, **options)
    assert_same_bits(again.params, whole.params)


@pytest.mark.usefixtures("host")
def test_generate(run: Run) -> None:
    some = list(run.generate(40, seed=3))
    assert some == list(run.generate(40, seed=3))
    assert some != list(run.generate(40, seed=4))
    assert some[:9] == list(run.generate(9, seed=3))
    assert set(some) <= set(TEXT.vocabulary.words)
    assert list(run.generate(5, prompt="the cat")) == list(run.generate(5, prompt=["the", "cat"]))
    for low in (1e-3, 1e-300):
        cold = list(run.generate(30, temperature=low, seed=1))
        assert cold == list(run.generate(30, temperature=0, seed=2))  # which draws nothing


@pytest.mark.usefixtures("host")
def test_greedy_words_are_the_likeliest(run: Run) -> None:
    made = list(run.generate(6, prompt="the", temperature=0))
    ids = TEXT.vocabulary.numbers(["the", *made])
    features, _, _ = run.model.body(run.params, TokenBatch(ids[:-1, None]), masks={}, noise=None)
    np.testing.assert_array_equal(run.model.logits(run.params, features)[:, 0].argmax(axis=1), ids[1:])
    assert list(run.generate(6, temperature=0)) == list(run.generate(6, prompt=EOS, temperature=0))


@pytest.mark.usefixtures("host")
def test_words_are_drawn_from_the_softmax(run: Run) -> None:
    """The first word after a prompt, over many seeds, by its share."""
    how = {"prompt": "the", "temperature": 2.0, "unknown": True}
    first = [next(run.generate(1, seed=seed, **how)) for seed in range(1500)]
    token = TEXT.vocabulary.numbers(["the"])
    p, _ = next_word_probabilities(run.model, run.params, None, token, temperature=2.0)
    shares = np.bincount(TEXT.vocabulary.numbers(first), minlength=len(TEXT.vocabulary)) / len(first)
    assert abs(shares - p[0]).max() < 4 * np.sqrt(0.25 / len(first))


@pytest.mark.usefixtures("host")
def test_words_that_cannot_be(run: Run) -> None:
    with pytest.warns(UserWarning, match="'unicorn': not in the vocabulary, read as <unk>"):
        unknown = list(run.generate(2, prompt="the unicorn", seed=1))
    assert unknown == list(run.generate(2, prompt="the <unk>", seed=1))
    bare = from_lines("bare", {part: ["a b", "b a b"] for part in ("train", "valid", "test")})
    small = model(bare)
    params = small.init(np.random.default_rng(0))
    bare_run = replace(run, model=small, params=params, data=bare)
    with pytest.raises(
        DataError, match=r"the prompt: 'c' is not among the 3 words .* no <unk> to stand for it: use other words"
    ):
        bare_run.generate(1, prompt=["c"])
    for given, says in (({"words": -1}, "words is -1"), ({"words": 1, "temperature": -1.0}, "temperature is -1.0")):
        with pytest.raises(ValueError, match=says):
            bare_run.generate(**given)


def test_a_model_without_noise_or_regularizer(tmp_path: Path, device: Any) -> None:
    quiet = minadv.fit(model(TEXT), TEXT, steps=3, out=tmp_path / "run", device=device, dtype="float64", **TINY)
    assert quiet.config["regularizer"] == {"kind": type(Plain()).__name__}
    assert quiet.params.E.dtype == np.float64
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint yet"):
        load(tmp_path / "run")
