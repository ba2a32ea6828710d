"""The search Memory: rows in and rows out, what a visit tries, and that no example knows what became of another."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.adversary import find_adversary
from minadv.backend import namespace, to_host
from minadv.base.trees import tree_map
from minadv.memory import Memory
from minadv.models import Batch
from minadv.objective import Remembered
from minadv.relax import Relax, runner_up
from minadv.searches import Exact, Greedy, Random, Reselect
from tests.support.cells import GAPS
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import Untouchable, Watched, network
from tests.support.searching import assert_true, bare, objective, replay

H, B, BUDGET = 8, 6, 2


def net_of(rng, put, **options):
    return network(rng, put, **{"H": H, "B": B, **options})


def random_flips(rng, n, budget=BUDGET, units=H):
    """Boolean, (n, units), each row with ``budget`` True."""
    return np.argsort(rng.random((n, units)), axis=1) < budget


def remembered(rng, put, visits, *, lent=0, **given):
    flips = put({"layer0": random_flips(rng, len(visits))})
    others = put({"layer0": random_flips(rng, lent)}) if lent else None
    return replace(Remembered(flips, put(np.zeros(len(visits))), put(np.array(visits)), others), **given)


def masks_of(trace):
    """The masks that were scored beside the map, as flips (masks, B, H): selected first."""
    eps0 = trace.eps0["layer0"]
    return np.array([to_host(visit.eps["layer0"] != eps0) for visit in trace.visits[2:]])


def rows_of(net, rows):
    model, params, batch = net
    valid = None if batch.valid is None else batch.valid[:, rows]
    return model, params, Batch(batch.x[:, rows], batch.targets[rows], valid)


@pytest.mark.parametrize("tries", [0, 1, 3])
@pytest.mark.parametrize(
    ("fresh", "visits", "afresh"),
    [
        (2, None, True),
        (2, [0] * B, True),
        (2, [1, 3, 5, 1, 3, 5], False),
        (2, [1, 3, 5, 1, 3, 4], True),
        (0, [1, 2, 3, 4, 5, 6], False),
        (0, [1, 2, 3, 0, 5, 6], True),
        (1, [1, 2, 3, 4, 5, 6], True),
        (3, [1, 2, 4, 5, 7, 8], False),
        (3, [1, 2, 4, 5, 7, 9], True),
    ],
)
def test_the_passes_are_as_documented_and_as_counted(fresh, visits, afresh, tries, rng, put):
    model, params, batch = net_of(rng, put)
    memory = None if visits is None else remembered(rng, put, visits, lent=4)
    watched = Watched(model)
    search = Memory(fresh=fresh, tries=tries)
    trace = find_adversary(watched, params, batch, budgets=BUDGET, search=search, memory=memory)
    assert (trace.passes.forward, trace.passes.backward) == (2 + tries, 1 + afresh)
    assert len(watched.forward) == 3 + tries
    assert watched.backward == [{"weights": False, "masks": ("layer0",)}] * (1 + afresh)


def test_rows_in_and_rows_out(rng, put):
    net, memory = net_of(rng, put), None
    for visit in range(1, 6):
        before = tree_map(lambda a: a.copy(), memory)
        trace = find_adversary(*net, budgets=BUDGET, search=Memory(), memory=memory)
        if before is not None:
            assert_same_bits(memory, before)
        memory = trace.memory
        assert to_host(memory.visits).tolist() == [visit] * B
        assert memory.visits.dtype.kind == "i"
        assert memory.lent is None
        assert memory.flips["layer0"].dtype == bool
        assert_same_bits(memory.flips["layer0"], trace.eps["layer0"] != trace.eps0["layer0"])
        assert int(memory.flips["layer0"].sum(axis=1).max()) <= BUDGET
        assert_same_bits(memory.d, trace.d)
        assert_true(net, trace)
    mixed = remembered(rng, put, [0, 3, 1, 7, 2, 0])
    found = find_adversary(*net, budgets=BUDGET, search=Memory(), memory=mixed).memory
    assert to_host(found.visits).tolist() == [1, 4, 2, 8, 3, 1]


def test_the_same_weights_never_forget(rng, put):
    """At the same weights every visit ends at least as far as the one before."""
    net, memory, d = net_of(rng, put), None, np.zeros(B)
    for _ in range(6):
        trace = find_adversary(*net, budgets=BUDGET, search=Memory(), memory=memory)
        assert (to_host(trace.d) >= d).all()
        memory, d = trace.memory, to_host(trace.d)


@pytest.mark.parametrize("search", [Greedy(), Reselect(), Relax(), Exact(), Random()], ids=lambda s: s.name)
def test_other_searches_remember_nothing(search, rng, put):
    model, params, batch = net_of(rng, put)
    assert find_adversary(model, params, batch, budgets=BUDGET, search=search, rng=rng).memory is None
    message = rf"^memory was given, and {search.__class__.__name__}\(.*\) remembers nothing: use search=Memory\(\)$"
    with pytest.raises(ValueError, match=message):
        find_adversary(
            *(Untouchable(model), params, batch),
            budgets=BUDGET,
            search=search,
            rng=rng,
            memory=remembered(rng, put, [1] * B),
        )


@pytest.mark.parametrize("stage", [1, 2, 4])
@pytest.mark.parametrize("fresh", [0, 1, 2])
def test_examples_that_were_never_seen_are_searched_by_relax(fresh, stage, rng, put):
    net = net_of(rng, put, valid=None)
    memory = find_adversary(*net, budgets=BUDGET, search=Memory(fresh, stage))
    relax = find_adversary(*net, budgets=BUDGET, search=Relax((stage,)))
    again = find_adversary(*net, budgets=BUDGET, search=Memory(fresh, stage), memory=remembered(rng, put, [0] * B))
    for trace in (memory, again):
        if stage > 1:
            assert_same_bits((trace.eps, trace.d), (relax.eps, relax.d))
        assert_same_bits([visit.eps for visit in trace.visits[2:]], [visit.eps for visit in relax.visits[1:]])
        assert_same_bits((trace.visits[0].eps, trace.im), (relax.visits[0].eps, relax.im))


def test_what_the_rows_of_an_example_hold_that_was_never_seen_says_nothing(rng, put):
    net, lent = net_of(rng, put), random_flips(rng, 3)
    nothing = Remembered.nothing({"layer0": put(np.ones((B, H)))})
    garbage = put({"layer0": np.tile(lent[:1], (B, 1))})  # equal to a mask that is lent
    traces = [
        find_adversary(*net, budgets=BUDGET, search=Memory(tries=4), memory=memory)
        for memory in (
            replace(nothing, lent=put({"layer0": lent})),
            replace(nothing, flips=garbage, d=nothing.d + 9, lent=put({"layer0": lent})),
        )
    ]
    assert_same_bits([v.eps for v in traces[0].visits], [v.eps for v in traces[1].visits])
    assert_same_bits(traces[0].d, traces[1].d)


def expected_tries(on, im, memory, search, b):
    """What example b tries, in words of the docstring, as tuples of flips: the selected mask, then the others."""
    e = {n: to_host(a)[b] for n, a in on.eps0.items()}
    gain = {n: (1 - 2 * e[n]) * to_host(im[n])[b] for n in e}

    def flips(eps):
        return {n: tuple((to_host(eps[n])[b] != e[n]).tolist()) for n in e}

    selected, second = flips(on.select(im)), flips(runner_up(on, im))
    visits = int(memory.visits[b])
    kept = {n: tuple(to_host(memory.flips[n])[b].tolist()) for n in e}
    lent = []
    if memory.lent is not None:
        table = {n: to_host(a) for n, a in memory.lent.items()}
        P = len(next(iter(table.values())))
        order = sorted(range(P), key=lambda q: -sum((gain[n] * table[n][q]).sum() for n in e))
        for q in order:
            mask = {n: tuple(table[n][q].tolist()) for n in e}
            if mask not in (selected, *([kept] if visits else [{n: (False,) * len(e[n]) for n in e}]), *lent):
                lent.append(mask)
    lent = [*lent, *[second] * (1 + search.tries)][: max(1, search.tries)]
    afresh = visits == 0 or (search.fresh and visits % search.fresh == 0)
    pair = [second, lent[0]] if visits // 2 % 2 == 0 else [lent[0], second]
    others = [kept if visits else second, *lent] if afresh else [*pair, *lent[1:]]
    return [selected, *others[: search.tries]]


@pytest.mark.many_passes
@pytest.mark.parametrize("tries", [0, 1, 2, 4])
@pytest.mark.parametrize("fresh", [0, 1, 2, 3])
@pytest.mark.parametrize("lent", [0, 1, 12])
def test_what_a_visit_tries(lent, fresh, tries, rng, put):
    net = net_of(rng, put, B=12)
    search = Memory(fresh=fresh, tries=tries)
    memory = remembered(rng, put, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1], lent=lent)
    if lent:  # among them what some examples remember, and one mask twice
        memory.lent["layer0"][0] = memory.flips["layer0"][3]
        memory.lent["layer0"][-1] = memory.flips["layer0"][4]
    trace = find_adversary(*net, budgets=BUDGET, search=search, memory=memory)
    on = objective(net, budgets=BUDGET)
    for b in range(12):
        expected = expected_tries(on, trace.im, memory, search, b)
        assert [tuple(mask[b].tolist()) for mask in masks_of(trace)] == [mask["layer0"] for mask in expected]
    kept = np.where(to_host(memory.flips["layer0"]), 0, 1)
    visits = to_host(memory.visits)
    afresh = visits % fresh == 0 if fresh else visits == 0
    assert_same_bits(to_host(trace.visits[0].eps["layer0"])[~afresh], kept[~afresh].astype(float))
    assert_same_bits(to_host(trace.visits[1].eps["layer0"])[~afresh], kept[~afresh].astype(float))
    half = find_adversary(*net, budgets=BUDGET, search=Relax()).visits[0].eps["layer0"]
    assert_same_bits(to_host(trace.visits[0].eps["layer0"])[afresh], to_host(half)[afresh])
    assert_true(net, trace)


def test_a_lent_mask_is_that_of_every_site_together(rng, put):
    net = network(rng, put, n_layers=2, H=5, B=4)
    budgets = {"layer0": 1, "layer1": 2}
    lent = put({name: random_flips(rng, 6, budgets[name], 5) for name in budgets})
    lent["layer0"][1] = lent["layer0"][0]  # alike at one site only
    flips = {name: a[:4] for name, a in lent.items()}  # each remembers a mask that is lent as well
    memory = Remembered(flips, put(np.ones(4)), put(np.array([1, 2, 3, 0])), lent)
    search = Memory(tries=3)
    eps0 = put({name: rng.integers(0, 2, (4, 5)).astype(float) for name in budgets})
    trace = find_adversary(*net, budgets=budgets, search=search, memory=memory, eps0=eps0)
    on = objective(net, budgets=budgets, eps0=eps0)
    for b in range(4):
        expected = expected_tries(on, trace.im, memory, search, b)
        for visit, mask in zip(trace.visits[2:], expected, strict=True):
            assert {n: tuple(to_host(visit.eps[n] != eps0[n])[b].tolist()) for n in eps0} == mask
    assert_true(net, trace, eps0=eps0)


@pytest.mark.parametrize("options", [{}, {"valid": np.concatenate([GAPS, GAPS], axis=1)}], ids=["", "padding"])
@pytest.mark.parametrize("lent", [0, 5])
@pytest.mark.parametrize("search", [Memory(), Memory(fresh=3, tries=2), Memory(fresh=0)], ids=repr)
def test_rows_do_not_know_each_other(search, lent, options, rng, put, xp):
    """A batch of every kind of rows finds for each what a batch of its kind alone finds."""
    net, visits = net_of(rng, put, **options), np.array([0, 1, 2, 3, 0, 6])
    memory = remembered(rng, put, visits, lent=lent)
    whole = find_adversary(*net, budgets=BUDGET, search=search, memory=memory)
    for kind in ([0, 4], [1], [2, 5], [3], [1, 3], [4]):
        rows = xp.asarray(kind)
        part = replace(
            memory, flips={"layer0": memory.flips["layer0"][rows]}, d=memory.d[rows], visits=memory.visits[rows]
        )
        alone = find_adversary(*rows_of(net, rows), budgets=BUDGET, search=search, memory=part)
        assert_same_bits(alone.eps["layer0"], whole.eps["layer0"][rows])
        assert_close(alone.d, whole.d[rows])


@pytest.mark.many_passes
@pytest.mark.parametrize("fresh", [0, 1, 2, 3])
@pytest.mark.parametrize("tries", [1, 2])
def test_the_remembered_mask_is_not_lost(tries, fresh, rng, put):
    """The mask of the visit before, at the weights of today, is a bound from below, on fresh visits too."""
    model, params, batch = net_of(rng, put, B=20)
    memory = None
    for _ in range(5):
        trace = find_adversary(model, params, batch, budgets=BUDGET, search=Memory(fresh, tries=tries), memory=memory)
        if memory is not None:
            eps = namespace(memory.d).where(memory.flips["layer0"], 0.0, 1.0)
            then = replay((model, params, batch), {"layer0": eps})
            assert (to_host(trace.d) >= to_host(then) * (1 - 1e-12)).all()
        memory = trace.memory
        params = tree_map(lambda a: a + put(0.3 * rng.standard_normal(a.shape)), params)


def test_the_best_mask_so_far_wins_on_a_fresh_visit(rng, put):
    """An example that remembers the best of all masks keeps it, whatever a fresh look finds."""
    net = net_of(rng, put, B=30)
    most = find_adversary(*net, budgets=BUDGET, search=Exact())
    flips = {"layer0": most.eps["layer0"] != most.eps0["layer0"]}
    memory = Remembered(flips, most.d, put(np.full(30, 2)))
    trace = find_adversary(*net, budgets=BUDGET, search=Memory(), memory=memory)
    assert_close(trace.d, most.d)
    fresh = find_adversary(*net, budgets=BUDGET, search=Memory())
    assert bool((fresh.d < most.d).any())  # else the memory had made no difference


@pytest.mark.parametrize("given", ["inverted", "noise"])
def test_every_distance_is_one_that_was_computed(given, rng, put):
    """The base mask itself is at a distance where it is scaled, or meets another noise; nobody says that it is zero."""
    model, _, batch = net = net_of(rng, put, I=6, input_dropout=0.5)
    options = {"scale": "inverted", "p": 0.4}
    if given == "noise":
        options = {"noise": model.noise(rng, batch), "adv_noise": model.noise(rng, batch)}
    memory = remembered(rng, put, [0, 1, 2, 3, 0, 4], lent=3)
    for given in (None, memory):
        trace = find_adversary(*net, budgets=BUDGET, search=Memory(tries=2), memory=given, **options)
        assert_true(net, trace, **options)


WRONG = {
    "another site": (
        {"flips": {"layer7": np.zeros((B, H), bool)}},
        r"memory\.flips has \['layer7'\], expected one entry",
    ),
    "examples": (
        {"flips": {"layer0": np.zeros((2, H), bool)}},
        rf"memory\.flips\['layer0'\] has shape \(2, {H}\), expected \({B}, {H}\)",
    ),
    "units": (
        {"flips": {"layer0": np.zeros((B, 3), bool)}},
        rf"memory\.flips\['layer0'\] has shape \({B}, 3\), expected \({B}, {H}\)",
    ),
    "numbers": ({"flips": {"layer0": np.zeros((B, H))}}, r"memory\.flips\['layer0'\] has dtype float64, expected bool"),
    "a larger budget": (
        {"flips": {"layer0": np.arange(H)[None] < np.full((B, 1), 3)}},
        r"memory\.flips\['layer0'\] flips 3 units of one row, expected at most 2",
    ),
    "lent, another site": ({"lent": {}}, r"memory\.lent has \[\], expected one entry for each of \['layer0'\]"),
    "lent, no mask": (
        {"lent": {"layer0": np.zeros((0, H), bool)}},
        rf"memory\.lent\['layer0'\] has shape \(0, {H}\), expected \(P, {H}\)",
    ),
    "lent, units": ({"lent": {"layer0": np.zeros((4, 3), bool)}}, r"memory\.lent\['layer0'\] has shape \(4, 3\)"),
    "lent, numbers": (
        {"lent": {"layer0": np.ones((4, H), int)}},
        r"memory\.lent\['layer0'\] has dtype int64, expected",
    ),
    "lent, a larger budget": (
        {"lent": {"layer0": np.ones((4, H), bool)}},
        rf"memory\.lent\['layer0'\] flips {H} units of one row, expected at most 2",
    ),
    "visits of others": ({"visits": np.zeros(2, int)}, rf"memory\.visits has shape \(2,\), expected \({B},\)"),
    "visits not whole": (
        {"visits": np.full(B, 0.5)},
        r"memory\.visits counts .*, expected whole numbers of at least 0",
    ),
    "visits below 0": ({"visits": np.full(B, -1)}, r"memory\.visits counts .*, expected whole numbers of at least 0"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_a_memory_that_does_not_fit(given, message, rng, put):
    model, params, batch = net_of(rng, put)
    memory = replace(remembered(rng, put, [1] * B), **put(given))
    with pytest.raises((ValueError, TypeError), match=rf"^{message}") as caught:
        find_adversary(Untouchable(model), params, batch, budgets=BUDGET, search=Memory(), memory=memory)
    assert "\n" not in str(caught.value)


def test_as_many_masks_are_lent_of_every_site(rng, put):
    model, params, batch = network(rng, put, n_layers=2, H=4, B=3)
    flips = put({name: np.zeros((3, 4), bool) for name in ("layer0", "layer1")})
    lent = put({"layer0": np.zeros((5, 4), bool), "layer1": np.zeros((1, 4), bool)})
    memory = Remembered(flips, put(np.zeros(3)), put(np.zeros(3, int)), lent)
    with pytest.raises(ValueError, match=r"^memory\.lent\['layer1'\] has shape \(1, 4\), expected \(5, 4\)"):
        find_adversary(Untouchable(model), params, batch, budgets=2, search=Memory(), memory=memory)


def test_a_memory_of_lists(rng, put):
    model, params, batch = net_of(rng, put)
    for given in ({"visits": [0] * B}, {"flips": {"layer0": [[False] * H] * B}}):
        memory = replace(remembered(rng, put, [1] * B), **given)
        with pytest.raises(TypeError, match=r"^memory\..* is a list, expected a NumPy or CuPy array"):
            find_adversary(Untouchable(model), params, batch, budgets=BUDGET, search=Memory(), memory=memory)


def test_nothing_remembered(put):
    eps0 = put({"a": np.ones((3, 4), np.float32), "b": np.ones((3, 2), np.float32)})
    nothing = Remembered.nothing(eps0)
    assert {name: flips.shape for name, flips in nothing.flips.items()} == {"a": (3, 4), "b": (3, 2)}
    assert not any(bool(flips.any()) for flips in nothing.flips.values())
    assert to_host(nothing.visits).tolist() == [0, 0, 0] and nothing.lent is None
    assert bare(eps0, {"a": 1, "b": 1}).memory is None
