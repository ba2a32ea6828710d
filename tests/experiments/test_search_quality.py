"""The quality of searches, in miniature: the maxima are right, training is the library's, the verdict follows."""

import copy
import itertools
import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")
pytest.importorskip("tqdm", reason="experiments show progress")

from experiments import search_quality
from experiments.parts import along_training, best_masks, one_shot, quality_figure, quality_report, small_nets
from minadv import distances, masks
from minadv.adversary import find_adversary
from minadv.base.trees import leaves
from minadv.data.images import Split, load
from minadv.data.images.sequences import as_sequences
from minadv.models import Classifier
from minadv.regularizers import AdD
from minadv.searches import Exact, Memory, Random, ball_size
from minadv.tasks.images.task import Classify
from minadv.training.loop import Recipe, train
from minadv.training.optimizers import Adam

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def host_only(request):
    if request.config.getoption("backend") == "cupy":
        pytest.skip("experiments choose their own device; on this backend the library's tests cover the library")


@pytest.fixture
def tiny(monkeypatch):
    """Both parts with networks of a few units, hardly trained."""
    groups = (
        one_shot.Group("H = 24", 6, steps=20, classes=(2,)),
        one_shot.Group("climbed", 7, cell="gru", steps=20, classes=(4,), scales=("none",), exact=False),
        one_shot.Group("text", 5, steps=3, classes=(), scales=("none",), budget=2, text=True),
        one_shot.Group("two layers", 4, n_layers=2, steps=5, budget=2, classes=(2,), scales=("kept",)),
    )
    monkeypatch.setattr(one_shot, "GROUPS", groups)
    monkeypatch.setattr(along_training, "NETWORKS", along_training.NETWORKS[:1])
    monkeypatch.setattr(along_training, "N_HIDDEN", 6)
    monkeypatch.setattr(along_training, "IMAGES", 100)


def network(n_layers=1, n_classes=4, n_hidden=6):
    _, test = small_nets.digit_rows(n_classes)
    model = Classifier(8, n_hidden, n_classes, n_layers=n_layers)
    params = model.init(np.random.default_rng(0), dtype=np.float64)
    batch = small_nets.test_batch(Split(test.x.astype(np.float64), test.y), 5)
    return model, params, batch


def test_both_parts_and_again_from_what_was_kept(tiny, tmp_path, monkeypatch, capsys):
    told = ["--seeds", "1", "--examples", "6", "--repeats", "2", "--epochs", "4", "--workers", "1"]
    told += ["--runs", str(tmp_path / "runs")]
    search_quality.main([*told, "--out", str(tmp_path / "one")])
    data = json.loads((tmp_path / "one" / "search_quality.json").read_text())
    assert data["searches"] == list(one_shot.SEARCHES)
    assert len(data["one_shot"]) == 2 * 2 + 2 + 2 + 2  # a row for each distance and scale
    for result in data["one_shot"]:
        shares = dict(zip(data["searches"], result["shares"], strict=True))
        assert all(0 <= share <= 1 + 1e-4 for share in shares.values()), "no search beats the largest distance"
        assert shares["Relax, longest"] >= shares["Relax, margin only"] - 1e-9
        assert shares["best of 8 random"] >= 0.5 * shares["random"]
    for passes in data["passes"].values():
        assert passes["Relax"] == [3, 2]
        assert passes["reselect K=2"] == [5, 2]
        assert passes["Relax, longest"] == [12, 5]
    assert {run["search"] for run in data["along_training"]} == set(along_training.SEARCHES)
    assert data["facts"]["core_seconds"] >= 0
    text = (tmp_path / "one" / "search_quality.md").read_text()
    assert text == quality_report.page(data)
    assert "reselect K=2" in text
    assert (tmp_path / "one" / "search_quality.png").stat().st_size > 1000
    assert "written" in capsys.readouterr().out

    def refuse(_):
        raise AssertionError("a network that was done before is done again")

    monkeypatch.setattr(one_shot, "attack", refuse)
    monkeypatch.setattr(along_training, "follow", refuse)
    search_quality.main([*told, "--out", str(tmp_path / "two")])
    again = json.loads((tmp_path / "two" / "search_quality.json").read_text())
    again["facts"] = data["facts"]
    assert again == data


def test_quick_is_a_part_of_the_whole(monkeypatch, tmp_path):
    seen = []

    def stop(work, tasks, **_):
        seen.extend(job.task for job in tasks)
        raise KeyboardInterrupt

    monkeypatch.setattr(search_quality.reporting, "run_all", stop)
    with pytest.raises(SystemExit):
        search_quality.main(["--quick", "--runs", str(tmp_path)])
    groups = {task.group.name for task in seen if isinstance(task, one_shot.Task)}
    assert groups == set(search_quality.QUICK)
    assert max(task.seed for task in seen) == 0


@pytest.mark.parametrize("scale", ["none", "kept"])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_one_enumeration_for_both_distances(scale, n_layers):
    model, params, batch = network(n_layers)
    budgets = {f"layer{n}": 3 - n for n in range(n_layers)}
    found = best_masks.exact(model, params, batch, budgets, scale=scale, names=("js", "kl"))
    for distance, most in found.items():
        how = {"budgets": budgets, "search": Exact(), "scale": scale, "distance": distance}
        np.testing.assert_allclose(most, find_adversary(model, params, batch, **how).d, rtol=1e-9)
        assert (most > 0).all()


def test_climb_ends_where_no_exchange_helps():
    model, params, batch = network(n_hidden=8)
    climb = best_masks.Climb(starts=(Random(),))
    trace = find_adversary(model, params, batch, search=climb, budgets=3, rng=np.random.default_rng(1))
    start = find_adversary(model, params, batch, search=Random(), budgets=3, rng=np.random.default_rng(1))
    assert (trace.flips["layer0"] <= 3).all()
    base = model.body(params, batch, masks={}, noise=None)[0]

    def distance(eps):
        features = model.body(params, batch, masks={"layer0": masks.scale(eps, "none")}, noise=None)[0]
        return distances.js(model.logits(params, base)[-1], model.logits(params, features)[-1])[0]

    found = trace.eps["layer0"]
    np.testing.assert_allclose(distance(found), trace.d, rtol=1e-9)
    for units in itertools.chain.from_iterable(itertools.combinations(range(8), k) for k in range(4)):
        eps = np.ones_like(found)
        eps[:, list(units)] = 0
        lost = ((found == 0) & (eps == 1)).sum(axis=1)
        won = ((found == 1) & (eps == 0)).sum(axis=1)
        near = (lost <= 1) & (won <= 1)
        assert (distance(eps)[near] <= trace.d[near] * (1 + 1e-9)).all(), units
    assert trace.d.sum() > start.d.sum(), "the climb leaves a random mask behind"


def test_a_neighbour_is_one_exchange_away():
    model, params, batch = network()
    climb = best_masks.Climb(starts=(Random(),))
    seen = []

    class Spy(best_masks.Climb):
        def run(self, objective, first, rng):
            eps = objective.eps0["layer0"].copy()
            eps[0, 1:4], eps[1, 1:3] = 0, 0  # the budget spent, room for one more; the others flip nothing
            seen.extend((eps, mask["layer0"]) for mask in best_masks.neighbours(objective, {"layer0": eps}))
            return climb.run(objective, first, rng)

    find_adversary(model, params, batch, search=Spy(), budgets=3, rng=np.random.default_rng(0))
    tried = [set(), set()]
    for eps, mask in seen:
        assert ((mask == 0).sum(axis=1) <= 3).all()
        assert ((mask == 0) & (eps == 1)).sum(axis=1).max() <= 1
        assert ((mask == 1) & (eps == 0)).sum(axis=1).max() <= 1
        for n in range(2):
            tried[n].add(tuple(np.flatnonzero(mask[n] == 0)))
    full = {(1, 2, 3)} | {tuple(sorted({1, 2, 3} - {a})) for a in (1, 2, 3)}
    full |= {tuple(sorted({1, 2, 3} - {a} | {b})) for a in (1, 2, 3) for b in (0, 4, 5)}
    assert tried[0] == full
    others = (0, 3, 4, 5)
    room = {(1, 2), (1,), (2,)} | {tuple(sorted((1, 2, b))) for b in others}
    assert tried[1] == room | {tuple(sorted((a, b))) for a in (1, 2) for b in others}


@pytest.fixture
def search_named(monkeypatch):
    monkeypatch.setattr(along_training, "N_HIDDEN", 6)
    monkeypatch.setattr(along_training, "IMAGES", 100)

    def follow(search, epochs=8):
        monkeypatch.setitem(along_training.SEARCHES, "this", search)
        job = along_training.Training(along_training.NETWORKS[0], "this", seed=1, epochs=epochs, looks=4, examples=5)
        return along_training.follow(job)

    return follow


def test_the_exact_search_has_the_share_one(search_named):
    found = search_named(Exact(), epochs=2)
    assert found["share"] == pytest.approx(1, abs=1e-4)
    assert (found["forward"], found["backward"]) == (ball_size(6, 3), 0)


def test_passes_of_memory_are_counted(search_named):
    found = search_named(Memory())
    assert (found["forward"], found["backward"]) == (3, 1.5)  # every other visit looks afresh
    assert 0 < found["share"] <= 1 + 1e-4
    assert search_named(Memory(fresh=0, tries=2))["forward"] == 4
    assert search_named(Memory(fresh=0))["backward"] == 1


def test_a_watched_training_is_that_of_the_library():
    data = as_sequences(load("digits"), by="row")
    given = (Classifier(8, 6, 10), data, AdD(budgets=2, search=Memory()), 200, 3)
    recipe = Recipe(12, Adam(5e-3), eval_every=12)
    watched = along_training.Watched(*given, look_at=frozenset({5, 11}), examples=4)
    ends = [train(task, recipe, progress=False)[0].params for task in (Classify(*given), watched)]
    for (name, one), (_, other) in zip(*map(leaves, ends), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
    assert set(watched.shares) == {5, 11}
    assert set(watched.passes) == set(range(12))


@pytest.fixture
def made_up():
    """Numbers as a run would write them: every share 0.5 but those that a test sets."""
    names = list(one_shot.SEARCHES)
    where = {"classes": 2, "scale": "none", "distance": "js", "test": 0.9}
    shots = [
        {"group": g, **where, "seed": s, "shares": [0.5] * len(names)} for g in quality_report.MAIN for s in (0, 1)
    ]
    spent = {"forward": 3.0, "backward": 1.5, "error": 10.0}
    runs = [
        {"network": "N", "search": search, "seed": s, "share": 0.5, **spent}
        for search in along_training.SEARCHES
        for s in (0, 1)
    ]
    facts = {"command": "c", "cpu": "p", "numpy": "1", "commit": "0123456789", "dirty": False, "core_seconds": 120}
    facts |= {"seeds": 2, "examples": 6, "repeats": 2, "epochs": 4}
    passes = {group: {name: [3, 2] for name in names} for group in quality_report.MAIN}
    known = {"searches": names, "best_known": ["H = 64"], "passes": passes}
    return {"facts": facts, **known, "one_shot": shots, "along_training": runs}


def test_the_verdict_says_what_is_met_and_what_is_missed(made_up):
    data = copy.deepcopy(made_up)
    column = data["searches"].index("Relax")
    for result in data["one_shot"]:
        result["shares"][column] = {"H = 24": 0.63, "H = 64": 0.75}.get(result["group"], 0.76)
    for run in data["along_training"]:
        run["share"] = {"Memory": 0.91, "Memory, fresh=0": 0.79}.get(run["search"], 0.455)
    said = quality_report.verdict(data)
    assert "H = 24: 0.630, wanted 0.62, met; H = 24, barely trained: 0.760, wanted 0.76, met" in said
    assert "H = 64: 0.750, wanted 0.78, missed by 0.030" in said
    assert "Relax 0.63 (3 + 2) is above reselect K=2 0.50 (3 + 2)" in said
    assert "Memory, fresh=0 (3 + 1.5 passes a visit): wanted 0.80, missed by 0.010, 0.790" in said
    assert "Memory (3 + 1.5 passes a visit): wanted 0.85, met, 0.910 (0.90 was hoped for: reached)" in said
    assert "2.00 times greedy K=2 (3 + 1.5 passes)" in said
    assert said in quality_report.page(data)


def test_one_network_that_disagrees_leaves_it_open(made_up):
    data = copy.deepcopy(made_up)
    column = data["searches"].index("Relax")
    for result in data["one_shot"]:
        result["shares"][column] = 0.8 if result["seed"] else 0.49
    assert "Relax 0.65 (3 + 2) cannot be told from reselect K=2 0.50" in quality_report.verdict(data)


def test_families_can_be_told_apart_without_colour(made_up):
    families = {f.name: f for f in (*quality_figure.ONE_SHOT, *quality_figure.TRAINING)}.values()
    assert len({f.marker for f in families}) == len({f.colour for f in families}) == len(families)
    assert {s for f in quality_figure.ONE_SHOT for s in f.members} <= set(one_shot.SEARCHES)
    assert {s for f in quality_figure.TRAINING for s in f.members} == set(along_training.SEARCHES)
    drawn = quality_figure.figure(made_up)
    words = [text.get_text() for axis in drawn.axes for text in axis.texts]
    assert words.count("Memory") == 1
    assert [axis.get_ylabel() for axis in drawn.axes].count("share of the best known D") == 1
    assert words.count("Relax") == len(quality_report.MAIN) + 1
