r"""The search for the adversarial mask: base pass, distance, influence map, flip, K times (Eq. 4).

.. math:: \epsilon^{adv} = \arg\max_{\epsilon:\ \#\{i:\, \epsilon_i \ne \epsilon^0_i\} \le b} \;
          \sum_t \lambda_t D[p_t(\epsilon^0) \,\|\, p_t(\epsilon)]

`find_adversary` is the door to it, over any model of `minadv.protocol`. Where the parts of the paper's search are:

* :math:`p_t(\epsilon^0)`, the base pass, and the first influence map beside it: `minadv.objective.Objective.begin`;
* :math:`\epsilon^s`, the mask at which the search starts: `minadv.searches.first_mask`;
* :math:`\sum_t \lambda_t D_t`: the model's ``compare``; its gradient, the map: `Objective.influence_of`;
* the flip, K times (Eq. 7, 8): `minadv.searches.Greedy`, by `minadv.flip.flip`.

What comes out is a `Trace` of every mask that was looked at. Nothing here is differentiated: the mask that is found is
a constant of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import distances, masks, protocol
from minadv.backend import Array, namespace
from minadv.base.checks import expect_floating, expect_generator, expect_shape
from minadv.base.numbers import Delta
from minadv.base.shared_draws import Rng
from minadv.base.trees import any_array
from minadv.objective import Masks, Objective, Remembered, Search, Visit
from minadv.protocol import Model, Pass, Site, choose_sites
from minadv.searches import Greedy


@dataclass(frozen=True)
class Passes:
    """How many passes the search ran, beside the base pass."""

    forward: int
    backward: int


@dataclass(frozen=True)
class Trace:
    """The mask that was found, and everything that led to it."""

    eps: Masks
    eps0: Masks
    im: Masks | None  # the last map taken; it belongs to the last visit with an ``im``, not to eps
    d: Array | None  # (B,), the distance at eps; None for keep="last", whose last mask is not scored
    passes: Passes
    budgets: dict[str, int]
    visits: tuple[Visit, ...]  # in order; an exact search keeps only the best
    search: Search
    base: Pass | None  # the pass under the base mask
    flips: dict[str, Array]  # (B,) a site: Hamming distance of eps to eps0
    memory: Remembered | None = None  # of a search that remembers: what to give it at the next visit
    zero: Array | None = None  # bool (B,): of which examples an influence map was zero; None if no map was taken

    @property
    def start(self) -> Masks:
        r"""The mask at which Greedy and Reselect start, :math:`\epsilon^s`; of other searches the first visit."""
        return self.visits[0].eps


def find_adversary(
    model: Model,
    params: Any,
    batch: Any,
    *,
    search: Search = Greedy(),
    delta: Delta | Mapping[str, Delta] | None = None,
    budgets: int | Mapping[str, int] | None = None,
    eps0: Array | Mapping[str, Array] | None = None,
    distance: str = "js",
    lam: Array | None = None,
    scale: masks.Scale = "none",
    p: float | None = None,
    noise: Any = None,
    adv_noise: Any = None,
    sites: tuple[str, ...] | None = None,
    state: Any = None,
    memory: Remembered | None = None,
    rng: Rng | None = None,
) -> Trace:
    r"""Find the mask, within a budget of flips, whose prediction is furthest from that of the base mask (Eq. 4).

    Give ``delta``, a share of the units, or ``budgets``, a number of flips; one for all sites or a dict by site.
    ``eps0`` is the base mask (default: the expected mask, the full network, m = 1). ``distance`` names one of
    `minadv.distances`; ``scale`` is as in `minadv.masks.scale`, with ``p`` for ``"inverted"``. ``noise`` is that of the
    base pass (None: no noise), ``adv_noise`` that of the perturbed passes (None: the same). ``lam``, (N,) or (N, B) for
    the N steps of the model's features, weighs them (default: the model's). ``sites`` defaults to every recurrent one;
    ``state`` is the recurrent state that every pass starts from. ``memory`` is what a search that remembers returned as
    ``Trace.memory`` for the same examples (None: they are new). ``rng`` may be None for a search that draws nothing.

    The base pass is in the trace, so that gradients can be taken through it later; the other passes may be forgotten
    (`minadv.protocol.scope`).

    Raises ValueError for anything out of range before any pass is run (for ``lam``, whose shape only the model knows,
    at the first comparison), and for a distance or a map that is NaN, naming the example.
    """
    expect_search(search)
    expect_generator(rng)
    masks.expect_scale(scale, p)
    b = find_budgets(model, search=search, sites=sites, delta=delta, budgets=budgets)
    searched = tuple(site for site in model.sites if site.name in b)
    eps0, m0, fixed = _base_mask(model, params, batch, searched, eps0, scale, p)
    objective = Objective(
        model=model,
        params=params,
        batch=batch,
        eps0=eps0,
        budgets=b,
        fixed=fixed,
        distance=distances.by_name(distance),
        lam=lam,
        scale=scale,
        p=p,
        adv_noise=noise if adv_noise is None else adv_noise,
        state=state,
        start=getattr(search, "start", None),
        memory=_expect_memory(memory, search, eps0, b),
    )
    with protocol.scope(model) as keep:  # at its end the model may forget every pass but the base pass
        with protocol.scope(model) as keep_for_search:
            objective, base, first = objective.begin(m0, noise, search.first(eps0, b, rng))
            keep_for_search(base.cache)
        visits = search.run(objective, first, rng)  # Eq. 4, the argmax
        keep(base.cache)
    objective.expect_numbers()
    result = search.result(visits)
    maps = [visit.im for visit in visits if visit.im is not None]
    remembered = None
    if search.remembers and result.d is not None:
        flips = {name: result.eps[name] != eps0[name] for name in eps0}
        seen = Remembered.nothing(eps0) if memory is None else memory
        remembered = Remembered(flips, result.d, seen.visits + 1)
    return Trace(
        eps=result.eps,
        eps0=eps0,
        im=maps[-1] if maps else None,
        d=result.d,
        passes=Passes(*objective.spent),
        budgets=b,
        visits=visits,
        search=search,
        base=base,
        flips={name: masks.hamming(result.eps[name], eps0[name]) for name in eps0},
        memory=remembered,
        zero=objective.zero[0] if objective.zero else None,
    )


def _expect_memory(
    memory: Remembered | None, search: Search, eps0: Masks, budgets: Mapping[str, int]
) -> Remembered | None:
    """The memory, if it fits: boolean flips of these examples and sites, within the budgets; else raise an error."""
    if memory is None:
        return None
    if not search.remembers:
        raise ValueError(f"memory was given, and {search} remembers nothing: use search=Memory()")
    B = len(next(iter(eps0.values())))
    for what, flips in (("flips", memory.flips), ("lent", memory.lent)):
        if flips is None:
            continue
        if set(flips) != set(eps0):
            raise ValueError(f"memory.{what} has {sorted(flips)}, expected one entry for each of {sorted(eps0)}")
        rows: int | str = "P" if what == "lent" else B
        for name, e in eps0.items():
            label = f"memory.{what}[{name!r}]"
            namespace(eps0=e, **{label: flips[name]})
            expect_shape(label, flips[name], (rows, e.shape[1]))
            rows = len(flips[name])  # as many of every site
            if flips[name].dtype != bool:
                raise TypeError(f"{label} has dtype {flips[name].dtype}, expected bool")
            if bool((most := flips[name].sum(axis=1).max()) > budgets[name]):
                raise ValueError(f"{label} flips {int(most)} units of one row, expected at most {budgets[name]}")
    namespace(eps0=next(iter(eps0.values())), **{"memory.visits": memory.visits})
    expect_shape("memory.visits", memory.visits, (B,))
    if memory.visits.dtype.kind not in "iu" or bool((memory.visits < 0).any()):
        raise ValueError("memory.visits counts how often each example was seen, expected whole numbers of at least 0")
    return memory


def expect_search(search: Any) -> None:
    """Raise TypeError unless this is the record of a search."""
    if not isinstance(search, Search):
        raise TypeError(f"search is {search!r}, expected a record such as Greedy(K=2) or minadv.searches.Reselect()")


def find_budgets(
    model: Model,
    *,
    search: Search = Greedy(),
    sites: tuple[str, ...] | None = None,
    delta: Delta | Mapping[str, Delta] | None = None,
    budgets: int | Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The number of flips of each searched site, from ``delta`` or ``budgets``; raises ValueError if that is none."""
    searched = choose_sites(model, sites)
    names = [site.name for site in searched]
    if (delta is None) == (budgets is None):
        raise ValueError(f"delta is {delta} and budgets is {budgets}: give one of the two")
    what = "delta" if budgets is None else "budgets"
    amount: Any = delta if budgets is None else budgets
    if isinstance(amount, Mapping) and set(amount) != set(names):
        raise ValueError(f"{what} has {sorted(amount)}, expected one entry for each of {names}")
    limits = {}
    for site in searched:
        value = amount[site.name] if isinstance(amount, Mapping) else amount
        if what == "delta":
            value = masks.budget(value, site.H)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= site.H:
            raise ValueError(f"{what} of {site.name} is {value!r}, expected a number of flips from 1 to H = {site.H}")
        limits[site.name] = int(value)
    search.expect_budgets(limits, {site.name: site.H for site in searched})
    return limits


def _base_mask(
    model: Model,
    params: Any,
    batch: Any,
    sites: tuple[Site, ...],
    eps0: Array | Mapping[str, Array] | None,
    scale: masks.Scale,
    p: float | None,
) -> tuple[Masks, Masks, Masks]:
    """The binary base mask of the searched sites, the masks m of the base pass, and m of the sites not searched."""
    like = any_array(params)
    B = len(batch)
    if eps0 is None:  # the expected mask: m = 1, whatever the scale
        return {site.name: masks.ones((B, site.H), like=like) for site in sites}, {}, {}
    if not isinstance(eps0, Mapping):
        if len(sites) != 1:
            raise ValueError(f"eps0 is one array, expected a dict with one for each of {[s.name for s in sites]}")
        eps0 = {sites[0].name: eps0}
    by_name = {site.name: site for site in model.sites}
    for name, eps in eps0.items():
        if name not in by_name:
            raise ValueError(f"eps0 has {name!r}, expected sites among {list(by_name)}")
        masks.expect_binary(f"eps0[{name!r}]", eps)
        expect_floating(f"eps0[{name!r}]", eps, like, "params")
        expect_shape(f"eps0[{name!r}]", eps, (B, by_name[name].H), "one mask per example")
    missing = [site.name for site in sites if site.name not in eps0]
    if missing:
        raise ValueError(f"eps0 lacks {missing}, which are searched")
    scaled = {name: masks.scale(eps, scale, p=p) for name, eps in eps0.items()}
    searched = {site.name: eps0[site.name] for site in sites}
    return searched, scaled, {name: m for name, m in scaled.items() if name not in searched}
