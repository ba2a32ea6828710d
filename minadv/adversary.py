r"""The search for the adversarial mask: base pass, distance, influence map, flip, K times (Eq. 4, 7, 8).

.. math:: \epsilon^{adv} = \arg\max_{\epsilon:\ \#\{i:\, \epsilon_i \ne \epsilon^0_i\} \le b} \;
          \sum_t \lambda_t D[p_t(\epsilon^0) \,\|\, p_t(\epsilon)]

Four searches over any model of `minadv.protocol`:

* ``"greedy"``, the paper's: from a start one random flip away, alternate influence map and flip (Eq. 8);
* ``"reselect"``, minadv's own, stronger for about the same price: see `minadv.searches.reselect`;
* ``"exact"``: every mask of the ball, for small networks;
* ``"random"``: the best of ``tries`` random masks, the baseline.

Nothing here is differentiated: the mask that comes out is a constant of the loss.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from minadv import distances, masks
from minadv.backend import Array
from minadv.base.checks import expect_choice, expect_floating, expect_shape
from minadv.base.shared_draws import Rng
from minadv.base.trees import any_array
from minadv.fast.workspace import Workspace
from minadv.flip import expect_rule_options
from minadv.protocol import Model, Site, choose_sites
from minadv.searches import Masks, Probe, Problem, Rule, Visit, ball_size, best, exact, greedy, random, reselect

Search: TypeAlias = Literal["greedy", "reselect", "exact", "random"]
SEARCHES = ("greedy", "reselect", "exact", "random")
PROBING = ("greedy", "reselect")
"""The searches that begin with a map at the start mask."""


class SmallBudgetWarning(UserWarning):
    """With a budget of one flip and a random start, the mask is almost random."""


@dataclass(frozen=True)
class Passes:
    """Passes spent beside the base pass."""

    forward: int
    backward: int


@dataclass(frozen=True)
class Trace:
    """The mask that was found, and everything that led to it."""

    eps: Masks
    eps0: Masks
    start: Masks
    im: Masks | None  # the last influence map, taken at the visit that holds it, not at eps
    d: Array | None  # (B,), the distance at eps; None for keep="last", whose last mask is not scored
    passes: Passes
    budgets: dict[str, int]
    visits: tuple[Visit, ...]  # in order; of "exact" the best only
    search: str
    flips: dict[str, Array] = field(default_factory=dict)  # (B,) a site: Hamming distance of eps to eps0


def find_adversary(
    model: Model,
    params: Any,
    batch: Any,
    *,
    rng: Rng,
    delta: float | Mapping[str, float] | None = None,
    budgets: int | Mapping[str, int] | None = None,
    eps0: Array | Mapping[str, Array] | None = None,
    init: Literal["flip", "base"] = "flip",
    adv_steps: int = 1,
    distance: str = "js",
    lam: Array | None = None,
    scale: masks.Scale = "none",
    p: float | None = None,
    search: Search = "greedy",
    rule: Rule = "strict",
    rule_options: Mapping[str, Any] | None = None,
    noise: Any = None,
    adv_noise: Any = None,
    sites: tuple[str, ...] | None = None,
    state: Any = None,
    keep: Literal["best", "last"] = "best",
    base: Array | None = None,
    together: Callable[[Masks, Masks], tuple[Array, Array, Any]] | None = None,
    tries: int = 1,
    swaps: int = 0,
    max_masks: int = 200_000,
    work: Workspace | None = None,
) -> Trace:
    r"""Find the mask, within a budget of flips, whose prediction is furthest from that of the base mask (Eq. 4).

    Give ``delta``, a share of the units, or ``budgets``, a number of flips; one for all sites or a dict by site.
    ``eps0`` is the base mask (default: the expected mask, the full network, m = 1). ``init="flip"`` starts from one
    random flip an example, ``"base"`` from eps0 itself. ``noise`` is that of the base pass (None: no noise),
    ``adv_noise`` that of the perturbed passes (None: the same; ``init="base"`` needs another one). ``adv_steps`` is K,
    the number of influence maps. ``lam``, (N,) or (N, B) for the N steps of the model's features, weighs them (default:
    the model's). ``sites`` defaults to every recurrent one. ``keep="best"`` returns the best mask visited, example by
    example; for ``"greedy"``, ``"last"`` returns the last one, unscored, as the paper trains. ``base`` may hand over
    the base's features; instead ``together`` may run the base pass and the first probe, of a search in `PROBING`, side
    by side: from the masks of both it returns the base's features, and the probe's features and cache.

    ``tries`` belongs to ``"random"``; ``swaps`` to ``"reselect"``: how many outsiders are tried in the place of each
    flipped unit in a last round. ``max_masks`` limits ``"exact"``. ``rule_options`` goes to `minadv.flip.flip`. The
    passes of the search take their buffers from ``work`` and give them back.

    Raises ValueError for anything out of range before any pass is run (for ``lam``, whose shape only the model knows,
    at the first comparison), and for a distance that is NaN, naming the example.
    """
    expect_options(
        search=search, rule=rule, init=init, keep=keep, adv_steps=adv_steps, tries=tries, swaps=swaps,
        distance=distance, scale=scale, p=p, rule_options=rule_options or {},
    )  # fmt: skip
    limits = find_budgets(model, sites=sites, delta=delta, budgets=budgets, search=search, max_masks=max_masks)
    chosen = tuple(site for site in model.sites if site.name in limits)
    if init == "flip" and search == "greedy" and any(b == 1 for b in limits.values()):
        warnings.warn(
            "a budget of 1 is spent by the random start itself, so that the mask is almost random: "
            'raise delta, or use search="reselect" (--search reselect)',
            SmallBudgetWarning,
            stacklevel=2,
        )
    binary, base_masks, fixed = _base_mask(model, params, batch, chosen, eps0, scale, p)
    start = binary if init == "base" else {name: masks.one_flip(rng, eps) for name, eps in binary.items()}
    probes: list[Probe] = []
    if together is not None:
        if base is not None or search not in PROBING:
            raise ValueError(f"together is given: expected no base, and a search among {PROBING}, not {search!r}")
        m = {name: masks.scale(eps, scale, p=p) for name, eps in start.items()}
        base, *probe = together(base_masks, {**fixed, **m})
        probes.append(Probe(start, *probe))
        del probe  # the search forgets it when it has used it, and its memory is free
    elif base is None:
        base, _, _ = model.body(params, batch, masks=base_masks, noise=noise, state=state)
    problem = Problem(
        model=model,
        params=params,
        batch=batch,
        eps0=binary,
        budgets=limits,
        base=base,
        fixed=fixed,
        distance=distances.by_name(distance),
        lam=lam,
        scale=scale,
        p=p,
        noise=noise if adv_noise is None else adv_noise,
        state=state,
        rule=rule,
        rule_options=dict(rule_options or {}),
        work=work,
        probes=probes,
    )
    if search == "greedy":
        visits = greedy(problem, start, adv_steps, score_last=keep == "best")
    elif search == "reselect":
        visits = reselect(problem, start, adv_steps, swaps)
    elif search == "random":
        visits = random(problem, rng, tries)
    else:
        visits = exact(problem)
    found = visits[-1] if keep == "last" and search == "greedy" else best(visits)
    if found.d is not None and bool((nan := found.d != found.d).any()):
        raise ValueError(
            f"the distance is NaN for example {int(nan.argmax())}: are its input and the parameters finite?"
        )
    maps = [visit.im for visit in visits if visit.im is not None]
    return Trace(
        eps=found.eps,
        eps0=binary,
        start=start if search in ("greedy", "reselect") else visits[0].eps,
        im=maps[-1] if maps else None,
        d=found.d,
        passes=Passes(problem.spent[0], problem.spent[1]),
        budgets=limits,
        visits=visits,
        search=search,
        flips={name: masks.hamming(found.eps[name], binary[name]) for name in binary},
    )


def expect_options(
    *,
    search: str,
    rule: str,
    init: str,
    keep: str,
    adv_steps: int,
    tries: int,
    swaps: int,
    distance: str,
    scale: str,
    p: float | None,
    rule_options: Mapping[str, Any],
) -> None:
    """Raise ValueError for an option of `find_adversary` that no model could make right."""
    expect_choice("search", search, SEARCHES)
    expect_choice("rule", rule, ("strict", "paper", "authors"))
    expect_choice("init", init, ("flip", "base"))
    expect_choice("keep", keep, ("best", "last"))
    for name, value, least in (("adv_steps", adv_steps, 1), ("tries", tries, 1), ("swaps", swaps, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} is {value!r}, expected a whole number of at least {least}")
    for name, given, owner in (
        ("rule", rule != "strict", "greedy"),
        ("swaps", swaps > 0, "reselect"),
        ("tries", tries > 1, "random"),
    ):
        if given and search != owner:
            raise ValueError(f'{name} belongs to search="{owner}", and search is "{search}"')
    expect_rule_options(rule, rule_options)
    distances.by_name(distance)
    masks.expect_scale(scale, p)


def find_budgets(
    model: Model,
    *,
    sites: tuple[str, ...] | None = None,
    delta: float | Mapping[str, float] | None = None,
    budgets: int | Mapping[str, int] | None = None,
    search: str = "greedy",
    max_masks: int = 200_000,
) -> dict[str, int]:
    """The number of flips of each searched site, from a share or as given; raises ValueError if there is none."""
    chosen = choose_sites(model, sites)
    names = [site.name for site in chosen]
    if (delta is None) == (budgets is None):
        raise ValueError(f"delta is {delta} and budgets is {budgets}: give one of the two")
    what = "delta" if budgets is None else "budgets"
    given: Any = delta if budgets is None else budgets
    if isinstance(given, Mapping) and set(given) != set(names):
        raise ValueError(f"{what} has {sorted(given)}, expected one entry for each of {names}")
    limits = {}
    for site in chosen:
        value = given[site.name] if isinstance(given, Mapping) else given
        if what == "delta":
            value = masks.budget(value, site.H)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= site.H:
            raise ValueError(f"{what} of {site.name} is {value!r}, expected a number of flips from 1 to H = {site.H}")
        limits[site.name] = int(value)
    n = math.prod(ball_size(site.H, limits[site.name]) for site in chosen)
    if search == "exact" and n > max_masks:
        raise ValueError(
            f'search="exact" would run {n:,} masks, more than max_masks = {max_masks:,}: '
            'lower the budget, raise max_masks, or use search="reselect"'
        )
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
    """The binary base mask of the searched sites, what the base pass is given, and the masks of other sites."""
    like = any_array(params)
    B = len(batch)
    if eps0 is None:  # the expected mask: m = 1, whatever the scale
        return {site.name: masks.ones((B, site.H), like=like) for site in sites}, {}, {}
    if not isinstance(eps0, Mapping):
        if len(sites) != 1:
            raise ValueError(f"eps0 is one array, expected a dict with one for each of {[s.name for s in sites]}")
        eps0 = {sites[0].name: eps0}
    known = {site.name: site for site in model.sites}
    for name, eps in eps0.items():
        if name not in known:
            raise ValueError(f"eps0 has {name!r}, expected sites among {list(known)}")
        masks.expect_binary(f"eps0[{name!r}]", eps)
        expect_floating(f"eps0[{name!r}]", eps, like, "params")
        expect_shape(f"eps0[{name!r}]", eps, (B, known[name].H), "one mask per example")
    missing = [site.name for site in sites if site.name not in eps0]
    if missing:
        raise ValueError(f"eps0 lacks {missing}, which are searched")
    scaled = {name: masks.scale(eps, scale, p=p) for name, eps in eps0.items()}
    searched = {site.name: eps0[site.name] for site in sites}
    return searched, scaled, {name: m for name, m in scaled.items() if name not in searched}
