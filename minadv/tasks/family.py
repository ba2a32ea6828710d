r"""Families of tasks: images, texts, pre-training and language models, one record each, found by name in one table.

`FAMILIES` names the module of each family by the kind that its runs have in their configuration; a module is imported
when its family is asked for. What all families do alike is beside this file: `minadv.tasks.fit`, `minadv.tasks.run`,
`minadv.tasks.attack`, `minadv.tasks.methods`, `minadv.tasks.options`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from minadv.backend import Device
from minadv.base.checks import expect_choice
from minadv.tasks.reports import Report
from minadv.training.runs.folder import RunError, kind_of, read_config

FAMILIES = {
    "classify": "minadv.tasks.images.family",
    "text": "minadv.tasks.text.family",
    "pretrain": "minadv.tasks.pretrain.family",
    "lm": "minadv.tasks.language.family",
}
"""The module of each family, by the kind of its runs; its record is called FAMILY there."""

TASKS = {
    **dict.fromkeys(("digits", "smnist", "pmnist", "fashion", "images"), "classify"),
    **dict.fromkeys(("docstrings", "text", "imdb", "elec"), "text"),
    **dict.fromkeys(("lm", "ptb", "wikitext2"), "lm"),
}
"""The kind of the runs that ``minadv train TASK`` makes."""

MODELS = {
    "minadv.models.text.TextClassifier": "text",
    "minadv.models.pretraining.TextLM": "pretrain",
    "minadv.models.language.model.LanguageModel": "lm",
}
"""The kind of the runs that `fit` makes of a model; of any other model it makes a classifier of sequences."""


@dataclass(frozen=True)
class Preset:
    """A task with a name: a line about it, the name of its data, and values of options that are not given.

    ``told`` is what the help says of a value where that is more than the value itself.
    """

    about: str
    data: str | None
    values: Mapping[str, Any]
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Family:
    """All that one family of tasks does in its own way; ``options`` stands for the arguments of a command line."""

    kind: str
    model: type
    data: type
    task: type  # whose annotations are the types of the settings
    config: type  # a TypedDict: what a configuration says beside `minadv.tasks.schema.Common` and the settings
    described: type  # a TypedDict: how ``about`` describes data that the command line has found
    presets: Mapping[str, Preset]
    metrics: tuple[str, ...]  # of an evaluation; reports on a run tell the first one

    # on the command line
    options: Mapping[str, str]  # the names of its options, group by group
    changes: Mapping[str, Mapping[str, Any]]  # what differs in an option from `commands.options.OPTIONS`
    methods: tuple[str, ...]
    check: Callable[[Namespace], None]  # raises for bad options before the data are read
    about: Callable[[Namespace], dict[str, Any]]  # where the data are, as the configuration says it
    arguments: Callable[[Namespace, Any], dict[str, Any]]  # of `fit`: model, regularizer, recipe and settings
    summary: Callable[[Any], str]  # a line about what is about to be trained: a `minadv.tasks.fit.Plan`
    report: Callable[[Any, Device], Report]  # about a run that has been trained, evaluated on a device

    # the data
    open_data: Callable[[dict[str, Any]], Any]  # the data that the configuration describes
    identify: Callable[[Any], dict[str, Any]]  # what tells the data from others, for the configuration
    size: Callable[[Any, str], str]  # of a part of a run's data, in words

    # the task; settings are arguments of `fit` beside those that every family has, with their defaults, which may be
    # functions of the data
    settings: Mapping[str, Any]
    recipe: Mapping[str, Any]  # fields of `Recipe` that are not at its defaults
    make_task: Callable[..., tuple[Any, dict[str, Any]]]  # and what the configuration says beside the settings
    evaluate: Callable[..., dict[str, Any]]

    schedules: Callable[[float], Mapping[str, Any]] = lambda epochs: {}  # fields of `Recipe` for a run of that length
    epochs: float | None = None  # how long `fit` trains unless it is told
    accept: Callable[..., Any] | None = None  # makes ``data`` of arrays; its keywords are arguments of `fit`
    whole: Callable[[Any, Any], Any] | None = None  # data of arrays in a precision, whose every part is all of them
    fitted: Callable[[Namespace, Any], dict[str, Any]] = lambda options, data: {}  # values of a preset that suit data
    # options, with their values in force where neither option nor preset has these; None: it is not in force
    in_force: Callable[[Namespace, dict[str, Any]], dict[str, Any]] = lambda options, arguments: {}
    baseline: Callable[[Any, float], str] | None = None  # a line: what a simple method gets on a run's test data
    expect_data: Callable[[dict[str, Any], Any, str], None] = lambda config, data, path: None  # raises for other data
    complete: Callable[[Any, Any], Any] = lambda model, vocabulary: model  # adds word frequencies to the model
    place: Callable[[Any, Any, Device], tuple[Any, Any]] = lambda model, data, device: (model, data)  # on a device
    carry: Callable[[Any, dict[str, Any]], Any] = lambda model, config: None  # the carried state before the first step
    begins_with: str | None = None  # the setting, if there is one, that names a run whose weights come first

    # what can be asked of a trained run; None where a family has no answer
    predict: Callable[..., Any] | None = None
    generate: Callable[..., Any] | None = None
    finetune: Callable[..., Any] | None = None
    answers: Callable[[Any, str], tuple[Any, Any]] | None = None  # the true classes of a part, and a run's answers
    attack: Callable[..., Any] | None = None  # makes the `minadv.tasks.attack.Target` of a run
    figures: tuple[str, ...] = ("curves",)
    instead: str = ""  # what to do where one of these is None

    def defaults(self, data: Any) -> dict[str, Any]:
        """The settings that are not given, for these data."""
        return {name: value(data) if callable(value) else value for name, value in self.settings.items()}

    def can(self, verb: str, run: str | Path | None) -> Callable[..., Any]:
        """The family's function ``verb``; raises RunError, which names the run, if the family has none."""
        function: Callable[..., Any] | None = getattr(self, verb)
        if function is None:
            more = f": {self.instead}" if self.instead else ""
            raise RunError(f"{run or 'the run'} is a run of the kind {self.kind!r}, which {verb} is not for{more}")
        return function


def of_kind(kind: str, run: str | Path = "it") -> Family:
    """The family of the runs of a kind; ``run`` names the run in the error for a kind that does not exist."""
    if kind not in FAMILIES:
        raise RunError(f"{run} is a run of the kind {kind!r}, which this version of minadv does not know")
    family: Family = import_module(FAMILIES[kind]).FAMILY
    return family


def of_run(run: str | Path) -> Family:
    """The family that a run's folder belongs to."""
    return of_kind(kind_of(read_config(Path(run))), run)


def of_task(task: str) -> Family:
    """The family that has a named task."""
    expect_choice("task", task, TASKS)
    return of_kind(TASKS[task])


def of_model(model: Any) -> Family:
    """The family that trains a model."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(model).__mro__]
    return of_kind(next((MODELS[name] for name in names if name in MODELS), "classify"))
