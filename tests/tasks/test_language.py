"""The task of a language model: windows with a carried state, what passes share, parts of a batch, perplexity."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.errors import DataError
from minadv.base.trees import tree_add, tree_map
from minadv.data.language.windows import Windows
from minadv.distances import by_name
from minadv.models.language.model import TokenBatch
from minadv.models.language.reading import read
from minadv.regularizers import EL, AdD
from minadv.searches import Exact, Greedy
from minadv.tasks.language.task import LanguageTask, Seen, evaluate
from minadv.training.clip import Clip
from minadv.training.loop import Recipe, train
from minadv.training.optimizers import ASGD, SGD
from minadv.training.parallel.processes import ProcessWorkers
from minadv.training.parallel.workers import Part
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_runs import NOISY, REGULARIZERS, SECOND, corpus, model, task
from tests.support.networks import Watched

pytestmark = pytest.mark.filterwarnings("ignore::minadv.searches.SmallBudgetWarning")


def term(toy: Any, params: Any, step: int, carry: Any = None, **given: Any) -> Any:
    carry = toy.first_carry() if carry is None else carry
    return toy.term(params, step, weight=0.7, carry=carry, **given)


def test_the_state_is_carried_from_window_to_window(put: Any) -> None:
    """Without noise, the windows of an epoch one after the other are one long reading of every column."""
    toy = task(put, noise={})
    params, windows = toy.init(), Windows(toy.train, 4, 7, 0)
    total, carry = 0.0, toy.first_carry()
    for step in range(toy.per_epoch):
        found, carry = term(toy, params, step, carry)
        total += float(found.nll.sum()) * windows.window(step).x.shape[0]
    tokens = to_host(toy.train)
    streams = np.stack([tokens[b * windows.length : (b + 1) * windows.length + 1] for b in range(4)], axis=1)
    assert total == pytest.approx(read(toy.model, to_host(params), streams).nll, rel=1e-10)
    fresh, _ = term(toy, params, toy.per_epoch)
    stale, _ = term(toy, params, toy.per_epoch, carry)
    assert_same_bits(fresh.grads, stale.grads)  # an epoch begins with a state of zeros, whatever was carried
    other, _ = term(toy, params, 1)
    again, _ = term(toy, params, 1, carry)
    assert abs(to_host(other.nll) - to_host(again.nll)).max() > 1e-4


def test_the_rate_is_the_length_of_the_window(put: Any) -> None:
    toy = task(put)
    lengths = [len(Windows(toy.train, 4, 7, 0).window(step).x) for step in range(toy.per_epoch)]
    assert len(set(lengths)) > 1
    assert [7 * toy.rate(step) for step in range(toy.per_epoch)] == pytest.approx(lengths)
    assert toy.units_per_step == round(4 * sum(lengths) / len(lengths))
    assert replace(toy, random_lengths=False).rate(0) == 1


@pytest.mark.parametrize("name", REGULARIZERS)
def test_a_step_depends_on_its_number_alone(name: str, put: Any) -> None:
    toy = task(put, REGULARIZERS[name], every=2)
    params = toy.init()
    in_turn = [term(toy, params, step)[0] for step in range(4)]
    again, _ = term(task(put, REGULARIZERS[name], every=2), params, 3)
    assert_same_bits(again.grads, in_turn[3].grads)
    assert_same_bits(again.value, in_turn[3].value)


@pytest.mark.parametrize("name", REGULARIZERS)
@pytest.mark.parametrize("count", [2, 3])
def test_the_contributions_of_all_parts_are_the_whole(name: str, count: int, put: Any) -> None:
    toy = task(put, REGULARIZERS[name], every=2)
    params = toy.init()
    _, carry = term(toy, params, 0)
    whole, after = term(toy, params, 1, carry)
    parts = [term(toy, params, 1, carry, part=Part(n, count)) for n in range(count)]
    total = None
    for found, _ in parts:
        total = tree_add(total, found.grads)
    assert_close(total, whole.grads, 1e-11)
    rows = [tree_map(to_host, state) for _, state in parts]
    assert_close(tree_map(lambda *leaves: np.concatenate(leaves), rows[0], *rows[1:]), after, 1e-11)
    shares = [np.concatenate([to_host(getattr(t, what)) for t, _ in parts]) for what in ("nll", "value")]
    assert_close(shares, [whole.nll, whole.value], 1e-11)


def differing(noise: Any, other: Any) -> set[str]:
    """The parts in which two records of noise are not the same."""

    def differ(one: Any, two: Any) -> bool:
        pairs = zip(one, two, strict=True) if isinstance(one, tuple) else [(one, two)]
        return any((to_host(a) != to_host(b)).any() for a, b in pairs)

    return {part for part in ("words", "inputs", "outputs", "U") if differ(getattr(noise, part), getattr(other, part))}


@pytest.mark.parametrize("fresh", [("words",), ("words", "inputs", "outputs", "U"), ("U",)])
def test_what_the_second_pass_draws_anew(fresh: tuple[str, ...], put: Any) -> None:
    toy = task(put, AdD(budgets=2, **SECOND), fresh=fresh)
    watched = Watched(toy.model)
    term(replace(toy, model=watched), toy.init(), 1)  # type: ignore[arg-type]
    base, probe, adversarial = (given["noise"] for given in watched.forward)
    assert differing(base, probe) == set(fresh)
    assert differing(probe, adversarial) == set()


def test_shared_noise(put: Any) -> None:
    toy = task(put, EL(p=0.3))
    watched = Watched(toy.model)
    term(replace(toy, model=watched), toy.init(), 1)  # type: ignore[arg-type]
    assert differing(*(given["noise"] for given in watched.forward)) == set()


@pytest.mark.parametrize("distance", ["js", "logit2"])
@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("weighed", [None, (8,), (8, 3)])
def test_every_nth_step_is_unbiased(
    distance: str, stop: bool, weighed: Any, put: Any, rng: np.random.Generator
) -> None:
    """The mean over the first steps is the whole distance, with its gradients, for T = 8 that n = 3 does not divide."""
    toy = task(put)
    T, B, n = 8, 3, 3
    params, features = toy.init(), [put(rng.standard_normal((T, B, 2 * 5))) for _ in range(2)]  # raw outputs beside
    lam = None if weighed is None else put(rng.random(weighed))
    how = {"stop_base": stop}
    full = toy.model.compare(params, *features, lam, by_name(distance), **how)
    mean = None
    for first in range(n):
        thin = Seen(toy.model, None, (), first, n).compare(params, *features, lam, by_name(distance), **how)
        others = [t for t in range(T) if t % n != first]
        assert float(abs(thin.dfeatures1[others]).max()) == 0 < float(abs(thin.dfeatures1[first::n]).min(axis=1).max())
        parts = (thin.d, thin.dfeatures0, thin.dfeatures1, thin.params)
        mean = tree_add(mean, tree_map(lambda a: a / n, parts))
    assert_close(mean, (full.d, full.dfeatures0, full.dfeatures1, full.params), 1e-12)


@pytest.mark.many_passes
def test_of_a_search_every_nth_step_is_more(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """EL's mean over the first steps is its whole value; the mean of AdD's maxima is above the maximum of a mean."""
    n, found = 3, {}
    for name, regularizer in {"EL": EL(p=0.3), "AdD": AdD(budgets=1, search=Exact())}.items():
        toy = task(put, regularizer, random_lengths=False)
        params, thin = tree_map(lambda a: 4 * a, toy.init()), []
        for first in range(n):
            monkeypatch.setattr(LanguageTask, "_first", lambda self, step, every, first=first: first)
            thin.append(float(term(replace(toy, every=n), params, 1)[0].value.mean()))
        found[name] = sum(thin) / n / float(term(toy, params, 1)[0].value.mean())
    assert found["EL"] == pytest.approx(1, rel=1e-6)
    assert found["AdD"] > 1.001


@pytest.mark.parametrize("every", [3, 100])
def test_the_first_step_is_any_of_them(every: int, put: Any) -> None:
    """Over the steps of training every first step occurs; a window shorter than n is never without a step."""
    toy = task(put, EL(p=0.3), every=every, random_lengths=False)
    watched: list[tuple[int, int, int]] = []

    class Watching(Seen):
        def compare(self, params: Any, features0: Any, *given: Any, **how: Any) -> Any:
            watched.append((self.first, self.every, len(features0)))
            return super().compare(params, features0, *given, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minadv.tasks.language.task.Seen", Watching)
        params = toy.init()
        for step in range(60):
            term(toy, params, step)
    assert [n for _, n, _ in watched] == [min(every, T) for _, _, T in watched]
    assert {first for first, _, _ in watched} == set(range(min(every, toy.bptt)))
    assert all(first < n for first, n, _ in watched)


def test_penalties_are_in_the_gradient_only(put: Any) -> None:
    plain, penal = task(put, noise=NOISY), task(put, noise={**NOISY, "alpha": 2.0, "beta": 1.0})
    params = plain.init()
    one, two = term(plain, params, 1)[0], term(penal, params, 1)[0]
    assert_close(one.nll, two.nll, 1e-12)
    assert float(abs(one.grads.E - two.grads.E).max()) > 1e-4


@pytest.mark.parametrize("columns", [1, 4, 7])
def test_evaluate(columns: int, put: Any) -> None:
    """Every word but the first is predicted once: 53 of them, which is no multiple of 4 or 7."""
    toy = task(put, columns=columns)
    params, tokens = toy.init(), toy.valid
    found = toy.evaluate(params, "valid")
    nll, n = 0.0, 0
    steps, longer = divmod(len(tokens) - 1, columns)
    for first, last in pairwise([b * steps + min(b, longer) for b in range(columns + 1)]):
        features, _, _ = toy.model.body(params, TokenBatch(tokens[first:last, None]), masks={}, noise=None)
        nll += float(toy.model.nll(params, features, tokens[first + 1 : last + 1, None]).sum())
        n += last - first
    assert n == len(tokens) - 1 == 53
    assert found == {"loss": pytest.approx(nll / n), "perplexity": pytest.approx(math.exp(nll / n))}
    assert toy.evaluate(params, "test")["loss"] != found["loss"]


@pytest.mark.parametrize("columns", [1, 4, 7])
def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(columns: int, put: Any) -> None:
    toy = task(put)
    V, nothing = toy.model.n_words, tree_map(lambda a: 0 * a, toy.init())
    found = evaluate(toy.model, nothing, toy.test, columns=columns)
    assert abs(found["loss"] - math.log(V)) <= math.ulp(math.log(V))
    assert found["perplexity"] == pytest.approx(V, rel=3e-15)


def test_host_and_device_train_alike(put: Any) -> None:
    """Same windows and masks on either; weights that differ by rounding only."""
    recipe = Recipe(steps=9, optimizer=ASGD(2.0, 1e-3, interval=1), clip=Clip(0.25), eval_every=2, monitor="loss")
    regularizer = AdD(budgets=2, **SECOND)
    here, there = (train(task(where, regularizer), recipe)[0] for where in (lambda a: a, put))
    assert_close(there, here, 1e-9)
    assert here.optimizer.started


@pytest.mark.parametrize("name", ["FD", "AdD"])
def test_workers_train_as_one_process_does(name: str, put: Any, device: Any) -> None:
    if device.name != "cpu":
        pytest.skip("worker processes are for the host")
    toy = task(put, REGULARIZERS[name])
    recipe = Recipe(steps=7, optimizer=SGD(2.0), clip=Clip(0.25), monitor="loss")
    alone, _ = train(toy, recipe)
    workers = ProcessWorkers(toy, 2, toy.init())
    try:
        both, _ = train(toy, recipe, workers=workers)
    finally:
        workers.close()
    assert_close(both.params, alone.params, 1e-9)
    assert_close(both.carry, alone.carry, 1e-9)


def test_the_load_of_a_step(put: Any) -> None:
    toy = task(put)
    V = toy.model.n_words
    each = 4 * 6 * (5 + 6) + 4 * 5 * (6 + 5) + V * 5
    assert toy.load.products == toy.units_per_step * each
    assert (toy.load.weights, toy.load.examples) == (4 * 6 * 6 * 8, 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"every": 0}, "every is 0, expected 1 or more"),
        ({"columns": 0}, "columns is 0, expected 1 or more"),
        ({"columns": 54}, r"valid is too short: it has 54 tokens, expected at least 55, .* \(--eval-columns\)"),
        ({"fresh": ("gates",)}, "fresh is .*, expected parts of the noise, some of words, inputs, outputs, U"),
        (
            {"batch_size": 360},
            r"train is too short: it has 360 tokens, expected at least 361, .* batch_size \(--batch\)",
        ),
        ({"bptt": 0}, "length of a window is 0"),
        ({"bptt": 10**9}, "bptt is 1,000,000,000, expected at most"),
        ({"seed": -1}, "seed is -1"),
        ({"regularizer": AdD(budgets=7)}, "budgets of layer0 is 7, expected a number of flips from 1 to H = 6"),
        ({"regularizer": AdD(delta=0.1)}, "delta is 0.1, which allows no flip among H = 6 units"),
        ({"regularizer": AdD(budgets=2, sites=("layer9",))}, "expected a tuple of names among"),
        (
            {"regularizer": AdD(budgets=2, search=Greedy(start="base", keep="last"))},
            'start is "base", which needs noise that differs',
        ),
        ({"regularizer": AdD(budgets=2, **SECOND), "fresh": ()}, 'start is "base", which needs noise that differs'),
    ],
)
def test_bad_tasks(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        task(lambda a: a, options.pop("regularizer", None), **options)


def test_a_text_of_another_vocabulary(put: Any) -> None:
    text = corpus()
    with pytest.raises(ValueError, match="expected"):
        LanguageTask(replace(model(text), n_words=3), put(text.train), put(text.valid), put(text.test))


def test_a_short_text_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError, match="train is too short"):
        task(lambda a: a, batch_size=400)
