r"""A run's folder, whatever its task: ``config.json`` (sealed by its checksum), ``log.jsonl`` and ``checkpoints/``.

`run_task` trains a task into such a folder, or on from where a killed run stopped; `read_config` and `restore` read it
back. `minadv.tasks.fit` makes a task and a configuration and comes here.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minadv.base.errors import DataError
from minadv.base.files import CONFIG as CONFIG
from minadv.base.files import SealError, flush_directory, seal, temporary_name, unseal, write_whole
from minadv.base.notices import say_once
from minadv.training.loop import LOG, Recipe, State, finished, newest, read_state, start, train, weights
from minadv.training.parallel.choose import choose_workers, start_workers
from minadv.training.parallel.ranks import process_group
from minadv.training.runs import checkpoints, log, packing
from minadv.training.runs.overwriting import ASIDE, put_aside, settle
from minadv.training.runs.sound import expect_numbers
from minadv.training.task import Task

FORMAT = "minadv run 1"
MAY_DIFFER = ("about", "device", "workers", "ranks")  # what may differ when a run is resumed
ADDED_LATER = ("data", "kind")  # what runs of earlier versions do not say


class RunError(ValueError):
    """A run's folder that is missing, there already, or not a run's; the message says which."""


def run_task(
    task: Task,
    recipe: Recipe,
    *,
    config: dict[str, Any],
    seed: int,
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    today: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    workers: int | None = None,
    cuda_aware_mpi: bool | None = None,
    title: str = "",
    progress: bool,
    **callbacks: Any,
) -> tuple[State, list[dict[str, Any]]]:
    """Train a task to the end of its recipe; returns the last state and a record for each evaluation.

    ``config`` is what the run's folder says of it, but for the workers, which are added here. ``today`` brings a
    configuration that an earlier version wrote up to what this one would write, to compare the two on ``resume``.
    ``overwrite`` removes the run that is in the folder already, but no other files, once the new one has a checkpoint;
    without one, the run of before is there again. ``workers`` threads or processes
    share each batch (default: `choose_workers`); under mpiexec, its ranks do instead, and ``cuda_aware_mpi`` is an
    option of theirs (`minadv.training.parallel.mpi`). ``callbacks`` are those of `train`.
    """
    ranks = process_group()
    with ranks.fail_together(), ExitStack() as held:
        n, resumed = choose_workers(task, workers, ranks.size), None
        if out is not None:
            if ranks.chief:
                held.callback(_settle, out)
            whole = {**config, "workers": n, "ranks": ranks.size}
            begun = ranks.agree(lambda: _prepare(out, whole, seed, resume, overwrite, today))
            ranks.agree(lambda: held.enter_context(only_writer(out)))
            resumed = log.resumed(whole) if begun else None
        with start_workers(task, n, ranks, cuda_aware_mpi=cuda_aware_mpi) as sharing:
            shown: dict[str, Any] = {"title": title, "progress": progress, **callbacks}
            done = train(task, recipe, out, **shown, workers=sharing, resumed=resumed)
            ranks.meet()  # the chief has written all there is to read
            return done


def configured_error(path: Path, error: ValueError) -> ValueError:
    """An error about a value of a run's configuration, with its file; others say themselves what they are about."""
    return error if isinstance(error, DataError | RunError) else RunError(f"{path / CONFIG}: {error}")


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Within it no other process trains this run; raises RunError if one does. It ends with the process, killed or not.

    Where the system or the disk has no locks, nothing is held.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{path} is being trained by another process: wait for it, or end it first") from None
        except OSError:
            pass
        yield
    finally:
        os.close(folder)


def clear(path: Path) -> None:
    """Put the run in a folder, if there is one, aside (`minadv.training.runs.overwriting`)."""
    if not (path / CONFIG).exists():
        expect_free(path)
        return
    expect_writable(path)
    with only_writer(path):
        put_aside(path)


def _settle(path: Path) -> None:
    """Put an overwritten run back if the new one has ended without a checkpoint; else let it go."""
    if (path / ASIDE).exists():
        with suppress(RunError), only_writer(path):  # the error: another process writes there, and will do it
            if settle(path):
                say_once(f"{path} is the run of before again: the new one has ended without a checkpoint")


def expect_foreign(path: Path) -> None:
    """Raise RunError for the name of a run's configuration, log or checkpoint: nothing else is written there."""
    above = path.parent.resolve()
    within = above.name == checkpoints.FOLDER
    run = above.parent if within else above
    if (within or path.name in (CONFIG, LOG)) and (run / CONFIG).exists():
        raise RunError(f"{path} is the name of a file of the run {run}: choose another name")


def how_to_resume(path: Path | str) -> str:
    """The command that goes on with a run."""
    return f"minadv train --resume {shlex.quote(str(path))}"


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of a run's folder; raises RunError if it is not one."""
    try:
        content = unseal(path / CONFIG)
    except SealError as error:
        raise RunError(f"{path} is not a run of minadv: {error}") from error
    if content.get("format") != FORMAT:
        raise RunError(f"{path / CONFIG} has format {content.get('format')!r}, expected {FORMAT!r}")
    config = content.get("config")
    if not isinstance(config, dict):
        raise RunError(f"{path / CONFIG}: config is {type(config).__name__}, expected a table of values by name")
    return config


def kind_of(config: dict[str, Any]) -> str:
    """What a run is: ``"classify"`` unless its configuration says otherwise."""
    return str(config.get("kind", "classify"))


@dataclass(frozen=True)
class Blank:
    """What a state looks like before the first step, for reading checkpoints: initial parameters and carry."""

    params: Any
    carry: Any = None

    def init(self) -> Any:
        return self.params

    def first_carry(self) -> Any:
        return self.carry


def restore(path: Path, blank: Blank, recipe: Recipe) -> State:
    """The newest state of a run, on the host."""
    saved = checkpoints.latest(path, expect_numbers)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet: train it further with {how_to_resume(path)}")
    return read_state(saved, start(blank, recipe))


def best_weights(path: Path | None, recipe: Recipe, state: State) -> Any:
    """The weights of the best evaluation; before the first one those of the last step, with a warning."""
    if math.isfinite(state.best_score):
        return state.best
    warnings.warn(
        f"{path or 'the run'} has had no evaluation yet: the weights of step {state.step} are used", stacklevel=2
    )
    return weights(recipe, state)


def is_finished(path: Path, blank: Blank, recipe: Recipe) -> bool:
    """Whether a run has nothing left to do."""
    saved = newest(path)
    return saved is not None and finished(recipe, read_state(saved, start(blank, recipe)))


def records(path: Path, step: int, metrics: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The evaluations of a run up to a step; raises LogError for one without a number for each of the metrics."""
    known = [record for record in log.read(path / LOG) if record["step"] <= step]
    return log.expect_evaluations(path / LOG, known, metrics)


def expect_free(path: Path) -> None:
    """Raise RunError unless a new run may be written to this folder: it is not there, or empty.

    Raises ImportError where no run can be written at all: better before the first step than at the first checkpoint.
    """
    packing.safetensors()
    if (path / CONFIG).exists():
        raise RunError(
            f"{path} is a run already: resume it ({how_to_resume(path)} or resume=True), or take another folder"
        )
    there = next(found for found in path.absolute().parents if found.exists())
    if not there.is_dir():
        raise RunError(f"{there} is a file: choose a folder for the run that is not below it")
    begun = temporary_name(path / CONFIG)  # all that a kill at the very beginning leaves
    if path.exists() and not (path.is_dir() and all(found == begun for found in path.iterdir())):
        raise RunError(f"{path} is there already and is not a run of minadv: choose another folder")
    expect_writable(path)


def expect_writable(path: Path) -> None:
    """Raise RunError unless a run can be written to a folder, which need not be there yet: one is made on trial."""
    if (path / checkpoints.FOLDER).exists() and not (path / checkpoints.FOLDER).is_dir():
        raise RunError(f"{path / checkpoints.FOLDER} is a file, expected a folder of checkpoints: move it away")
    if (path / LOG).exists() and not (path / LOG).is_file():
        raise RunError(f"{path / LOG} is no regular file, expected the log of a run: move it away")
    there = next(found for found in (path.absolute(), *path.absolute().parents) if found.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        raise RunError(f"cannot write to {there}: {error.strerror}: choose another folder for the run") from error


def expect_same(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise RunError, which names what differs, unless a run of the configuration ``theirs`` may go on as ``ours``."""
    theirs, ours = (json.loads(json.dumps(config)) for config in (theirs, ours))  # as JSON has them
    said = [key for key in ours if key in theirs or key not in ADDED_LATER]
    differing = [key for key in said if key not in MAY_DIFFER and theirs.get(key) != ours[key]]
    if "data" in differing:
        expect_same_data(path, theirs["data"], ours["data"])
    if differing:
        raise RunError(f"{path} was made with another {', '.join(differing)}: resume it as it was configured")


def expect_same_data(path: str | Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise RunError, which names the parts that differ, unless ``ours`` tells the same examples as ``theirs``."""
    told = []
    for part in {**ours, **theirs}:
        old, new = (data.get(part, {"n": 0}) for data in (theirs, ours))
        if old["n"] != new["n"]:
            told.append(f"{part} has {new['n']:,} examples, not {old['n']:,}")
        elif old != new:
            told.append(f"the {new['n']:,} examples of {part} are not the same")
    if told:
        raise RunError(
            f"{path} was made with other data: {', '.join(told)}; name its own with --data-dir, or evaluate it on "
            "others in Python: minadv.load(run).test(others)"
        )


def _prepare(
    path: Path,
    config: dict[str, Any],
    seed: int,
    resume: bool,
    overwrite: bool,
    today: Callable[[dict[str, Any]], dict[str, Any]],
) -> bool:
    """Make a new run's folder, or check that the one to resume was made with this configuration; whether it was there.

    A run whose log has not begun either begins with it, as a new one does.
    """
    begun = (path / LOG).exists() and not overwrite
    if resume and (path / CONFIG).exists():
        expect_same(path, today(read_config(path)), config)
        expect_writable(path)
    else:
        clear(path) if overwrite else expect_free(path)
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / CONFIG, seal({"format": FORMAT, "config": config}))
        flush_directory(path)
    if not begun:
        log.start(path / LOG, log.header(seed=seed, config=config))
    return begun
