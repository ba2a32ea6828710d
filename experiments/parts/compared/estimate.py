r"""What a whole comparison would cost on this machine: a few steps and evaluations of each method are timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.parts import reporting
from experiments.parts.compared import plan, texts
from experiments.parts.compared.plan import Job, Task
from experiments.parts.compared.work import KINDS

EVALUATIONS = 6
"""How many evaluations are timed, with a step before each."""


@dataclass(frozen=True)
class Cost:
    """Core seconds of a step, of an evaluation, and of all else of a run, its last evaluation and its test included."""

    step: float
    evaluation: float
    rest: float

    def seconds(self, steps: int, evaluations: int) -> float:
        """What a run of so many steps and evaluations would cost."""
        return steps * self.step + (evaluations - 1) * self.evaluation + self.rest


def measure(train: Callable[..., Any], whole: int) -> Cost:
    """The cost of a training that takes ``steps`` and ``eval_every`` and has ``whole`` steps; nothing is kept of it."""

    def took(steps: int, eval_every: int | None = None) -> float:
        started = time.process_time()
        train(steps=steps, eval_every=eval_every or steps)
        return time.process_time() - started

    took(1)  # compiled code and buffers
    few, many = 2, 22
    short = took(few)
    while (long := took(many)) < short + 1 and many < whole:  # all that is not a step varies by tenths of a second
        many *= 2
    step = max(1e-6, (long - short) / (many - few))
    more = took(EVALUATIONS, 1) - short - (EVALUATIONS - few) * step
    return Cost(step, max(0.0, more / (EVALUATIONS - 1)), short)


def of_network(job: Job) -> Cost:
    """The cost of a job's network."""
    kind = KINDS[job.task.kind]
    return measure(lambda **how: kind.train(job, None, **how), kind.steps_of(job))


def of_language_model(job: Job) -> Cost:
    """The cost of the language model that all networks of texts begin with."""
    return measure(lambda **how: texts.pretrain(job.task, job.data_dir, **how), job.task.size["lm_steps"])


def estimate(task: Task, given: dict[str, Any], workers: int) -> str:
    """What the whole comparison would cost here, by method."""
    first = {m: plan.settings(m, task.kind)[0] for m in task.methods}
    one = [Job(task, m, *first[m], task.lrs[0], 0, "final", **given) for m in task.methods]
    title = f"{task.name}: a few steps"
    costs = reporting.run_all(of_network, one, workers=workers, title=title)
    every = [*plan.rates(task, given), *plan.trials(task, task.lrs[0], given)]
    every += plan.finals(task, task.lrs[0], first, given)
    rows, total = [], 0.0

    def add(name: str, runs: int, steps: int, cost: Cost, seconds: float) -> None:
        nonlocal total
        total += seconds
        cells = (name, runs, steps, f"{1000 * cost.step:.1f}", f"{cost.evaluation:.2f}", f"{seconds / 3600:.2f}")
        rows.append([str(cell) for cell in cells])

    if task.kind == "texts":
        (cost,) = reporting.run_all(of_language_model, one[:1], workers=1, title=title)
        steps = task.size["lm_steps"]
        add("language model", 1, steps, cost, cost.seconds(steps, math.ceil(steps / texts.eval_every(task))))
    for sample, cost in zip(one, costs, strict=True):
        jobs = [job for job in every if job.method == sample.method]
        per_run = KINDS[task.kind].steps_of(sample)
        seconds = sum(cost.seconds(per_run * job.longer, math.ceil(task.epochs * job.longer)) for job in jobs)
        add(sample.method, len(jobs), per_run * sum(job.longer for job in jobs), cost, seconds)
    rows.append(["all", str(len(every)), "", "", "", f"{total / 3600:.2f}"])
    head = ["method", "runs", "steps", "ms a step", "s an evaluation", "hours of a core"]
    about = f"About {total / 3600 / workers:.1f} hours of {workers} cores."
    return f"{task.about}\n\n{reporting.markdown(head, rows)}\n\n{about}"
