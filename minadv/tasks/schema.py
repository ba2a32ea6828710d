r"""A run's configuration against its schema, before anything is built of it: names, types, ranges.

The schema is nowhere written down a second time. Records (models, regularizers, searches, optimizers, ...) have their
fields' annotations, a family's settings those of its task; what is left is `Common` and the tables of each family.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict, get_type_hints

import numpy as np

from minadv.adversary import find_adversary
from minadv.base.numbers import Few, Seed, Size
from minadv.base.schema import expect_type, hints
from minadv.data.vocabulary import Vocabulary
from minadv.regularizers import Regularizer
from minadv.tasks.config import Own, build, build_recipe, with_search
from minadv.tasks.family import Family, of_kind, of_model
from minadv.training.runs import folder
from minadv.training.runs.folder import CONFIG, RunError, kind_of


class Remembers(TypedDict):
    """The size of what a run remembers of its examples (`minadv.training.memory`)."""

    examples: Size
    units: dict[str, Size]


class Perhaps(TypedDict, total=False):
    """What the configuration of a run of any family may say."""

    regularizer: dict[str, Any]
    workers: Few
    ranks: Size
    tf32: bool
    memory: Remembers
    before: list[str]  # SHA-256 of configurations that this one has replaced


class Common(Perhaps):
    """What the configuration of a run of any family says."""

    about: dict[str, Any]
    model: dict[str, Any]
    recipe: dict[str, Any]
    batch_size: Size
    seed: Seed
    device: Literal["cpu", "gpu"]
    dtype: Literal["float32", "float64"]


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of a run's folder; raises RunError, which names file and field, unless it keeps the schema."""
    config = folder.read_config(path)
    family = of_kind(kind_of(config), path)
    try:
        expect_config(family, config)
    except RunError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RunError(f"{path / CONFIG}: {reason}") from error
    return config


def expect_config(family: Family, config: dict[str, Any]) -> None:
    """Raise ValueError, which names the field, unless a configuration keeps the schema of its family."""
    expect_type("", config, Common)
    expect_type("", config, family.config)
    about = config["about"]
    if {"images", "corpus"} & about.keys():  # else the run was made in Python, and says what its maker liked
        expect_type("about", about, family.described)
    if family.begins_with is not None:
        for table, name in ((config, family.begins_with), (about, f"about.{family.begins_with}")):
            expect_type(name, table.get(family.begins_with), str | None)
    model = build(config["model"], "model")
    if isinstance(model, Own):
        model = None  # its maker has it
    elif not (hasattr(model, "init") and hasattr(model, "body")) or of_model(model) is not family:
        raise ValueError(f"model is a {type(model).__name__}, expected one for a run of the kind {family.kind!r}")
    regularizer = build(config.get("regularizer"), "regularizer")
    if "regularizer" in config and not isinstance(regularizer, Regularizer | Own):
        raise ValueError(f"regularizer is a {type(regularizer).__name__}, expected a regularizer")
    recipe = build_recipe(config["recipe"])
    if recipe.monitor not in family.metrics:
        raise ValueError(f"recipe.monitor is {recipe.monitor!r}, expected one of {', '.join(family.metrics)}")
    expect_settings(family, {name: build(config[name], name) for name in family.settings if name in config})
    words = len(vocabulary_of(config)) if "vocabulary" in config else None
    for name, n in (("n_words", words), ("n_classes", len(config["classes"]) if "classes" in config else None)):
        if n is not None and getattr(model, name, n) != n:
            raise ValueError(f"model.{name} is {getattr(model, name)}, expected {n}, as many as the run has")


def expect_settings(family: Family, settings: dict[str, Any]) -> None:
    """Raise ValueError unless a family's settings have the types and ranges that its task gives them."""
    types = hints(family.task)
    for name, value in settings.items():
        if name in types and name != family.begins_with:
            expect_type(name, value, types[name])
    if settings.get("track") is not None:
        expect_track(settings["track"])


def precision(dtype: Any) -> str:
    """The name of a NumPy dtype, which may be given in any way that NumPy knows."""
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    expect_type("dtype", name, Literal["float32", "float64"])
    return name


def expect_track(track: dict[str, Any]) -> None:
    """Raise ValueError for what is no option of the search for the mean adversarial mask."""
    known = {"n": Size, **get_type_hints(find_adversary, include_extras=True)}
    for name in ("model", "params", "batch", "return"):  # the run has its own
        del known[name]
    for name, value in with_search(dict(track)).items():
        if name not in known:
            raise ValueError(f"track has {name!r}, expected options of minadv.find_adversary, or n")
        expect_type(f"track.{name}", value, known[name])


def vocabulary_of(config: dict[str, Any]) -> Vocabulary:
    """The vocabulary in a run's configuration: that of a language model is a string of words, without their counts."""
    held = config["vocabulary"]
    if isinstance(held, str):
        words = tuple(held.split(" "))
        return Vocabulary(words, np.zeros(len(words), np.int64), "lines")
    try:
        counts = np.array(held["counts"].split(" "), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"vocabulary.counts holds what is no whole number: {error}") from error
    try:
        return Vocabulary(tuple(held["words"].split(" ")), counts, held["split"])
    except ValueError as error:
        raise ValueError(f"vocabulary: {error}") from error
