r"""Configurations as JSON and back: only the dataclasses named here can come out of a file, and no code runs.

::

    build(describe(AdD(delta=0.03))) == AdD(delta=0.03)

A record becomes ``{"kind": "AdD", "delta": 0.03, ...}`` with every field, defaults too, so that a run's file says all
that was in force even where a later version has other defaults.
A field with the metadata ``{"config": False}`` is data, such as the frequencies of words, and is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from minadv import regularizers, searches
from minadv.base.numbers import as_python
from minadv.base.schema import expect_type, hints
from minadv.models.classifier import Classifier
from minadv.models.language.model import LanguageModel
from minadv.models.pretraining import TextLM
from minadv.models.stack import Buffered
from minadv.models.text import TextClassifier
from minadv.training import clip, ema, optimizers, schedules
from minadv.training.loop import Recipe


@dataclasses.dataclass(frozen=True)
class Own:
    """What stands in a configuration for a model or a regularizer that it cannot describe: where its class is."""

    name: str


KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Classifier, LanguageModel, TextClassifier, TextLM, clip.Clip, ema.EMA),
        *(optimizers.SGD, optimizers.RMSProp, optimizers.Adam, optimizers.ASGD),
        *(schedules.Constant, schedules.RampUp, schedules.RampDown, schedules.ExponentialDecay),
        *(regularizers.Plain, regularizers.VD, regularizers.EL, regularizers.FD, regularizers.Pi),
        regularizers.RDrop,
        *(regularizers.AdD, regularizers.AT, regularizers.VAT, regularizers.Sum),
        *searches.SEARCHES.values(),
        Own,
    )
}


class ConfigError(ValueError):
    """A configuration that cannot be written or read; the message names the field."""


def register(kind: type) -> type:
    """Let another frozen dataclass be part of configurations: a decorator.

    A run with such a model or regularizer says all that is needed to load it, where its class was registered before.
    """
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no dataclass: put @dataclass(frozen=True) below @minadv.register")
    if kind.__name__ in KINDS and KINDS[kind.__name__].__module__.startswith("minadv."):
        raise ValueError(f"minadv has a {kind.__name__} of its own: choose another name")
    KINDS[kind.__name__] = kind
    return kind


def describe_own(value: Any, name: str) -> Any:
    """A model or regularizer as `describe` has it; of one that is not registered, where its class is."""
    if KINDS.get(type(value).__name__) is type(value):
        return describe(value, name)
    return describe(Own(f"{type(value).__module__}.{type(value).__qualname__}"))


def given_or_built(described: dict[str, Any], value: Any, name: str, run: Any) -> Any:
    """The record that a configuration describes, or, where that is one of its maker's own, the one that is given."""
    built = build_model({"model": described}) if name == "model" else build(described, name)
    if not isinstance(built, Own):
        if value is not None:
            raise ConfigError(f"{run} describes its {name} itself, a {type(built).__name__}: leave {name} out")
        return built
    kind = built.name.rpartition(".")[2]
    if value is None:
        raise ConfigError(f"{run} has a {name} of its maker's own, {built.name}: give it, {name}={kind}(...)")
    if type(value).__qualname__ != kind:
        raise ConfigError(f"{name} is a {type(value).__qualname__}, expected the {built.name} of {run}")
    return value


def describe(value: Any, name: str = "config") -> Any:
    """A record, or a dict, list or scalar of records, as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        if KINDS.get(kind) is not type(value):
            raise ConfigError(f"{name} is a {kind}, expected one of {', '.join(sorted(KINDS))}")
        named = [f.name for f in dataclasses.fields(value) if f.metadata.get("config", True)]
        return {"kind": kind, **{n: describe(getattr(value, n), f"{name}.{n}") for n in named}}
    if isinstance(value, Mapping):
        return {str(key): describe(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [describe(item, f"{name}[{n}]") for n, item in enumerate(value)]
    if (value := as_python(value)) is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"{name} is a {type(value).__name__}, which a run's configuration cannot hold")


def build(value: Any, name: str = "config") -> Any:
    """The value that `describe` made JSON of; lists become tuples."""
    if isinstance(value, dict):
        parts = {key: build(item, f"{name}.{key}") for key, item in value.items() if key != "kind"}
        if "kind" not in value:
            return parts
        if not isinstance(value["kind"], str) or value["kind"] not in KINDS:
            more = "; a class of your own is registered by @minadv.register, before this"
            raise ConfigError(f"{name} is of kind {value['kind']!r}, expected one of {', '.join(sorted(KINDS))}{more}")
        if value["kind"] == "AdD":
            parts = with_search(parts)
        return _record(KINDS[value["kind"]], parts, name)
    if isinstance(value, list):
        return tuple(build(item, f"{name}[{n}]") for n, item in enumerate(value))
    return value


def build_model(config: dict[str, Any]) -> Any:
    """The model of a run's configuration, with the engine that the run was begun with.

    Runs that name no engine or ``"fast"`` were begun before engines had versions: theirs is the first. A model that is
    not one of minadv's may mean something else by the word.
    """
    described = config["model"]
    if issubclass(KINDS.get(described["kind"], object), Buffered) and described.get("engine") in (None, "fast"):
        described = {**described, "engine": "fast-1"}
    return build(described, "model")


def _record(kind: type, parts: dict[str, Any], name: str) -> Any:
    """A record whose fields have been checked: names, types and ranges, before it is made."""
    types = hints(kind)
    for field, value in parts.items():
        if field in types:
            expect_type(f"{name}.{field}", value, types[field])
    try:
        return kind(**parts)
    except TypeError as error:
        raise ConfigError(f"{name} does not fit {kind.__name__}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def build_recipe(described: dict[str, Any]) -> Recipe:
    """A recipe from a run's configuration."""
    parts = {name: build(value, f"recipe.{name}") for name, value in described.items()}
    recipe: Recipe = _record(Recipe, parts, "recipe")
    return recipe


def describe_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe as a run's configuration holds it."""
    return {name: describe(value, f"recipe.{name}") for name, value in vars(recipe).items()}


def today(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration as this version would write it; earlier ones wrote models, recipes and searches differently."""
    found = {**config, "recipe": describe_recipe(build_recipe(config["recipe"]))}
    if issubclass(KINDS.get(config["model"]["kind"], object), Buffered):
        found["model"] = describe(build_model(config), "model")
    if config.get("kind") == "lm":
        found.setdefault("draws", "stream")
    if "regularizer" in config:
        found["regularizer"] = describe(build(config["regularizer"], "regularizer"), "regularizer")
    if config.get("track") is not None:
        found["track"] = describe(with_search(build(config["track"], "track")), "track")
    return found


SEARCH_OPTIONS = ("adv_steps", "rule", "rule_options", "init", "keep", "swaps", "tries", "max_masks")
"""Options of searches that stood beside the search's name in configurations before version 0.2."""


def with_search(given: dict[str, Any]) -> dict[str, Any]:
    """Options of `minadv.find_adversary` or AdD; search options from before version 0.2 become a search record."""
    former = {name: given[name] for name in SEARCH_OPTIONS if name in given}
    if not former and not isinstance(given.get("search"), str):
        return given
    more = former.pop("rule_options", None) or {}
    if not isinstance(more, Mapping):
        raise ConfigError(f"rule_options is {more!r}, expected a table of values by name")
    options = {"adv_steps": 1, **former, **more}
    others = {name: value for name, value in given.items() if name not in SEARCH_OPTIONS}
    return {**others, "search": searches.by_name(given.get("search", "greedy"), **options)}
