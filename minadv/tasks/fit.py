r"""Training a run, of whatever family: `fit` begins one, `resume` goes on with one that was stopped or killed.

::

    run = fit(Classifier(8, 100, 10), data, regularizer=AdD(delta=0.03), epochs=20, out="runs/add")
    run = fit(TextClassifier(words, 64, 128), corpus, regularizer=AdD(delta=0.04), pretrained="runs/lm", epochs=10)
    run = fit(LanguageModel(words, 100, (100, 100)), corpus, epochs=10, out="runs/lm")

The model decides the family. The command line takes the same way, in two steps: `plan`, then `Plan.train`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from minadv import fast
from minadv.backend import Device, DeviceName, choose_device
from minadv.base.numbers import Epochs, Few, Seed
from minadv.base.schema import expect_type
from minadv.models.stack import Buffered
from minadv.regularizers import Plain, Regularizer
from minadv.tasks import config as configs
from minadv.tasks.config import build, build_model, build_recipe, describe, describe_recipe
from minadv.tasks.family import Family, of_kind, of_model
from minadv.tasks.needs import Needs, needs_of
from minadv.tasks.run import Run, blank, moved, open_data, opened
from minadv.tasks.schema import expect_settings, precision, read_config
from minadv.training.loop import Recipe
from minadv.training.memory import Table
from minadv.training.parallel.choose import same_workers
from minadv.training.runs import checkpoints, folder
from minadv.training.runs.folder import RunError, kind_of, run_task
from minadv.training.task import Task


@dataclass(frozen=True)
class Plan:
    """A run that is ready to be trained: its settings have been checked, and nothing has been written."""

    family: Family
    model: Any
    data: Any
    task: Task
    recipe: Recipe
    seed: int
    device: Device
    config: dict[str, Any]  # what the run's folder will say of it; without a folder, the settings alone
    out: Path | None
    resume: bool
    workers: int | None = None
    needs: Needs | None = None  # None for a model that does not tell its sizes

    def train(
        self,
        *,
        workers: int | None = None,
        cuda_aware_mpi: bool | None = None,
        progress: bool = True,
        on_evaluation: Any = None,
        on_step_time: Any = None,
    ) -> Run:
        """Train to the end of the recipe; the arguments are those of `fit`."""
        expect_type("workers", workers, Few | None)
        state, records = run_task(
            self.task,
            self.recipe,
            config=self.config,
            seed=self.seed,
            out=self.out,
            resume=self.resume,
            today=configs.today,
            workers=self.workers if workers is None else workers,
            cuda_aware_mpi=cuda_aware_mpi,
            title=type(getattr(self.task, "regularizer", self.model)).__name__,
            progress=progress,
            on_evaluation=on_evaluation,
            on_step_time=on_step_time,
        )
        config = self.config if self.out is None else read_config(self.out)
        return opened(self.model, state, self.recipe, config, records, self.out, self.data)


def fit(
    model: Any,
    data: Any,
    *,
    workers: int | None = None,
    cuda_aware_mpi: bool | None = None,
    progress: bool = True,
    on_evaluation: Any = None,
    **options: Any,
) -> Run:
    """Train a model on data: a classifier on sequences or texts, a language model on text.

    ``data`` holds sequences (N, T, I) (`minadv.data.images.sequences.as_sequences`), texts
    (`minadv.data.texts.reviews.load`) or a text (`minadv.data.language.corpus.load`). Give a `Recipe`, or ``epochs``
    (or ``steps``) and any of its fields by name. With ``out`` the run is written there, and ``resume=True`` goes on
    where a killed run stopped; a folder that is there already is otherwise an error. ``workers`` threads or processes
    share each batch (default: all cores, where that pays), with the same masks and, up to the order of sums, the same
    results for any number of them. ``cuda_aware_mpi``: under mpiexec on GPUs, whether the MPI library takes their
    buffers (default: as the environment says, see `minadv.training.parallel.mpi`). ``on_evaluation`` is called with
    each record. The other options are those of `plan`.

    A model of your own, which meets `minadv.protocol` and has ``init`` and ``logits``, trains on sequences as well,
    without ``out``; give it ``workers=1`` if it cannot be called by several threads at once.
    """
    planned = plan(model, data, **options)
    how = {"cuda_aware_mpi": cuda_aware_mpi, "progress": progress, "on_evaluation": on_evaluation}
    return planned.train(workers=workers, **how)


def plan(
    model: Any,
    data: Any,
    *,
    regularizer: Regularizer | None = None,
    recipe: Recipe | Callable[[int], Recipe] | None = None,
    epochs: float | None = None,
    seed: int = 0,
    device: DeviceName | Device = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    about: dict[str, Any] | None = None,
    **options: Any,
) -> Plan:
    """The run that `fit` will train; raises for anything that is wrong with it.

    ``recipe`` may be a function of the number of steps in an epoch. ``about`` is kept in the configuration, for whoever
    wants to find the data again. ``options`` are the settings of the model's family and fields of the recipe. Settings
    of a classifier of sequences: ``batch_size`` and ``track``, options of `minadv.find_adversary` that add the mean
    adversarial mask to each record, over the first ``n`` test examples (default 500). Those of other families are
    described in `minadv.tasks.text.family`, `minadv.tasks.pretrain.family` and `minadv.tasks.language.family`.
    """
    family, about = of_model(model), dict(about or {})
    expect_type("seed", seed, Seed)
    expect_type("epochs", epochs, Epochs | None)
    if isinstance(model, Buffered) and model.engine in (None, "fast"):
        model = replace(model, engine=_engine(model.engine, Path(out) if out is not None and resume else None))
    if not isinstance(data, family.data):
        name = f"{family.data.__module__}.{family.data.__name__}"
        raise TypeError(f"data is a {type(data).__name__}, expected a {name} for a {type(model).__name__}")
    unknown = options.keys() - family.settings.keys() - {field.name for field in fields(Recipe)}
    if unknown:
        raise TypeError(
            f"{', '.join(sorted(unknown))}: expected settings of a {type(model).__name__} "
            f"({', '.join(family.settings)}) or fields of a Recipe"
        )
    chosen = device if isinstance(device, Device) else choose_device(device)
    settings = {name: options.pop(name, default) for name, default in family.settings.items()}
    first = family.begins_with
    if first is not None and settings[first] is not None:  # a run that is killed before its first checkpoint needs it
        where = getattr(settings[first], "path", settings[first])
        about[first] = str(Path(where).resolve()) if isinstance(where, str | Path) else None
    task, more = make_task(family, model, data, regularizer or Plain(), seed, chosen, settings)
    made = choose_recipe(family, task.per_epoch, recipe, epochs, options)
    path = None if out is None else Path(out)
    config: dict[str, Any] = {"kind": family.kind, "about": about}
    if path is not None:
        config["model"] = describe(model, "model")
        config |= {"regularizer": describe(task.regularizer, "regularizer")} if hasattr(task, "regularizer") else {}
        config |= {**family.identify(data), "recipe": describe_recipe(made), "seed": seed, "device": chosen.name}
    config |= {name: describe(value, name) for name, value in settings.items() if name != first} | more
    if path is not None and resume and (path / folder.CONFIG).exists():
        theirs = read_config(path)
        if kind_of(theirs) == family.kind:
            family.expect_data(theirs, data, str(path))
    needs = needs_of(task, made, config["dtype"], chosen)
    return Plan(family, model, data, task, made, seed, chosen, config, path, resume, needs=needs)


def _engine(asked: str | None, run: Path | None) -> Any:
    """The engine of a run, with its version: that with which the ``run`` to resume was begun, or the one to use now."""
    if run is not None and (run / folder.CONFIG).exists():
        theirs = configs.today(read_config(run))["model"].get("engine")
        if theirs is not None and not (asked == "fast" and theirs == "plain"):
            return theirs
    return fast.describe(engine=asked).engine


def resume(
    run: str | Path,
    data: Any = None,
    *,
    data_dir: str | None = None,
    device: DeviceName | Device | None = None,
    workers: int | None = None,
    **how: Any,
) -> Run:
    """Train a run that was stopped or killed to its end, on the data that it was begun on.

    ``data`` are found where the run found them, or in ``data_dir``, unless they are given; ``device`` and ``workers``
    default to the run's own. A run that began with the weights of another and has no checkpoint yet begins with them
    once more. ``how`` are the other arguments of `Plan.train`.
    """
    return plan_resumed(run, data, data_dir=data_dir, device=device).train(workers=workers, **how)


def plan_resumed(
    run: str | Path, data: Any = None, *, data_dir: str | None = None, device: DeviceName | Device | None = None
) -> Plan:
    """The run that `resume` will train; raises for anything that is wrong with it."""
    path = Path(run)
    config = read_config(path)
    family = of_kind(kind_of(config), path)
    config = configs.today(config)
    data = open_data(moved(config, data_dir), path) if data is None else data
    family.expect_data(config, data, str(path))
    chosen = device if isinstance(device, Device) else choose_device(config["device"] if device is None else device)
    model, seed = build_model(config), config["seed"]
    regularizer = build(config["regularizer"], "regularizer") if "regularizer" in config else Plain()
    settings = {name: build(config[name], name) if name in config else value for name, value in family.settings.items()}
    first = family.begins_with
    if first is not None:
        settings[first] = _begun_with(path, config, first)
    try:
        task, more = make_task(family, model, data, regularizer, seed, chosen, settings)
    except RunError as error:
        if first is None or settings[first] is None:
            raise
        said = f"{path} has no checkpoint yet and began with the weights of {settings[first]}"
        raise RunError(f"{said}: {error}") from error
    if first is not None and settings[first] is not None and more[first] != config[first]:
        raise RunError(
            f"{path} has no checkpoint yet, and {settings[first]}, which it began with, has other weights now"
        )
    config = {**config, **family.identify(data)}
    recipe, workers = build_recipe(config["recipe"]), same_workers(config, chosen)
    needs = needs_of(task, recipe, config["dtype"], chosen)
    return Plan(family, model, data, task, recipe, seed, chosen, config, path, True, workers, needs)


def is_finished(run: str | Path) -> bool:
    """Whether a run has nothing left to do."""
    config = read_config(Path(run))
    return folder.is_finished(Path(run), blank(config), build_recipe(config["recipe"]))


def make_task(
    family: Family,
    model: Any,
    data: Any,
    regularizer: Regularizer,
    seed: int,
    device: Device,
    settings: dict[str, Any],
) -> tuple[Task, dict[str, Any]]:
    """The task of a family, and what its configuration says of it beside the settings."""
    if "dtype" in settings:
        settings["dtype"] = precision(settings["dtype"])
    expect_settings(family, settings)
    task, more = family.make_task(model, data, regularizer=regularizer, seed=seed, device=device, **settings)
    carry = task.first_carry()
    if isinstance(carry, Table):  # so that checkpoints can be read without the data
        more["memory"] = {"examples": len(carry.d), "units": carry.units}
    return task, more


def _begun_with(path: Path, config: dict[str, Any], setting: str) -> str | None:
    """The run whose weights a run began with; None if it began with its own, or has a checkpoint already."""
    if config.get(setting) is None or checkpoints.latest(path) is not None:
        return None
    source: str | None = config["about"].get(setting)
    if source is None:
        raise RunError(f"{path} has no checkpoint yet and does not say which run it began with: train it anew")
    return source


def choose_recipe(
    family: Family,
    per_epoch: int,
    recipe: Recipe | Callable[[int], Recipe] | None,
    epochs: float | None,
    options: dict[str, Any],
) -> Recipe:
    """The recipe given, or one made of ``epochs`` and ``options``; it must monitor a metric of the family."""
    if recipe is None:
        if (epochs is None) == ("steps" not in options):
            raise ValueError("give epochs, steps or a recipe, one of them: how long to train")
        steps = options.pop("steps") if epochs is None else max(1, round(epochs * per_epoch))
        recipe = Recipe(**{"steps": steps, **family.recipe, **options})
    elif options or epochs is not None:
        raise ValueError(f"a recipe was given, and {sorted(options) or 'epochs'} besides: expected one or the other")
    else:
        recipe = recipe if isinstance(recipe, Recipe) else recipe(per_epoch)
        if recipe.monitor == Recipe.monitor:
            recipe = replace(recipe, monitor=family.recipe.get("monitor", recipe.monitor))
    if recipe.monitor not in family.metrics:
        raise ValueError(f"monitor is {recipe.monitor!r}, expected one of {', '.join(map(repr, family.metrics))}")
    return recipe
