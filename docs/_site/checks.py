"""The check of each file of the paper: gradients against central differences, or what else must hold of its functions.

Run in the build on the file as it is, and in the browser on the file as the reader has edited it: everything of minadv
is imported when a check runs. Each takes well under a second of a laptop.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One thing that was checked."""

    name: str
    passed: bool
    detail: str


def check(module: str) -> list[Row]:
    """All rows of the check of a module."""
    return list(CHECKS[module]())


def report(module: str) -> dict[str, Any]:
    """The same for the page: the verdicts, and a table."""
    try:
        rows = check(module)
    except Exception as problem:
        rows = [Row(f"{module}.py runs", False, f"{type(problem).__name__}: {problem}")]
    return {"rows": [{"name": row.name, "passed": row.passed} for row in rows], "html": as_html(rows)}


def as_html(rows: list[Row]) -> str:
    made = []
    for row in rows:
        kind, word = ("right", "✓ ok") if row.passed else ("wrong", "✗ wrong")
        verdict = f'<span class="verdict {kind}">{word}</span>'
        name, detail = html.escape(row.name), html.escape(row.detail)
        made.append(f"<tr><td>{verdict}</td><td><code>{name}</code></td><td>{detail}</td></tr>")
    head = "<thead><tr><th>verdict</th><th>what</th><th>numbers</th></tr></thead>"
    return f'<div class="scrolls"><table class="page-table check">{head}<tbody>{"".join(made)}</tbody></table></div>'


def _gradients(forward: Any, backward: Any, args: dict[str, Any], rng: Any, prefix: str = "") -> Iterator[Row]:
    from minadv import gradcheck

    for row in gradcheck.check(forward, backward, args, rng=rng).rows:
        numbers = (
            f"|analytic| {row.analytic:.3e}, |numeric| {row.numeric:.3e}, difference {row.error:.1e} at {row.worst}"
        )
        yield Row(f"{prefix}d{row.name}", row.passed, numbers)


def _cell(name: str) -> Iterator[Row]:
    """Every argument of a cell's forward, with a mask and padding."""
    import importlib

    import numpy as np

    from minadv.base.trees import tree_map

    cell = importlib.import_module(f"minadv.{name}")
    rng = np.random.default_rng(0)
    T, B, I, H = 4, 2, 3, 4
    params = tree_map(lambda a: rng.uniform(-1, 1, a.shape), cell.init(rng, I, H, dtype=np.float64))
    x, m = rng.standard_normal((T, B, I)), rng.uniform(0.2, 1.5, (B, H))
    _, like, _ = cell.forward(params, x)
    state = tree_map(lambda a: rng.uniform(-1, 1, a.shape), like)
    valid = np.array([[True, True], [True, True], [True, True], [True, False]])

    def forward(params: Any, x: Any, state: Any, m: Any) -> Any:
        h, last, _ = cell.forward(params, x, state=state, m=m, valid=valid)
        return {"h": h, "state": last}

    def backward(args: Any, d: Any) -> Any:
        _, _, cache = cell.forward(args["params"], args["x"], state=args["state"], m=args["m"], valid=valid)
        grads = cell.backward(args["params"], cache, d["h"], dstate=d["state"])
        return {"params": grads.params, "x": grads.x, "state": grads.state, "m": grads.m}

    return _gradients(forward, backward, {"params": params, "x": x, "state": state, "m": m}, rng)


def _masks() -> Iterator[Row]:
    import numpy as np

    from minadv import masks

    rng = np.random.default_rng(0)
    eps = rng.uniform(0.2, 1, (2, 5))
    for how in masks.SCALES:
        yield from _gradients(
            lambda eps, how=how: masks.scale(eps, how, p=0.3),
            lambda args, dm, how=how: {"eps": masks.scale_backward(args["eps"], dm, how, p=0.3)},
            {"eps": eps},
            rng,
            f'scale="{how}": ',
        )
    ones = np.ones((4, 6))
    far = masks.hamming(masks.one_flip(rng, ones), ones)
    yield Row("one_flip", bool((far == 1).all()), f"units that differ, by example: {far.tolist()}")
    far = masks.hamming(masks.random_flips(rng, ones, 3), ones)
    yield Row("random_flips", bool((far == 3).all()), f"units that differ with a budget of 3: {far.tolist()}")
    b = [masks.budget(d, 100) for d in (0.03, 0.04, 0.29)]
    yield Row("budget", b == [3, 4, 29], f"of 100 units, for delta 0.03, 0.04 and 0.29: {b}")


def _distances() -> Iterator[Row]:
    import numpy as np

    from minadv import distances

    rng = np.random.default_rng(0)
    args = {"logits0": rng.normal(0, 2, (3, 4)), "logits1": rng.normal(0, 2, (3, 4))}
    for name, distance in distances.DISTANCES.items():

        def backward(args: Any, dD: Any, distance: Any = distance) -> Any:
            _, d0, d1 = distance(args["logits0"], args["logits1"])
            return {"logits0": dD[:, None] * d0, "logits1": dD[:, None] * d1}

        def forward(logits0: Any, logits1: Any, distance: Any = distance) -> Any:
            return distance(logits0, logits1)[0]

        yield from _gradients(forward, backward, args, rng, f"{name}: ")
        same = float(np.abs(distance(args["logits0"], args["logits0"])[0]).max())
        yield Row(f"{name} of equal predictions", same == 0, f"largest {same:.1e}")


def _influence() -> Iterator[Row]:
    """The sum of Eq. 6 against the double sum, and both against central differences of the distance in m."""
    import numpy as np

    from minadv import distances, gru, influence, lstm, rnn

    rng = np.random.default_rng(0)
    T, B, I, H = 4, 2, 3, 4
    for cell in (rnn, lstm, gru):
        params = cell.init(rng, I, H, dtype=np.float64)
        x, m = rng.standard_normal((T, B, I)), rng.uniform(0.3, 1, (B, H))
        h0 = cell.forward(params, x)[0]

        def D(m: Any, cell: Any = cell, params: Any = params, x: Any = x, h0: Any = h0) -> Any:
            return distances.js(3 * h0, 3 * cell.forward(params, x, m=m)[0])[0].sum(axis=0)  # lambda_t = 1

        def both(m: Any, cell: Any = cell, params: Any = params, x: Any = x, h0: Any = h0) -> Any:
            h, _, cache = cell.forward(params, x, m=m)
            dh = 3 * distances.js(3 * h0, 3 * h)[2]
            hhat = cell.backward(params, cache, dh, weights=False).hhat
            one = influence.influence_map(cache.h[:-1], hhat)
            return one, influence.influence_map_double_sum(cell, params, cache, dh)

        one, two = both(m)
        name = cell.__name__.split(".")[-1]
        apart = float(np.abs(one - two).max())
        near = apart <= 1e-10 * float(np.abs(two).max())
        yield Row(f"{name}: one sum = double sum", near, f"largest difference {apart:.1e}")
        for what, n in (("influence_map", 0), ("influence_map_double_sum", 1)):

            def backward(args: Any, dD: Any, both: Any = both, n: int = n) -> Any:
                return {"m": dD[:, None] * both(args["m"])[n]}

            for row in _gradients(D, backward, {"m": m}, rng):
                yield Row(f"{name}: {what}", row.passed, row.detail)


def _flip() -> Iterator[Row]:
    import numpy as np

    from minadv import bounds, flip, masks

    rng = np.random.default_rng(0)
    B, H, b = 40, 8, 3
    eps0 = (rng.random((B, H)) < 0.7).astype(float)
    im = rng.standard_normal((B, H))
    strict = flip.flip(eps0, im, eps0, b)
    far = masks.hamming(strict, eps0)
    yield Row("strict: within the budget", bool((far <= b).all()), f"most flips {int(far.max())}, budget {b}")
    best = np.array([(bounds.ball(e, b) @ g).max() for e, g in zip(eps0, im, strict=True)])
    short = float((best - (strict * im).sum(axis=1)).max())
    yield Row("strict: the best of all masks, for a linear D", short <= 1e-12, f"largest shortfall {short:.1e}")
    start = masks.one_flip(rng, eps0)
    far = masks.hamming(flip.flip(start, im, eps0, b), eps0)
    yield Row("strict, from one random flip: within the budget", bool((far <= b).all()), f"most flips {int(far.max())}")
    far = masks.hamming(flip.flip(eps0, im, eps0, b, rule="paper"), eps0)
    yield Row("paper: one beyond the budget", bool((far == b + 1).all()), f"flips {sorted(set(far.tolist()))}")
    far = masks.hamming(flip.flip(np.ones_like(im), -np.abs(im), np.ones_like(im), b, rule="authors"), np.ones_like(im))
    yield Row("authors: b of the units that disagree", bool((far == b).all()), f"changes {sorted(set(far.tolist()))}")


def _small_network() -> tuple[Any, Any, Any, Any]:
    import numpy as np

    from minadv.base.trees import tree_map
    from minadv.models import Batch, Classifier

    rng = np.random.default_rng(3)
    model = Classifier(2, 6, 3, cell="rnn")
    params = tree_map(lambda a: rng.uniform(-1.2, 1.2, a.shape), model.init(rng, dtype=np.float64))
    return model, params, Batch(rng.standard_normal((4, 3, 2)), rng.integers(0, 3, 3), None), rng


def _enumerated(budget: int) -> Any:
    """The distance of every mask within the budget, (n, B), by running each of them: the truth."""
    import numpy as np

    from minadv import bounds, distances

    model, params, batch, _ = _small_network()
    base = bounds.base_output(model, params, batch)[-1]
    outputs = bounds.outputs(model, params, batch, bounds.ball(np.ones(6), budget))[:, -1]
    return distances.js(np.broadcast_to(base, outputs.shape), outputs)[0]


def _searched(search: Any, budget: int = 2) -> tuple[Any, float]:
    """A trace, and by how much its distance misses that of its mask, run afresh."""
    import numpy as np

    from minadv import bounds, distances
    from minadv.adversary import find_adversary

    model, params, batch, rng = _small_network()
    trace = find_adversary(model, params, batch, search=search, budgets=budget, rng=rng)
    features, _, _ = model.body(params, batch, masks=trace.eps, noise=None)
    logits = model.logits(params, features)[-1]
    d = distances.js(bounds.base_output(model, params, batch)[-1], logits)[0]
    return trace, float(np.abs(d - trace.d).max())


def _searches() -> Iterator[Row]:
    from minadv import searches

    truth = _enumerated(2).max(axis=0)
    rules = {
        "Greedy()": searches.Greedy(),
        "Greedy(K=2)": searches.Greedy(K=2),
        "Reselect()": searches.Reselect(),
        "Relax()": searches.Relax(),
        "Random(tries=5)": searches.Random(tries=5),
        "Exact()": searches.Exact(),
    }
    for name, search in rules.items():
        trace, apart = _searched(search)
        flips = int(trace.flips["layer0"].max())
        yield Row(f"{name}: within the budget", flips <= 2, f"most flips {flips}, budget 2")
        yield Row(f"{name}: d is the distance at its mask", apart <= 1e-12, f"largest difference {apart:.1e}")
        share = float((trace.d / truth).mean())
        if name == "Exact()":
            yield Row("Exact(): finds the maximum", bool((abs(trace.d - truth) <= 1e-12).all()), f"share {share:.3f}")
        else:
            below = bool((trace.d <= truth + 1e-12).all())
            yield Row(f"{name}: not above the maximum", below, f"share of it {share:.3f}")


def _adversary() -> Iterator[Row]:
    import numpy as np

    from minadv import searches

    trace, apart = _searched(searches.Greedy(K=2))
    yield Row("Trace.d is the distance at Trace.eps", apart <= 1e-12, f"largest difference {apart:.1e}")
    yield Row("passes of K = 2", (trace.passes.forward, trace.passes.backward) == (3, 2), f"{trace.passes}")
    flips = trace.flips["layer0"]
    yield Row("within the budget", bool((flips <= 2).all()), f"flips {flips.tolist()}, budget 2")
    start = trace.visits[0]
    far = (start.eps["layer0"] != trace.eps0["layer0"]).sum(axis=1)
    yield Row("the start is one flip away", bool((far == 1).all()), f"flips {far.tolist()}")
    exact, _ = _searched(searches.Exact())
    yield Row("not above the exact maximum", bool((trace.d <= exact.d + 1e-12).all()), f"{trace.d.round(4).tolist()}")
    found = bool(np.allclose(exact.d, _enumerated(2).max(axis=0)))
    yield Row("the exact maximum", found, f"{exact.d.round(4).tolist()}")


def _regularizers() -> Iterator[Row]:
    """The gradient of likelihood and regularizer, by every parameter, with the same draws in every run."""
    import numpy as np

    from minadv.regularizers import EL, FD, VD, AdD, Plain

    model, params, batch, rng = _small_network()
    for name, regularizer in {
        "Plain": Plain(), "VD": VD(p=0.3), "EL": EL(p=0.3), "FD": FD(p=0.3), "AdD": AdD(budgets=2),
    }.items():  # fmt: skip

        def term(params: Any, regularizer: Any = regularizer) -> Any:
            again = np.random.default_rng(5)
            return regularizer(model, params, batch, rng=again, weight=0.7, likelihood=1.0)

        def forward(params: Any, term: Any = term) -> Any:
            found = term(params)
            return np.atleast_1d((found.nll + 0.7 * found.value).mean())

        def backward(args: Any, d: Any, term: Any = term) -> Any:
            from minadv.base.trees import tree_map

            return {"params": tree_map(lambda g: d[0] * g, term(args["params"]).grads)}

        yield from _gradients(forward, backward, {"params": params}, rng, f"{name}: ")


def _bounds() -> Iterator[Row]:
    import numpy as np

    from minadv import bounds, layers

    model, params, batch, rng = _small_network()
    eps = bounds.all_masks(6)
    w = bounds.bernoulli_weights(eps, 0.3)
    logits0 = bounds.base_output(model, params, batch)
    logits = bounds.outputs(model, params, batch, eps)
    yield Row("probabilities of all 64 masks", bool(np.isclose(w.sum(), 1)), f"sum {w.sum():.6f}")
    for name, bias in (("l2", bounds.bias_l2), ("js", bounds.bias_js), ("skl", bounds.bias_skl)):
        chain = bounds.chain(logits0, logits, w, distance=name)
        apart = float(np.abs(chain.bias - bias(logits0[-1], logits[:, -1], w)).max())
        yield Row(f"{name}: EL = ½ FD + bias", apart <= 1e-12, f"largest difference {apart:.1e}")
        if name != "skl":
            share = (chain.fd / 2 / chain.el).round(3).tolist()
            yield Row(f"{name}: ½ FD ≤ EL", bool((chain.fd / 2 <= chain.el).all()), f"{share} of EL")
        share = (chain.el / chain.add).round(3).tolist()
        yield Row(f"{name}: EL ≤ AdD", bool((chain.el <= chain.add).all()), f"{share} of AdD")
    p = np.exp(layers.log_softmax(logits[:, -1]))
    terms = bounds.remark1(p, p[rng.permutation(len(p))], w)
    apart = float(np.abs(terms.total - terms.expected).max())
    yield Row("Remark 1: the three terms add up", apart <= 1e-12, f"largest difference {apart:.1e}")


CHECKS: dict[str, Callable[[], Iterator[Row]]] = {
    "rnn": lambda: _cell("rnn"),
    "lstm": lambda: _cell("lstm"),
    "gru": lambda: _cell("gru"),
    "masks": _masks,
    "distances": _distances,
    "influence": _influence,
    "flip": _flip,
    "adversary": _adversary,
    "searches": _searches,
    "regularizers": _regularizers,
    "bounds": _bounds,
}
