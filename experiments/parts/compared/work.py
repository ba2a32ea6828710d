r"""One job: trained, or found trained; and the ensembles of trained ones.

A run's folder lies under ``--runs``. Its result has a digest of its task, its setting and what tells its data, and is
used again if these are as the job has them. The code that made it is noted beside them and decides nothing: a result of
older code is used again too, a line on standard error says so, and the page names all commits. `Known` are results
without their folders, from a file that an earlier command wrote.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import minadv
from experiments.parts import reporting
from experiments.parts.compared import images, language, texts
from experiments.parts.compared.plan import MATCHED, Job, Task
from minadv.base.errors import DataError
from minadv.training.loop import Interrupted
from minadv.training.runs.folder import read_config

KINDS = {"images": images, "language": language, "texts": texts}
RESULT, CLOCK, ANSWERS = "result.json", "seconds.json", "answers.npy"
NAMES = ("method", "part", "strength", "weight", "lr", "seed", "longer", "member")


def prepare(task: Task, given: dict[str, Any], results: Iterable[dict[str, Any]]) -> None:
    """Make what all jobs of a task begin with, the language model of texts; it must be that of the results so far."""
    if task.kind == "texts":
        here = texts.prepare(task, given["root"], given["data_dir"])
        same = [r for r in results if r["digest"] == task.digest]
        if others := {str(r["began"]) for r in same if "began" in r} - {here}:
            raise DataError(
                f"the language model of {given['root'] / task.name} is {here[:12]}, but results that are known began "
                f"with {', '.join(sorted(other[:12] for other in others))}: go on with its folder, or without them"
            )


def work(job: Job) -> dict[str, Any]:
    """Train one network, unless it is trained already: its test result at the best validation evaluation."""
    if (found := found_result(job)) is not None:
        return found
    kind, metric = KINDS[job.task.kind], job.task.metric
    reporting.begins(job.folder)
    clock = Clock(job.folder)
    try:
        run, tested, answers = kind.train(job, clock.tick, out=job.folder, resume=True)
    except Interrupted:  # it was saved where it was stopped, so that what was done since the last evaluation stays done
        clock.tick({"step": f"interrupt {len(clock.by_step)}"})
        raise
    clock.tick({"step": "tested"})
    best = min(run.records, key=lambda record: record[f"valid_{metric}"])
    if job.part == "final":
        _save(job.folder / ANSWERS, answers.astype(np.float32))
    result = {
        **described(job),
        "data": kind.fingerprint(job),
        **({"began": texts.began(job)} if kind is texts else {}),
        "made": {**reporting.made(job.folder), "engine": engine_of(job.folder), "date": reporting.day_of(job.folder)},
        "valid": best[f"valid_{metric}"],
        "valid_loss": best["valid_loss"],
        "best_epoch": best["epoch"],
        "valid_losses": [record["valid_loss"] for record in run.records],
        "test": tested[metric],
        "steps": run.step,
        "seconds": clock.seconds,
    }
    reporting.write_json(job.folder / RESULT, result, own=True)
    return result


def engine_of(folder: Path) -> str | None:
    """The engine that a run's configuration names."""
    engine: str | None = read_config(folder)["model"].get("engine")
    return engine


def described(job: Job) -> dict[str, Any]:
    """The task and the setting of a run; its data and the code, which decide it as well, are noted beside them."""
    return {"task": job.task.name, "digest": job.task.digest, **{name: getattr(job, name) for name in NAMES}}


def found_result(job: Job) -> dict[str, Any] | None:
    """The result of a job that was done before, with the same task, setting and data."""
    path = job.folder / RESULT
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    result["made"] |= {"engine": engine_of(job.folder), "date": reporting.day_of(job.folder)}
    same = all(result.get(name) == value for name, value in described(job).items())
    return result if same and result.get("data") == KINDS[job.task.kind].fingerprint(job) else None


class Known:
    """Results that were written to a file, to be found by their jobs."""

    def __init__(self, results: Iterable[dict[str, Any]] = ()) -> None:
        self._by_job = {self._key(result): result for result in results}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._by_job.values())

    @staticmethod
    def _key(told: dict[str, Any]) -> tuple[Any, ...]:
        return (*(told[name] for name in (*NAMES, "digest", "data")), told.get("networks", 1))

    def find(self, job: Job, networks: int = 1) -> dict[str, Any] | None:
        """The result of a job, or of the ensemble of so many networks that begins with it."""
        told = {**described(job), "data": KINDS[job.task.kind].fingerprint(job), "networks": networks}
        found = self._by_job.get(self._key(told))
        return None if found is None else {"task": job.task.name, **found}


def usable(job: Job, known: Known) -> dict[str, Any] | None:
    """The known result of a job that need not be run.

    The answers of an ensemble's members are in their folders only: a member of an ensemble that is not known is run.
    """
    needed = in_ensemble(job) and known.find(replace(job, member=0), job.task.times(job.method)) is None
    return None if needed else known.find(job)


def done_before(job: Job, known: dict[str, Any] | None) -> dict[str, Any] | None:
    """The known result of a job, or that of its folder, which also names the maker where an older file does not."""
    return known if known is not None and "made" in known else found_result(job) or known


def in_ensemble(job: Job) -> bool:
    """Whether a job's network is one of an ensemble's."""
    return job.part == "final" and job.longer == 1 and job.task.matched and job.method in MATCHED


def other_code(results: Iterable[Mapping[str, Any]]) -> str | None:
    """A line about final results that were made by other code than what will run now; None where there is none."""
    now = reporting.at_commit({"minadv": minadv.__version__, **reporting.commit()})
    commits = [reporting.at_commit(r["made"]) for r in results if r["part"] == "final" and "made" in r]
    others = [commit for commit in commits if commit != now]
    if not others:
        return None
    made = ", ".join(sorted(set(others)))
    return f"{len(others)} results that are known were made at {made}; what is left runs at {now}"


class Clock:
    """The core seconds of a run, kept beside it by step, so that a run that is killed and resumed has them as well.

    It begins at nothing where the run's folder is not there: that run was deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder.with_name(f"{folder.name}-{CLOCK}")
        noted = folder.exists() and self.path.exists()
        self.by_step: dict[str, float] = json.loads(self.path.read_text()) if noted else {}
        self.before = time.process_time()

    def tick(self, record: dict[str, Any]) -> None:
        """Note the time since the last evaluation under this one's step, once for a step that is done again."""
        now = time.process_time()
        self.by_step[str(record["step"])] = now - self.before
        self.before = now
        reporting.write_json(self.path, self.by_step, own=True)

    @property
    def seconds(self) -> float:
        return sum(self.by_step.values())


def ensembles(jobs: Sequence[Job], known: Known) -> list[dict[str, Any]]:
    """The results of ensembles whose members are done, one for each seed and method of `MATCHED`, known or made."""
    made = []
    for job in jobs:
        if job.member or not in_ensemble(job):
            continue
        members = [replace(job, member=member) for member in range(job.task.times(job.method))]
        if (earlier := known.find(job, len(members))) is not None:
            made.append(earlier)
        elif None not in (results := [found_result(member) for member in members]):
            made.append(_ensemble(members, [result for result in results if result is not None]))
    return made


def _ensemble(members: Sequence[Job], results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result of the mean of the members' answers."""
    first = members[0]
    answers = np.mean([np.load(member.folder / ANSWERS) for member in members], axis=0)
    return {
        **{name: results[0][name] for name in (*described(first), "data", "began", "made") if name in results[0]},
        "networks": len(members),
        "test": KINDS[first.task.kind].error_of(answers, first),
        "steps": sum(result["steps"] for result in results),
        "seconds": sum(result["seconds"] for result in results),
    }


def _save(path: Path, array: Any) -> None:
    temporary = path.with_suffix(".tmp.npy")
    np.save(temporary, array)
    temporary.replace(path)
