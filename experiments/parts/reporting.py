r"""Where results go: a JSON file with the numbers and the facts of the run, a Markdown table and a figure beside it."""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import datetime
from multiprocessing import active_children, connection, get_context, parent_process
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import scipy
from tqdm import tqdm

import minadv
from experiments.parts import records
from minadv import fast
from minadv.backend import BackendError, choose_device
from minadv.base import launch
from minadv.base.errors import DataError
from minadv.base.machine import one_thread
from minadv.commands.numbers import positive
from minadv.training.loop import LOG, Interrupted, TrainingError
from minadv.training.parallel import ranks
from minadv.training.runs import log
from minadv.training.runs.checkpoints import CheckpointError
from minadv.training.runs.folder import RunError
from minadv.training.runs.log import LogError

RESULTS = Path(__file__).parents[1] / "results"
Task = TypeVar("Task")
Result = TypeVar("Result")


def facts(started: float, **settings: Any) -> dict[str, Any]:
    """What a reader needs in order to trust or to repeat a number: versions, machine, settings, time taken."""
    told = " ".join(["python -m", f"experiments.{name_of(sys.argv[0])}", *sys.argv[1:]])
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(started))
    return {"command": told, **machine(), "date": date, "seconds": round(time.time() - started, 1), **settings}


def name_of(file: str) -> str:
    """How an experiment is called after ``python -m experiments.``: ``table1``, ``bench``, ``bench.text``."""
    path = Path(file).resolve()
    folder = RESULTS.parent
    parts = path.relative_to(folder).with_suffix("").parts if path.is_relative_to(folder) else (path.stem,)
    return ".".join(part for part in parts if part != "__main__")


def machine() -> dict[str, Any]:
    """What computes here: the code, the libraries, the processor."""
    engine = fast.describe()
    return {
        "minadv": minadv.__version__,
        **commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        **engine.versions,
        "blas": sorted({f"{lib['internal_api']} {lib['version']}" for lib in engine.blas}),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def commit(root: Path = Path(__file__).parents[2]) -> dict[str, Any]:
    """The commit of a checkout, and whether its code has changed since; None for both where there is none."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    found = git("rev-parse", "HEAD") if (root / ".git").exists() else None
    changed = None if found is None else git("status", "--porcelain", "--", "*.py", "pyproject.toml")
    return {"commit": found, "dirty": None if changed is None else changed != ""}


def at_commit(about: Mapping[str, Any]) -> str:
    """The commit in words, for headings."""
    if about.get("commit") is None:
        return f"minadv {about['minadv']}, no commit known"
    return f"commit {about['commit'][:7]}{' with changes' if about['dirty'] else ''}"


def core_time(results: Iterable[Mapping[str, Any]]) -> str:
    """The core time of all runs together, in words."""
    seconds = [result.get("seconds") for result in results]
    total, missing = sum(s for s in seconds if s is not None), seconds.count(None)
    if missing == len(seconds):
        return "core time not recorded"
    return f"core time {total / 3600:.2f} h" + f" (not known of {missing} of {len(seconds)} runs)" * (missing > 0)


def day_of(folder: Path) -> str:
    """The day on which a run ended, or came to where it is, by its log."""
    return str(log.read(folder / LOG)[-1]["time"])[:10]


def trained(folder: Path) -> float:
    """Core seconds that a run has trained for, by its log; steps that a kill undid are not in it."""
    seconds, before, workers = 0.0, 0.0, 1
    for record in log.read(folder / LOG):
        at = datetime.fromisoformat(record["time"]).timestamp()
        if record["kind"] in ("header", "resumed"):
            workers = record.get("config", record).get("workers") or 1
        else:
            seconds += workers * (at - before)
        before = at
    return seconds


UNKNOWN = {"cpu": "not noted", "minadv": "of its time", "commit": None, "dirty": None}
"""What is noted of a run that an earlier version, without `begins`, began."""


def begins(folder: Path, *, own: bool = True) -> None:
    """Note beside a run's folder which code and machine compute it from now on: both may change when it is resumed.

    ``own`` is that of `write`: False for a run that the ranks of mpiexec share.
    """
    path = _makers(folder)
    begun = [UNKNOWN] if folder.exists() else []
    noted = json.loads(path.read_text()) if begun and path.exists() else begun
    if (now := machine()) not in noted[-1:]:
        write_json(path, [*noted, now], own=own)


def made(folder: Path) -> dict[str, Any]:
    """The code and machine that computed a run: the last that `begins` noted, the others under ``before``."""
    path = _makers(folder)
    unnoted = UNKNOWN if folder.exists() else machine()
    *before, last = json.loads(path.read_text()) if path.exists() else [unnoted]
    return {**last, "before": before} if before else last


def _makers(folder: Path) -> Path:
    return folder.parents[1] / "made" / f"{folder.parent.name}-{folder.name}.json"


def made_by(results: Iterable[Mapping[str, Any]]) -> str:
    """On which processors and at which commits runs were made, in words."""
    made = [result.get("made") for result in results]
    all_of = [one for m in made if m is not None for one in (m, *m.get("before", ()))]
    places = sorted({f"{m['cpu']}, {at_commit(m)}" for m in all_of})
    missing = made.count(None)
    return "; ".join([*places, f"not known of {missing} of {len(made)}"] if missing else places)


def one_line_errors(main: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one line on standard error: exit code 2 for the user's, 1 for training that fails."""
    name = f"python -m experiments.{name_of(inspect.getfile(main))}"

    @functools.wraps(main)
    def guarded(argv: Sequence[str] | None = None) -> None:
        try:
            main(argv)
        except RunError as error:
            _stop(f"{name}: {error}; or delete its folder, or give another one with --runs", 2)
        except (DataError, LogError, CheckpointError, BackendError, ImportError, OSError) as error:
            _stop(f"{name}: {error}", 2)
        except TrainingError as error:
            _stop(f"{name}: {error}", 1)
        except MemoryError as error:
            _stop(f"{name}: out of memory ({error}): fewer --workers need less", 1)
        except BrokenProcessPool:
            _stop(f"{name}: a process was killed, for want of memory perhaps; give the same command again to go on", 1)
        except (KeyboardInterrupt, Interrupted):
            _stop(f"\n{name}: stopped; give the same command again to go on", 130)

    return guarded


def _stop(said: str, code: int) -> NoReturn:
    print(said, file=sys.stderr)
    raise SystemExit(code)


def add_device(parser: argparse.ArgumentParser) -> None:
    """The options that say where to compute."""
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPU if it works")
    parser.add_argument(
        "--workers", type=positive, default=os.cpu_count(), help="processes (default: all cores; a GPU: 1)"
    )


def place(args: argparse.Namespace) -> dict[str, Any]:
    """The device that the options ask for, and the number of processes: 1 on a GPU, where more would share it."""
    device = choose_device(args.device)
    print(f"device: {device.why}", file=sys.stderr)
    return {"device": device.name, "workers": 1 if device.name == "gpu" else args.workers}


def command(module: str, argv: Sequence[str] | None) -> str:
    """The command line, with DIR in place of the names of this machine's folders."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for option in ("--data-dir", "--runs", "--out"):
        for n, argument in enumerate(arguments):
            if argument == option and n + 1 < len(arguments):
                arguments[n + 1] = "DIR"
            elif argument.startswith(f"{option}="):
                arguments[n] = f"{option}=DIR"
    return f"python -m experiments.{module} {shlex.join(arguments)}".rstrip()


def _cpu() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned so that it reads well as plain text too."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def spread(values: Iterable[float], digits: int = 2) -> str:
    """Mean and standard deviation over seeds."""
    array = np.asarray(list(values), dtype=float)
    if array.size == 1:
        return f"{array[0]:.{digits}f}"
    return f"{array.mean():.{digits}f} ± {array.std(ddof=1):.{digits}f}"


def write(path: Path, text: str, *, own: bool = False) -> Path:
    """Write a text under a temporary name, then rename it: a killed run leaves the old file or the new one.

    Under mpiexec every rank has all results, and rank 0 alone writes; ``own=True`` is for a file of one rank alone.
    """
    if launch.this_process().rank > 0 and not own:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def write_json(path: Path, data: Any, *, own: bool = False) -> Path:
    """Write the result of one run with all its digits: the same command, given again, reads it."""
    return write(path, json.dumps(data, indent=1, default=float) + "\n", own=own)


def write_results(path: Path, data: Any) -> Path:
    """Write the numbers of an experiment, a run a line (`experiments.parts.records`).

    Texts and figures are made from `records.plain` of the same data, so that they can be made anew from the file.
    """
    return write(path, records.text(data))


def read_results(path: Path) -> Any:
    """The numbers that `write_results` of this or of an earlier version wrote."""
    return records.parse(path.read_text(encoding="utf-8"))


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure under a temporary name, rename it, and close the figure."""
    import matplotlib.pyplot as plt

    if launch.this_process().rank > 0:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.stem + ".tmp" + path.suffix)
    figure.savefig(temporary, dpi=120, bbox_inches="tight")
    temporary.replace(path)
    plt.close(figure)
    return path


def run_all(work: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int, title: str) -> list[Result]:
    """Do independent tasks in parallel processes, with a progress bar; results in task order.

    Each has one BLAS thread and one core, or as many as its task has ``workers``.
    Under mpiexec its ranks are the processes; each returns all results.
    """
    if launch.this_process().size > 1:
        return ranks.share_out(work, tasks)
    bar = {"total": len(tasks), "desc": title, "disable": not sys.stderr.isatty()}
    if workers == 1:
        with _one_thread_each(tasks), fast.limit_threads(1):
            return [work(task) for task in tqdm(tasks, **bar)]
    results: dict[int, Result] = {}
    with _one_thread_each(tasks), _pool(workers) as pool:
        with _ctrl_c_ignored():
            futures = {pool.submit(work, task): n for n, task in enumerate(tasks)}
        try:
            for future in tqdm(as_completed(futures), **bar):
                results[futures[future]] = future.result()
        except KeyboardInterrupt:  # the processes may be killed at any moment: their runs can be resumed
            for process in active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
        except BaseException:  # raise the error of one task at once, not when all others are done
            pool.shutdown(cancel_futures=True)
            raise
    return [results[n] for n in range(len(tasks))]


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """In a process of the pool: end when its parent is killed, so that nobody writes into the parent's runs."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Within it, processes that are started ignore Ctrl-C: their parent handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _one_thread_each(tasks: Sequence[Any]) -> Iterator[None]:
    """Within it, processes that are started have one BLAS thread, set in their environment before BLAS is loaded."""
    before = dict(os.environ)
    os.environ.update(one_thread(max((getattr(task, "workers", None) or 1 for task in tasks), default=1)))
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
