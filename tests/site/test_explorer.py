"""The explorer's Python side: its numbers are the library's, and every search can be stepped through."""

import itertools
import json

import numpy as np
import pytest
from _site import explorer

from minadv import distances, find_adversary, layers, lstm, masks
from minadv.influence import influence_map_double_sum
from minadv.searches import Exact, Greedy, Reselect

H, T, I, C = 8, 5, 3, 4


@pytest.fixture(scope="module")
def network():
    """Weights of moderate size and three sequences; training would show nothing more."""
    rng = np.random.default_rng(3)
    shapes = {"W": (I, 4 * H), "U": (H, 4 * H), "b": (4 * H,), "V": (H, C), "c": (C,)}
    weights = {name: rng.uniform(-1, 1, shape).tolist() for name, shape in shapes.items()}
    return {**weights, "examples": [{"x": rng.standard_normal((T, I)).tolist(), "y": n} for n in range(3)]}


def one_mask(network, example, eps, distance, scale):
    """D, influence map, prediction and states of one mask, from the cells and the paper's double sum."""
    W, U, b, V, c = (np.array(network[name]) for name in ("W", "U", "b", "V", "c"))
    params, x = lstm.Params(W, U, b), np.array(network["examples"][example]["x"])[:, None]
    p = 0.1 if scale == "inverted" else None
    m = masks.scale(eps[None], scale, p=p)
    h0, _, _ = lstm.forward(params, x)
    h, _, cache = lstm.forward(params, x, m=m)
    logits0, logits = layers.affine(h0[-1], V, c), layers.affine(h[-1], V, c)
    d, _, dlogits = distances.by_name(distance)(logits0, logits)
    dh = np.zeros_like(h)
    dh[-1], _, _ = layers.affine_backward(h[-1], V, dlogits)
    dm = influence_map_double_sum(lstm, params, cache, dh)
    return d[0], masks.scale_backward(eps[None], dm, scale, p=p)[0], np.exp(layers.log_softmax(logits))[0], h[:, 0]


@pytest.mark.parametrize(
    ("distance", "scale"),
    [
        ("js", "none"),
        ("js", "kept"),
        ("kl", "inverted"),
        ("rkl", "none"),
        ("skl", "kept"),
        ("l2", "none"),
        ("logit2", "none"),
    ],
)
def test_every_mask_is_the_librarys(network, distance, scale):
    found = explorer.table(network, 1, distance, scale)
    for number, eps in enumerate(explorer.all_masks(H)):
        d, im, p, h = one_mask(network, 1, eps, distance, scale)
        np.testing.assert_allclose(found["d"][number], d, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(found["im"][number], im, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(found["p"][number], p, rtol=1e-12)
        np.testing.assert_allclose(found["h"][number], h.T, rtol=1e-12, atol=1e-15)
    _, _, p0, h0 = one_mask(network, 1, np.ones(H), distance, "none")
    np.testing.assert_allclose(found["p0"], p0, rtol=1e-12)
    np.testing.assert_allclose(found["h0"], h0.T, rtol=1e-12, atol=1e-15)


def test_the_page_sees_enough_digits(network):
    exact, drawn = explorer.table(network, 0), explorer.drawn(network, 0)
    for name, digits in (("d", 7), ("im", 5), ("p", 5), ("p0", 5)):
        np.testing.assert_allclose(drawn[name], exact[name], rtol=0.6 * 10.0 ** (1 - digits), atol=1e-300)
    np.testing.assert_allclose(np.array(drawn["h"]) / 100, exact["h"], atol=0.0051)
    json.dumps(drawn, allow_nan=False)


def test_masks_have_numbers():
    every = explorer.all_masks(H)
    assert every.shape == (256, H)
    assert every[0].tolist() == [1] * H and every[5].tolist() == [0, 1, 0, 1, 1, 1, 1, 1]
    assert [explorer.number_of(eps) for eps in every] == list(range(256))
    assert explorer.number_of(every[3] / 2) is None


GREEDY = [
    {"K": K, **rule, **start, **keep}
    for K, rule, start, keep in itertools.product(
        (1, 2, 3),
        (
            *({}, {"allow_unflip": False}, {"rule": "paper"}, {"rule": "paper", "norm": "l2"}),
            *({"rule": "authors"}, {"rule": "authors", "variant": "text"}),
        ),
        ({}, {"start": "base"}),
        ({}, {"keep": "last"}),
    )
]
OPTIONS = [
    *(("greedy", options) for options in GREEDY),
    *(("reselect", {"K": K, "swaps": swaps}) for K in (1, 2, 3) for swaps in (0, 2)),
    *(("relax", {"reselect": n, "swaps": swaps}) for n in (0, 1) for swaps in (0, 3)),
    *(("relax", {"stages": [4, 2]}), ("relax", {"keep": "last", "runner_up": False}), ("relax", {"borrow": 1})),
    *(("memory", {"visits": visits}) for visits in (1, 5)),
    *(("random", {"tries": 4}), ("exact", {})),
]


@pytest.mark.parametrize("delta", [0.25, 0.375, 1.0])
def test_every_search_can_be_stepped_through(network, delta):
    flips = explorer.all_masks(H).sum(axis=1)
    within = flips >= H - round(delta * H)
    d = np.array(explorer.table(network, 2)["d"])
    for kind, options in OPTIONS:
        found = explorer.search(network, 2, kind, options, delta)
        assert found["error"] is None, (kind, options, found["error"])
        json.dumps(found, allow_nan=False)
        for step in found["steps"]:
            assert step["note"].endswith("."), (kind, options, step["note"])
            if step["mask"] is not None and step["d"] is not None:
                np.testing.assert_allclose(step["d"], d[step["mask"]], rtol=1e-9, atol=1e-14)
        if kind != "greedy" or "rule" not in options:
            assert within[found["found"]["mask"]]
        if kind == "exact":
            np.testing.assert_allclose(found["found"]["d"], d[within].max(), rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "options", "record"),
    [
        ("greedy", {"K": 2}, Greedy(K=2)),
        ("greedy", {"K": 1, "rule": "paper"}, Greedy(rule="paper")),
        ("reselect", {"K": 2}, Reselect(K=2)),
        ("exact", {}, Exact()),
    ],
)
def test_a_search_is_the_librarys(network, kind, options, record):
    model, params = explorer.model_of(network)
    rng = np.random.default_rng(4)
    trace = find_adversary(model, params, explorer.batch_of(network, 0), search=record, delta=0.375, rng=rng)
    found = explorer.search(network, 0, kind, options, seed=4)
    assert found["found"]["eps"] == trace.eps["layer0"][0].tolist()
    assert found["found"]["d"] == trace.d[0]
    assert found["passes"] == {"forward": trace.passes.forward, "backward": trace.passes.backward}
    assert found["budget"] == 3
    if kind != "exact":
        assert [step["d"] for step in found["steps"]] == [visit.d[0] for visit in trace.visits]


def test_what_the_notes_say(network):
    found = explorer.search(network, 0, "greedy", {"K": 2}, seed=4)
    start, first, second = (step["note"] for step in found["steps"])
    dropped = [[i + 1 for i in range(H) if step["mask"] >> i & 1] for step in found["steps"]]
    assert start == f"Start: unit {dropped[0][0]} flipped at random. The influence map is taken here."
    assert first.startswith("Flip 1 of 2: ") and f"{len(dropped[1])} flips of at most 2" in first
    assert second.startswith("Flip 2 of 2: ") and f"{len(dropped[2])} flips of at most 3" in second
    assert second.endswith("This is the last mask.")


def test_what_is_refused_and_warned_of(network):
    assert explorer.search(network, 0, "clever")["error"].startswith("search is 'clever', expected one of greedy")
    assert "K is 0" in explorer.search(network, 0, "greedy", {"K": 0})["error"]
    assert "smallest useful delta" in explorer.search(network, 0, "greedy", {}, delta=0.01)["error"]
    assert "zero up to rounding" in explorer.search(network, 0, "greedy", {"start": "base"})["warnings"][0]
    assert "almost random" in explorer.search(network, 0, "greedy", {}, delta=0.125)["warnings"][0]


def test_the_network_of_the_page():
    """It has learned its task, and gets its examples right."""
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    from _site.network import trained

    found = trained()
    assert found["test_error"] < 10
    assert len(found["U"]) == H and len(found["examples"]) == 6
    for n, example in enumerate(found["examples"]):
        assert np.argmax(explorer.table(found, n)["p0"]) == example["y"]
