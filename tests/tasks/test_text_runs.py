"""The doors to runs of texts: train, stop, resume to the same bits, open, predict; what does not fit is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base.errors import DataError
from minadv.base.trees import tree_map
from minadv.layers import log_softmax
from minadv.models.text import TextBatch, TextClassifier
from minadv.regularizers import VAT, AdD, Sum
from minadv.searches import Greedy
from minadv.tasks.config import build, build_recipe, describe
from minadv.tasks.run import Run, load
from minadv.tasks.text import explain as text_explain
from minadv.tasks.text import task as text_task
from minadv.tasks.text.corpus import fingerprint
from minadv.tasks.text.explain import explain, first_order, remove
from minadv.tasks.text.pretrained import weights_of
from minadv.training.ema import EMA
from minadv.training.optimizers import Adam
from minadv.training.runs import checkpoints, log
from minadv.training.runs import folder as folders
from minadv.training.runs.folder import RunError
from tests.support.compare import assert_close, assert_same_bits
from tests.support.text_problems import classifier, corpus, language_model

pytest.importorskip("safetensors")

OF = corpus()
METHOD = Sum((AdD(budgets=2, search=Greedy(K=2, keep="last")), VAT(norm=0.5)))


@pytest.fixture(autouse=True)
def host(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("runs of texts on CuPy: tests/commands/test_devices.py; their tasks: tests/tasks/test_text.py")


def fit(**options: Any) -> Run:
    given = {"regularizer": METHOD, "steps": 8, "batch_size": 6, "unlabelled_size": 4, "workers": 1, **options}
    return minadv.fit(given.pop("model", classifier(OF)), given.pop("corpus", OF), progress=False, **given)


def pretrain(**options: Any) -> Run:
    given = {"steps": 8, "batch_size": 4, "T": 5, "held_out": 40, "workers": 1, **options}
    return minadv.fit(given.pop("model", language_model(OF)), given.pop("corpus", OF), progress=False, **given)


def ends(run: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The last checkpoint, leaf by leaf, and the evaluations of the log but for their times."""
    path = checkpoints.latest(run)
    assert path is not None
    leaves, _ = checkpoints.load(path)
    records = [record for record in log.read(run / "log.jsonl") if record["kind"] == "evaluation"]
    return {name: np.asarray(leaf).tobytes() for name, leaf in leaves.items()}, [{**r, "time": 0} for r in records]


class Killed(BaseException):
    pass


def die(at: int) -> Any:
    def at_step(record: dict[str, Any]) -> None:
        if record["step"] == at:
            raise Killed

    return at_step


@pytest.mark.parametrize("door", [fit, pretrain])
@pytest.mark.parametrize("at", [1, 5, 7])
def test_killed_in_the_middle_of_an_epoch_and_resumed(door: Any, at: int, tmp_path: Path) -> None:
    """Before the first checkpoint, and between two; an epoch has 3 steps, and checkpoints come every 2."""
    often = {"eval_every": 1, "checkpoint_every": 2}
    door(out=tmp_path / "whole", **often)
    with pytest.raises(Killed):
        door(out=tmp_path / "run", on_evaluation=die(at), **often)
    found = checkpoints.latest(tmp_path / "run")
    assert (None if found is None else found.stem) == (None if at == 1 else f"step-{at - 1:08d}")
    run = minadv.resume(tmp_path / "run", OF, progress=False)
    assert ends(tmp_path / "run") == ends(tmp_path / "whole")
    assert run.step == 8
    assert [record["step"] for record in run.records] == list(range(1, 9))


def test_resumed_by_the_same_call(tmp_path: Path) -> None:
    """With a pre-trained run, before the first checkpoint too; the weights it begins with must be the same ones."""
    before = pretrain(out=tmp_path / "lm")
    how = {"pretrained": tmp_path / "lm", "eval_every": 1, "checkpoint_every": 3}
    fit(out=tmp_path / "whole", **how)
    for resumed in ("door", "folder"):
        run = tmp_path / resumed
        with pytest.raises(Killed):
            fit(out=run, on_evaluation=die(2), **how)
        assert checkpoints.latest(run) is None
        if resumed == "door":
            fit(out=run, resume=True, **how)
        else:
            minadv.resume(run, OF, progress=False)
        assert ends(run) == ends(tmp_path / "whole")
    with pytest.raises(Killed):
        fit(out=tmp_path / "other", on_evaluation=die(2), **how)
    with pytest.raises(RunError, match="was made with another pretrained"):
        fit(out=tmp_path / "other", resume=True, **{**how, "pretrained": None})
    changed = replace(before, params=tree_map(lambda a: a + 1, before.params))
    with pytest.raises(RunError, match="was made with another pretrained"):
        fit(out=tmp_path / "other", resume=True, **{**how, "pretrained": changed})
    pretrain(out=tmp_path / "later", seed=1)
    (tmp_path / "lm").rename(tmp_path / "gone")
    (tmp_path / "later").rename(tmp_path / "lm")
    with pytest.raises(RunError, match="lm, which it began with, has other weights now"):
        minadv.resume(tmp_path / "other", OF)


def test_embeddings_alone_may_be_taken_over(tmp_path: Path) -> None:
    """With fresh cells, of any size, which are those of a run without the language model; resumed alike."""
    before = pretrain(out=tmp_path / "lm")
    how = {"pretrained": tmp_path / "lm", "take": "embeddings", "model": replace(classifier(OF), n_hidden=7)}
    how |= {"regularizer": None, "eval_every": 1, "checkpoint_every": 3, "seed": 4}
    model = how["model"]
    found = weights_of(before, model, OF.vocabulary, dtype="float32", seed=4, take="embeddings")  # type: ignore[arg-type]
    assert_same_bits(found.E, before.params.encoder.E)
    fresh = text_task.TextTask(model, OF, batch_size=6, seed=4).init()  # type: ignore[arg-type]
    assert_same_bits(found.cells, fresh.encoder.cells)
    fit(out=tmp_path / "whole", **how)
    with pytest.raises(Killed):
        fit(out=tmp_path / "run", on_evaluation=die(2), **how)
    assert folders.read_config(tmp_path / "run")["take"] == "embeddings"
    minadv.resume(tmp_path / "run", OF, progress=False)
    assert ends(tmp_path / "run") == ends(tmp_path / "whole")
    with pytest.raises(RunError, match="n_hidden is 7, expected 10, that of"):
        fit(**{**how, "take": "all"})
    with pytest.raises(ValueError, match="take is 'some'"):
        fit(**{**how, "take": "some"})


def test_a_run_comes_back_from_its_folder(tmp_path: Path) -> None:
    made = fit(out=tmp_path / "run", max_tokens=6, model=classifier(OF, truncate=4), eval_every=2)
    found = load(tmp_path / "run", OF)
    assert_same_bits((found.params, found.last), (made.params, made.last))
    assert found.model == made.model == replace(classifier(OF, truncate=4), engine="fast-3")
    np.testing.assert_array_equal(found.model.frequencies, OF.vocabulary.frequencies)
    assert found.vocabulary.fingerprint == OF.vocabulary.fingerprint
    assert (found.classes, found.records, found.step) == (("bad", "good"), made.records, 8)
    assert found.test() == made.test()
    assert found.evaluate("valid")["error"] == min(record["valid_error"] for record in made.records)
    assert found.evaluate("valid", last=True)["error"] == made.records[-1]["valid_error"]
    for word in ("frequencies", "counts"):
        assert word not in found.config["model"]
    with pytest.raises(RunError, match="was made in Python and does not say where its data is"):
        load(tmp_path / "run").test()


def test_the_averaged_weights_are_evaluated(tmp_path: Path) -> None:
    plain = fit(out=tmp_path / "plain", ema=None)
    averaged = fit(out=tmp_path / "averaged", ema=EMA(0.9))
    state = folders.restore(
        tmp_path / "averaged", folders.Blank(averaged.last), build_recipe(averaged.config["recipe"])
    )
    assert_same_bits(state.params, plain.last)
    assert_same_bits(averaged.last, state.ema.average)
    assert float(np.abs(averaged.last.W1 - plain.last.W1).max()) > 1e-6


def test_the_papers_recipe(tmp_path: Path) -> None:
    recipe = fit(steps=1, out=tmp_path / "run").config["recipe"]
    assert recipe["optimizer"] == describe(Adam(5e-4))
    assert recipe["step_schedule"] == {"kind": "ExponentialDecay", "rate": 0.9998}
    assert (recipe["clip"]["limit"], recipe["clip"]["but"], recipe["ema"]["decay"]) == (1.0, ["encoder.E"], 0.999)
    recipe = pretrain(steps=1, out=tmp_path / "lm").config["recipe"]
    assert recipe["optimizer"] == describe(Adam(1e-3))
    assert recipe["step_schedule"] == {"kind": "ExponentialDecay", "rate": 0.9999}
    assert (recipe["clip"]["limit"], recipe["clip"]["but"], recipe["ema"]) == (1.0, ["encoder.E"], None)
    kept = pretrain(steps=1, lr_schedule=build_recipe(recipe).lr_schedule, keep=1, out=tmp_path / "kept")
    assert kept.config["recipe"]["keep"] == 1


def test_predictions_are_those_of_the_evaluation(tmp_path: Path) -> None:
    run = fit(steps=40, optimizer=Adam(1e-2), regularizer=None, out=tmp_path / "run")
    words = OF.vocabulary.words
    texts = [" ".join(words[t] for t in OF.test[n]) for n in range(len(OF.test))]
    p = load(tmp_path / "run").predict(texts)
    assert p.shape == (12, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    assert run.test()["error"] == pytest.approx(100 * float((p.argmax(axis=1) != OF.test.labels).mean()))
    assert run.test()["error"] < 20
    assert run.predict([]).shape == (0, 2)
    assert run.predict(["wholly unknown words"]).shape == (1, 2)
    with pytest.raises(ValueError, match="text 2 is empty, expected at least one word"):
        run.predict(["good0", " "])


def test_units_that_the_answer_hangs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first order is the slope by central differences; removals are those of networks without the unit."""
    run = fit(steps=30, optimizer=Adam(1e-2), regularizer=None, dtype="float64", model=classifier(OF, n_layers=2))
    tokens = np.append(OF.test[0].astype(np.int64), 1)
    p, slopes = first_order(run.model, run.params, tokens)
    answer, step = int(p.argmax()), 1e-6
    assert {site: slope.shape for site, slope in slopes.items()} == {"layer0": (10,), "layer1": (10,)}
    for site, unit in (("layer0", 3), ("layer1", 7)):
        nll = [-np.log(_masked(run, tokens, site, unit, 1 + s)[answer]) for s in (step, -step)]
        assert slopes[site][unit] == pytest.approx((nll[0] - nll[1]) / (2 * step), rel=1e-5, abs=1e-9)
    found = explain(run.model, run.params, tokens, top=4)
    np.testing.assert_allclose(found.p, p)
    np.testing.assert_allclose(p, run.predict([" ".join(OF.vocabulary.words[t] for t in tokens[:-1])])[0])
    every = [(site, unit) for site in slopes for unit in range(10)]
    change = {u: abs(_masked(run, tokens, *u, 0.0)[answer] - p[answer]) for u in every}
    best = sorted(change, key=lambda u: -change[u])[:4]
    assert [(r.site, r.unit) for r in found.removals] == best
    for removal in found.removals:
        np.testing.assert_allclose(removal.p, _masked(run, tokens, removal.site, removal.unit, 0.0), rtol=1e-12)
    few = explain(run.model, run.params, tokens, top=9, candidates=3)
    steepest = sorted(every, key=lambda u: -abs(slopes[u[0]][u[1]]))[:3]
    assert {(r.site, r.unit) for r in few.removals} == set(steepest)
    helping = {site: -abs(slope) for site, slope in slopes.items()}  # a removal that would raise the answer counts too
    monkeypatch.setattr(text_explain, "first_order", lambda *given: (p, helping))
    same = explain(run.model, run.params, tokens, top=9, candidates=3)
    assert [(r.site, r.unit) for r in same.removals] == [(r.site, r.unit) for r in few.removals]
    assert_close(remove(run.model, run.params, tokens, best)[0], found.removals[0].p)


def _masked(run: Run, tokens: Any, site: str, unit: int, value: float) -> Any:
    m = np.ones((1, 10))
    m[0, unit] = value
    features, _, _ = run.model.body(run.params, TextBatch(tokens[:, None]), masks={site: m}, noise=None)
    return np.exp(log_softmax(run.model.logits(run.params, features)[-1]))[0]


def test_a_model_comes_back_without_its_frequencies() -> None:
    model = classifier(OF, truncate=3)
    described = describe(model)
    assert "frequencies" not in described
    assert build(described) == model
    assert isinstance(build(described), TextClassifier)
    assert build(described).frequencies is None


def test_another_text_is_refused(tmp_path: Path) -> None:
    other = corpus(seed=1)
    assert fingerprint(other) != fingerprint(OF) == fingerprint(corpus())
    for door, name in ((fit, "text"), (pretrain, "pretrain")):
        run = tmp_path / name
        door(out=run, steps=2)
        before = ends(run)
        for call in (load, minadv.resume):
            with pytest.raises(RunError, match=r"was trained on another text: toy with \d+ words, 20 training texts"):
                call(run, other)
        with pytest.raises(RunError, match="was trained on another text"):
            door(out=run, steps=2, corpus=other, resume=True)
        with pytest.raises(RunError, match="is a run already"):
            door(out=run, steps=2)
        assert ends(run) == before
    with pytest.raises(DataError, match="the text has the vocabulary"):
        load(tmp_path / "text").evaluate(data=other)


def test_a_pretrained_run_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    before = pretrain(out=tmp_path / "lm")
    other = corpus(seed=1)
    assert len(other.vocabulary) == len(OF.vocabulary)  # the same words, counted otherwise
    with pytest.raises(DataError, match=r"expected [0-9a-f]{12}, that of .*lm: give the same data and the same vocab"):
        fit(pretrained=tmp_path / "lm", corpus=other, model=classifier(other), out=tmp_path / "run")
    with pytest.raises(RunError, match="n_layers is 2, expected 1, that of"):
        fit(pretrained=before, model=classifier(OF, n_layers=2), out=tmp_path / "run")
    with pytest.raises(RunError, match="normalise is False, expected True"):
        fit(pretrained=before, model=classifier(OF, normalise=False), out=tmp_path / "run")
    run = fit(steps=1)
    with pytest.raises(RunError, match="is a classifier already, expected a language model"):
        fit(pretrained=run, out=tmp_path / "run")
    with pytest.raises(RunError, match="which predict is not for: train a classifier that begins with it"):
        before.predict(["good0"])
    assert not (tmp_path / "run").exists()
    assert fit(pretrained=before, steps=1, dtype="float64").params.encoder.E.dtype == np.float64


def test_how_long_to_train(tmp_path: Path) -> None:
    assert fit(steps=2).step == 2
    with pytest.raises(ValueError, match="give epochs, steps or a recipe, one of them"):
        fit(epochs=1)
    with pytest.raises(ValueError, match="give epochs, steps or a recipe, one of them"):
        minadv.fit(classifier(OF), OF, batch_size=10)
    assert minadv.fit(classifier(OF), OF, epochs=2, batch_size=10, workers=1, progress=False).step == 4
    made = build_recipe(pretrain(steps=1, out=tmp_path / "lm").config["recipe"])
    with pytest.raises(ValueError, match=r"a recipe was given, and \['steps'\] besides"):
        pretrain(recipe=made)
