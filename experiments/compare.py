r"""Every method against every other, to convergence, by the protocol of docs/protocol.md.

``python -m experiments.compare digits`` chooses a learning rate and each method's setting on validation data, then runs
all seeds of all methods, and ``none`` and FD once more at the cost of AdD. Killed, it goes on where it stopped when the
same command is given again. Writes compare-TASK.json, .md and .png under experiments/results. ``--estimate`` times a
few steps of each method and tells what the whole would cost; ``--seeds`` stops after fewer seeds.
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
from experiments.parts.compared import plan, report
from experiments.parts.compared.plan import SEARCHES, TASKS, Job, Task
from experiments.parts.compared.work import ensembles, measure, work
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
    args = parser.parse_args(argv)
    task = TASKS[args.task] if args.seeds is None else replace(TASKS[args.task], seeds=args.seeds)
    given = {"root": args.runs, "data_dir": args.data_dir}
    if args.estimate:
        print(estimate(task, given, args.workers))
        return
    started = time.time()
    results = compare(task, given, args.workers)
    about = reporting.facts(started, task=asdict(task), passes=passes())
    about["command"] = reporting.command("compare", argv)
    data = records.plain({"facts": about, "results": list(map(kept, results))})
    path = args.out / f"compare-{task.name}.json"
    paths = [
        reporting.write_results(path, data),
        reporting.write(path.with_suffix(".md"), report.page(data)),
        reporting.save_figure(report.figure(data), path.with_suffix(".png")),
    ]
    print(report.page(data))
    print("written:", *paths, sep="\n  ")


def compare(task: Task, given: dict[str, Any], workers: int) -> list[dict[str, Any]]:
    """All results of a task: those that choose, those that are reported, and the ensembles."""

    def done(jobs: Sequence[Job], what: str) -> list[dict[str, Any]]:
        return reporting.run_all(work, jobs, workers=workers, title=f"{task.name}: {what}")

    rated = done(plan.rates(task, given), "learning rate")
    lr = report.best_rate(rated)
    print(f"{task.name}: learning rate {lr:g}", file=sys.stderr)
    tuned = done(plan.trials(task, lr, given), "settings")
    chosen = {m: report.best_setting(tuned, m) if len(plan.settings(m)) > 1 else (0.0, 0.0) for m in task.methods}
    print(f"{task.name}: settings {chosen}", file=sys.stderr)
    jobs = list(plan.finals(task, lr, chosen, given))
    return [*rated, *tuned, *done(jobs, "networks"), *ensembles(jobs)]


def passes() -> dict[str, list[float]]:
    """Forward and backward passes of a training step of each method."""
    return stronger_report.passes(SEARCHES)


def kept(result: dict[str, Any]) -> dict[str, Any]:
    """A result as it is kept: five digits, and the curve of reported runs of `none` alone."""
    curve = (result["method"], result["part"], result["member"], result["longer"]) == ("none", "final", 0, 1)
    left_out = {"task"} | (set() if curve else {"valid_losses"})
    if result["part"] != "final":
        left_out |= {"made", "digest", "data"}
    told = {name: value for name, value in result.items() if name not in left_out}
    if "made" in told:
        told["made"] = {name: told["made"].get(name) for name in ("cpu", "minadv", "commit", "dirty", "engine")}
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in told.items()}


def estimate(task: Task, given: dict[str, Any], workers: int) -> str:
    """What the whole comparison would cost here, by method."""
    first = {m: plan.settings(m)[0] for m in task.methods}
    one = [Job(task, m, *first[m], task.lrs[0], 0, "final", **given) for m in task.methods]
    measured = reporting.run_all(measure, one, workers=workers, title=f"{task.name}: a few steps")
    every = [*plan.rates(task, given), *plan.trials(task, task.lrs[0], given)]
    every += plan.finals(task, task.lrs[0], first, given)
    rows, total = [], 0.0
    for found in measured:
        jobs = [job for job in every if job.method == found["method"]]
        steps = sum(found["steps"] * job.longer for job in jobs)
        seconds = steps * found["step"] + len(jobs) * found["rest"]
        total += seconds
        cells = (found["method"], len(jobs), steps, f"{1000 * found['step']:.1f}", f"{seconds / 3600:.2f}")
        rows.append([str(cell) for cell in cells])
    rows.append(["all", str(len(every)), "", "", f"{total / 3600:.2f}"])
    head = ["method", "runs", "steps", "ms a step", "hours of a core"]
    about = f"About {total / 3600 / workers:.1f} hours of {workers} cores."
    return f"{task.about}\n\n{reporting.markdown(head, rows)}\n\n{about}"


if __name__ == "__main__":
    main()
