"""The two doors, `fit` and `load`: what is written comes back, and nothing is overwritten or mixed up."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.backend import choose_device
from minadv.base.files import seal, unseal
from minadv.base.launch import Process
from minadv.data.images import Images, Split
from minadv.models.classifier import Classifier
from minadv.regularizers import VD, AdD
from minadv.tasks.images.task import evaluate
from minadv.tasks.resume import is_finished
from minadv.training.loop import Interrupted, Recipe
from minadv.training.optimizers import Adam
from minadv.training.parallel.choose import same_workers
from minadv.training.runs import checkpoints, log
from minadv.training.runs.checkpoints import CheckpointError, CheckpointWarning
from minadv.training.runs.folder import RunError, expect_free, only_writer, read_config
from tests.support.compare import assert_same_bits
from tests.support.problems import MODEL, sequences

pytest.importorskip("safetensors")

OPTIONS: dict[str, Any] = {"regularizer": AdD(delta=0.4), "batch_size": 10, "optimizer": Adam(0.03)}


@pytest.fixture(scope="module")
def data() -> Images:
    return sequences()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "add"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dozen_lines(data: Images, out: Path, device: Any) -> None:
    run = minadv.fit(MODEL, data, **OPTIONS, epochs=4, device=device, out=out, about={"why": "a test"})
    test = run.test()
    assert test["error"] < 10
    again = minadv.load(out, data)
    assert again.test() == test
    assert_same_bits((again.params, again.last), (run.params, run.last))
    assert (again.model, again.step, again.records, again.path) == (
        replace(MODEL, engine="fast-3"),
        24,
        run.records,
        out,
    )
    assert again.config == json.loads(json.dumps(run.config))
    assert again.config["about"] == {"why": "a test"}
    assert again.config["device"] == device.name
    p = again.predict(data.test.x)
    assert p.shape == (24, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert 100 * (p.argmax(axis=1) != data.test.y).mean() == pytest.approx(test["error"])
    assert all(isinstance(a, np.ndarray) for a in (run.params.V, run.last.V, again.params.V))


def test_the_log(data: Images, out: Path) -> None:
    run = minadv.fit(MODEL, data, **OPTIONS, steps=12, seed=5, out=out)
    first, *rest = log.read(out / "log.jsonl")
    assert (first["kind"], first["seed"], first["config"]) == ("header", 5, read_config(out))
    assert first["versions"]["numpy"] == np.__version__
    assert rest == run.records
    assert first["config"]["regularizer"]["kind"] == "AdD"
    assert first["config"]["recipe"]["optimizer"] == {"kind": "Adam", "lr": 0.03} | {
        name: getattr(Adam(0.03), name) for name in ("beta1", "beta2", "tiny")
    }


def test_without_a_folder_nothing_is_written(data: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = minadv.fit(MODEL, data, **OPTIONS, steps=2)
    assert (run.path, run.step) == (None, 2)
    assert list(tmp_path.iterdir()) == []


def stopped_at(data: Images, out: Path, step: int, **options: Any) -> None:
    """A run interrupted from the keyboard after the evaluation of a step."""

    def interrupt(record: dict[str, Any]) -> None:
        if record["step"] == step:
            raise KeyboardInterrupt

    given = {**OPTIONS, "steps": 12, "eval_every": 2, "out": out, **options}
    with pytest.raises(Interrupted, match=f"stopped at step {step} and saved in {out}"):
        minadv.fit(MODEL, data, **given, on_evaluation=interrupt)


def test_interrupted_and_resumed(data: Images, out: Path, device: Any) -> None:
    stopped_at(data, out, 8, device=device)
    assert not is_finished(out)
    assert minadv.load(out).step == 8
    run = minadv.fit(MODEL, data, **OPTIONS, steps=12, eval_every=2, device=device, out=out, resume=True)
    whole = minadv.fit(MODEL, data, **OPTIONS, steps=12, eval_every=2, device=device, out=out.with_name("whole"))
    assert_same_bits((run.params, run.last), (whole.params, whole.last))
    assert [{**r, "time": 0} for r in run.records] == [{**r, "time": 0} for r in whole.records]
    assert is_finished(out)
    [said] = [record for record in log.read(out / "log.jsonl") if record["kind"] == "resumed"]
    assert (said["step"], said["workers"], said["ranks"], said["device"]) == (8, 1, 1, device.name)
    assert said["versions"] == log.versions()
    before = contents(out)
    again = minadv.fit(MODEL, data, **OPTIONS, steps=12, eval_every=2, device=device, out=out, resume=True)
    assert_same_bits(again.last, run.last)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"steps": 13}, "recipe"),
        ({"batch_size": 9, "regularizer": VD()}, "regularizer, batch_size"),
        ({"optimizer": Adam(0.031)}, "recipe"),
        ({"track": {"budgets": 1}}, "track"),
    ],
)
def test_resumed_with_another_configuration(data: Images, out: Path, change: Any, named: str) -> None:
    stopped_at(data, out, 4)
    before = contents(out)
    with pytest.raises(RunError, match=f"was made with another {named}: resume it as it was configured"):
        minadv.fit(MODEL, data, **{**OPTIONS, "steps": 12, "eval_every": 2, **change}, out=out, resume=True)
    with pytest.raises(RunError, match="was made with another model"):
        minadv.fit(Classifier(2, 7, 3), data, **OPTIONS, steps=12, eval_every=2, out=out, resume=True)
    assert contents(out) == before


def test_resumed_on_other_data(data: Images, out: Path) -> None:
    stopped_at(data, out, 4)
    given = {**OPTIONS, "steps": 12, "eval_every": 2}
    other = replace(data, train=replace(data.train, y=np.roll(data.train.y, 1)))
    with pytest.raises(RunError, match=r"was made with other data: the 60 examples of train are not the same;"):
        minadv.fit(MODEL, other, **given, out=out, resume=True)
    with pytest.raises(RunError, match="was made with other data"):
        minadv.load(out, other)
    assert minadv.load(out, data).evaluate("train", data=other) != minadv.load(out, data).evaluate("train")
    config = read_config(out)
    del config["data"], config["recipe"]["eval_first"]  # runs of earlier versions did not say everything
    (out / "config.json").write_bytes(seal({"format": "minadv run 1", "config": config}))
    shutil.rmtree(out / "checkpoints")  # which are of the configuration that was there
    assert minadv.fit(MODEL, data, **given, out=out, resume=True).step == 12


def stop(path: object) -> None:
    raise KeyboardInterrupt


def test_arrays_in_the_place_of_data(out: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 5, 2)), np.arange(40) % 3
    model = Classifier(2, 6, 3)
    run = minadv.fit(model, (x, y), epochs=1, batch_size=np.int64(10), lr=np.float32(0.03), out=out)
    again = minadv.load(out, (x, y))
    assert again.test() == run.test()
    whole = again.test((x, y))
    assert whole == again.evaluate("train", data=(x, y))
    assert whole["error"] == pytest.approx(100 * (run.predict(x).argmax(axis=1) != y).mean())
    with pytest.raises(
        RunError, match=r"was made with other data: the 32 examples of train are not the same, the 4 examples of v"
    ):
        minadv.load(out, (x + 1, y))
    with pytest.raises(RunError, match="was made with other data: train has 24 examples, not 32, valid has 3 examples"):
        minadv.load(out, (x[:30], y[:30]))
    part = Split(x[:9], y[:9])
    assert again.test(part) == again.test((x[:9], y[:9]))
    with pytest.raises(ValueError, match=r"x has shape \(40, 5, 1\), expected \(N, T, 2\)"):
        again.test((x[..., :1], y))
    for other in ("no such data", {}, x):
        with pytest.raises(TypeError, match=r"data is a .*, expected arrays \(x, y\), or a minadv.data.images.Images"):
            run.test(other)
    with pytest.raises(ValueError, match="part is 'x', expected one of 'train', 'valid', 'test'"):
        run.evaluate("x")
    apart = minadv.fit(model, (x, y), valid=(x[:5], y[:5]), test=(x[5:9], y[5:9]), steps=1, out=out.with_name("b"))
    assert minadv.load(apart.path, (x, y), valid=(x[:5], y[:5]), test=(x[5:9], y[5:9])).test() == apart.test()
    stopped_at_once = {"steps": 2, "eval_every": 1, "batch_size": 10, "out": out.with_name("c")}
    with pytest.raises(Interrupted):
        minadv.fit(model, (x, y), **stopped_at_once, on_checkpoint=stop)
    assert minadv.resume(out.with_name("c"), (x, y)).step == 2
    for odd in (x.astype(complex), x.astype(str), x.astype(object)):
        with pytest.raises(ValueError, match=r"x has dtype .*, expected numbers"):
            run.predict(odd)


def test_one_process_trains_a_run(data: Images, out: Path) -> None:
    stopped_at(data, out, 4)
    given = {**OPTIONS, "steps": 12, "eval_every": 2}
    before = contents(out)
    with (
        only_writer(out),
        pytest.raises(RunError, match="is being trained by another process: wait for it, or end it first"),
    ):
        minadv.fit(MODEL, data, **given, out=out, resume=True)
    assert contents(out) == before
    assert minadv.fit(MODEL, data, **given, out=out, resume=True).step == 12


def test_workers_of_a_run_that_goes_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = choose_device("cpu"), replace(choose_device("cpu"), name="gpu")
    two = {"workers": 2}
    assert (same_workers(two, cpu), same_workers(two, gpu), same_workers({}, cpu)) == (2, None, None)
    monkeypatch.setattr("minadv.base.launch.this_process", lambda: Process(0, 2))
    assert same_workers(two, cpu) is None


@pytest.mark.filterwarnings("ignore:training diverges")
def test_evaluated_before_the_first_step(data: Images, out: Path) -> None:
    """What training makes worse is not the best; a run that is killed at once says its first evaluation once."""

    def kill(record: dict[str, Any]) -> None:
        raise ZeroDivisionError

    given = {**OPTIONS, "optimizer": Adam(5.0), "steps": 4, "eval_every": 2, "eval_first": True}
    with pytest.raises(ZeroDivisionError):
        minadv.fit(MODEL, data, **given, out=out, on_evaluation=kill)
    run = minadv.fit(MODEL, data, **given, out=out, resume=True)
    assert [r["step"] for r in run.records] == [0, 2, 4]
    assert (run.records[0]["train_loss"], run.records[0]["regularizer"]) == (None, None)
    assert [r["step"] for r in log.read(out / "log.jsonl") if r["kind"] == "evaluation"] == [0, 2, 4]
    straight = minadv.fit(MODEL, data, **given)
    assert_same_bits((run.params, run.last), (straight.params, straight.last))
    errors = [r["valid_error"] for r in run.records]
    assert evaluate(MODEL, run.params, data.valid, batch_size=10)["error"] == min(errors)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_is_something_else(data: Images, out: Path, resume: bool) -> None:
    out.mkdir(parents=True)
    (out / "letter.txt").write_text("dear")
    for path in (out, out / "letter.txt"):
        with pytest.raises(RunError, match="is there already and is not a run of minadv: choose another folder"):
            minadv.fit(MODEL, data, **OPTIONS, steps=1, out=path, resume=resume)
    assert [path.name for path in out.iterdir()] == ["letter.txt"]


def test_a_run_is_not_overwritten(data: Images, out: Path) -> None:
    minadv.fit(MODEL, data, **OPTIONS, steps=1, out=out)
    before = contents(out)
    with pytest.raises(RunError, match=r"is a run already: resume it \(minadv train --resume .*\), or take another"):
        minadv.fit(MODEL, data, **OPTIONS, steps=1, out=out)
    assert contents(out) == before


def test_folders_that_a_kill_may_leave(out: Path) -> None:
    expect_free(out)
    out.mkdir(parents=True)
    expect_free(out)
    (out / ".config.json.tmp").write_text("{")
    expect_free(out)


def test_a_damaged_checkpoint_is_passed_over(data: Images, out: Path) -> None:
    whole = minadv.fit(MODEL, data, **OPTIONS, steps=12, eval_every=3, out=out)
    newest = next((out / "checkpoints").glob("step-00000012-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    with pytest.warns(CheckpointWarning, match=r"is damaged: .*; using step-00000009\.json instead"):
        run = minadv.load(out)
    assert (run.step, [r["step"] for r in run.records]) == (9, [3, 6, 9])
    with pytest.warns(CheckpointWarning, match="is damaged"):
        run = minadv.fit(MODEL, data, **OPTIONS, steps=12, eval_every=3, out=out, resume=True)
    assert_same_bits(run.last, whole.last)
    assert_same_bits(minadv.load(out).last, whole.last)
    for path in (out / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="has no sound checkpoint"):
        minadv.load(out)


def test_a_checkpoint_of_another_run(data: Images, out: Path) -> None:
    """It fits, every byte of it is sound, and still it is not this run's."""
    other = out.with_name("other")
    minadv.fit(MODEL, data, **OPTIONS, steps=12, eval_every=3, out=out)
    minadv.fit(MODEL, data, **OPTIONS, steps=18, eval_every=3, seed=1, out=other)
    for path in (other / "checkpoints").glob("step-00000018*"):
        shutil.copy(path, out / "checkpoints")
    said = r"step-00000018\.json is of another run: it was not made with the configuration in .*config\.json"
    with pytest.warns(CheckpointWarning, match=rf"{said}; using step-00000012\.json instead"):
        assert minadv.load(out).step == 12
    with pytest.raises(CheckpointError, match=rf"{said}; the one before it is sound: .*step-00000012\.json"):
        checkpoints.load(out / "checkpoints" / "step-00000018.json")
    for path in (out / "checkpoints").glob("step-000000[01]?.json"):
        if path.stem != "step-00000018":
            path.unlink()
    with pytest.raises(CheckpointError, match=rf"has no sound checkpoint: .*{said}"):
        minadv.load(out)


def test_a_checkpoint_that_does_not_say_whose_it_is(data: Images, out: Path) -> None:
    """As the first ones did not: it is read."""
    minadv.fit(MODEL, data, **OPTIONS, steps=12, out=out)
    path = checkpoints.latest(out)
    assert path is not None
    content = unseal(path)
    assert len(content.pop("run")) == 64
    path.write_bytes(seal(content))
    assert minadv.load(out).step == 12


def test_what_is_not_a_run(data: Images, out: Path) -> None:
    with pytest.raises(RunError, match=r"add is not a run of minadv: cannot read .*config\.json: No such file"):
        minadv.load(out)
    minadv.fit(MODEL, data, **OPTIONS, steps=1, out=out)
    for path in (out / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(RunError, match="has no checkpoint yet: train it further with minadv train --resume"):
        minadv.load(out)
    (out / "config.json").write_text((out / "config.json").read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(RunError, match=r"is not a run of minadv: .*config\.json is damaged"):
        minadv.load(out)


def test_bad_arguments(data: Images, out: Path) -> None:
    with pytest.raises(ValueError, match="give epochs, steps or a recipe, one of them: how long to train"):
        minadv.fit(MODEL, data, epochs=1, steps=2, batch_size=10, out=out)
    with pytest.raises(ValueError, match=r"a recipe was given, and \['clip'\] besides: expected one or the other"):
        minadv.fit(MODEL, data, recipe=Recipe(steps=1), clip=None, batch_size=10, out=out)
    with pytest.raises(ValueError, match="the batch size is 100, expected 1 to 60, the number of examples"):
        minadv.fit(MODEL, data, epochs=1, batch_size=100, out=out)
    with pytest.raises(ValueError, match="seed is -1, expected a whole number of at least 0"):
        minadv.fit(MODEL, data, **OPTIONS, epochs=1, seed=-1, out=out)
    assert not out.exists()
    run = replace(minadv.fit(MODEL, data, **OPTIONS, steps=1), data=None)
    with pytest.raises(RunError, match="was made in Python and does not say where its data is"):
        run.test()
    for bad in (data.test.x[0], data.test.x[:0], data.test.x[..., :1]):
        with pytest.raises(ValueError, match=r"x has shape .*, expected \(N, T, 2\)"):
            run.predict(bad)
