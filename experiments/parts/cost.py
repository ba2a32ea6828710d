r"""What a comparison of images will cost here: the time of a few steps of each method, times the steps it would take.

``python -m experiments.table1 --estimate``. The steps are those of real training, timed in as many
processes at once as the comparison itself would have, or as there are methods; nothing that they learn is kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.parts import comparison, reporting
from experiments.parts.comparison import Job
from minadv.backend import to_device
from minadv.data.images import Split
from minadv.models.classifier import Classifier
from minadv.tasks.fit import fit
from minadv.tasks.images.task import evaluate
from minadv.training.loop import Recipe

SECONDS = 4.0  # about how long each method trains to be timed


def estimate(first: Job, methods: Sequence[str], seeds: int, workers: int) -> list[dict[str, Any]]:
    """For each method its runs, their steps and evaluations, the seconds of each of these, and of all together."""
    preset = first.preset
    timed = [job for job in comparison.finals(first, methods, 1, []) if job.task == preset.tasks[0]]
    measured = reporting.run_all(measure, timed, workers=workers, title=f"{preset.name}: a few steps")
    rows = []
    for method, found in zip(methods, measured, strict=True):
        jobs = [*comparison.trials(first, [method]), *comparison.finals(first, [method], seeds, [])]
        recipes = [comparison.recipe(job, found["n_train"]) for job in jobs]
        steps = sum(recipe.steps for recipe in recipes)
        images = sum(evaluated(recipe, found) for recipe in recipes)
        seconds = len(jobs) * found["begin"] + steps * found["step"] + images * found["image"]
        rows.append(
            {"method": method, "runs": len(jobs), "steps": steps, "images": images, **found, "seconds": seconds}
        )
    return rows


def evaluated(recipe: Recipe, found: dict[str, Any]) -> int:
    """How many images a run is evaluated on: validation after every epoch, then validation and test once more."""
    epochs = -(-recipe.steps // (found["n_train"] // found["batch"]))
    return int((epochs + 1) * found["n_valid"] + found["n_test"])


def measure(job: Job) -> dict[str, Any]:
    """Seconds to begin a job, of a step and of an image that is evaluated, in this process."""
    started = time.monotonic()
    data = comparison.load(job.preset, job.task, job.data_dir)
    model = Classifier(data.train.x.shape[2], job.preset.n_hidden, data.classes)
    begin, batch = time.monotonic() - started, job.preset.batch
    whole = comparison.recipe(job, len(data.train))
    little = replace(data, valid=Split(data.valid.x[:batch], data.valid.y[:batch]))

    def train(steps: int) -> tuple[float, Any]:
        """The time of ``steps`` steps and of the evaluation of one batch after them."""
        started = time.monotonic()
        run = fit(
            model,
            little,
            regularizer=comparison.regularizer(job),
            recipe=replace(whole, steps=steps, eval_every=steps),
            batch_size=batch,
            seed=job.seed,
            device=job.device,
            progress=False,
            workers=1,
        )
        return time.monotonic() - started, run

    train(1)  # buffers and compiled code, which a first step makes
    few = 2
    short, run = train(few)
    many = max(2 * few, round(few * SECONDS / short))
    step = (train(many)[0] - train(few)[0]) / (many - few)
    last, valid = to_device((run.last, data.valid), job.device)
    started = time.monotonic()
    evaluate(model, last, valid, batch_size=batch)
    image = (time.monotonic() - started) / len(data.valid)
    sizes = {f"n_{part}": len(getattr(data, part)) for part in ("train", "valid", "test")}
    return {**sizes, "batch": batch, "begin": begin, "step": step, "image": image}


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


def page(data: dict[str, Any]) -> str:
    """The table and what it says, under a heading, from the numbers alone.

    Results of earlier versions lack the number of processes, which was the number of cores.
    """
    about, rows = data["facts"], data["rows"]
    preset, workers = about["preset"], about.get("workers", about["cores"])
    hours = sum(row["seconds"] for row in rows) / 3600 / workers
    processes = f"{workers} process{'es' * (workers > 1)}"
    return f"""# What Table 1, {preset["name"]}, costs

{preset["about"]}. The time of a few steps and of an evaluation of each method, {processes} at once,
times their number in all runs, those of the search of settings included. `{about["command"]}` at
{reporting.at_commit(about)} ({about["cores"]} cores, {about["cpu"]}, NumPy {about["numpy"]}).

{table(rows)}

About {hours:.1f} hours with {processes}.
"""
