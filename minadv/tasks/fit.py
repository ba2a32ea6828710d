r"""Training a run, of whatever family: `fit` begins one, and `minadv.tasks.resume` goes on with one.

::

    run = fit(Classifier(8, 100, 10), data, regularizer=AdD(delta=0.03), epochs=20, out="runs/add")
    run = fit(TextClassifier(words, 64, 128), corpus, regularizer=AdD(delta=0.04), pretrained="runs/lm", epochs=10)
    run = fit(LanguageModel(words, 100, (100, 100)), corpus, epochs=10, out="runs/lm")

The model decides the family. The command line takes the same way, in two steps: `plan`, then `Plan.train`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minadv import fast
from minadv.backend import Device, DeviceName, choose_device
from minadv.models.stack import Buffered
from minadv.regularizers import Plain, Regularizer
from minadv.tasks import config as configs
from minadv.tasks.arguments import accepted, expect_how, expect_model, expect_options, expect_out, expect_regularizer
from minadv.tasks.config import describe, describe_own, describe_recipe
from minadv.tasks.family import Family, of_model
from minadv.tasks.needs import Needs, expect_length, needs_of
from minadv.tasks.recipes import choose_recipe
from minadv.tasks.run import Run, opened
from minadv.tasks.schema import expect_settings, precision, read_config
from minadv.training.loop import Recipe
from minadv.training.memory import Table
from minadv.training.runs import folder
from minadv.training.runs.folder import kind_of, run_task
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
        overwrite: bool = False,
        **callbacks: Any,
    ) -> Run:
        """Train to the end of the recipe; the arguments are those of `fit`; ``overwrite`` replaces a run there."""
        expect_how(workers=workers, cuda_aware_mpi=cuda_aware_mpi, progress=progress, overwrite=overwrite, **callbacks)
        state, records = run_task(
            self.task,
            self.recipe,
            config=self.config,
            seed=self.seed,
            out=self.out,
            resume=self.resume,
            overwrite=overwrite,
            today=configs.today,
            workers=self.workers if workers is None else workers,
            cuda_aware_mpi=cuda_aware_mpi,
            title=type(getattr(self.task, "regularizer", self.model)).__name__,
            progress=progress,
            **callbacks,
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
    on_step: Any = None,
    on_checkpoint: Any = None,
    **options: Any,
) -> Run:
    """Train a model on data: a classifier on sequences or texts, a language model on text.

    ``data`` are arrays ``(x, y)`` of sequences (N, T, I) and their classes, ``(x, y, lengths)`` or a list of sequences
    in the place of x if their lengths differ (`minadv.data.split.as_split`), of which a tenth of the rows validates and
    a tenth tests unless ``valid`` and ``test`` say otherwise (`minadv.data.arrays`); batches of such arrays, one after
    the other, with ``valid`` and ``test`` beside them (`minadv.data.feed`); or images as sequences
    (`minadv.data.images.sequences.as_sequences`), texts (`minadv.data.texts.reviews.load`), or a text
    (`minadv.data.language.corpus.load`). How to train is a `Recipe`, or ``epochs`` (or ``steps``), ``lr`` and any field
    of a recipe by name; what is not given is as on the command line (`minadv.tasks.recipes`).

    With ``out`` the run is written there, and ``resume=True`` goes on where a killed run stopped; a folder that is
    there already is otherwise an error. ``workers`` threads or processes share each batch (default: all cores, where
    that pays), with the same masks and, up to the order of sums, the same results for any number of them.
    ``cuda_aware_mpi``: under mpiexec on GPUs, whether the MPI library takes their
    buffers (default: as the environment says, see `minadv.training.parallel.mpi`).
    ``on_step`` is called with a dict of step, epoch, loss and regularizer, ``on_evaluation`` with each record, and
    ``on_checkpoint`` with the file of each checkpoint; the first two may raise `minadv.Stop` to end the training there.
    The other options are those of `plan`.

    A model of your own, which meets `minadv.protocol` and has ``init`` and ``logits``, trains on sequences as well;
    give it ``workers=1`` if it cannot be called by several threads at once. `minadv.load` is given it again with the
    run, unless its class, a frozen dataclass, has ``@minadv.register`` before it; likewise a regularizer.
    """
    callbacks = {"on_evaluation": on_evaluation, "on_step": on_step, "on_checkpoint": on_checkpoint}
    expect_how(**callbacks)
    planned = plan(model, data, **options)
    return planned.train(workers=workers, cuda_aware_mpi=cuda_aware_mpi, progress=progress, **callbacks)


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
    expect_model(model)
    expect_regularizer(regularizer)
    expect_out(out)
    expect_how(epochs=epochs, seed=seed, resume=resume, about=about)
    if resume and out is None:
        raise ValueError("resume is True and out is None: give out, the folder of the run to go on with")
    family, about = of_model(model), dict(about or {})
    begun: dict[str, Any] = {}  # the configuration with which the run to resume was begun, as it is written now
    if out is not None and resume and (Path(out) / folder.CONFIG).exists():
        begun = configs.today(read_config(Path(out)))
    if isinstance(model, Buffered) and model.engine in (None, "fast"):
        model = replace(model, engine=_engine(model.engine, begun.get("model", {}).get("engine")))
    chosen = device if isinstance(device, Device) else choose_device(device)
    if family.accept is not None:
        expect_length(model, data, chosen, parted=None in (options.get("valid"), options.get("test")))
    parts = {name: options.pop(name) for name in ("valid", "test") if name in options and family.accept is not None}
    data = accepted(data, family, **parts)
    expect_options(options, family, model)
    defaults = {**family.defaults(data), **{name: begun[name] for name in ("draws",) if name in begun}}
    settings = {name: options.pop(name, default) for name, default in defaults.items() if name in family.settings}
    first = family.begins_with
    if first is not None and settings[first] is not None:  # a run that is killed before its first checkpoint needs it
        where = getattr(settings[first], "path", settings[first])
        about[first] = str(Path(where).resolve()) if isinstance(where, str | Path) else None
    task, more = make_task(family, model, data, regularizer or Plain(), seed, chosen, settings)
    made = choose_recipe(family, task.per_epoch, recipe, epochs, options)
    path = None if out is None else Path(out)
    config: dict[str, Any] = {"kind": family.kind, "about": about}
    if path is not None:
        config["model"] = describe_own(model, "model")
        config |= {"regularizer": describe_own(task.regularizer, "regularizer")} if hasattr(task, "regularizer") else {}
        config |= {**family.identify(data), "recipe": describe_recipe(made), "seed": seed, "device": chosen.name}
        config |= {"tf32": True} if chosen.tf32 else {}
    config |= {name: describe(value, name) for name, value in settings.items() if name != first} | more
    if path is not None and resume and (path / folder.CONFIG).exists():
        theirs = read_config(path)
        if kind_of(theirs) == family.kind:
            family.expect_data(theirs, data, str(path))
    needs = needs_of(task, made, config["dtype"], chosen)
    return Plan(family, model, data, task, made, seed, chosen, config, path, resume, needs=needs)


def _engine(asked: str | None, theirs: str | None) -> Any:
    """The engine of a run, with its version: ``theirs`` if the run was begun with that, or the one to use now."""
    if theirs is not None and not (asked == "fast" and theirs == "plain"):
        return theirs
    return fast.describe(engine=asked).engine


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
