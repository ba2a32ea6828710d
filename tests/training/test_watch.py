"""The strength of training's adversary in the log: its distance over that of a stronger search, at the same weights."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from minadv.base.trees import tree_map
from minadv.regularizers import VAT, VD, AdD, Sum
from minadv.searches import Exact, Greedy, Memory, Random, Relax
from minadv.tasks.images.task import Classify
from minadv.training import watch
from minadv.training.loop import Recipe, train
from minadv.training.memory import Recall
from tests.support.compare import assert_same_bits
from tests.support.problems import task


@pytest.mark.many_passes
@pytest.mark.parametrize("search", [Greedy(K=2, keep="last"), Memory()], ids=lambda s: s.name)
def test_every_second_evaluation_says_it(search: Any, put: Any) -> None:
    toy = task(put, AdD(budgets=2, search=search))
    watched, records = train(toy, Recipe(steps=12, eval_every=2, watch_adversary=2))
    assert ["adversary" in record for record in records] == [False, True] * 3
    for record in records[1::2]:
        said = record["adversary"]
        assert 0 < said["share"] <= 1
        assert said["share"] == pytest.approx(said["d"] / said["strong"])
    plain, _ = train(toy, Recipe(steps=12, eval_every=2))
    assert_same_bits((watched.params, watched.carry), (plain.params, plain.carry))  # looking on changes nothing


def test_every_third_evaluation_says_it(put: Any) -> None:
    _, records = train(task(put, AdD(budgets=2)), Recipe(steps=4, eval_every=1, watch_adversary=3))
    assert ["adversary" in record for record in records] == [False, False, True, False]


def test_it_is_what_the_next_step_would_find(put: Any) -> None:
    toy = task(put, AdD(budgets=2, search=Greedy(keep="last")), dtype=np.float64)
    params = toy.init()
    said = watch.adversary(toy, params, None, 3)
    term, _ = toy.term(params, 3, weight=1.0, carry=None)
    assert said["d"] == pytest.approx(float(term.value.mean()))  # the batch of 10 is looked at whole
    assert said["strong"] > said["d"]


def test_both_searches_look_at_the_same_examples(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EXAMPLES", 16)
    toy = replace(task(put, AdD(budgets=2, search=Greedy(keep="last")), dtype=np.float64), batch_size=40)
    params = toy.init()
    said = watch.adversary(toy, params, None, 0)  # half of 40, in whole groups of neighbours: 16
    own, _ = toy.term(params, 0, weight=1.0, carry=None)
    strong, _ = replace(toy, regularizer=AdD(budgets=2, search=watch.STRONG)).term(params, 0, weight=1.0, carry=None)
    assert said["d"] == pytest.approx(float(own.value[:16].mean()))
    assert said["strong"] == pytest.approx(float(strong.value[:16].mean()))


def test_shares_of_earlier_runs_go_on_meaning_the_same(put: Any) -> None:
    """They are shares of what one search finds, of about as many examples."""
    assert Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4) == watch.STRONG
    assert watch.EXAMPLES == 32
    toy = task(put, AdD(budgets=2, search=watch.STRONG))
    term, _ = toy.term(toy.init(), 0, weight=1.0, carry=None)
    assert (term.trace.passes.forward, term.trace.passes.backward) == (12, 5)


@dataclass(frozen=True)
class Noted(Classify):
    """A task that notes what of its carry a step is handed."""

    seen: list[Any] = field(default_factory=list)

    def term(self, params: Any, step: int, *, carry: Any, **given: Any) -> Any:
        self.seen.append(carry)
        return super().term(params, step, carry=carry if isinstance(carry, Recall) else None, **given)


def test_the_stronger_search_begins_where_the_step_does_and_remembers_nothing(put: Any) -> None:
    toy = Noted(**vars(task(put, AdD(budgets=2))))
    watch.adversary(toy, toy.init(), "a state", 0)
    assert toy.seen == ["a state", "a state"]
    toy = Noted(**vars(task(put, AdD(budgets=2, search=Memory()))))
    watch.adversary(toy, toy.init(), toy.first_carry(), 0)
    assert [type(carry) for carry in toy.seen] == [Recall, type(None)]


@pytest.mark.filterwarnings("ignore::minadv.influence.ZeroInfluenceWarning")
def test_where_nothing_can_be_found_nothing_is_missed(put: Any) -> None:
    toy = task(put, AdD(budgets=2))
    params = tree_map(lambda a: a * 0, toy.init())
    assert watch.adversary(toy, params, None, 0) == {"d": 0, "strong": 0, "share": 1}


def test_a_search_that_finds_everything_has_a_share_of_one(put: Any) -> None:
    toy = task(put, AdD(budgets=2, search=Exact()), dtype=np.float64)
    said = watch.adversary(toy, toy.init(), None, 0)
    assert said["share"] == 1
    weak = watch.adversary(task(put, AdD(budgets=2, search=Random()), dtype=np.float64), toy.init(), None, 0)
    assert weak["share"] < 0.9


def test_the_adversary_of_a_sum_is_watched() -> None:
    stronger = watch.with_search(Sum((AdD(budgets=2), VAT())), watch.STRONG)
    assert isinstance(stronger, Sum)
    assert stronger.parts == (AdD(budgets=2, search=watch.STRONG), VAT())


def test_there_must_be_an_adversary(put: Any) -> None:
    with pytest.raises(ValueError, match=r"^watch_adversary: VD\(.*\) has no adversary, expected AdD"):
        train(task(put, VD()), Recipe(steps=2, watch_adversary=1))
    with pytest.raises(ValueError, match=r"^watch_adversary is 0, expected"):
        Recipe(steps=2, watch_adversary=0)
