r"""Methods by their names on the command line: which options each uses, and the regularizer that options stand for."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Any

from minadv.protocol import choose_sites
from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Pi, Plain, RDrop, Regularizer, Sum
from minadv.searches import SEARCHES, Search, by_name
from minadv.tasks.options import chosen, hidden_of

RANDOM = ("vd", "el", "fd", "pi", "rdrop")
ADVERSARIAL = ("add", "last", "add+vat")
TWO_PASSES = ("el", "fd", "pi", "rdrop", *ADVERSARIAL)
OF_SEARCHES = ("stages", "reselect", "runner_up", "borrow", "swaps", "tries")
"""Options that have the name of the field of a search that they set."""

OF_SEARCH = {"adv_steps": "K", "rule": "rule", "init": "start", "max_masks": "max_masks"}
OF_SEARCH |= dict(zip(OF_SEARCHES, OF_SEARCHES, strict=True))
"""The field of a search that an option sets."""

USES = {
    "p": RANDOM,
    **dict.fromkeys(("delta", "budget", "adv_steps", "search", "max_masks", "rule", "scale"), ADVERSARIAL),
    **dict.fromkeys(("init", "variant", "watch_adversary", *OF_SEARCHES), ADVERSARIAL),
    **dict.fromkeys(("distance", "noise", "fresh", "every", "ramp_up"), TWO_PASSES),
    "stop_base": ("el", *ADVERSARIAL),
    "norm": ("at", "vat", "add+vat"),
    "weight": ("at", "vat", *TWO_PASSES),
    "masked_layers": (*RANDOM, *ADVERSARIAL),
}
"""Which methods use an option, in the families that have the option and the method."""

_BETWEEN = ("distance", "share_noise", "sites")
_ADD = ("delta", "budgets", "scale", "search", "stop_base")
FIELDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "none": (Plain, ()),
    "vd": (VD, ("p", "sites")),
    "el": (EL, ("p", "stop_base", *_BETWEEN)),
    "fd": (FD, ("p", *_BETWEEN)),
    "pi": (Pi, ("p", *_BETWEEN)),
    "rdrop": (RDrop, ("p", *_BETWEEN)),
    "at": (AT, ("norm",)),
    "vat": (VAT, ("norm",)),
    "add": (AdD, (*_ADD, *_BETWEEN)),
    "last": (AdD, (*_ADD, *_BETWEEN)),
}
"""The regularizer of each method, and those of its fields that options decide."""

VARIANTS: dict[str, dict[str, Any]] = {
    "minadv": {"init": "flip", "share_noise": True},
    "paper": {"init": "base", "share_noise": False},
    "authors": {"init": "base", "share_noise": False, "distance": "kl", "stop_base": True, "scale": "kept"}
    | {"rule": "authors", "rule_variant": "text"},
}
"""The forms of AdD on texts: minadv's, that of the paper's text, and the released code's but for its shared noise."""


def expect_used(options: Namespace) -> None:
    """Raise ValueError for an option that was shown and that the chosen method does not use."""
    for name in USES:
        value, methods = getattr(options, name, None), _methods_with(options, name)
        if options.method not in methods and name in options.defaults and value != options.defaults[name]:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            said = f"--{name.replace('_', '-')}{'' if value is True else f' {shown}'}"
            able = ", ".join(method for method in methods if method in options.family.methods)
            raise ValueError(f"{said}: --method {options.method} has no use for it, expected one of {able}")

    if options.method in ADVERSARIAL:
        _expect_used_by_search(options)


def has_use(options: Namespace, name: str) -> bool:
    """Whether the chosen method, and its search, have a use for an option."""
    if options.method not in _methods_with(options, name):
        return False
    return name not in OF_SEARCH or options.search in _searches_with(name)


def _methods_with(options: Namespace, name: str) -> tuple[str, ...]:
    """The methods that use an option."""
    methods = USES.get(name, (options.method,))
    inverted = getattr(options, "scale", None) == "inverted"  # this scale divides by 1 - p, for AdD too
    return (*methods, "add") if name == "p" and inverted else methods


def _searches_with(name: str) -> list[str]:
    """The searches that have a field which an option sets."""
    return [search for search, kind in SEARCHES.items() if OF_SEARCH[name] in vars(kind)["__dataclass_fields__"]]


def _expect_used_by_search(options: Namespace) -> None:
    """Raise ValueError for an option that was given and that the chosen search does not have."""
    if getattr(options, "variant", None) == "authors" and options.search != "greedy" and options.rule is None:
        raise ValueError(f"--variant authors: --search {options.search} has no flip rule, expected greedy")
    for name in OF_SEARCH:
        value, able = getattr(options, name, None), _searches_with(name)
        if options.search not in able and name in options.defaults and value != options.defaults[name]:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            said = f"--{name.replace('_', '-')} {shown}: --search {options.search} has no use for it"
            raise ValueError(f"{said}, expected one of {', '.join(able)}")


def regularizer(options: Namespace, model: Any) -> Regularizer:
    """The regularizer that the options stand for, for a model."""
    values = _values(options)
    if options.method == "add+vat":
        return Sum((_with_room(_make("add", values), options, model), _make("vat", values)))
    return _with_room(_make(options.method, values), options, model)


def leaves_budget_open(made: Any) -> bool:
    """Whether a regularizer is AdD, or a sum with it, that has the budget of ``AdD()``."""
    parts = made.parts if isinstance(made, Sum) else (made,)
    return any(isinstance(part, AdD) and part.delta is None and part.budgets is None for part in parts)


def _with_room(made: Regularizer, options: Namespace, model: Any) -> Regularizer:
    """AdD whose share nobody asked for, and which is less than two of a layer's units, has the budget of ``AdD()``."""
    if not isinstance(made, AdD) or not isinstance(made.delta, float) or options.delta != options.defaults["delta"]:
        return made
    fewest = min(site.H for site in choose_sites(model, made.sites))
    return replace(made, delta=None) if made.delta * fewest < 2 else made


def _make(method: str, values: dict[str, Any]) -> Regularizer:
    kind, names = FIELDS[method]
    if kind is AdD and values.get("scale") == "inverted":
        names = (*names, "p")
    if method == "last":
        values = {**values, "sites": ("readout",)}
    if kind is AdD:
        values = {**values, "search": _search(values)}
    made: Regularizer = kind(**{name: values[name] for name in names if values.get(name) is not None})
    return made


def _search(values: dict[str, Any]) -> Search:
    """The search that the options stand for; training takes the last mask of a greedy one, as the paper does."""
    options = {name: values.get(name) for name in ("adv_steps", "rule", "init", "max_masks", *OF_SEARCHES)}
    if options["stages"] is not None:
        options["stages"] = tuple(options["stages"])
    keep = "last" if values["search"] == "greedy" else None
    return by_name(values["search"], **options, variant=values.get("rule_variant"), keep=keep)


def _values(options: Namespace) -> dict[str, Any]:
    """Options by the names of the regularizers' fields; None stands for the field's own default."""
    values = {name: value for name, value in vars(options).items() if value is not None}
    if "noise" in options:  # texts
        values.setdefault("norm", options.preset.values["norm"])
        if options.noise is not None:
            values["share_noise"] = options.noise == "shared"
        if options.rule is not None:  # the released code's rule is that of its text code
            values["rule_variant"] = VARIANTS["authors"]["rule_variant"] if options.rule == "authors" else None
        if options.method in ADVERSARIAL:
            values = VARIANTS[chosen(options, "variant")] | values
    if "fresh" in options:  # language models
        shared, n_layers = not fresh(options), len(hidden_of(options))
        sites = _sites(options.masked_layers, n_layers)
        values = {"init": "flip" if shared else "base", "share_noise": shared, **values, "sites": sites}
        if options.method in ("fd", "pi"):
            values.setdefault("distance", "logit2")
        if options.method == "add":
            values |= {"delta": None, **budgets(options.delta, options.budget, n_layers, sites, otherwise=LM_DELTA)}
    return values


LM_DELTA = 0.06  # the paper's, of language models


def fresh(options: Namespace) -> tuple[str, ...]:
    """The parts of a language model's noise that a second pass draws anew: for AdD the words, if any are dropped."""
    if options.fresh is not None:
        return tuple(options.fresh)
    return ("words",) if options.method == "add" and chosen(options, "word_dropout") else ()


def _sites(layers: list[int] | None, n_layers: int) -> tuple[str, ...] | None:
    """The mask sites of some layers, counted from 0; None for all."""
    if layers is None:
        return None
    if len(set(layers)) != len(layers) or max(layers) >= n_layers:
        raise ValueError(f"masked-layers is {_list(layers)}, expected different numbers from 0 to {n_layers - 1}")
    return tuple(f"layer{n}" for n in sorted(layers))


def budgets(
    delta: list[float] | None,
    budget: list[int] | None,
    n_layers: int,
    sites: tuple[str, ...] | None = None,
    *,
    otherwise: float | None = None,
) -> dict[str, Any]:
    """``delta``, ``budgets`` and ``sites`` of a search, from lists of one value, or of one for each of the sites.

    A site with the value 0 in such a list is left out. ``otherwise`` is the delta where neither list is given.
    """
    if delta is not None and budget is not None:
        raise ValueError(f"delta is {_list(delta)} and budget is {_list(budget)}: give one of the two")
    values: list[Any] = (delta or [otherwise]) if budget is None else budget
    name = "delta" if budget is None else "budget"
    key = "delta" if budget is None else "budgets"
    if len(values) == 1:
        return {key: values[0], "sites": sites}
    names = sites or tuple(f"layer{n}" for n in range(n_layers))
    if len(values) != len(names):
        which = "layer" if sites is None else "of the chosen layers"
        more = f", or {len(names)}, one for each {which}" if len(names) > 1 else " for the one layer that is masked"
        raise ValueError(f"{name} has {len(values)} values, expected 1{more}")
    found = {site: value for site, value in zip(names, values, strict=True) if value != 0}
    if not found:
        raise ValueError(f"{name} is {_list(values)}, which leaves no layer to mask: expected one that is not 0")
    return {key: found, "sites": sites if len(found) == len(names) else tuple(found)}


def _list(values: list[Any]) -> str:
    return " ".join(map(str, values))


def expect_room(model: Any, regularizer: Regularizer) -> None:
    """Raise ValueError for a search of AdD that the model has no room for: no unit to flip, or too many masks."""
    for part in regularizer.parts if isinstance(regularizer, Sum) else (regularizer,):
        if isinstance(part, AdD):
            part.expect_budgets(model)
