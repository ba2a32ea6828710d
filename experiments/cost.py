r"""What a comparison of images will cost here: the time of a few steps of each method, times the steps it would take.

``python -m experiments.table1 --estimate --preset PRESET``. The steps are those of real training, timed in as many
processes at once as the comparison itself would have; nothing that they learn is kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments import comparison, reporting
from experiments.comparison import Job
from minadv.models.classifier import Classifier
from minadv.training.runs import fit
from minadv.training.task import evaluate

SECONDS = 4.0  # of training that a method is timed for, about


def estimate(first: Job, methods: Sequence[str], seeds: int, workers: int) -> list[dict[str, Any]]:
    """A row a method: its runs, their steps, the seconds of a step and of an evaluation, and those of all runs."""
    preset = first.preset
    timed = [job for job in comparison.finals(first, methods, 1, []) if job.task == preset.tasks[0]]
    measured = reporting.run_all(measure, timed, workers=workers, title=f"{preset.name}: a few steps")
    rows = []
    for method, found in zip(methods, measured, strict=True):
        jobs = [*comparison.trials(first, [method]), *comparison.finals(first, [method], seeds, [])]
        recipes = [comparison.recipe(job, found["n_train"]) for job in jobs]
        steps = sum(recipe.steps for recipe in recipes)
        evaluations = sum(recipe.steps // found["per_epoch"] + 1 for recipe in recipes)  # with that of the end
        seconds = len(jobs) * found["begin"] + steps * found["step"] + evaluations * found["evaluation"]
        rows.append({"method": method, "runs": len(jobs), "steps": steps, **found, "seconds": seconds})
    return rows


def measure(job: Job) -> dict[str, Any]:
    """Seconds to begin a job, of a step and of an evaluation, in this process."""
    started = time.monotonic()
    data = comparison.load(job.preset, job.task, job.data_dir)
    model = Classifier(data.train.x.shape[2], job.preset.n_hidden, data.classes)
    begin = time.monotonic() - started
    whole = comparison.recipe(job, len(data.train))

    def train(steps: int) -> tuple[float, Any]:
        """The time of so many steps, which one evaluation follows."""
        started = time.monotonic()
        run = fit(
            model,
            data,
            regularizer=comparison.regularizer(job),
            recipe=replace(whole, steps=steps, eval_every=steps),
            batch_size=job.preset.batch,
            seed=job.seed,
            device=job.device,
            progress=False,
            workers=1,
        )
        return time.monotonic() - started, run

    train(1)  # what is made once, at a first step
    few = 2
    short, run = train(few)
    many = max(2 * few, round(few * SECONDS / short))
    step = (train(many)[0] - train(few)[0]) / (many - few)
    started = time.monotonic()
    evaluate(model, run.last, data.valid, batch_size=job.preset.batch)
    evaluation = time.monotonic() - started
    n_train = len(data.train)
    per_epoch = n_train // job.preset.batch
    return {"n_train": n_train, "per_epoch": per_epoch, "begin": begin, "step": step, "evaluation": evaluation}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows in Markdown, and their sum."""
    lines = [
        (row["method"], f"{row['runs']}", f"{row['steps']}", f"{1e3 * row['step']:.1f}", f"{row['seconds'] / 3600:.2f}")
        for row in rows
    ]
    total = sum(row["seconds"] for row in rows) / 3600
    lines.append(
        ("all", f"{sum(row['runs'] for row in rows)}", f"{sum(row['steps'] for row in rows)}", "", f"{total:.2f}")
    )
    return reporting.markdown(("method", "runs", "steps", "ms a step", "hours of a core"), lines)


def report(first: Job, rows: Sequence[dict[str, Any]], workers: int, about: dict[str, Any]) -> str:
    """The table and what it says, under a heading."""
    hours = sum(row["seconds"] for row in rows) / 3600 / workers
    return f"""# What Table 1, {first.preset.name}, costs

{first.preset.about}. The time of a few steps and of an evaluation of each method, {workers} processes at once,
times the number of them in all runs, those of the search of settings included. `{about["command"]}` at
{reporting.at_commit(about)} ({about["cores"]} cores, {about["cpu"]}, NumPy {about["numpy"]}).

{table(rows)}

About {hours:.1f} hours with {workers} processes.
"""
