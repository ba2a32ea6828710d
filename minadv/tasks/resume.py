r"""Going on with a run that was stopped or killed, on the data that it was begun on, to its end.

::

    run = resume("runs/add")

The command line takes the same way, in two steps: `plan_resumed`, then `Plan.train`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minadv.backend import Device, DeviceName, choose_device
from minadv.regularizers import Regularizer
from minadv.tasks import config as configs
from minadv.tasks.arguments import accepted, expect_run
from minadv.tasks.config import build, build_recipe, given_or_built
from minadv.tasks.family import of_kind
from minadv.tasks.fit import Plan, make_task
from minadv.tasks.needs import needs_of
from minadv.tasks.run import Run, blank, moved, open_data
from minadv.tasks.schema import read_config
from minadv.training.parallel.choose import same_workers
from minadv.training.runs import checkpoints, folder
from minadv.training.runs.folder import RunError, kind_of


def resume(
    run: str | Path,
    data: Any = None,
    *,
    data_dir: str | None = None,
    device: DeviceName | Device | None = None,
    workers: int | None = None,
    model: Any = None,
    regularizer: Regularizer | None = None,
    **how: Any,
) -> Run:
    """Train a run that was stopped or killed to its end, on the data that it was begun on.

    ``data`` are found where the run found them, or in ``data_dir``, unless they are given; ``device`` and ``workers``
    default to the run's own. A run that began with the weights of another and has no checkpoint yet begins with them
    once more. ``model`` and ``regularizer`` are those of a run that was made with one's own, not registered ones.
    ``how`` are the other arguments of `Plan.train`.
    """
    own: dict[str, Any] = {"model": model, "regularizer": regularizer}
    own |= {name: how.pop(name) for name in ("valid", "test") if name in how}
    return plan_resumed(run, data, data_dir=data_dir, device=device, **own).train(workers=workers, **how)


def plan_resumed(
    run: str | Path,
    data: Any = None,
    *,
    data_dir: str | None = None,
    device: DeviceName | Device | None = None,
    model: Any = None,
    regularizer: Regularizer | None = None,
    **parts: Any,
) -> Plan:
    """The run that `resume` will train; raises for anything that is wrong with it."""
    expect_run(run)
    path = Path(run)
    config = read_config(path)
    family = of_kind(kind_of(config), path)
    folder.expect_writable(path)
    config = configs.today(config)
    data = open_data(moved(config, data_dir), path) if data is None else accepted(data, family, **parts)
    family.expect_data(config, data, str(path))
    chosen = device if isinstance(device, Device) else device_of(config, device)
    model, seed = given_or_built(config["model"], model, "model", path), config["seed"]
    described = config.get("regularizer", {"kind": "Plain"})
    regularizer = given_or_built(described, regularizer, "regularizer", path)
    defaults = family.defaults(data)
    settings = {name: build(config[name], name) if name in config else value for name, value in defaults.items()}
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
    except ValueError as error:
        raise folder.configured_error(path, error) from error
    if first is not None and settings[first] is not None and more[first] != config[first]:
        raise RunError(
            f"{path} has no checkpoint yet, and {settings[first]}, which it began with, has other weights now"
        )
    folder.expect_same(path, config, {**config, **family.identify(data)})
    config = {**config, **family.identify(data)}
    recipe, workers = build_recipe(config["recipe"]), same_workers(config, chosen)
    needs = needs_of(task, recipe, config["dtype"], chosen)
    return Plan(family, model, data, task, recipe, seed, chosen, config, path, True, workers, needs)


def device_of(config: dict[str, Any], asked: DeviceName | None = None) -> Device:
    """The device of a run that goes on: ``asked``, or else the run's own; on a GPU it computes with TF32 as before."""
    name = asked or config["device"]
    return choose_device(name, tf32=name != "cpu" and config.get("tf32", False))


def is_finished(run: str | Path) -> bool:
    """Whether a run has nothing left to do."""
    config = read_config(Path(run))
    recipe = build_recipe(config["recipe"])
    return folder.is_finished(Path(run), blank(Path(run), config, recipe), recipe)


def _begun_with(path: Path, config: dict[str, Any], setting: str) -> str | None:
    """The run whose weights a run began with; None if it began with its own, or has a checkpoint already."""
    if config.get(setting) is None or checkpoints.latest(path) is not None:
        return None
    source: str | None = config["about"].get(setting)
    if source is None:
        raise RunError(f"{path} has no checkpoint yet and does not say which run it began with: train it anew")
    return source
