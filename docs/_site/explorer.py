r"""The explorer's Python side: what a small network does under each of its masks, and what each search looks at.

Pure functions of values that JSON can hold, over minadv alone. They run at build time in CPython and in the page's
worker alike; the page draws what they return and computes nothing itself.

A **network** is the dictionary that `network.trained` makes: the weights of an LSTM classifier, and a few digits. A
mask has a number, in which bit i is set where unit i is dropped: 0 is the full network.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from minadv import distances, layers, lstm, masks
from minadv.adversary import Trace, find_adversary
from minadv.models.classifier import Batch, Classifier, Params
from minadv.objective import Objective
from minadv.searches import Exact, Greedy, Memory, Random, Relax, Reselect

SITE = "layer0"
INVERTED_P = 0.1
"""The probability of dropping that the scale ``inverted`` is for."""
BUDGET = 3
"""Flips at the default settings: delta = 3/8."""
SEARCHES = {
    "greedy-k1": {"label": "Greedy, K = 1", "kind": "greedy", "options": {"K": 1}},
    "greedy-k2": {"label": "Greedy, K = 2", "kind": "greedy", "options": {"K": 2}},
    "greedy-k3": {"label": "Greedy, K = 3", "kind": "greedy", "options": {"K": 3}},
    "greedy-paper": {"label": "Greedy, Algorithm 1's rule", "kind": "greedy", "options": {"K": 1, "rule": "paper"}},
    "greedy-authors": {
        "label": "Greedy, the code's rule",
        "kind": "greedy",
        "options": {"K": 1, "rule": "authors"},
    },
    "greedy-base": {"label": "Greedy from the full network", "kind": "greedy", "options": {"K": 1, "start": "base"}},
    "reselect": {"label": "Reselect, K = 2", "kind": "reselect", "options": {"K": 2}},
    "relax": {"label": "Relax", "kind": "relax", "options": {}},
    "memory": {"label": "Memory, four visits", "kind": "memory", "options": {"visits": 4}},
    "random": {"label": "Random, best of 8", "kind": "random", "options": {"tries": 8}},
    "exact": {"label": "Exact", "kind": "exact", "options": {}},
}
"""The searches that the page compares."""


def model_of(network: dict[str, Any]) -> tuple[Classifier, Params]:
    """The classifier and its parameters, in double precision, run by the readable cells."""
    W, U, b, V, c = (np.array(network[name], dtype=np.float64) for name in ("W", "U", "b", "V", "c"))
    model = Classifier(len(W), len(U), len(c), cell="lstm", engine="plain")
    return model, Params((lstm.Params(W, U, b),), V, c)


def batch_of(network: dict[str, Any], example: int, copies: int = 1) -> Batch:
    """A digit as a batch, row after row, time first; ``copies`` of it."""
    x = np.array(network["examples"][example]["x"], dtype=np.float64)  # (T, I)
    return Batch(np.repeat(x[:, None], copies, axis=1))


def all_masks(n_hidden: int) -> np.ndarray:
    """Every mask, in the order of their numbers: (2^H, H)."""
    numbers = np.arange(2**n_hidden)[:, None]
    return 1.0 - (numbers >> np.arange(n_hidden) & 1)


def number_of(eps: np.ndarray) -> int | None:
    """The number of a mask; None for one that flips units in part."""
    dropped = 1 - np.asarray(eps)
    if not np.isin(dropped, (0, 1)).all():
        return None
    return int((dropped.astype(int) << np.arange(dropped.size)).sum())


def table(network: dict[str, Any], example: int, distance: str = "js", scale: str = "none") -> dict[str, Any]:
    """What the network does under every mask: D, influence map, prediction and states, a row a mask.

    ``p0`` is the prediction of the base pass, the full network with m = 1 whatever the scale, and ``h0`` its states.
    """
    model, params = model_of(network)
    H = model.n_hidden
    eps = all_masks(H)  # (2^H, H)
    batch = batch_of(network, example, len(eps))
    p = INVERTED_P if scale == "inverted" else None
    objective = Objective(
        model=model,
        params=params,
        batch=batch,
        eps0={SITE: np.ones_like(eps)},
        budgets={SITE: H},
        fixed={},
        distance=distances.by_name(distance),
        lam=None,
        scale=scale,  # type: ignore[arg-type]
        p=p,
        adv_noise=None,
        state=None,
    )
    _, base, visit = objective.begin({}, None, {SITE: eps})
    assert visit is not None and visit.im is not None and visit.d is not None
    h, _, _ = lstm.forward(params.cells[0], batch.x, m=masks.scale(eps, scale, p=p))  # type: ignore[arg-type]
    h0, _, _ = lstm.forward(params.cells[0], batch.x[:, :1])
    return {
        "example": example,
        "distance": distance,
        "scale": scale,
        "d": visit.d.tolist(),
        "im": visit.im[SITE].tolist(),
        "p": _probabilities(params, h[-1]).tolist(),
        "h": h.transpose(1, 2, 0).tolist(),  # mask, unit, step
        "p0": _probabilities(params, base.features[-1, :1])[0].tolist(),
        "h0": h0[:, 0].T.tolist(),
    }


def drawn(network: dict[str, Any], example: int, distance: str = "js", scale: str = "none") -> dict[str, Any]:
    """`table` in as many digits as a page needs: seven of D, five of map and prediction, hundredths of the states."""
    exact = table(network, example, distance, scale)
    rounded = {name: _digits(exact[name], n) for name, n in (("d", 7), ("im", 5), ("p", 5), ("p0", 5))}
    states = {name: np.rint(100 * np.array(exact[name])).astype(int).tolist() for name in ("h", "h0")}
    return {**exact, **rounded, **states}


def _digits(values: Any, n: int) -> Any:
    return [_digits(value, n) for value in values] if isinstance(values, list) else float(f"{values:.{n}g}")


def _probabilities(params: Params, h: np.ndarray) -> np.ndarray:
    assert params.V is not None and params.b is not None
    return np.exp(layers.log_softmax(layers.affine(h, params.V, params.b)))  # type: ignore[no-any-return]


def search(
    network: dict[str, Any],
    example: int,
    kind: str,
    options: dict[str, Any] | None = None,
    delta: float = 0.375,
    distance: str = "js",
    scale: str = "none",
    seed: int = 0,
) -> dict[str, Any]:
    """Every mask that a search looks at, in order, with a sentence each; what it returns, and what that cost.

    ``kind`` is greedy, reselect, relax, memory, random or exact; ``options`` are fields of its record, and for memory
    ``visits``, how often the example is met. An input that the library refuses comes back as ``error``, its sentence.
    """
    options = dict(options or {})
    model, params = model_of(network)
    visits = int(options.pop("visits", 1))
    given: dict[str, Any] = {"delta": delta, "distance": distance, "scale": scale}
    if scale == "inverted":
        given["p"] = INVERTED_P
    steps: list[dict[str, Any]] = []
    forward = backward = 0
    trace: Trace | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            chosen = _record(kind, options)
            for visit in range(visits):
                trace = find_adversary(
                    model,
                    params,
                    batch_of(network, example),
                    search=chosen,
                    memory=None if trace is None else trace.memory,
                    rng=np.random.default_rng(seed),
                    **given,
                )
                forward, backward = forward + trace.passes.forward, backward + trace.passes.backward
                steps += _steps(trace, visit)
        except (TypeError, ValueError) as error:
            return {"error": str(error)}
    assert trace is not None
    eps = trace.eps[SITE][0]
    return {
        "kind": kind,
        "record": repr(chosen),
        "steps": steps,
        "found": {"eps": eps.tolist(), "mask": number_of(eps), "d": None if trace.d is None else float(trace.d[0])},
        "budget": trace.budgets[SITE],
        "passes": {"forward": forward, "backward": backward},
        "warnings": list(dict.fromkeys(str(warning.message) for warning in caught)),
        "error": None,
    }


def _record(kind: str, options: dict[str, Any]) -> Any:
    kinds = {
        "greedy": Greedy,
        "reselect": Reselect,
        "relax": Relax,
        "memory": Memory,
        "random": Random,
        "exact": Exact,
    }
    if kind not in kinds:
        raise ValueError(f"search is {kind!r}, expected one of {', '.join(kinds)}")
    if "stages" in options:
        options = {**options, "stages": tuple(options["stages"])}
    return kinds[kind](**options)


def _steps(trace: Trace, visit: int) -> list[dict[str, Any]]:
    """The visits of a trace with what each is, in words."""
    notes = _notes(trace, visit)
    steps = []
    for seen, note in zip(trace.visits, notes, strict=True):
        if note is None:
            continue
        eps = seen.eps[SITE][0]
        steps.append(
            {
                "eps": eps.tolist(),
                "mask": number_of(eps),
                "d": None if seen.d is None else float(seen.d[0]),
                "im": None if seen.im is None else seen.im[SITE][0].tolist(),
                "note": note,
            }
        )
    return steps


def _notes(trace: Trace, visit: int) -> list[str | None]:
    """A sentence for each visit of the trace; None for one that repeats another."""
    search, b = trace.search, trace.budgets[SITE]
    n = len(trace.visits)
    changes = [""] + [_change(trace.visits[k - 1], trace.visits[k]) for k in range(1, n)]
    if isinstance(search, Greedy):
        at_base = search.start == "base"
        notes = [
            "Start at the full network itself, where the map is zero but for rounding."
            if at_base
            else f"Start: {_flipped(trace, 0)} flipped at random. The influence map is taken here."
        ]
        for k in range(1, n):
            allowed = f" of at most {math.ceil(k * b / search.K)}" if search.rule == "strict" else ""
            again = "The map is taken again here." if k < n - 1 else "This is the last mask."
            notes.append(f"Flip {k} of {search.K}: {changes[k]}; {_count(trace, k)} flips{allowed}. {again}")
        return list(notes)
    if isinstance(search, Reselect):
        notes = [
            f"Start: {_flipped(trace, 0)} flipped at random. The map is taken here.",
            f"One side: the {b} units of the largest gains.",
            f"The other side: the {b} units of the largest negated gains.",
        ]
        for k in range(1, search.K):
            notes.append(
                "The better side, and the map there." if k == 1 else f"Re-selection {k - 1}, and the map there."
            )
        if search.K > 1:
            notes.append(f"Re-selection: the top {b} of that map, chosen afresh from the full network.")
        if search.swaps:
            notes.append("The best mask so far, and the map there.")
            notes += [f"Exchange {k + 1}: {changes[len(notes) + k]}." for k in range(n - len(notes))]
        return list(notes)
    if isinstance(search, Relax):
        notes = [
            f"Relaxed mask: the {min(L * b, len(trace.eps[SITE][0]))} most promising units flipped by 1/{L}. "
            "The map is taken here."
            for L in search.stages
        ]
        notes += [f"The top {b} of that map, and the map there."] * search.reselect
        if len(notes) < n:
            notes.append(f"The top {b} of the last map, chosen from the full network.")
        if search.runner_up:
            notes.append("The runner-up: the set that the map ranks second.")
        notes += ["The mask of another example (there is none here, so it is tried again)."] * search.borrow
        if search.swaps:
            notes.append("The best mask so far, and the map there.")
            notes += [f"Exchange {k + 1}: {changes[len(notes) + k]}." for k in range(n - len(notes))]
        return list(notes)
    if isinstance(search, Memory):
        afresh = visit % search.fresh == 0 if search.fresh else visit == 0
        start = (
            f"Visit {visit + 1}, afresh: the {min(search.stage * b, len(trace.eps[SITE][0]))} most promising units "
            f"flipped by 1/{search.stage}. The map is taken here."
            if afresh
            else f"Visit {visit + 1}: the mask that was found before, and the map there."
        )
        tried = "the mask that was found before competes" if afresh and visit else "the runner-up of that map"
        selected = f"Visit {visit + 1}: the top {b} of that map, chosen from the full network."
        rest = [f"Visit {visit + 1}: {tried}."] * (n - 3)
        return [start, None, selected, *rest]
    if isinstance(search, Random):
        return [f"Random mask {k + 1}: {_flipped(trace, k)} flipped." for k in range(n)]
    return [f"Every mask within {b} flips was tried: this is the best, {_flipped(trace, 0)} flipped."]


def _units(which: np.ndarray) -> str:
    """Unit numbers in words, as the page shows them: counted from 1."""
    names = [str(int(i) + 1) for i in np.flatnonzero(which)]
    if not names:
        return "no unit"
    return f"unit {names[0]}" if len(names) == 1 else f"units {', '.join(names[:-1])} and {names[-1]}"


def _flipped(trace: Trace, k: int) -> str:
    return _units(trace.visits[k].eps[SITE][0] != trace.eps0[SITE][0])


def _count(trace: Trace, k: int) -> int:
    return int((trace.visits[k].eps[SITE][0] != trace.eps0[SITE][0]).sum())


def _change(before: Any, after: Any) -> str:
    """What was dropped and kept from one visit to the next."""
    old, new = before.eps[SITE][0], after.eps[SITE][0]
    parts = [
        f"{_units(which)} {verb}" for which, verb in ((new < old, "dropped"), (new > old, "kept again")) if which.any()
    ]
    return ", ".join(parts) or "nothing changes"
