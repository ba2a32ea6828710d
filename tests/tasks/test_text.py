"""The two tasks of texts: what a step reads, what its loss is, what is shared, and what an evaluation says."""

import math
import warnings
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

from minadv import layers
from minadv.backend import same_place, to_host
from minadv.base.trees import leaves, tree_add, tree_map
from minadv.data.texts.buckets import Buckets, density, make_batch
from minadv.influence import ZeroInfluenceWarning
from minadv.models.text import TextBatch
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Plain, RDrop, Sum
from minadv.searches import Greedy, Memory, Relax, Reselect
from minadv.tasks.pretrain import task as pretraining
from minadv.tasks.text import reading as readings
from minadv.tasks.text import task as texts
from minadv.training.loop import Recipe, train
from minadv.training.optimizers import Adam
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.workers import Part, Sums, gather, sums
from tests.support.compare import assert_close, assert_same_bits, assert_zero
from tests.support.networks import Watched
from tests.support.text_problems import classifier, corpus, pretrain_task, text_task

ADD = AdD(budgets=2)
EVERY = {
    "none": Plain(),
    "at": AT(norm=0.5),
    "vat": VAT(norm=0.5),
    "vd": VD(p=0.3),
    "el": EL(p=0.3),
    "fd": FD(p=0.3),
    "rdrop": RDrop(p=0.3),
    "last": replace(ADD, sites=("readout",)),
    "add K=1": ADD,
    "add K=2": replace(ADD, search=Greedy(K=2, keep="last")),
    "add+vat": Sum((replace(ADD, search=Greedy(K=2, keep="last")), VAT(norm=0.5))),
    "reselect": replace(ADD, search=Reselect()),
    "paper": AdD(
        budgets=2, search=Greedy(K=2, start="base", keep="last"), share_noise=False, distance="kl", stop_base=True
    ),
}
LABELLED = ("none", "at", "vd")  # those that have no use for unlabelled texts


def in_float64(task: Any) -> tuple[Any, Any]:
    """The task in double precision, and parameters that are large enough for every unit to matter."""
    task = replace(task, dtype="float64")
    rng = np.random.default_rng(3)
    like = task.model.frequencies
    return task, tree_map(lambda a: a + same_place(rng.uniform(-0.5, 0.5, a.shape), like), task.init())


@pytest.mark.parametrize("name", EVERY)
def test_which_texts_a_step_reads(name: str, put: Any) -> None:
    task = text_task(put, EVERY[name])
    term, _ = task.term(task.init(), 1, weight=1.0, carry=None)
    assert len(term.nll) == 6
    assert len(term.value) == (6 if name in LABELLED else 10)
    assert task.units_per_step == len(term.value)
    assert task.per_epoch == 20 // 6
    assert len(text_task(put, EVERY[name], unlabelled_size=0).readings) == 1


@pytest.mark.parametrize("name", ["none", "at", "vd", "el", "fd"])
def test_the_gradient_is_that_of_likelihood_and_mean_over_both(name: str, put: Any) -> None:
    """Central differences of nll.mean() + w value.mean(); of AT along what does not turn its perturbation, the head."""
    task, params = in_float64(text_task(put, EVERY[name]))
    rng, w, step = np.random.default_rng(5), 0.7, 1e-5

    def loss(at: Any) -> float:
        term, _ = task.term(at, 2, weight=w, carry=None)
        return float(term.nll.mean() + w * term.value.mean())

    term, _ = task.term(params, 2, weight=w, carry=None)
    direction = tree_map(lambda a: put(rng.standard_normal(a.shape)), params)
    if name == "at":  # scaled alike, weights and bias of the softmax turn no gradient of a two-class likelihood
        direction = replace(tree_map(lambda a: 0 * a, params), b=params.b, V=params.V)
    slope = sum(float((g * d).sum()) for g, d in zip(tree(term.grads), tree(direction), strict=True))
    moved = [loss(tree_map(lambda a, d, s=s: a + s * d, params, direction)) for s in (step, -step)]
    assert slope == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-5)
    assert abs(slope) > 1e-4


def tree(of: Any) -> list[Any]:
    return [leaf for _, leaf in leaves(of)]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("count", [2, 3])
def test_the_contributions_of_all_parts_are_the_whole(name: str, count: int, put: Any) -> None:
    task, params = in_float64(text_task(put, EVERY[name]))
    whole, _ = task.term(params, 4, weight=0.7, carry=None)
    parts = [task.term(params, 4, weight=0.7, carry=None, part=Part(n, count))[0] for n in range(count)]
    total = None
    for part in parts:
        total = tree_add(total, part.grads)
    assert_close(total, whole.grads, 1e-11)
    said = gather(None, [Sums(float(t.nll.sum()), len(t.nll), float(t.value.sum()), len(t.value), None) for t in parts])
    assert said.nll == pytest.approx(float(whole.nll.mean()), rel=1e-11)
    assert said.value == pytest.approx(float(whole.value.mean()), rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("name", ["last", "add K=1", "add K=2", "add+vat", "reselect", "paper"])
def test_no_influence_map_is_zero(name: str, put: Any) -> None:
    """A zero map would warn; masks are found in every step, and the distance is there to be trained down."""
    task = text_task(put, EVERY[name])
    params = task.init()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ZeroInfluenceWarning)
        for step in range(3):
            term, _ = task.term(params, step, weight=1.0, carry=None)
            site = "readout" if name == "last" else "layer0"
            assert float(abs(term.trace.im[site]).max()) > 0
            assert int(term.trace.flips[site].max()) > 0
            assert float(term.value.max()) > 0


def watched(task: Any) -> tuple[Any, Watched]:
    seen = Watched(task.model)
    object.__setattr__(task, "model", seen)
    return task, seen


@pytest.mark.parametrize("name", ["vat", "el", "fd", "add K=2", "add+vat", "paper"])
def test_what_noise_the_passes_share(name: str, put: Any) -> None:
    """All of it, but where the influence map is to be taken at the base: there the base has a draw of its own."""
    task, seen = watched(text_task(put, EVERY[name], unlabelled_size=0))
    task.term(task.init(), 0, weight=1.0, carry=None)
    drawn = [id(given["noise"]) for given in seen.forward]
    assert len(drawn) >= 2
    if name == "paper":
        assert len(set(drawn)) == 2
        assert drawn.count(drawn[0]) == 1  # the base; probes and the adversarial pass share the other
    else:
        assert len(set(drawn)) == 1


@pytest.mark.parametrize("method", [EL(share_noise=False), FD(share_noise=False)], ids=["el", "fd"])
def test_noise_may_be_drawn_twice(method: Any, put: Any) -> None:
    task, seen = watched(text_task(put, method, unlabelled_size=0))
    task.term(task.init(), 0, weight=1.0, carry=None)
    assert len({id(given["noise"]) for given in seen.forward}) == 2


@pytest.mark.parametrize(("options", "model"), [({}, {}), ({"share_noise": False}, {"embedding_dropout": 0.0})])
def test_a_search_that_would_start_at_a_zero_map_is_refused(options: Any, model: Any, put: Any) -> None:
    add = AdD(budgets=2, search=Greedy(start="base"), **options)
    with pytest.raises(ValueError, match='start is "base" with the same noise in both passes, where the influence map'):
        text_task(put, Sum((add, VAT())), model=model)


def test_bad_tasks(put: Any) -> None:
    of = corpus()
    bad = [
        ({"unlabelled_size": -1}, "unlabelled_size is -1, expected zero or a number of texts"),
        ({"batch_size": 0}, "the batch size is 0, expected 1 to 20"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"model": {"n_classes": 3}}, "n_classes is 3, expected 2, the classes of toy"),
        ({"regularizer": AdD(delta=0.05)}, "delta is 0.05, which allows no flip among H = 10 units"),
    ]
    for options, says in bad:
        with pytest.raises(ValueError, match=says):
            text_task(put, of=of, **options)
    with pytest.raises(ValueError, match="n_words is 5, expected 14, the words of the vocabulary of toy"):
        texts.TextTask(replace(classifier(of), n_words=5, frequencies=None), of)
    with pytest.raises(ValueError, match="frequencies is None"):
        texts.TextTask(replace(classifier(of), frequencies=None), of)
    with pytest.raises(ValueError, match="held_out is 0"):
        pretrain_task(put, of=of, held_out=0)
    with pytest.raises(ValueError, match="expected at least"):
        pretrain_task(put, of=of, batch_size=500)


def test_padding_costs_little() -> None:
    """Batches of texts of 3 to 300 words, in every epoch, and other company for a text in each."""
    task = text_task(lambda a: a, FD(), of=corpus(400, longest=300, unlabelled=200), batch_size=16, unlabelled_size=16)
    for reading in task.readings:
        buckets = reading.buckets
        for epoch in range(2):
            steps = range(epoch * buckets.per_epoch, (epoch + 1) * buckets.per_epoch)
            assert all(1 / density(buckets.steps, buckets.groups(step)) <= 1.3 for step in steps)
            assert sum(len(buckets.groups(step)) for step in steps) <= 1.3 * buckets.per_epoch
        assert buckets.pool < 50
    first, second = ({int(row) for row in task.readings[0].buckets.rows(n)} for n in (0, task.per_epoch))
    assert first != second


@pytest.mark.parametrize("size", [8, 32])
def test_padding_costs_little_where_a_few_texts_are_long(size: int) -> None:
    of = corpus(200, longest=20, unlabelled=100, heavy=True)
    for reading in text_task(lambda a: a, FD(), of=of, batch_size=size, unlabelled_size=size).readings:
        buckets = reading.buckets
        steps = range(2 * buckets.per_epoch)
        assert 1 / density(buckets.steps, [buckets.rows(step) for step in steps]) > 1.3
        assert all(1 / density(buckets.steps, buckets.groups(step)) <= 1.3 for step in steps)


def test_padding_of_a_text_that_the_first_epoch_leaves_out() -> None:
    """One long text among short ones, whichever epoch it comes in."""
    steps = np.full(127, 11)
    steps[5] = 1501
    for seed in range(3):
        buckets = Buckets(steps, 64, seed)
        seen = [5 in buckets.rows(step) for step in range(12)]
        assert any(seen) and not all(seen)
        assert all(1 / density(steps, buckets.groups(step)) <= 1.3 for step in range(12))


HEAVY = corpus(40, longest=6, unlabelled=20, heavy=True)


def in_groups(put: Any, regularizer: Any, **model: Any) -> tuple[Any, Any, int]:
    """A task on texts some of which are much longer than the rest, its parameters, and a step that is cut."""
    task, params = in_float64(text_task(put, regularizer, of=HEAVY, batch_size=12, unlabelled_size=10, model=model))
    [step] = [n for n in range(task.per_epoch) if len(task.readings[0].buckets.groups(n)) > 2][:1]
    return task, params, step


def test_a_step_in_groups_is_that_of_the_whole_batch(put: Any) -> None:
    """The likelihood's gradient is a mean over all texts of the batch, whatever group they are run in."""
    task, params, step = in_groups(put, Plain(), embedding_dropout=0.0)
    term, _ = task.term(params, step, weight=1.0, carry=None)
    rows = task.readings[0].buckets.rows(step)
    whole = texts.text_batch(task.model, HEAVY.train, rows, max_tokens=None)
    expected = Plain()(task.model, params, whole, rng=np.random.default_rng(0), likelihood=1.0)
    assert_close(term.grads, expected.grads, 1e-11)
    assert_close(term.nll, expected.nll, 1e-11)  # rows stand in the order of their length
    assert len(term.value) == 12


@pytest.mark.many_passes
@pytest.mark.parametrize("name", ["fd", "vat", "at", "add K=2", "add+vat"])
@pytest.mark.parametrize("count", [2, 5, 10])
def test_members_share_a_step_in_groups(name: str, count: int, put: Any) -> None:
    """Even where a group has fewer texts than there are members; together they are one process that does it all."""
    task, params, step = in_groups(put, EVERY[name])
    assert min(map(len, task.readings[0].buckets.groups(step))) < 5
    whole, _ = task.term(params, step, weight=0.7, carry=None)
    parts = [task.term(params, step, weight=0.7, carry=None, part=Part(n, count))[0] for n in range(count)]
    total = None
    for part in parts:
        total = tree_add(total, part.grads)
    assert_close(total, whole.grads, 1e-11)
    assert sum(len(part.nll) for part in parts) == 12
    assert sum(len(part.value) for part in parts) == len(whole.value)
    assert sum(float(part.value.sum()) for part in parts) == pytest.approx(float(whole.value.sum()), rel=1e-10)


def test_a_member_may_have_no_text_where_neighbours_stay_together(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of like length, too few to part, are one member's: another may be left without any text."""
    monkeypatch.setattr("minadv.relax.GROUP", 4)
    both = Sum((AdD(budgets=2, search=Relax(borrow=1)), AdD(budgets=2, search=Memory())))
    task, params = in_float64(text_task(put, both, of=HEAVY, batch_size=12, unlabelled_size=0))
    idle = 0
    for step in range(task.per_epoch):
        carry = task.first_carry().recall(task.ids(step), np.random.default_rng(0))
        whole, _ = task.term(params, step, weight=0.7, carry=carry)
        made = [task.term(params, step, weight=0.7, carry=carry, part=Part(n, 3)) for n in range(3)]
        shared = gather(reduce(tree_add, [term.grads for term, _ in made]), [sums(term, rows) for term, rows in made])
        assert_close(shared.grads, whole.grads, 1e-11)
        assert shared.value == pytest.approx(float(whole.value.mean()), rel=1e-10)
        assert sorted(shared.carry.ids) == sorted(task.ids(step))
        idle += sum(len(term.value) == 0 for term, _ in made)
    assert idle


def test_more_members_than_texts_are_refused(put: Any) -> None:
    task, params, step = in_groups(put, Plain())
    with pytest.raises(ValueError, match="a batch of 12 examples cannot be shared by 13 workers"):
        task.term(params, step, weight=1.0, carry=None, part=Part(0, 13))


def test_an_evaluation_is_that_of_the_whole_texts(put: Any) -> None:
    """In batches of like length and pieces of few steps: the same as all texts at once."""
    task, params = in_float64(text_task(put, of=corpus(longest=200)))
    documents = task.corpus.test
    made = make_batch(documents, np.arange(len(documents)))
    batch = put(TextBatch(made.tokens, made.targets, made.valid))
    features, _, _ = task.model.body(params, batch, masks={}, noise=None)
    logits = to_host(task.model.logits(params, features)[-1])
    nll, _ = layers.cross_entropy(logits, made.targets)
    found = task.evaluate(params, "test")
    assert found["loss"] == pytest.approx(float(nll.mean()), rel=1e-12)
    assert found["error"] == 100 * float((logits.argmax(axis=1) != made.targets).mean())
    assert 0 < found["error"] < 100
    pieces = readings.read(task.model, params, documents, max_tokens=None, batch_size=5)
    again = np.concatenate([to_host(part) for _, _, part in pieces])
    order = np.argsort(documents.lengths, kind="stable")
    assert_close(again, logits[order], 1e-12)


def test_the_last_tokens_are_read(put: Any) -> None:
    task, params = in_float64(text_task(put, max_tokens=3))
    assert max(int(one.buckets.steps.max()) for one in task.readings) == 4  # and <eos>
    short = task.evaluate(params, "valid")
    assert short != replace(task, max_tokens=None).evaluate(params, "valid")


def test_pretrained_weights_are_taken_over(put: Any) -> None:
    before = pretrain_task(put, seed=5).init()
    task = text_task(put, encoder=before.encoder)
    assert_same_bits(task.init().encoder, before.encoder)
    assert_same_bits(task.init().W1, text_task(put).init().W1)


def test_the_state_is_carried_from_window_to_window(put: Any) -> None:
    """Two steps leave the state of one pass over both windows; an epoch begins with the zero state."""
    task, params = in_float64(pretrain_task(put, model={"embedding_dropout": 0.0}))
    assert task.per_epoch >= 3
    carry = task.first_carry()
    assert_zero(carry)
    for step in (0, 1):
        _, carry = task.term(params, step, weight=0.0, carry=carry)
    both = [task.streams.window(step) for step in (0, 1)]
    tokens, targets = (np.concatenate([window[n] for window in both]) for n in (0, 1))
    batch = pretraining.lm_batch(task.model, tokens, targets)
    _, state, _ = task.model.body(params, batch, masks={}, noise=None)
    assert_close(carry, state, 1e-12)
    anew, _ = task.term(params, task.per_epoch, weight=0.0, carry=carry)
    same, _ = task.term(params, task.per_epoch, weight=0.0, carry=task.first_carry())
    assert_same_bits(anew.grads, same.grads)
    other, _ = task.term(params, 2, weight=0.0, carry=carry)
    assert float(abs(other.nll - task.term(params, 2, weight=0.0, carry=task.first_carry())[0].nll).max()) > 1e-6


@pytest.mark.parametrize("count", [2, 3])
def test_the_parts_of_a_window_are_the_whole(count: int, put: Any) -> None:
    task, params = in_float64(pretrain_task(put))
    _, carry = task.term(params, 0, weight=0.0, carry=task.first_carry())
    whole, after = task.term(params, 1, weight=0.0, carry=carry)
    made = [task.term(params, 1, weight=0.0, carry=carry, part=Part(n, count)) for n in range(count)]
    total = None
    for part, _ in made:
        total = tree_add(total, part.grads)
    assert_close(total, whole.grads, 1e-11)
    said = gather(None, [Sums(float(t.nll.sum()), len(t.nll), 0.0, 0, own) for t, own in made])
    assert_close(said.carry, after, 1e-12)
    assert said.nll == pytest.approx(float(whole.nll.mean()), rel=1e-11)


def test_a_language_model_learns_from_training_and_unlabelled_texts_alone(put: Any) -> None:
    task = pretrain_task(put)
    of = task.corpus
    read, joined = task.streams.documents, of.train.join(of.unlabelled)
    np.testing.assert_array_equal(read.starts, joined.starts)
    np.testing.assert_array_equal(read.lengths, joined.lengths)
    held_out = {*of.valid.starts.tolist(), *of.test.starts.tolist()}
    assert not held_out & set(read.starts.tolist())


def test_an_evaluation_takes_the_whole_vocabulary(put: Any) -> None:
    task, params = in_float64(pretrain_task(put))
    valid = task.corpus.valid
    streams = pretraining.Streams(valid, 1, 10_000, None, partial=True)
    tokens, targets = streams.window(0)
    features, _, _ = task.model.body(params, pretraining.lm_batch(task.model, tokens, targets), masks={}, noise=None)
    logits = to_host(task.model.logits(params, features))
    nll = -np.take_along_axis(layers.log_softmax(logits), targets[..., None], axis=-1)
    found = pretraining.evaluate(task.model, params, valid, tokens=10_000, batch_size=1)
    assert found["loss"] == pytest.approx(float(nll.mean()), rel=1e-11)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    fewer = pretraining.evaluate(task.model, params, valid, tokens=10, batch_size=1)
    assert fewer["loss"] != found["loss"]


@pytest.mark.parametrize("make", [text_task, pretrain_task])
def test_two_workers_train_as_one_process_does(make: Any, put: Any, device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("worker processes are for the host")
    task = make(put, **({"regularizer": EVERY["add+vat"]} if make is text_task else {}))
    recipe = Recipe(steps=5, monitor="loss")
    alone, _ = train(task, recipe)
    workers = ProcessWorkers(task, 2, task.init())
    try:
        shared, _ = train(task, recipe, workers=workers)
    finally:
        workers.close()
    assert_close(shared.params, alone.params, 1e-4)
    assert_close(shared.carry, alone.carry, 1e-4)
    assert shared.best_score == pytest.approx(alone.best_score, rel=1e-4)


@pytest.mark.parametrize(("make", "most"), [(text_task, 0.5), (pretrain_task, 0.95)])
def test_it_learns(make: Any, most: float, put: Any, device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("too long where every kernel is compiled")
    task = make(put)
    _, records = train(task, Recipe(steps=60, eval_every=30, optimizer=Adam(1e-2), monitor="loss"))
    before = task.evaluate(task.init(), "valid")
    assert records[-1]["valid_loss"] < most * before["loss"]


def test_how_heavy_a_step_is(put: Any, device: Any) -> None:
    for task in (text_task(put, EVERY["fd"]), pretrain_task(put)):
        load = task.load
        assert load.weights == 4 * 10 * 10 * 4
        assert load.examples == 4
        assert load.products > 4 * 10 * 16 * 20
        assert load.on_gpu == (device.name == "gpu")
