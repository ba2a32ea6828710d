"""The comparison of all methods: what it runs, how it chooses, what it finds done, what it says of given numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
pytest.importorskip("tqdm", reason="experiments show progress")

from scipy.special import softmax
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from experiments import compare
from experiments.parts import reporting, tfidf
from experiments.parts.compared import images, language, makers, plan, report, texts
from experiments.parts.compared.plan import MATCHED, METHODS, SEARCHES, TASKS, TUNING, Job
from experiments.parts.compared.rows import reported, rows_of
from experiments.parts.compared.work import Known, ensembles, found_result, work
from experiments.parts.naive_bayes import counts
from minadv.regularizers import FD, VD, AdD, Plain, RDrop
from minadv.tasks.unlabelled import uses_unlabelled
from minadv.training.runs.folder import read_config
from tests.support.comparisons import REVIEWS, TINY, WORDS, given


@pytest.fixture(autouse=True)
def once(device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the same on every backend")


def test_every_method_has_four_settings_but_the_one_that_has_nothing_to_set() -> None:
    assert {m: len(plan.settings(m)) for m in METHODS} == {m: 1 if m == "none" else 4 for m in METHODS}


def test_regularizers_are_those_of_their_names() -> None:
    assert images.regularizer("none", 0.0) == Plain()
    assert images.regularizer("RDrop", 0.2) == RDrop(p=0.2)
    assert images.regularizer("Memory", 0.06) == AdD(delta=0.06, search=SEARCHES["Memory"])


def test_every_second_pass_of_a_language_model_draws_all_noise_anew() -> None:
    for method in WORDS.methods:
        made = language.regularizer(method, 0.1)
        assert isinstance(made, Plain | VD) == (method in ("none", "VD"))
        assert getattr(made, "share_noise", False) is False
    assert language.regularizer("FD", 0.1) == FD(p=0.1, distance="logit2", share_noise=False)


def test_the_seeds_that_choose_are_not_among_those_that_are_reported(tmp_path: Path) -> None:
    for task in TASKS.values():
        chosen = {m: plan.settings(m)[0] for m in task.methods}
        choosing = [*plan.rates(task, given(tmp_path)), *plan.trials(task, 1e-2, given(tmp_path))]
        reported = list(plan.finals(task, 1e-2, chosen, given(tmp_path)))
        assert {job.seed for job in choosing} == set(TUNING)
        assert not {job.draws for job in choosing} & {job.draws for job in reported}
        folders = [job.folder for job in (*choosing, *reported)]
        assert len(set(folders)) == len(folders)


def test_none_and_fd_are_given_the_cost_of_the_adversary(tmp_path: Path) -> None:
    passes = compare.passes()
    assert {m: sum(passes["AdD K=2"]) / sum(passes[m]) for m in MATCHED} == MATCHED
    jobs = list(plan.finals(TINY, 1e-2, dict.fromkeys(TINY.methods, (0.0, 0.0)), given(tmp_path)))
    first = [job for job in jobs if job.seed == 0 and job.method == "none"]
    assert [(job.longer, job.member) for job in first] == [(1, 0), (4, 0), (1, 1), (1, 2), (1, 3)]


def test_where_there_are_unlabelled_examples_a_step_of_those_who_read_them_has_two_batches(tmp_path: Path) -> None:
    imdb = TASKS["imdb"]
    assert {m: imdb.batches(m) for m in imdb.methods} == {
        m: 2 if uses_unlabelled(texts.regularizer(m, 0.1)) else 1 for m in imdb.methods
    }
    with_some = {name for name, task in TASKS.items() if task.unlabelled}
    assert with_some == {"mnist-2000-unlabelled", "imdb"}
    passes = compare.passes()
    for task in TASKS.values():
        cost = {m: sum(passes[m]) * task.batches(m) for m in (*MATCHED, "AdD K=2")}
        assert {m: cost["AdD K=2"] / cost[m] for m in MATCHED} == {m: task.times(m) for m in MATCHED}
    jobs = list(plan.finals(imdb, 1e-2, dict.fromkeys(imdb.methods, (0.0, 0.0)), given(tmp_path)))
    first = [job for job in jobs if job.seed == 0 and job.method == "none"]
    assert [job.longer for job in first if job.longer > 1] == [8] and len(first) == 1 + 1 + 7


def test_images_are_told_from_others_without_reading_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Job(TINY, "none", 0.0, 0.0, 1e-2, 0, "final", **given(tmp_path))
    other = replace(one, task=replace(TINY, sizes=tuple((TINY.size | {"pool": 2}).items())))
    assert images.fingerprint(other) != (first := images.fingerprint(one))
    monkeypatch.setattr(images, "describe_data", lambda data: pytest.fail("read again"))
    assert images.fingerprint(replace(one, seed=3, method="FD")) == first


def test_the_digests_of_tasks_that_are_done_or_begun_do_not_change() -> None:
    names = ("digits", "mnist-20000", "mnist-2000", "mnist-2000-unlabelled", "mnist-pooled")
    digests = ("06fc20dd3ba6", "98f632ace7c7", "ca7fbc042c41", "9c2b3617933f", "d20649957988")
    assert tuple(TASKS[name].digest for name in names) == digests


def test_members_share_examples_and_differ_in_all_else(tmp_path: Path) -> None:
    one = Job(TINY, "none", 0.0, 0.0, 1e-2, 3, "final", **given(tmp_path))
    other = replace(one, member=1)
    assert (images.data_of(one).train.x == images.data_of(other).train.x).all()
    assert one.draws != other.draws
    assert (images.data_of(one).train.y != images.data_of(replace(one, seed=4)).train.y).any()


def test_a_whole_comparison_and_what_it_finds_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compare.TASKS, "tiny", TINY)
    command = ["tiny", "--workers", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    compare.main(command)
    data = reporting.read_results(tmp_path / "out" / "compare-tiny.json")
    table = reported(data)
    assert list(table) == [*rows_of("none", TINY), *rows_of("FD", TINY), "AdD K=2"]
    assert all(by_seed.keys() == {0, 1} for by_seed in table.values())
    text = (tmp_path / "out" / "compare-tiny.md").read_text()
    assert text == report.page(data)
    assert "onverged: the mean validation loss of none" in text
    monkeypatch.setattr(images, "train", lambda *a, **k: pytest.fail("trained again"))
    compare.main(command)  # everything is found
    job = Job(replace(TINY, epochs=3), "none", 0.0, 0.0, table["none"][0]["lr"], 0, "final", tmp_path / "runs")
    assert found_result(replace(job, task=TINY)) is not None
    assert found_result(job) is None  # of another size


def test_a_language_model_may_learn_from_the_first_words_alone(tmp_path: Path) -> None:
    some = replace(WORDS, sizes=(*WORDS.sizes, ("words", 5000)))
    whole, part = (
        language.data_of(Job(task, "none", 0.0, 0.0, 10.0, 0, "final", **given(tmp_path))) for task in (WORDS, some)
    )
    assert part.train.tolist() == whole.train[:5000].tolist()
    assert part.test.tolist() == whole.test.tolist()
    assert part.fingerprint != whole.fingerprint
    assert some.digest != WORDS.digest


def test_an_ensemble_of_language_models_averages_the_probability_of_each_word(tmp_path: Path) -> None:
    first = Job(WORDS, "FD", 0.1, 0.1, 10.0, 0, "final", **given(tmp_path))
    results = [work(replace(first, member=member)) for member in range(MATCHED["FD"])]
    answers = [np.load(replace(first, member=k).folder / "answers.npy").astype(float) for k in range(2)]
    assert answers[0].shape == (len(language.data_of(first).test) - 1,)
    for result, p in zip(results, answers, strict=True):
        assert result["test"] == pytest.approx(np.exp(-np.log(p).mean()), rel=1e-5)
        assert len(result["valid_losses"]) == len({round(v, 9) for v in result["valid_losses"]})
    (made,) = ensembles([first], Known())
    assert made["test"] == pytest.approx(np.exp(-np.log((answers[0] + answers[1]) / 2).mean()), rel=1e-5)


@pytest.mark.parametrize("method", WORDS.methods)
def test_every_method_trains_a_language_model(method: str, tmp_path: Path) -> None:
    strength, weight = plan.settings(method, "language")[0]
    run, tested, p = language.train(Job(WORDS, method, strength, weight, 10.0, 0, "final", **given(tmp_path)), None)
    assert run.step == language.steps_of(Job(WORDS, method, strength, weight, 10.0, 0, "final", **given(tmp_path)))
    assert np.isfinite(tested["perplexity"]) and ((p > 0) & (p <= 1)).all()
    if method not in ("none", "VD"):
        assert run.records[-1]["regularizer"] > 0


@pytest.mark.parametrize("method", TASKS["imdb"].methods)
def test_every_method_trains_a_classifier_of_texts(method: str, tmp_path: Path) -> None:
    strength, weight = plan.settings(method, "texts")[-1]
    job = Job(REVIEWS, method, strength, weight, 5e-3, 0, "final", **given(tmp_path))
    run, _, _ = texts.train(job, None, steps=2)
    assert run.step == 2
    if method not in ("none", "VD"):
        assert run.records[-1]["regularizer"] > 0
    if method in plan.SUMS:
        assert texts.recipe(job, 60).weight == 1.0 and texts.regularizer(method, strength, weight).weights == (
            weight,
            1.0,
        )


def test_the_texts_of_a_seed(tmp_path: Path) -> None:
    one = Job(REVIEWS, "none", 0.0, 0.0, 5e-3, 0, "final", **given(tmp_path))
    whole, drawn, other = (texts.data_of(job) for job in (one, replace(one, member=1), replace(one, seed=1)))
    assert (whole.train.starts == drawn.train.starts).all() and (whole.train.starts != other.train.starts).any()
    parts = [set(part.starts.tolist()) for part in (whole.train, whole.valid, whole.test, whole.unlabelled)]
    assert [len(part) for part in parts[:2]] == [60, 40]
    assert len(set.union(*parts)) == sum(map(len, parts))  # no text is in two parts


def test_a_comparison_of_texts_begins_with_one_language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compare.TASKS, "reviews", replace(REVIEWS, matched=False))
    command = ["reviews", "--workers", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    compare.main(command)
    data = reporting.read_results(tmp_path / "out" / "compare-reviews.json")
    assert list(reported(data)) == list(REVIEWS.methods)
    assert {r["made"]["engine"] for r in makers.read(data)} <= {"plain", "fast-3"}
    page = (tmp_path / "out" / "compare-reviews.md").read_text()
    assert "logistic regression on tf-idf" in page and "AdD K=1 + VAT" in page
    assert all(len(errors) == 2 for errors in data["facts"]["baselines"].values())
    (began,) = {r["began"] for r in data["results"]}
    assert began == texts.prepare(REVIEWS, tmp_path / "runs", None)
    assert read_config(tmp_path / "runs" / "reviews" / "lm" / "all")["workers"] == 2  # whatever --workers says
    monkeypatch.setattr(texts, "train", lambda *a, **k: pytest.fail("trained again"))
    monkeypatch.setattr(texts, "pretrain", lambda *a, **k: pytest.fail("trained for no run that is left"))
    compare.main(command)


def test_logistic_regression_on_tfidf_is_that_of_scikit_learn() -> None:
    corpus = texts.data_of(Job(REVIEWS, "none", 0.0, 0.0, 5e-3, 0, "final", Path()))
    V, C, penalty = len(corpus.vocabulary), len(corpus.classes), 1e-3
    found = counts(corpus.train, V, 12, False)
    theirs = TfidfTransformer(sublinear_tf=True).fit(found)
    x = tfidf.features(found, theirs.idf_)
    assert abs(x - theirs.transform(found)).max() < 1e-12
    w = tfidf.fit(x, corpus.train.labels, C, penalty)
    model = LogisticRegression(C=1 / (penalty * len(corpus.train)), max_iter=5000, tol=1e-10)
    model.fit(x, corpus.train.labels)
    p = softmax(x @ w[:-1] + w[-1], axis=1)
    assert abs(p - model.predict_proba(x)).max() < 1e-3
    assert tfidf.tfidf(corpus, 12)["penalty"] in tfidf.PENALTIES
