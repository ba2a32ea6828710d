r"""A run on disk: its configuration, its log, its checkpoints; and the two doors to it, `fit` and `load`.

::

    run = fit(Classifier(8, 100, 10), data, regularizer=AdD(delta=0.03), epochs=20, out="runs/add")
    run = load("runs/add", data)
    run.test()                      # {'loss': ..., 'error': ...}
    run.predict(x)                  # (N, C) probabilities

A run's folder holds ``config.json`` (sealed by its checksum), ``log.jsonl`` and ``checkpoints/``. The command line uses
these same functions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Array, Device, DeviceName, choose_device, to_device, to_host
from minadv.checks import expect_shape
from minadv.data.images import Images
from minadv.data.sequences import from_description
from minadv.layers import log_softmax
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import Plain, Regularizer
from minadv.training import checkpoints, log
from minadv.training.config import build, describe
from minadv.training.files import SealError, flush_directory, seal, temporary_name, unseal, write_whole
from minadv.training.loop import LOG, Recipe, State, finished, start, train
from minadv.training.task import Classify, evaluate
from minadv.trees import any_array

CONFIG = "config.json"
FORMAT = "minadv run 1"


class RunError(ValueError):
    """A run's folder that is missing, there already, or not a run's; the message says which."""


@dataclass(frozen=True)
class Run:
    """A trained model, with where it came from."""

    model: Classifier
    params: Any = field(repr=False)  # the weights of the best validation score, on the host
    last: Any = field(repr=False)  # those of the last step
    config: dict[str, Any] = field(repr=False)  # as it stands in the run's file, empty if there is none
    records: list[dict[str, Any]] = field(repr=False)  # one an evaluation
    step: int
    path: Path | None = None
    data: Images | None = field(default=None, repr=False)

    def predict(self, x: Array) -> Array:
        """Class probabilities (N, C) of sequences ``x (N, T, I)``."""
        x = np.asarray(x, dtype=_dtype(self.params))
        expect_shape("x", x, ("N", "T", self.model.n_in), f"the model takes n_in = {self.model.n_in} inputs a step")
        rows = []
        for first in range(0, len(x), 500):
            batch = Batch(np.ascontiguousarray(x[first : first + 500].transpose(1, 0, 2)))
            features, _, _ = self.model.body(self.params, batch, masks={}, noise=None)
            rows.append(np.exp(log_softmax(self.model.logits(self.params, features)[-1])))
        return np.concatenate(rows)

    def test(self, data: Images | None = None) -> dict[str, Any]:
        """Mean NLL and error in per cent on the test part of the data (default: what the run was trained on)."""
        data = data or self.data
        if data is None and "images" in self.config.get("about", {}):
            data = from_description(self.config["about"])
        if data is None:
            raise RunError("this run does not know its data: give the data to test on")
        return evaluate(self.model, self.params, data.test)


def fit(
    model: Classifier,
    data: Images,
    *,
    regularizer: Regularizer | None = None,
    recipe: Recipe | None = None,
    epochs: float | None = None,
    batch_size: int = 100,
    seed: int = 0,
    device: DeviceName | Device = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    about: dict[str, Any] | None = None,
    track: dict[str, Any] | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> Run:
    """Train a classifier on sequences.

    ``data`` holds sequences (N, T, I) (`minadv.data.sequences.as_sequences`). Give a `Recipe`, or ``epochs`` and any of
    its fields by name. With ``out`` the run is written there, and ``resume=True`` goes on where a killed run stopped;
    a folder that is there already is otherwise an error. ``about`` is kept in the configuration, for whoever wants to
    find the data again; ``track``, options of `minadv.find_adversary`, adds the mean adversarial mask to each record;
    ``on_evaluation`` is called with each record. A model of your own, which meets `minadv.models.protocol` and has
    ``init`` and ``logits``, trains as well, without ``out``.
    """
    per_epoch = Classify(model, data, batch_size=batch_size).per_epoch
    if recipe is None:
        if epochs is None and "steps" not in options:
            raise ValueError("give epochs, steps or a recipe: how long to train")
        if epochs is not None and "steps" in options:
            raise ValueError(f"epochs is {epochs} and steps is {options['steps']}: expected one or the other")
        steps = options.pop("steps") if epochs is None else max(1, round(epochs * per_epoch))
        recipe = Recipe(steps=steps, **options)
    elif options or epochs is not None:
        raise ValueError(f"a recipe was given, and {sorted(options) or 'epochs'} besides: expected one or the other")
    chosen = device if isinstance(device, Device) else choose_device(device)
    placed = data
    if chosen.name == "gpu":
        placed = replace(data, **{part: to_device(getattr(data, part), chosen) for part in ("train", "valid", "test")})
    task = Classify(model, placed, regularizer or Plain(), batch_size, seed, track)
    config: dict[str, Any] = {}
    path = None if out is None else Path(out)
    if path is not None:
        config = {
            "about": about or {},
            "model": describe(model, "model"),
            "regularizer": describe(task.regularizer, "regularizer"),
            "recipe": _describe_recipe(recipe),
            "batch_size": batch_size,
            "seed": seed,
            "dtype": str(data.train.x.dtype),
            "device": chosen.name,
            "track": track,
        }
        _prepare(path, config, seed, resume)
    title = type(task.regularizer).__name__
    state, records = train(task, recipe, path, title=title, progress=progress, on_evaluation=on_evaluation)
    return Run(model, to_host(state.best), to_host(state.params), config, records, state.step, path, data)


def load(run: str | Path, data: Images | None = None) -> Run:
    """A run from its folder, at its newest sound checkpoint; no code is executed."""
    path = Path(run)
    config = read_config(path)
    model, recipe = build(config["model"], "model"), build_recipe(config["recipe"])
    state = restore(path, model, recipe, config)
    records = [r for r in log.read(path / LOG) if r["kind"] == "evaluation" and r["step"] <= state.step]
    return Run(model, state.best, state.params, config, records, state.step, path, data)


def restore(path: Path, model: Classifier, recipe: Recipe, config: dict[str, Any]) -> State:
    """The newest state of a run, on the host."""
    saved = checkpoints.latest(path)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet: train it further with minadv train --resume {path}")
    fresh = start(_Blank(model, config["dtype"]), recipe)
    state, _ = checkpoints.load(saved, like=fresh)
    return state


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of a run's folder; raises RunError if it is not one."""
    try:
        content = unseal(path / CONFIG)
    except SealError as error:
        raise RunError(f"{path} is not a run of minadv: {error}") from error
    if content.get("format") != FORMAT:
        raise RunError(f"{path / CONFIG} has format {content.get('format')!r}, expected {FORMAT!r}")
    config: dict[str, Any] = content["config"]
    return config


def is_finished(path: Path) -> bool:
    """Whether a run has nothing left to do."""
    config = read_config(path)
    if checkpoints.latest(path) is None:
        return False
    recipe = build_recipe(config["recipe"])
    return finished(recipe, restore(path, build(config["model"]), recipe, config))


def build_recipe(described: dict[str, Any]) -> Recipe:
    """A recipe from a run's configuration."""
    return Recipe(**{name: build(value, f"recipe.{name}") for name, value in described.items()})


def _describe_recipe(recipe: Recipe) -> dict[str, Any]:
    return {name: describe(value, f"recipe.{name}") for name, value in vars(recipe).items()}


def expect_free(path: Path) -> None:
    """Raise RunError unless a new run may be written to this folder: it is not there, or empty."""
    if (path / CONFIG).exists():
        raise RunError(
            f"{path} is a run already: resume it (minadv train --resume {path} or resume=True), or take another folder"
        )
    begun = temporary_name(path / CONFIG)  # all that a kill at the very beginning leaves
    if path.exists() and not (path.is_dir() and all(found == begun for found in path.iterdir())):
        raise RunError(f"{path} is there already and is not a run of minadv: choose another folder")


def _prepare(path: Path, config: dict[str, Any], seed: int, resume: bool) -> None:
    """Make a new run's folder, or check that the one to resume was made with this configuration."""
    if resume and (path / CONFIG).exists():
        theirs, ours = read_config(path), config
        differing = [key for key in ours if key not in ("about", "device") and theirs.get(key) != _plain(ours[key])]
        if differing:
            raise RunError(f"{path} was made with another {', '.join(differing)}: resume it as it was configured")
    else:
        expect_free(path)
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / CONFIG, seal({"format": FORMAT, "config": config}))
        flush_directory(path)
    if not (path / LOG).exists():
        log.start(path / LOG, log.header(seed=seed, config=config))


def _plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))


def _dtype(params: Any) -> Any:
    return any_array(params).dtype


@dataclass(frozen=True)
class _Blank:
    """A task without data: what a state looks like, for reading checkpoints."""

    model: Classifier
    dtype: str
    per_epoch: int = 1
    unit: str = "image"
    units_per_step: int = 1

    def init(self) -> Any:
        return self.model.init(np.random.default_rng(0), dtype=self.dtype)

    def first_carry(self) -> None:
        return None

    def term(self, params: Any, step: int, *, weight: float, carry: Any) -> Any:
        raise NotImplementedError

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        raise NotImplementedError
