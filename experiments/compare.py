r"""Every method against every other, by the protocol of docs/protocol.md.

``python -m experiments.compare digits`` chooses a learning rate and each method's setting on validation data, then runs
all seeds of all methods, and ``none`` and FD once more at the cost of AdD. Killed, it goes on where it stopped when the
same command is given again. Writes compare-TASK.json, .md and .png under experiments/results. ``--estimate`` times a
few steps of each method and tells what the whole would cost; ``--seeds`` stops after fewer seeds. ``--so-far`` runs
nothing and writes the results of all runs that are done to experiments/results/unfinished; the command finds them,
so that it also goes on where the folder of the runs is not, on another machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from experiments.parts import records, reporting, stronger_report
from experiments.parts.compared import makers, plan, report
from experiments.parts.compared.choice import best_rate, best_setting
from experiments.parts.compared.estimate import estimate
from experiments.parts.compared.plan import SEARCHES, SUMS, TASKS, Job, Task
from experiments.parts.compared.texts import baselines
from experiments.parts.compared.work import Known, done_before, ensembles, other_code, prepare, usable, work
from minadv.base.errors import DataError
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.compare", description=__doc__)
    parser.add_argument("task", choices=TASKS, help="which task")
    parser.add_argument("--seeds", type=positive, help="networks for each method (default: the task's)")
    parser.add_argument("--data-dir", help="folder of the data")
    parser.add_argument("--workers", type=positive, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument("--runs", type=Path, default=Path("runs/compare"), help="folder of the runs (runs/compare)")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    parser.add_argument("--estimate", action="store_true", help="time a few steps, and tell what the whole would cost")
    parser.add_argument("--so-far", action="store_true", help="write what is done, to go on from; run nothing")
    args = parser.parse_args(argv)
    task = TASKS[args.task] if args.seeds is None else replace(TASKS[args.task], seeds=args.seeds)
    given = {"root": args.runs, "data_dir": args.data_dir}
    if args.estimate:
        print(estimate(task, given, args.workers))
        return
    started = time.time()
    path, unfinished = plan.files_of(task.name, args.out)
    known = Known(r for file in (path, unfinished) if file.exists() for r in makers.read(reporting.read_results(file)))
    expect_all_seeds(task, known)
    results = so_far(task, given, known) if args.so_far else compare(task, given, args.workers, known)
    about = reporting.facts(started, task=asdict(task), passes=passes())
    if task.kind == "texts" and not args.so_far:
        about["baselines"] = baselines(task, args.data_dir)
    about["command"] = reporting.command("compare", argv)
    about["makers"], results = makers.written(map(kept, results))
    data = records.plain({"facts": about, "results": results})
    if args.so_far:
        expect_no_fewer(unfinished, task, results)
        print(f"{len(results)} results written: {reporting.write_results(unfinished, data)}")
        return
    page = report.page(data)
    paths = [
        reporting.write_results(path, data),
        reporting.write(path.with_suffix(".md"), page),
        reporting.save_figure(report.figure(data), path.with_suffix(".png")),
    ]
    unfinished.unlink(missing_ok=True)
    print(page)
    print("written:", *paths, sep="\n  ")


def compare(task: Task, given: dict[str, Any], workers: int, known: Known) -> list[dict[str, Any]]:
    """All results of a task: those that choose, those that are reported, and the ensembles; known ones are not run."""

    def done(jobs: Sequence[Job], what: str) -> list[dict[str, Any]]:
        earlier = [done_before(job, usable(job, known)) for job in jobs]
        left = [job for job, result in zip(jobs, earlier, strict=True) if result is None]
        if left:
            found = [result for result in earlier if result is not None]
            prepare(task, given, [*known, *found])
            if (line := other_code(found)) is not None:
                print(f"{task.name}: {line}", file=sys.stderr)
        run = iter(reporting.run_all(work, left, workers=workers, title=f"{task.name}: {what}"))
        return [next(run) if result is None else result for result in earlier]

    rated = done(plan.rates(task, given), "learning rate")
    lr = best_rate(rated)
    print(f"{task.name}: learning rate {lr:g}", file=sys.stderr)
    tuned = done(plan.trials(task, lr, given), "settings")
    chosen = choice(task, tuned)
    print(f"{task.name}: settings {chosen}", file=sys.stderr)
    jobs = list(plan.finals(task, lr, chosen, given))
    return [*rated, *tuned, *done(jobs, "networks"), *ensembles(jobs, known)]


def expect_all_seeds(task: Task, known: Known) -> None:
    """Raise DataError where results of seeds that are not asked for are known: the file would lack them."""
    seeds = {r["seed"] for r in known if r["part"] == "final" and r["digest"] == task.digest}
    if lost := sorted(seed for seed in seeds if seed >= task.seeds):
        said = f"results of seeds up to {lost[-1]} of {task.name} are written already"
        raise DataError(f"{said}: give --seeds {lost[-1] + 1} or more, or another folder with --out")


def expect_no_fewer(file: Path, task: Task, results: Sequence[dict[str, Any]]) -> None:
    """Raise DataError where a file of unfinished results holds more of this task than those that would replace it."""
    if file.exists():
        held = [r for r in reporting.read_results(file)["results"] if r["digest"] == task.digest]
        if len(held) > len(results):
            raise DataError(
                f"{file} holds {len(held)} results, and {len(results)} would replace them: it is left as it is"
            )


def choice(task: Task, tuned: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """The setting of each method."""
    return {m: best_setting(tuned, m) if len(plan.settings(m, task.kind)) > 1 else (0.0, 0.0) for m in task.methods}


def so_far(task: Task, given: dict[str, Any], known: Known) -> list[dict[str, Any]]:
    """The results of all runs that are done, here or by ``known``; what they choose is known only when all of it is."""

    def done(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        found = [done_before(job, known.find(job)) for job in jobs]
        return [result for result in found if result is not None]

    rated = done(rates := plan.rates(task, given))
    if len(rated) < len(rates):
        return rated
    lr = best_rate(rated)
    tuned = done(trials := plan.trials(task, lr, given))
    if len(tuned) < len(trials):
        return [*rated, *tuned]
    jobs = list(plan.finals(task, lr, choice(task, tuned), given))
    return [*rated, *tuned, *done(jobs), *ensembles(jobs, known)]


def passes() -> dict[str, list[float]]:
    """Forward and backward passes of a training step of each method, over each text that it reads.

    AT's and VAT's are the base pass, that of the perturbed text and, for VAT, one that finds the perturbation.
    """
    found = {**stronger_report.passes(SEARCHES), "AT": [2.0, 2.0], "VAT": [3.0, 3.0]}
    found["AdD last"] = found["AdD K=1"]
    vat = [n - 1 for n in found["VAT"]]  # beside the base pass
    return found | {name: [a + b for a, b in zip(found[add], vat, strict=True)] for name, add in SUMS.items()}


def kept(result: dict[str, Any]) -> dict[str, Any]:
    """A result as it is kept: with the curve of reported runs of `none` alone, and with all digits of what chooses."""
    curve = (result["method"], result["part"], result["member"], result["longer"]) == ("none", "final", 0, 1)
    left_out = {"task"} | (set() if curve else {"valid_losses"})
    told = {name: value for name, value in result.items() if name not in left_out}
    return {**told, "seconds": round(told["seconds"], 1)}


if __name__ == "__main__":
    main()
