r"""What `fit` is given, looked at before any work is done: mistakes that are easily made have a sentence each."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from minadv.base.numbers import Epochs, Few, Seed
from minadv.base.schema import expect_type, shown_as
from minadv.models.stack import Buffered
from minadv.regularizers import Regularizer
from minadv.tasks.family import Family
from minadv.training.loop import Recipe

ASKED = ("sites", "noise", "body", "body_backward", "head", "compare", "init", "logits")
"""What `fit` asks of a model: the protocol, initial weights, and the logits by which it evaluates."""

HOW: dict[str, Any] = {
    "seed": Seed,
    "epochs": Epochs | None,
    "workers": Few | None,
    "about": dict[str, Any] | None,
    "resume": bool,
    "overwrite": bool,
    "progress": bool,
    "cuda_aware_mpi": bool | None,
    **dict.fromkeys(("on_evaluation", "on_step", "on_checkpoint"), Callable[..., Any] | None),
}
"""The types of arguments of `fit` that are the same for all families."""


def expect_how(**given: Any) -> None:
    """Raise ValueError unless these arguments of `fit` have their types and ranges."""
    for name, value in given.items():
        if name not in HOW:
            continue
        expect_type(name, value, HOW[name])
        if name.startswith("on_") and value is not None and not _takes_one(value):
            raise TypeError(f"{name} is {shown_as(value)}, expected a function that can be called with one argument")


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a function that does not tell
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def accepted(data: Any, family: Family, **parts: Any) -> Any:
    """A data set of what a user gives, arrays and their ``parts`` valid and test, or the data set itself."""
    if family.accept is not None:
        data = family.accept(data, **parts)
    elif parts:
        raise TypeError(f"{', '.join(parts)}: expected data alone, which have their parts")
    expect_kind(data, family)
    return data


def expect_kind(data: Any, family: Family) -> None:
    """Raise TypeError, which says what to give instead, unless data are of the kind that a family takes."""
    if not isinstance(data, family.data):
        arrays = "" if family.accept is None else "arrays (x, y), or "
        name = f"{family.data.__module__}.{family.data.__name__}"
        raise TypeError(f"data is a {type(data).__name__}, expected {arrays}a {name} for a {family.model.__name__}")


def expect_model(model: Any) -> None:
    """Raise TypeError, which says what to give instead, unless this may be a model."""
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}, expected a model: {model.__name__}(...)")
    if any(kind.__module__.split(".")[0] == "torch" for kind in type(model).__mro__):
        raise TypeError(
            f"model is {type(model).__name__}, a module of PyTorch, expected a model of minadv.protocol: "
            "minadv.models.Classifier.from_torch(module) takes its weights, minadv.torch_door attacks it where it is"
        )
    missing = [name for name in ASKED if not isinstance(model, Buffered) and not hasattr(model, name)]
    if missing:
        raise TypeError(
            f"model is a {type(model).__name__}, which lacks {', '.join(missing)}: expected a model of minadv.protocol "
            "with init and logits; minadv.check_model(model, batch) says what else is wrong"
        )


def expect_regularizer(regularizer: Any) -> None:
    """Raise TypeError, which says what to give instead, unless this is a regularizer or None."""
    example = "expected a record of minadv.regularizers, such as AdD(delta=0.03)"
    if isinstance(regularizer, type):
        raise TypeError(f"regularizer is the class {regularizer.__name__}, expected a record: {regularizer.__name__}()")
    if regularizer is not None and not isinstance(regularizer, Regularizer):
        if callable(regularizer):
            example = "expected a subclass of minadv.regularizers.Regularizer, with a method term"
        raise TypeError(f"regularizer is {regularizer!r}, {example}")


def expect_out(out: Any) -> None:
    """Raise TypeError unless this may name a folder."""
    if not isinstance(out, str | Path | None):
        raise TypeError(f"out is {out!r}, expected the name of the folder to write, or None")


def expect_run(run: Any) -> None:
    """Raise TypeError unless this may name the folder of a run."""
    if not isinstance(run, str | os.PathLike):
        raise TypeError(f"run is {shown_as(run)}, expected the name of a run's folder")


def expect_options(options: dict[str, Any], family: Family, model: Any) -> None:
    """Raise TypeError for a keyword that `fit` does not know, or a record that is named and not given."""
    if "rng" in options:
        raise TypeError(f"rng is {options['rng']!r}: fit draws its random numbers from a seed, give seed=0 instead")
    known = {field.name for field in fields(Recipe)} | {"lr"}
    unknown = options.keys() - family.settings.keys() - known
    if unknown:
        settings = f"settings of a {type(model).__name__} ({', '.join(family.settings)})"
        raise TypeError(f"{', '.join(sorted(unknown))}: expected {settings}, lr, or fields of a Recipe")
    examples = {
        "optimizer": "Adam(lr=0.005) of minadv.training.optimizers",
        "clip": "Clip(1.0) of minadv.training.clip",
        "ema": "EMA(0.999) of minadv.training.ema",
        "lr_schedule": "RampDown(epochs=40, length=10) of minadv.training.schedules",
        "weight_schedule": "RampUp(10) of minadv.training.schedules",
    }
    for name, example in examples.items():
        value = options.get(name)
        if isinstance(value, type) or not (value is None or is_dataclass(value) or callable(value)):
            what = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
            raise TypeError(f"{name} is {what}, expected a record such as {example}")
