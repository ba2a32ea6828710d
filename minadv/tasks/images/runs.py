r"""A run on disk: its configuration, its log, its checkpoints; and the two doors to it, `fit` and `load`.

::

    run = fit(Classifier(8, 100, 10), data, regularizer=AdD(delta=0.03), epochs=20, out="runs/add")
    run = load("runs/add", data)
    run.test()                      # {'loss': ..., 'error': ...}
    run.predict(x)                  # (N, C) probabilities

The command line uses these same functions; `minadv.training.runs.folder` has what is on disk.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv import protocol
from minadv.backend import Array, Device, DeviceName, choose_device, to_device, to_host
from minadv.base.checks import expect_shape
from minadv.data.images import Images
from minadv.data.images.batches import in_order
from minadv.data.images.sequences import from_description
from minadv.fast import reusing
from minadv.layers import log_softmax
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import Plain, Regularizer
from minadv.tasks.config import build, build_recipe, describe, describe_recipe, today
from minadv.tasks.images.task import METRICS, Classify, evaluate
from minadv.training.loop import Recipe, weights
from minadv.training.runs import folder as folders
from minadv.training.runs.folder import (
    Blank,
    RunError,
    best_weights,
    dtype_of,
    expect_free,
    kind_of,
    read_config,
    restore,
    run_task,
)

__all__ = ["Run", "RunError", "build_recipe", "expect_free", "fit", "is_finished", "load", "read_config"]


@dataclass(frozen=True)
class Run:
    """A trained model, with where it came from."""

    model: Classifier
    params: Any = field(repr=False)  # the weights of the best validation score, on the host
    last: Any = field(repr=False)  # those of the last step; averaged, as in the evaluations, if the recipe does that
    config: dict[str, Any] = field(repr=False)  # as it stands in the run's file, empty if there is none
    records: list[dict[str, Any]] = field(repr=False)  # one an evaluation
    step: int
    path: Path | None = None
    data: Images | None = field(default=None, repr=False)

    def predict(self, x: Array) -> Array:
        """Class probabilities (N, C) of sequences ``x (N, T, I)``."""
        x = np.asarray(x, dtype=dtype_of(self.params))
        expect_shape("x", x, ("N", "T", self.model.n_in), f"the model takes n_in = {self.model.n_in} inputs a step")
        rows, model = [], reusing(self.model)
        for chosen in in_order(len(x), self.batch_size):
            batch = Batch(np.ascontiguousarray(x[chosen].transpose(1, 0, 2)))
            with protocol.scope(model):
                features, _, _ = model.body(self.params, batch, masks={}, noise=None)
                rows.append(np.exp(log_softmax(self.model.logits(self.params, features)[-1])))
        return np.concatenate(rows)

    @property
    def batch_size(self) -> int:
        """How many sequences pass together: as many as in training, for which there was memory."""
        return int(self.config.get("batch_size", 100))

    def test(self, data: Images | None = None) -> dict[str, Any]:
        """Mean NLL and error in per cent on the test part of the data (default: what the run was trained on)."""
        data = data or self.data
        if data is None and "images" in self.config.get("about", {}):
            data = from_description(self.config["about"])
        if data is None:
            raise RunError("this run does not know its data: give the data to test on")
        return evaluate(self.model, self.params, data.test, batch_size=self.batch_size)


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
    workers: int | None = None,
    cuda_aware_mpi: bool | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> Run:
    """Train a classifier on sequences.

    ``data`` holds sequences (N, T, I) (`minadv.data.images.sequences.as_sequences`). Give a `Recipe`, or ``epochs`` and
    any of its fields by name. With ``out`` the run is written there, and ``resume=True`` goes on where a killed run
    stopped; a folder that is there already is otherwise an error. ``about`` is kept in the configuration, for whoever
    wants to find the data again; ``track``, options of `minadv.find_adversary`, adds the mean adversarial mask to each
    record, over the first ``n`` test examples (default 500); ``on_evaluation`` is called with each record. ``workers``
    threads or processes share each batch (default: all cores, where that pays), with the same masks and, up to the
    order of sums, the same results for any number of them. ``cuda_aware_mpi``: under mpiexec on GPUs, whether the MPI
    library takes their buffers (default: as the environment says, see `minadv.training.parallel.mpi`). A model of your
    own, which meets `minadv.protocol` and has ``init`` and ``logits``, trains as well, without ``out``; give it
    ``workers=1`` if it cannot be called by several threads at once.
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
    if recipe.monitor not in METRICS:
        raise ValueError(f"monitor is {recipe.monitor!r}, expected one of {', '.join(METRICS)}")
    chosen = device if isinstance(device, Device) else choose_device(device)
    placed = data
    if chosen.name == "gpu":
        placed = replace(data, **{part: to_device(getattr(data, part), chosen) for part in ("train", "valid", "test")})
    task = Classify(model, placed, regularizer or Plain(), batch_size, seed, track)
    config: dict[str, Any] = {}
    if out is not None:
        config = {
            "about": about or {},
            "model": describe(model, "model"),
            "regularizer": describe(task.regularizer, "regularizer"),
            "batch_size": batch_size,
            "dtype": str(data.train.x.dtype),
            "device": chosen.name,
            "track": track,
            "data": describe_data(data),
            "recipe": describe_recipe(recipe),
            "seed": seed,
        }
    state, records = run_task(
        task,
        recipe,
        config=config,
        seed=seed,
        out=None if out is None else Path(out),
        resume=resume,
        today=today,
        workers=workers,
        cuda_aware_mpi=cuda_aware_mpi,
        title=type(task.regularizer).__name__,
        progress=progress,
        on_evaluation=on_evaluation,
    )
    path = None if out is None else Path(out)
    config = {} if path is None else read_config(path)
    return Run(model, to_host(state.best), to_host(weights(recipe, state)), config, records, state.step, path, data)


def describe_data(data: Images) -> dict[str, Any]:
    """Of each part the number of examples and a checksum, so that a run is not resumed on other data."""
    parts = {name: to_host(getattr(data, name)) for name in ("train", "valid", "test")}
    return {name: {"n": len(part), "crc32": _checksum(part.x, part.y)} for name, part in parts.items()}


def _checksum(*arrays: Array) -> int:
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def load(run: str | Path, data: Images | None = None) -> Run:
    """A run from its folder, at its newest sound checkpoint; no code is executed."""
    path = Path(run)
    config = read_config(path)
    model = build(config["model"], "model")
    recipe = build_recipe(config["recipe"])
    state = restore(path, blank(config), recipe)
    best = best_weights(path, recipe, state)
    return Run(model, best, weights(recipe, state), config, folders.records(path, state.step), state.step, path, data)


def blank(config: dict[str, Any]) -> Blank:
    """What a run's state looks like, for reading its checkpoints."""
    if kind_of(config) != "classify":
        raise RunError(f"this run is of the kind {kind_of(config)!r}, expected one that classifies sequences")
    return Blank(build(config["model"], "model").init(np.random.default_rng(0), dtype=config["dtype"]))


def is_finished(path: Path) -> bool:
    """Whether a run has nothing left to do."""
    config = read_config(path)
    return folders.is_finished(path, blank(config), build_recipe(config["recipe"]))
