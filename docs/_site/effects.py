r"""What the differences from the paper and from its code amount to, in numbers: computed here, or read from results.

A row is what differs, its effect, and where the number is from. The small network is that of the explorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

from _site import explorer
from _site.network import trained
from _site.results import load
from minadv import layers, lstm
from minadv.distances import by_name
from minadv.flip import flip
from minadv.influence import influence_map_double_sum

NETWORK = "the explorer's network, six digits"


def rows() -> list[list[str]]:
    """All of them, in the order of the page of differences."""
    return [
        *readout(),
        *scale_and_distance(),
        *one_pass(),
        *rules(),
        *starts_and_masks(),
        *searches(),
        *theory(),
    ]


def readout() -> list[list[str]]:
    """A masked readout needs the term u = t of Eq. 6: how much of the map is missing without it."""
    found = []
    for params, cache, dlogits, V in passes():
        m, h = cache.m, cache.h[1:]
        dread = dlogits[-1] @ V.T
        dh = np.zeros_like(h)
        dh[-1] = m * dread
        without = lstm.backward(params, cache, dh, weights=False).m
        whole = without + dread * h[-1]
        found.append(float(np.abs(whole - without).max() / np.abs(whole).max()))
    text = f"leaving out u = t changes the map by {100 * mean(found):.0f} % of its largest entry"
    return [["masked readout", text, NETWORK]]


def passes() -> list[Any]:
    """Of each digit: the cell's parameters, a pass without unit 1, its dD/dlogits at every step, the output weights."""
    network = trained()
    model, params = explorer.model_of(network)
    cell, V, b = params.cells[0], params.V, params.b
    assert V is not None and b is not None
    found = []
    for n in range(len(network["examples"])):
        x = explorer.batch_of(network, n).x
        m = np.ones((1, model.n_hidden))
        m[0, 0] = 0
        h0, _, _ = lstm.forward(cell, x)
        h, _, cache = lstm.forward(cell, x, m=m)
        _, _, dlogits = by_name("js")(layers.affine(h0, V, b), layers.affine(h, V, b))  # (T, 1, C)
        found.append((cell, cache, dlogits, V))
    return found


def one_pass() -> list[list[str]]:
    """The double sum of Eq. 6 and the one backward pass."""
    differences, entries = [], []
    for cell, cache, dlogits, V in passes():
        dh = dlogits @ V.T / len(dlogits)  # lambda_t = 1/T
        one = lstm.backward(cell, cache, dh, weights=False).m
        double = influence_map_double_sum(lstm, cell, cache, dh)
        differences.append(float(np.abs(one - double).max()))
        entries.append(float(np.abs(one).max()))
    text = f"the two maps differ by at most {max(differences) / max(entries):.0e} of their largest entry"
    steps = len(trained()["examples"][0]["x"])
    return [["influence map", f"{text}; T backward passes become one (here {steps})", NETWORK]]


def rules() -> list[list[str]]:
    """How many units each rule flips."""
    rng = np.random.default_rng(0)
    told = []
    for budget, H in ((3, 100), (40, 1024), (69, 1150)):
        eps0, im = np.ones((1, H)), rng.standard_normal((1, H))
        count = {
            name: int((flip(eps0, im, eps0, budget, **options) != eps0).sum())  # type: ignore[arg-type]
            for name, options in RULES.items()
        }
        told.append(f"budget {budget} of {H}: " + ", ".join(f"{name} {n}" for name, n in count.items()))
    return [["flip rule, norm, budget", "; ".join(told) + " flips", "a random map, from the full network"]]


RULES: dict[str, dict[str, str]] = {
    "strict": {},
    "Alg. 1 counting": {"rule": "paper"},
    "Alg. 1 as printed": {"rule": "paper", "norm": "l2"},
    "sMNIST code": {"rule": "authors"},
    "text code": {"rule": "authors", "variant": "text"},
}


def shares(kind: str, options: dict[str, Any], seeds: Sequence[int] = range(8)) -> float:
    """The mean share of the exact maximum that a search returns, over digits and seeds."""
    network = trained()
    delta = explorer.BUDGET / len(network["U"])
    flips = explorer.all_masks(len(network["U"])).sum(axis=1)
    within = flips >= len(network["U"]) - explorer.BUDGET
    found = []
    for n in range(len(network["examples"])):
        d = np.array(explorer.table(network, n)["d"])
        for seed in seeds:
            mask = explorer.search(network, n, kind, options, delta=delta, seed=seed)["found"]["mask"]
            found.append(float(d[mask] / d[within].max()))
    return mean(found)


def starts_and_masks() -> list[list[str]]:
    """Where the greedy search starts, which mask it returns, and whether it may un-flip."""
    told = {
        "start": (("one random flip", {}), ("the full network, shared noise", {"start": "base"})),
        "which mask is kept (K = 2)": (("the best", {"K": 2}), ("the last", {"K": 2, "keep": "last"})),
        "un-flipping (K = 2)": (("allowed", {"K": 2}), ("not allowed", {"K": 2, "allow_unflip": False})),
    }
    made = []
    for what, options in told.items():
        found = ", ".join(f"{name} {shares('greedy', given):.2f}" for name, given in options)  # type: ignore[arg-type]
        made.append([what, f"share of the exact maximum of D: {found}", f"{NETWORK}, eight seeds"])
    return made


OTHERS = ("kl", "rkl", "l2", "logit2")


def scale_and_distance() -> list[list[str]]:
    """How far the scale and the choice of the distance move the worst mask."""
    network = trained()
    digits = range(len(network["examples"]))
    flips = len(network["U"]) - explorer.all_masks(len(network["U"])).sum(axis=1)
    ball = flips <= explorer.BUDGET

    def worst(n: int, distance: str, scale: str) -> tuple[int, float]:
        d = np.where(ball, explorer.table(network, n, distance, scale)["d"], -1)
        return int(d.argmax()), float(d.max())

    base = [worst(n, "js", "none") for n in digits]
    kept = [worst(n, "js", "kept") for n in digits]
    ratio = mean(one for _, one in kept) / mean(one for _, one in base)
    same = sum(one == other for (one, _), (other, _) in zip(base, kept, strict=True))
    scale = (
        f"with kept the largest D is {ratio:.2f} times that with none; the same mask in {same} of {len(base)} digits"
    )
    agree = {name: sum(worst(n, name, "none")[0] == base[n][0] for n in digits) for name in OTHERS}
    others = ", ".join(f"{name} {count}" for name, count in agree.items())
    distance = f"the worst mask is that of js in so many of {len(base)} digits: {others}"
    return [["mask scale", scale, NETWORK], ["distance", distance, NETWORK]]


def searches() -> list[list[str]]:
    """What the searches find, from the experiment on them."""
    data = load("search_quality")
    names = data["searches"]

    def share(search: str, group: str) -> float:
        column = names.index(search)
        return mean(mean(np.ravel(one["shares"][column])) for one in data["one_shot"] if one["group"] == group)

    told = ["greedy K=1", "greedy K=2", "greedy K=8", "reselect K=2", "Relax"]
    text = "; ".join(
        f"{group}: " + ", ".join(f"{name} {share(name, group):.2f}" for name in told) for group in ("H = 24", "H = 64")
    )
    training = data["along_training"]
    found = {name: mean(one["share"] for one in training if one["search"] == name) for name in ("greedy K=2", "Memory")}
    during = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    source = "experiments.search_quality"
    return [
        ["iterated budget, other searches", f"share of the exact maximum, 3 flips; {text}", source],
        ["other searches, in training", f"mean share along training: {during}", source],
    ]


def theory() -> list[list[str]]:
    """How sharp the constant is, and how often the chain fails where it is not a theorem."""
    data = load("bounds")
    results = data["results"]
    ratio = mean(one["chain"]["js"]["half_fd"] / one["chain"]["js"]["el"] for one in results)
    fails = max(data["kl"], key=lambda one: one["quarter_fd"] / one["el"])
    greedy = mean(one["chain"]["js"]["el_le_greedy"] for one in results)
    worst = f"¼ FD {fails['quarter_fd']:.3f} and EL {fails['el']:.3f} at a = {fails['a']:g}"
    source = "experiments.bounds"
    constant = f"½ FD is {ratio:.2f} of EL for JS in trained networks; for KL the counterexample has {worst}"
    chain = f"EL ≤ D of the greedy mask in {100 * greedy:.0f} % of examples, ≤ the exact maximum in all"
    return [["FD and EL", constant, source], ["EL and AdD", chain, source]]
