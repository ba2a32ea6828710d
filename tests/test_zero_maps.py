"""Influence maps that are zero in some examples of a batch: told from small ones, left at a stated choice, counted."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from minadv.adversary import find_adversary
from minadv.backend import namespace, to_host
from minadv.base.trees import tree_map
from minadv.counterexamples import tiny_network
from minadv.influence import ZeroInfluenceWarning, agree, warn_if_zero, zero_maps
from minadv.memory import Memory
from minadv.models.classifier import Noise
from minadv.regularizers import AdD
from minadv.relax import Relax
from minadv.searches import Greedy, Reselect
from minadv.training.loop import Recipe, read_state, start, train
from minadv.training.parallel.threads import ThreadWorkers
from minadv.training.runs import checkpoints
from tests.support import foreign_model
from tests.support.networks import network
from tests.support.problems import task

PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
EPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}


@PRECISIONS
def test_passes_agree_by_their_features_and_by_their_distance(dtype, put):
    """Rounding; a difference; a small difference of large features; one feature of one step; a distance; zeros; NaN."""
    eps = EPS[dtype]
    f0 = np.ones((2, 7, 3), dtype)  # (N, B, F)
    f0[:, 2], f0[:, 5] = 1000, 0
    f1, d = f0.copy(), np.zeros(7, dtype)
    f1[:, 0] += dtype(90 * eps)
    f1[:, 1] += dtype(110 * eps)
    f1[:, 2] += dtype(90_000 * eps)
    f1[1, 3, 2] += dtype(110 * eps)
    d[0], d[4] = (90 * eps) ** 2, (110 * eps) ** 2
    f1[:, 6] = np.nan
    found, zeroed = to_host(agree(put(f0), put(f1), put(d)))
    assert found.tolist() == [True, False, True, False, False, True, False]
    assert zeroed.tolist() == [0, 0, 0, 0, d[4], 0, 0]


def test_a_map_is_zero_where_no_site_has_influence(put):
    """Two saturated networks can be far apart with no slope between them: then the map alone tells."""
    same = put(np.array([True, False, False, False]))
    one = put(np.array([[1e-9, 1], [0, 0], [0, 0], [0, 3.0]]))
    other = put(np.array([[1.0, 1], [0, 0], [0, -2], [0, 0.0]]))
    maps, zero = zero_maps({"layer0": one, "layer1": other}, same)
    assert to_host(zero).tolist() == [True, True, False, False]
    assert to_host(maps["layer0"]).tolist() == [[0, 0], [0, 0], [0, 0], [0, 3]]
    assert to_host(maps["layer1"]).tolist() == [[0, 0], [0, 0], [0, -2], [0, 0]]


def test_one_example_with_influence_is_enough_for_no_warning(put):
    warn_if_zero(put(np.array([True, True, False])), lambda: "")  # a warning would be an error
    with pytest.warns(ZeroInfluenceWarning, match="^the influence map is zero up to rounding: because$"):
        warn_if_zero(put(np.array([True, True])), lambda: "because")


def found_by(search, dtype, rng, put, cell="lstm"):
    """The trace of a search whose passes have other noise, but in two rows, where it differs by rounding alone."""
    model, params, batch = network(rng, put, B=5, T=5, I=8, H=6, cell=cell, input_dropout=0.5)
    shared = to_host(model.noise(rng, batch).inputs).astype(dtype)
    other = 2 - shared  # p is a half: what the one drops, the other keeps
    other[[1, 3]] = shared[[1, 3]] * (1 + 2 * dtype(EPS[dtype]))
    params = tree_map(lambda a: a.astype(dtype), params)
    batch = replace(batch, x=batch.x.astype(dtype))
    noises = {"noise": Noise(put(shared)), "adv_noise": Noise(put(other))}
    return find_adversary(model, params, batch, budgets=2, search=search, rng=rng, **noises)


SEARCHES = [
    Greedy(start="base"),
    Greedy(start="base", K=2, keep="last"),
    Greedy(start="base", rule="authors"),
    Reselect(start="base"),
    Reselect(start="base", K=1),
    Memory(),
    Relax(),
]


@PRECISIONS
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("search", SEARCHES[:5], ids=repr)
def test_such_examples_are_left_as_they_are(search, cell, dtype, rng, put):
    trace = found_by(search, dtype, rng, put, cell)
    assert to_host(trace.zero).tolist() == [False, True, False, True, False]
    assert to_host(trace.flips["layer0"])[[1, 3]].tolist() == [0, 0]
    assert to_host(trace.flips["layer0"])[[0, 2, 4]].max() > 0
    assert not to_host(trace.im["layer0"])[[1, 3]].any()
    if trace.d is not None:
        assert to_host(trace.d)[[1, 3]].tolist() == [0, 0]


@PRECISIONS
def test_the_papers_rule_takes_their_units_by_index(dtype, rng, put):
    trace = found_by(Greedy(start="base", rule="paper", keep="last"), dtype, rng, put)
    assert to_host(trace.eps["layer0"])[[1, 3]].tolist() == [[0, 0, 0, 1, 1, 1]] * 2
    later = found_by(Greedy(K=2, start="base", rule="paper", keep="last"), dtype, rng, put)
    assert to_host(later.zero).tolist() == [False, True, False, True, False]  # at its first map, not at its second
    assert to_host(later.im["layer0"]).any(axis=1).all()


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_both_precisions_find_the_same_mask(search, rng, put):
    """Without the stated choice, rounding picks the units of the two rows, in each precision its own."""
    state = rng.bit_generator.state
    found = []
    for dtype in (np.float32, np.float64):
        rng.bit_generator.state = state
        found.append(to_host(found_by(search, dtype, rng, put).eps["layer0"]).tolist())
    assert found[0] == found[1]


def test_a_sure_prediction_keeps_its_map(rng, put):
    """Its distance is as small as rounding, and its map points the right way: a search must not lose it."""
    model, params, batch = network(rng, put, B=6, T=5, H=6, size=0.5)
    sure = tree_map(lambda a: a.astype(np.float32), replace(params, b=params.b + put(np.array([30.0, 0, 0]))))
    small = replace(batch, x=batch.x.astype(np.float32))
    exact = tree_map(lambda a: a.astype(np.float64), sure)
    given = {"budgets": 2, "search": Greedy(keep="last"), "distance": "kl"}
    one = find_adversary(model, sure, small, rng=np.random.default_rng(1), **given)
    large = replace(small, x=small.x.astype(np.float64))
    two = find_adversary(model, exact, large, rng=np.random.default_rng(1), **given)
    assert float(one.visits[0].d.max()) < (100 * EPS[np.float32]) ** 2
    assert not to_host(one.zero).any()
    assert to_host(one.eps["layer0"]).tolist() == to_host(two.eps["layer0"]).tolist()


@dataclass(frozen=True)
class Shortened(AdD):
    """AdD on sequences of which those of class 0 have one step: there no recurrent mask has an influence."""

    def __call__(self, model, params, batch, **given):
        xp = namespace(batch.x)
        steps = xp.arange(len(batch.x))[:, None]
        return super().__call__(model, params, replace(batch, valid=(steps == 0) | (batch.targets != 0)), **given)


@pytest.mark.filterwarnings("ignore::minadv.influence.ZeroInfluenceWarning")  # all examples of one thread
@pytest.mark.parametrize("workers", [1, 3])
def test_the_log_counts_them(workers, put, device):
    """An epoch has twenty examples of class 0, and the second record four steps; nothing is counted without AdD."""
    if workers > 1 and device.name == "gpu":
        pytest.skip("threads are for the host")
    toy, recipe = task(put, Shortened(delta=0.4)), Recipe(steps=10, eval_every=6)
    several = None if workers == 1 else ThreadWorkers(toy, workers)
    try:
        _, records = train(toy, recipe, workers=several)
    finally:
        if several is not None:
            several.close()
    left = sum(int((to_host(toy.data.train.y)[toy.ids(step)] == 0).sum()) for step in range(6, 10))
    assert [record["zero_maps"] for record in records] == [20, left]
    assert [record["zero_maps"] for record in train(task(put), recipe)[1]] == [0, 0]


def test_a_checkpoint_of_an_earlier_version_has_counted_none(tmp_path, put):
    pytest.importorskip("safetensors")
    toy, recipe = task(put), Recipe(steps=4)
    state = start(toy, recipe)
    path = checkpoints.save(tmp_path, 3, replace(state, tally=(1.5, 2.5, 3)), {})
    assert read_state(path, state).tally == (1.5, 2.5, 3, 0)


def warned(*net, **how):
    """The text of the warning of a search."""
    with pytest.warns(ZeroInfluenceWarning) as said:
        find_adversary(*net, **{"budgets": 2, "rng": np.random.default_rng(0), **how})
    return str(said[0].message)


@pytest.mark.parametrize("search", [Greedy(), Greedy(start="base"), Relax(), Memory(), Reselect()], ids=repr)
def test_at_one_step_a_recurrent_mask_is_said_to_have_no_effect(search, rng, put):
    net = network(rng, put, T=1)
    said = warned(*net, search=search)
    assert "at T = 1 a recurrent mask has no effect" in said
    assert "or mask another site: sites=('readout',)" in said
    assert "start" not in said
    assert "noise" not in said
    if search != Greedy(start="base"):
        find_adversary(*net, budgets=2, sites=("readout",), search=search, rng=rng)  # a warning would be an error


def test_one_valid_step_is_one_step(rng, put):
    model, params, batch = network(rng, put, T=2, valid=np.array([[True] * 3, [False] * 3]))
    assert "at T = 1" in warned(model, params, batch)
    longer = replace(batch, valid=put(np.array([[True] * 3, [False, True, False]])))
    find_adversary(model, params, longer, budgets=2, search=Relax())  # a warning would be an error


def test_a_network_without_another_site_is_told_of_none(rng, put):
    said = warned(*foreign_model.example(rng, put, T=1))
    assert said.endswith("no state comes before: give longer sequences")


def test_a_model_that_does_not_tell_its_steps_is_warned_too(rng):
    model, params, batch = tiny_network(rng, 4)
    idle = params | {"cell": replace(params["cell"], U=0 * params["cell"].U)}
    assert "its recurrent weights do nothing" in warned(model, idle, batch)


def test_a_carried_state_is_masked_at_one_step_too(rng, put):
    model, params, batch = network(rng, put, T=1)
    state = model.body(params, batch, masks={}, noise=None)[1]
    assert "at T = 1" not in warned(model, params, batch, search=Greedy(start="base"), state=state)


def test_noise_that_differs_already_is_not_advised(rng, put):
    """Here it differs in name alone, which leaves the start at the base as the one thing to change."""
    model, params, batch = network(rng, put, input_dropout=0.5)
    noise = model.noise(rng, batch)
    said = warned(model, params, batch, search=Greedy(start="base"), noise=noise, adv_noise=replace(noise))
    assert 'start="flip"' in said
    assert "noise" not in said
    shared = warned(model, params, batch, search=Greedy(start="base"), noise=noise)
    assert "adv_noise, share_noise=False; --noise independent, --fresh" in shared


@pytest.mark.parametrize("search", [Greedy(), Relax(), Memory(), Reselect()], ids=repr)
def test_a_start_that_a_search_does_not_have_or_has_is_not_advised(search, rng, put):
    """Recurrent weights of zero: whatever the mask, nothing changes."""
    model, params, batch = network(rng, put)
    idle = replace(params, cells=tuple(replace(cell, U=0 * cell.U) for cell in params.cells))
    said = warned(model, idle, batch, search=search)
    assert "start=" not in said
    assert "its recurrent weights do nothing" in said or "has come back to the base mask itself" in said


def test_a_search_that_comes_back_says_so(rng, put):
    objective_start = Greedy(K=2)
    model, params, batch = network(rng, put)
    eps0 = put(np.ones((3, 4)))
    idle = replace(params, V=0 * params.V)  # no mask has any influence, and the strict rule takes the start back or not
    said = warned(model, idle, batch, search=objective_start, eps0={"layer0": eps0})
    assert "start=" not in said
