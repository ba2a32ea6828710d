r"""The training loop: a step, an evaluation now and then, a checkpoint now and then, and nothing else.

Everything that decides the future is one value, `State`; a checkpoint is that value on disk. Data order and random
numbers are functions of the step, so they need no saving: a run that is killed at any moment and resumed ends in the
same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from minadv.backend import same_place
from minadv.base.errors import NotFiniteError
from minadv.base.trees import tree_map
from minadv.training import watch
from minadv.training.divergence import Losses
from minadv.training.finite import TrainingError as TrainingError
from minadv.training.finite import not_finite
from minadv.training.interrupts import CtrlC
from minadv.training.memory import handed, kept
from minadv.training.optimizers import ASGD, Optimizer
from minadv.training.parallel.workers import OneWorker, Workers
from minadv.training.progress import Progress
from minadv.training.recipe import Recipe as Recipe
from minadv.training.runs import checkpoints, log
from minadv.training.runs.sound import expect_state
from minadv.training.task import Task
from minadv.training.update import updated

LOG = "log.jsonl"


class Interrupted(Exception):
    """Training was interrupted, by Ctrl-C or SIGTERM; the message says at which step, and where that is saved."""


class Stop(Exception):
    """A callback raises it to end the training after this step, which is evaluated and saved as a last one is."""


@dataclass(frozen=True)
class State:
    """Everything that decides the future of a run."""

    step: int
    params: Any
    optimizer: Any
    ema: Any
    carry: Any
    best: Any  # the parameters of the best evaluation
    best_score: float
    best_step: int
    stale: int  # evaluations since the best
    tally: tuple[float, float, int, int]  # since the last evaluation: sums of NLL and regularizer, steps, zero maps


def newest(run: Path) -> Path | None:
    """The newest sound checkpoint of a run whose state can be believed (`minadv.training.runs.sound`)."""
    return checkpoints.latest(run, expect_state)


def read_state(saved: Path, like: State) -> State:
    """The state of a checkpoint, on the host; those of earlier versions counted no zero maps."""
    return checkpoints.load(saved, like, absent={"tally.3": 0})[0]


class Begins(Protocol):
    """What `start` makes the first state from; every `Task` has it."""

    def init(self) -> Any: ...

    def first_carry(self) -> Any: ...


def start(task: Begins, recipe: Recipe) -> State:
    """The state before the first step."""
    params = task.init()
    optimizer: Optimizer = recipe.optimizer
    ema = None if recipe.ema is None else recipe.ema.init(params)
    return State(0, params, optimizer.init(params), ema, task.first_carry(), params, math.inf, 0, 0, (0.0, 0.0, 0, 0))


def advance(task: Task, recipe: Recipe, state: State, workers: Workers) -> tuple[State, dict[str, float]]:
    """One step: gradients, clip, update, average. Returns the new state and what to show."""
    epoch = state.step / task.per_epoch
    weight = recipe.weight * recipe.weight_schedule(epoch)
    rate = recipe.lr_schedule(epoch) * recipe.step_schedule(state.step) * task.rate(state.step)
    with np.errstate(all="ignore"):  # what is not finite is found here, and named, before it can reach a checkpoint
        carry = handed(task, state.carry, state.step)
        try:
            done = workers.step(state.params, state.step, weight=weight, carry=carry)
        except NotFiniteError as error:
            raise TrainingError(f"{error.args[0]} (at step {state.step})") from error
        nll, value = done.nll, done.value
        given = (recipe.clip, recipe.optimizer, state.params, done.grads, state.optimizer)
        params, optimizer = updated(*given, step=state.step, loss=nll + value, rate=rate)
    ema = state.ema if recipe.ema is None else recipe.ema.update(state.ema, params)
    nlls, values, n, zero = state.tally
    sums = (nlls + nll, values + value, n + 1, zero + done.zero_maps)
    carry = kept(state.carry, done.carry)
    new = replace(state, step=state.step + 1, params=params, optimizer=optimizer, ema=ema, carry=carry, tally=sums)
    return new, {"loss": nll, "regularizer": value}


def evaluation(task: Task, recipe: Recipe, state: State, workers: Workers) -> tuple[State, dict[str, Any]]:
    """Evaluate on the validation data, remember the best weights, tell the optimizer; returns a record for the log."""
    params = weights(recipe, state)
    with np.errstate(all="ignore"):
        metrics = workers.agree(lambda: task.evaluate(params, "valid"))
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise not_finite(state.step, f"the validation {name}", params, "weights")
    score = float(metrics[recipe.monitor])
    better = score < state.best_score
    optimizer = state.optimizer
    if isinstance(recipe.optimizer, ASGD):
        optimizer = recipe.optimizer.observe(optimizer, float(metrics["loss"]))
    nll, value, n, zero = state.tally
    record = {
        "kind": "evaluation",
        "step": state.step,
        "epoch": state.step / task.per_epoch,
        "time": log.now(),
        "train_loss": nll / n if n else None,
        "regularizer": value / n if n else None,
        "zero_maps": zero,
        **{f"valid_{name}": value for name, value in metrics.items()},
    }
    new = replace(
        state,
        optimizer=optimizer,
        best=params if better else state.best,
        best_score=score if better else state.best_score,
        best_step=state.step if better else state.best_step,
        stale=0 if better else state.stale + 1,
        tally=(0.0, 0.0, 0, 0),
    )
    return new, record


def weights(recipe: Recipe, state: State) -> Any:
    """The weights to evaluate with: averaged ones where the recipe has them."""
    if recipe.ema is not None:
        return state.ema.average
    if isinstance(recipe.optimizer, ASGD):
        return state.optimizer.average
    return state.params


def train(
    task: Task,
    recipe: Recipe,
    run: Path | None = None,
    *,
    title: str = "",
    progress: bool = True,
    on_evaluation: Callable[[dict[str, Any]], None] | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
    on_checkpoint: Callable[[Path], None] | None = None,
    on_step_time: Callable[[float, int], None] | None = None,
    on_weights: Callable[[int, Any], None] | None = None,
    workers: Workers | None = None,
    resumed: log.Record | None = None,
) -> tuple[State, list[dict[str, Any]]]:
    """Train to the end, from the newest checkpoint of ``run`` if it has one; returns the last state and the records.

    Without ``run`` nothing is written; ``progress=False`` shows no bar; ``workers`` computes the steps (default: this
    process alone); of several processes that run this loop, its chief evaluates, writes and calls back:
    ``on_step`` with step, epoch, loss and regularizer, ``on_evaluation`` with the record, ``on_checkpoint`` with the
    file, and once, after the second step, ``on_step_time`` with its seconds and the number of steps left: the first
    step also loads and compiles; ``on_weights`` with the step and the weights of each evaluation, which it must not
    change. The first two may raise `Stop`.
    ``resumed``, the record of a run that goes on, is logged with the step unless there is nothing left to do.
    Raises TrainingError where a number is not finite, Interrupted on Ctrl-C, after saving.
    """
    if recipe.watch_adversary:
        watch.expect_adversary(getattr(task, "regularizer", None))
    workers = OneWorker(task) if workers is None else workers
    state = start(task, recipe)
    records: list[dict[str, Any]] = []
    saved = workers.agree(lambda: newest(run) if run is not None else None)
    if saved is not None and run is not None:
        state = _to_place_of(read_state(saved, state), state)
    if run is not None:
        kept = workers.agree(lambda: log.rewind(run / LOG, state.step))
        records = log.expect_evaluations(run / LOG, kept, (recipe.monitor,))
    out = run if workers.chief else None  # where to write
    if out is not None and resumed is not None and not finished(recipe, state):
        log.append(out / LOG, {**resumed, "step": state.step})
    eval_every = recipe.eval_every or task.per_epoch
    save_every = recipe.checkpoint_every or eval_every

    losses = Losses(records)

    def ask(callback: Callable[[dict[str, Any]], None] | None, record: dict[str, Any]) -> bool:
        """Whether the chief's callback ends the training; all processes are told."""
        return callback is not None and workers.agree(partial(_stops, callback, record))

    def tell(record: dict[str, Any]) -> bool:
        if out is not None:
            log.append(out / LOG, record)
        if workers.chief:
            losses.warn(recipe, record)
        stops = ask(on_evaluation, record)
        if workers.chief and on_weights is not None:
            on_weights(record["step"], weights(recipe, state))
        return stops

    try:
        each = task.units_per_step
        progress = progress and workers.chief
        shown_as: dict[str, Any] = {"unit": task.unit, "title": title, "shown": progress}
        with CtrlC() as ctrl_c, Progress(recipe.steps * each, done=state.step * each, **shown_as) as bar:
            if recipe.eval_first and state.step == 0 and math.isinf(state.best_score):
                state, record = evaluation(task, recipe, state, workers)
                if not records:  # a run that was killed before its first checkpoint has logged it already
                    records.append(record)
                    tell(record)
            second = state.step + 1
            while state.step < recipe.steps and not _exhausted(recipe, state):
                ctrl_c.obey()
                began = time.perf_counter()
                new, shown = advance(task, recipe, state, workers)
                if state.step == second and workers.chief and on_step_time is not None:
                    on_step_time(time.perf_counter() - began, recipe.steps - new.step)
                losses.add(new.step, shown["loss"])
                stopped = ask(on_step, {"step": new.step, "epoch": new.step / task.per_epoch, **shown})
                last = stopped or new.step == recipe.steps
                if new.step % eval_every == 0 or last:
                    new, record = evaluation(task, recipe, new, workers)
                    if recipe.watch_adversary and (len(records) + 1) % recipe.watch_adversary == 0:
                        record["adversary"] = workers.agree(
                            partial(watch.adversary, task, new.params, new.carry, new.step)
                        )
                    shown = {**shown, **_told(recipe.monitor, record)}
                    records.append(record)
                    state = new  # an interrupt from here on saves the state with its evaluation
                    stopped = tell(record) or stopped
                state = new
                bar.advance(each, **shown)
                last = last or stopped or _exhausted(recipe, state)
                if out is not None and (last or state.step % save_every == 0):
                    saved = checkpoints.save(out, state.step, state, {"monitor": recipe.monitor}, keep=recipe.keep)
                    if on_checkpoint is not None:
                        on_checkpoint(saved)
                if stopped:
                    break
    except TrainingError as error:
        good = newest(run) if run is not None else None
        raise type(error)(
            f"{losses.said(recipe, state.params)}{error}; the last good checkpoint is {good or 'none'}"
        ) from error
    except KeyboardInterrupt:
        if run is None:
            raise
        workers.agree(lambda: checkpoints.save(run, state.step, state, {"monitor": recipe.monitor}, keep=recipe.keep))
        raise Interrupted(f"stopped at step {state.step} and saved in {run}") from None
    return state, records


def _stops(callback: Callable[[dict[str, Any]], None], record: dict[str, Any]) -> bool:
    try:
        callback(record)
    except Stop:
        return True
    return False


def _told(monitor: str, record: dict[str, Any]) -> dict[str, float]:
    """What the bar says of an evaluation: the accuracy where the error is what is watched."""
    value = record[f"valid_{monitor}"]
    return {"valid accuracy %": 100 - value} if monitor == "error" else {f"valid {monitor}": value}


def finished(recipe: Recipe, state: State) -> bool:
    """Whether there is nothing left to do."""
    return state.step >= recipe.steps or _exhausted(recipe, state)


def _exhausted(recipe: Recipe, state: State) -> bool:
    return recipe.patience is not None and state.stale >= recipe.patience


def _to_place_of(tree: Any, like: Any) -> Any:
    """Host arrays from a checkpoint, moved to where the fresh state's arrays are."""
    return tree_map(lambda a, b: same_place(a, b) if hasattr(a, "dtype") else a, tree, like)
