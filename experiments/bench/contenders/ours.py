r"""minadv's own step: what ``minadv train`` does between two evaluations, with the workers that it would choose."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.bench.contenders.problem import LR, Exchange, Given, Outcome, Problem
from minadv import lstm
from minadv.backend import Array
from minadv.data.images import Images, Split
from minadv.data.images.batches import Batches
from minadv.fast.choice import COMPILED
from minadv.models.classifier import Classifier, Params
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.tasks.images.task import Classify
from minadv.training import loop
from minadv.training.optimizers import SGD
from minadv.training.parallel import choose

RECIPE = loop.Recipe(steps=1, optimizer=SGD(LR), clip=None)


def make_task(problem: Problem, K: int, **model: Any) -> Classify:
    """A task whose data are the problem's one batch, ordered so that step 0 reads it as it was drawn."""
    size = problem.size
    rows = Batches(size.B, size.B, problem.seed).rows(0)
    x, y = np.empty((size.B, size.T, size.I), problem.x.dtype), np.empty_like(problem.targets)
    x[rows], y[rows] = problem.x.transpose(1, 0, 2), problem.targets
    split = Split(x, y)
    return Classify(
        Classifier(n_in=size.I, n_hidden=size.H, n_classes=size.C, **model),
        Images(size.name, size.C, split, split, split),
        AdD(budgets=size.budget, search=Greedy(K=K, keep="last")),
        batch_size=size.B,
        seed=problem.seed,
    )


def make_params(weights: tuple[Array, ...]) -> Params:
    W, U, b, V, d = weights
    return Params((lstm.Params(W, U, b),), V, d)


def as_tuple(grads: Params) -> tuple[Array, ...]:
    """Gradients in the order of `problem.NAMES`."""
    cell = grads.cells[0]
    assert grads.V is not None and grads.b is not None
    return (cell.W, cell.U, cell.b, grads.V, grads.b)


class Training:
    """A run of training at one K, with the workers that share its batches."""

    def __init__(self, problem: Problem, K: int, workers: int | None, **model: Any) -> None:
        self.task = make_task(problem, K, **model)
        params = make_params(problem.weights)
        self.state = replace(loop.start(self.task, RECIPE), params=params)
        n = choose.choose_workers(self.task, workers)
        self.resources = ExitStack()
        self.sharing = self.resources.enter_context(choose.start_workers(self.task, n))

    def advance(self) -> None:
        self.state, _ = loop.advance(self.task, RECIPE, self.state, self.sharing)


class Ours:
    """The contender; ``workers`` is that of ``minadv train --workers``, ``model`` options of the classifier.

    ``numba=False`` turns off what Numba compiles, in this process and its workers.
    """

    def __init__(self, problem: Problem, *, workers: int | None = None, numba: bool = True, **model: Any) -> None:
        if not numba:
            os.environ[COMPILED] = "0"
        self.problem, self.workers, self.model = problem, workers, model
        self.runs: dict[int, Training] = {}

    def run(self, K: int) -> Training:
        if K not in self.runs:
            self.runs[K] = Training(self.problem, K, self.workers, **self.model)
        return self.runs[K]

    def outcome(self, K: int, given: Given = None) -> Outcome:
        """The workers' results, and the maps and masks of the whole batch; the search cannot use ``given``."""
        run = self.run(K)
        params = run.state.params
        done = run.sharing.step(params, 0, weight=1.0, carry=None)
        grads = as_tuple(done.grads)
        term, _ = run.task.term(params, 0, weight=1.0, carry=None)
        assert term.trace is not None
        visits = term.trace.visits
        masks = tuple(visit.eps["layer0"] for visit in visits[1:])
        maps = tuple(visit.im["layer0"] for visit in visits if visit.im is not None)
        return Outcome(done.nll + done.value, maps, masks, masks, grads)

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        self.run(K).advance()

    def close(self) -> None:
        for run in self.runs.values():
            run.resources.close()
