"""The searches as records: what they refuse, how they are told apart and named, and which of them draw."""

import dataclasses

import numpy as np
import pytest

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.objective import Visit
from minadv.regularizers import AdD
from minadv.searches import SEARCHES, Exact, Greedy, Memory, Random, Relax, Reselect, _swapped, by_name
from tests.support.compare import assert_same_bits
from tests.support.networks import Untouchable, network
from tests.support.searching import bare

LAST = 'keep="last" scores no mask, which {} would need: expected runner_up=False, borrow=0 and swaps=0$'
WRONG = {
    "K": (Greedy, {"K": 0}, r"K is 0, expected a whole number of at least 1"),
    "K not whole": (Greedy, {"K": 1.5}, r"K is 1\.5, expected a whole number of at least 1"),
    "K true": (Greedy, {"K": True}, r"K is True, expected a whole number of at least 1"),
    "rule": (Greedy, {"rule": "loose"}, r"rule is 'loose', expected one of 'strict', 'paper', 'authors'"),
    "norm": (Greedy, {"rule": "paper", "norm": "l3"}, r"norm is 'l3', expected one of 'count', 'l2'"),
    "variant": (Greedy, {"rule": "authors", "variant": "mt"}, r"variant is 'mt', expected one of 'smnist', 'text'"),
    "allow_unflip": (Greedy, {"allow_unflip": "no"}, r"allow_unflip is 'no', expected one of True, False"),
    "norm elsewhere": (Greedy, {"norm": "l2"}, r'norm is \'l2\', which rule="paper" takes, and rule is "strict"'),
    "variant elsewhere": (
        *(Greedy, {"rule": "paper", "variant": "text"}),
        r'variant is \'text\', which rule="authors" takes, and rule is "paper"',
    ),
    "allow_unflip elsewhere": (
        *(Greedy, {"rule": "authors", "allow_unflip": False}),
        r'allow_unflip is False, which rule="strict" takes, and rule is "authors"',
    ),
    "start": (Greedy, {"start": "zero"}, r"start is 'zero', expected one of 'flip', 'base'"),
    "keep": (Greedy, {"keep": "first"}, r"keep is 'first', expected one of 'best', 'last'"),
    "reselect, K": (Reselect, {"K": 0}, r"K is 0, expected a whole number of at least 1"),
    "reselect, K not whole": (Reselect, {"K": 2.0}, r"K is 2\.0, expected a whole number of at least 1"),
    "swaps": (Reselect, {"swaps": -1}, r"swaps is -1, expected a whole number of at least 0"),
    "swaps not whole": (Reselect, {"swaps": 0.5}, r"swaps is 0\.5, expected a whole number of at least 0"),
    "reselect, start": (Reselect, {"start": "zero"}, r"start is 'zero', expected one of 'flip', 'base'"),
    "stages, a list": (Relax, {"stages": [2]}, r"stages is \[2\], expected a tuple of whole numbers, such as \(2,\)"),
    "stages, a number": (Relax, {"stages": 2}, r"stages is 2, expected a tuple of whole numbers, such as \(2,\)"),
    "stages, zero": (Relax, {"stages": (2, 0)}, r"stages\[1\] is 0, expected a whole number of at least 1"),
    "stages, below 0": (Relax, {"stages": (-2,)}, r"stages\[0\] is -2, expected a whole number of at least 1"),
    "stages not whole": (Relax, {"stages": (1.5,)}, r"stages\[0\] is 1\.5, expected a whole number of at least 1"),
    "stages true": (Relax, {"stages": (True,)}, r"stages\[0\] is True, expected a whole number of at least 1"),
    "stages, text": (Relax, {"stages": ("2",)}, r"stages\[0\] is '2', expected a whole number of at least 1"),
    "relax, reselect": (Relax, {"reselect": -1}, r"reselect is -1, expected a whole number of at least 0"),
    "relax, reselect true": (Relax, {"reselect": True}, r"reselect is True, expected a whole number of at least 0"),
    "runner_up": (Relax, {"runner_up": "no"}, r"runner_up is 'no', expected one of True, False"),
    "runner_up, a number": (Relax, {"runner_up": 1}, r"runner_up is 1, expected one of True, False"),
    "borrow": (Relax, {"borrow": -1}, r"borrow is -1, expected a whole number of at least 0"),
    "borrow not whole": (Relax, {"borrow": 0.5}, r"borrow is 0\.5, expected a whole number of at least 0"),
    "relax, swaps": (Relax, {"swaps": -3}, r"swaps is -3, expected a whole number of at least 0"),
    "relax, swaps false": (Relax, {"swaps": False}, r"swaps is False, expected a whole number of at least 0"),
    "relax, keep": (Relax, {"runner_up": False, "keep": "first"}, r"keep is 'first', expected one of 'best', 'last'"),
    "relax, last and runner-up": (Relax, {"keep": "last"}, LAST.format("runner_up=True")),
    "relax, last and borrow": (Relax, {"runner_up": False, "borrow": 2, "keep": "last"}, LAST.format("borrow=2")),
    "relax, last and all": (
        *(Relax, {"borrow": 1, "swaps": 3, "keep": "last"}),
        LAST.format("runner_up=True, borrow=1, swaps=3"),
    ),
    "fresh": (Memory, {"fresh": -1}, r"fresh is -1, expected a whole number of at least 0"),
    "fresh true": (Memory, {"fresh": True}, r"fresh is True, expected a whole number of at least 0"),
    "stage": (Memory, {"stage": 0}, r"stage is 0, expected a whole number of at least 1"),
    "stage, a tuple": (Memory, {"stage": (2,)}, r"stage is \(2,\), expected a whole number of at least 1"),
    "memory, tries": (Memory, {"tries": -1}, r"tries is -1, expected a whole number of at least 0"),
    "memory, tries not whole": (Memory, {"tries": 1.5}, r"tries is 1\.5, expected a whole number of at least 0"),
    "max_masks": (Exact, {"max_masks": 0}, r"max_masks is 0, expected a whole number of at least 1"),
    "max_masks not whole": (Exact, {"max_masks": 1e5}, r"max_masks is 100000\.0, expected a whole number"),
    "tries": (Random, {"tries": 0}, r"tries is 0, expected a whole number of at least 1"),
    "tries not a number": (Random, {"tries": "5"}, r"tries is '5', expected a whole number of at least 1"),
}
NOT_ITS_OWN = [
    (Greedy, "swaps", 2),
    (Greedy, "tries", 2),
    (Reselect, "rule", "paper"),
    (Reselect, "keep", "last"),
    (Relax, "start", "base"),
    (Relax, "K", 2),
    (Memory, "stages", (2,)),
    (Memory, "borrow", 1),
    (Exact, "K", 2),
    (Random, "start", "base"),
]
EVERY = [
    Greedy(K=3, rule="paper", norm="l2", start="base", keep="last"),
    Greedy(rule="authors", variant="text"),
    Greedy(allow_unflip=False),
    Reselect(K=3, swaps=2, start="base"),
    Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4),
    Relax(runner_up=False, keep="last"),
    Memory(fresh=0, stage=3, tries=2),
    Exact(max_masks=100),
    Random(tries=7),
    *(kind() for kind in SEARCHES.values()),
]
every_record = pytest.mark.parametrize("search", EVERY, ids=repr)


@pytest.mark.parametrize(("kind", "given", "message"), WRONG.values(), ids=WRONG)
def test_a_record_refuses(kind, given, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        kind(**given)


def test_every_option_of_every_search_is_refused_above():
    options = {(kind, field.name) for kind in SEARCHES.values() for field in dataclasses.fields(kind)}
    assert options == {(kind, list(given)[-1]) for kind, given, _ in WRONG.values()}


@pytest.mark.parametrize(("kind", "option", "value"), NOT_ITS_OWN)
def test_an_option_of_another_search_cannot_be_given(kind, option, value, rng, put):
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{option}'"):
        kind(**{option: value})
    model, params, batch = network(rng, put)
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{option}'"):
        find_adversary(Untouchable(model), params, batch, rng=rng, budgets=2, **{option: value})
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{option}'"):
        AdD(budgets=2, **{option: value})


@pytest.mark.parametrize("given", ["greedy", "reselect", "beam", None, Greedy], ids=str)
def test_a_search_is_a_record(given, rng, put):
    model, params, batch = network(rng, put)
    for start in (
        lambda: find_adversary(Untouchable(model), params, batch, rng=rng, budgets=2, search=given),
        lambda: AdD(budgets=2, search=given),
    ):
        with pytest.raises(TypeError) as caught:
            start()
        expected = f"search is {given!r}, expected a record such as Greedy(K=2) or minadv.searches.Reselect()"
        assert str(caught.value) == expected


@every_record
def test_records_are_told_apart_by_what_they_hold(search):
    again = dataclasses.replace(search)
    assert (again, hash(again), repr(again)) == (search, hash(search), repr(search))
    assert eval(repr(search)) == search
    assert search in {again}
    assert [other for other in EVERY if other == search] == [search]
    with pytest.raises(dataclasses.FrozenInstanceError):
        search.K = 5


def test_a_record_says_all_that_it_holds():
    assert repr(Memory()) == "Memory(fresh=2, stage=2, tries=1)"
    assert repr(Relax()) == "Relax(stages=(2,), reselect=0, runner_up=True, borrow=0, swaps=0, keep='best')"
    assert (repr(Random()), repr(Exact())) == ("Random(tries=1)", "Exact(max_masks=200000)")
    assert repr(Reselect(swaps=3)) == "Reselect(K=2, swaps=3, start='flip')"
    assert repr(Greedy()) == (
        "Greedy(K=1, rule='strict', norm=None, variant=None, allow_unflip=None, start='flip', keep='best')"
    )


def test_the_defaults_of_the_search_and_of_the_regularizer(rng, put):
    assert find_adversary(*network(rng, put), rng=rng, budgets=2).search == Greedy(keep="best")
    assert AdD().search == Greedy(keep="last")


@every_record
def test_every_search_has_a_name(search):
    held = {field.name: getattr(search, field.name) for field in dataclasses.fields(search)}
    assert by_name(search.name, **held) == search
    assert type(by_name(search.name)) is SEARCHES[search.name] is type(search)
    assert by_name(search.name) == type(search)()


def test_a_search_by_its_name_leaves_out_what_it_does_not_have():
    steps, own = {"adv_steps": 3, "init": "base", "keep": "last"}, {"swaps": 1, "tries": 4, "max_masks": 50}
    command_line = {**steps, **own, "rule": "strict", "norm": None, "allow_unflip": None}
    assert by_name("greedy", **command_line) == Greedy(K=3, start="base", keep="last")
    assert by_name("reselect", **command_line) == Reselect(K=3, swaps=1, start="base")
    assert by_name("exact", **command_line) == Exact(max_masks=50)
    assert by_name("random", **command_line) == Random(tries=4)
    assert by_name("relax", **{**command_line, "keep": "best"}) == Relax(swaps=1)
    assert by_name("relax", stages=(4, 2), borrow=3, runner_up=False) == Relax((4, 2), runner_up=False, borrow=3)
    assert by_name("memory", **command_line) == Memory(tries=4)
    assert by_name("memory", fresh=0, stage=None) == Memory(fresh=0)
    assert by_name("reselect", adv_steps=None, swaps=None, init=None) == Reselect()
    names = ", ".join(map(repr, ("greedy", "reselect", "relax", "memory", "exact", "random")))
    with pytest.raises(ValueError, match=rf"search is 'beam', expected one of {names}$"):
        by_name("beam")
    with pytest.raises(ValueError, match=LAST.format("runner_up=True")):
        by_name("relax", keep="last")
    with pytest.raises(ValueError, match=r"K is 0, expected a whole number of at least 1"):
        by_name("reselect", adv_steps=0)


def noisy(rng, put):
    model, params, batch = network(rng, put, I=8, input_dropout=0.5)
    return (model, params, batch), {"noise": model.noise(rng, batch), "adv_noise": model.noise(rng, batch)}


@pytest.mark.parametrize(
    "search", [Exact(), Greedy(K=2, start="base"), Reselect(start="base"), Relax(), Memory()], ids=repr
)
def test_a_search_that_draws_nothing_needs_no_generator(search, rng, put):
    net, noises = noisy(rng, put)
    one, two = (find_adversary(*net, budgets=2, search=search, **noises, **given) for given in ({}, {"rng": rng}))
    assert_same_bits((one.eps, one.d, one.im), (two.eps, two.d, two.im))


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (
            Greedy(),
            r'^rng is None, and Greedy\(K=1.*\) draws its start: give a .*Generator, or start="base"',
        ),
        (Reselect(), r"^rng is None, and Reselect\(K=2.*\) draws its start: give a numpy.random.Generator"),
        (Random(), r"^rng is None, and a random search draws its masks: give a numpy.random.Generator"),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_search_that_draws_needs_a_generator(search, message, rng, put):
    net, noises = noisy(rng, put)
    with pytest.raises(ValueError, match=message):
        find_adversary(*net, budgets=2, search=search, **noises)


@every_record
def test_a_search_leaves_the_generator_where_its_draws_end(search, rng, put):
    """What is drawn after a search depends on how the search draws, and not on what it finds."""
    net, noises = noisy(rng, put)
    after = set()
    for scale in ("none", "kept"):
        generator = np.random.default_rng(3)
        find_adversary(*net, rng=generator, budgets=2, search=search, scale=scale, **noises)
        after.add(generator.random())
    assert len(after) == 1


@pytest.mark.parametrize(("search", "masks_drawn"), [(Exact(), 0), (Random(tries=2), 2)], ids=["exact", "random"])
def test_a_start_is_drawn_that_is_not_used(search, masks_drawn, rng, put):
    """As version 0.1 drew it, so that a seed finds the same masks as it did."""
    net, eps0 = network(rng, put), put(np.ones((3, 4)))
    drawn, expected = np.random.default_rng(3), np.random.default_rng(3)
    find_adversary(*net, rng=drawn, budgets=2, search=search)
    masks.one_flip(expected, eps0)
    for _ in range(masks_drawn):
        masks.random_flips(expected, eps0, 2)
    assert drawn.random() == expected.random()


def test_swaps_of_equal_gain_are_in_the_order_of_the_units(put):
    """Of 40 units every second is flipped, no map tells one from another, and an outsider is brought in once."""
    eps0, eps = np.ones((1, 40)), np.ones((1, 40))
    eps[:, ::2] = 0
    problem = bare({"layer0": put(eps0)}, {"layer0": 20})
    top = Visit({"layer0": put(eps)}, None, {"layer0": put(np.zeros((1, 40)))})
    tried = [to_host(swap["layer0"])[0] for swap in _swapped(problem, top, 3)]
    moved = [np.flatnonzero(one != eps[0]).tolist() for one in tried]
    assert moved == [sorted([out, into]) for out in range(0, 40, 2) for into in (1, 3, 5)]
    assert len(list(_swapped(problem, top, 30))) == 20 * 20
