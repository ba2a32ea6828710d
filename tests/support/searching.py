"""What the tests of the searches share: the objective that a search is given, replays of a trace, a linear model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import namespace, to_host
from minadv.base.trees import tree_map
from minadv.distances import by_name, js
from minadv.objective import Objective, Search, Visit
from minadv.protocol import Comparison, ModelGrads, Site
from minadv.relax import Relax
from tests.support.compare import assert_close


@dataclass(frozen=True)
class Look(Search):
    """A search that remembers the objective that it was given, and returns the base mask."""

    given: list[Objective] = field(default_factory=list)
    name = "look"
    remembers = True

    def run(self, objective, first, rng):
        self.given.append(objective)
        return (Visit(objective.eps0, objective.score(objective.eps0)),)


def objective(net: Any, **options: Any) -> Objective:
    """The objective of `find_adversary` with these options, with its base pass."""
    look = Look()
    find_adversary(*net, search=look, **options)
    return look.given[0]


def bare(eps0: Any, budgets: dict[str, int], **given: Any) -> Objective:
    """An objective without a model, for what only ranks units."""
    rest = {"model": None, "params": None, "batch": None, "fixed": {}, "distance": js, "lam": None, "scale": "none"}
    return Objective(**{**rest, "p": None, "adv_noise": None, "state": None, "eps0": eps0, "budgets": budgets, **given})


def replay(net: Any, eps: Any, *, eps0: Any = None, scale: Any = "none", p: Any = None, **options: Any) -> Any:
    """D of a mask, (B,), from the protocol alone; ``eps0`` None is the full network."""
    model, params, batch = net
    distance, lam, state = (
        options.get(name, usual) for name, usual in (("distance", "js"), ("lam", None), ("state", None))
    )
    given = [{}, eps] if eps0 is None else [eps0, eps]
    ms = [{n: masks.scale(e, scale, p=p) for n, e in each.items()} for each in given]
    noises = options.get("noise"), options.get("adv_noise", options.get("noise"))
    f0, f1 = (model.body(params, batch, masks=m, noise=n, state=state)[0] for m, n in zip(ms, noises, strict=True))
    return model.compare(params, f0, f1, lam, by_name(distance)).d


def assert_true(net: Any, trace: Any, tol: float = 1e-10, **options: Any) -> None:
    """The mask is binary, within the budgets, and the best that was scored; every distance in the trace is right."""
    for name, budget in trace.budgets.items():
        eps = to_host(trace.eps[name])
        assert set(np.unique(eps)) <= {0.0, 1.0}
        assert ((eps != to_host(trace.eps0[name])).sum(axis=1) <= budget).all()
        np.testing.assert_array_equal(to_host(trace.flips[name]), (eps != to_host(trace.eps0[name])).sum(axis=1))
    for visit in trace.visits:
        if visit.d is not None:
            assert_close(visit.d, replay(net, visit.eps, **options), tol)
        if not visit.relaxed:
            for name, budget in trace.budgets.items():
                assert int(masks.hamming(visit.eps[name], trace.eps0[name]).max()) <= budget
                masks.expect_binary(name, visit.eps[name])
    if trace.d is not None:
        scored = np.array([to_host(visit.d) for visit in trace.visits if not visit.relaxed])
        np.testing.assert_array_equal(to_host(trace.d), scored.max(axis=0))
        assert_close(trace.d, replay(net, trace.eps, **options), tol)


@dataclass(frozen=True)
class Notes:
    x: Any  # (B, H)
    targets: Any = None

    def __len__(self):
        return len(self.x)


class Additive:
    """Two classes with the logits (z, 0), z = sum_i m_i x_i + c: a flip's effect on z is the same beside any other."""

    def __init__(self, H: int) -> None:
        self.sites = (Site("z", H),)

    def noise(self, rng, batch):
        return None

    def body(self, params, batch, *, masks, noise, state=None, dx=None):
        m = masks.get("z", namespace(batch.x).ones_like(batch.x))
        return (m * batch.x).sum(axis=1, keepdims=True)[None] + params["c"], None, batch.x

    def body_backward(self, params, cache, dfeatures, *, weights=True, inputs=False, masks=()):
        return ModelGrads(None, dict.fromkeys(masks, dfeatures[0] * cache), None, None)

    def logits(self, params, features):
        return namespace(features).concatenate([features, 0 * features], axis=-1)

    def compare(self, params, features0, features1, lam, distance, *, stop_base=False, weights=True):
        d, dlogits0, dlogits1 = distance(self.logits(params, features0), self.logits(params, features1))
        return Comparison(d[0], None if stop_base else dlogits0[..., :1], dlogits1[..., :1], None)


def additive(x: Any, c: float, put: Any) -> Any:
    """The model, its one parameter, and a batch of the rows of ``x``."""
    x = np.asarray(x, dtype=np.float64)
    return Additive(x.shape[1]), put({"c": np.array([c])}), put(Notes(x))


SHORT, LONG = Relax(), Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4)
ENGINES = {  # options of a classifier, each of which another engine computes
    **{f"plain {cell}": {"cell": cell, "engine": "plain"} for cell in ("rnn", "lstm", "gru")},
    **{f"fast {cell}": {"cell": cell, "engine": "fast"} for cell in ("rnn", "lstm", "gru")},
    **{f"recomputing {cell}": {"cell": cell, "engine": "fast", "remat": True} for cell in ("rnn", "lstm", "gru")},
    "recomputing plain lstm": {"cell": "lstm", "engine": "plain", "remat": True},
}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


def weighed_log_odds(logits, lam, y):
    """The same from logits (N, B, C), exact to rounding however sure they are."""
    y = logits.argmax(axis=-1) if y is None else y
    others = np.arange(logits.shape[-1]) != y[..., None]
    surprise = np.log1p((np.exp(logits - np.take_along_axis(logits, y[..., None], axis=-1)) * others).sum(axis=-1))
    lam = np.eye(len(logits))[-1] if lam is None else to_host(lam)
    lam = lam if lam.ndim == 2 else lam[:, None]
    mean = (lam * surprise).sum(axis=0) / lam.sum(axis=0)
    return -mean - np.log(-np.expm1(-mean)), y


def slope(f, m, step=1e-6):
    """Central differences of f (B,) in each unit of m (B, H), whose rows do not know each other."""
    columns = []
    for j in range(m.shape[1]):
        up, down = m.copy(), m.copy()
        up[:, j] += step
        down[:, j] -= step
        columns.append((to_host(f(up)) - to_host(f(down))) / (2 * step))
    return np.stack(columns, axis=1)


def cast(tree, dtype):
    return tree_map(lambda a: a.astype(dtype) if a.dtype.kind == "f" else a, tree)
