r"""Part two of `experiments.search_quality`: what a search finds while it trains, step by step.

A search that remembers cannot be judged by one attack. Small networks are trained with adversarial dropout, each with
the search that is measured, by the library's own loop; in the second half of training, at some steps, the distance that
the step found is divided by the exact maximum at the weights of that step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from experiments.parts import best_masks
from minadv import masks
from minadv.data.images import Split, load
from minadv.data.images.batches import take
from minadv.data.images.sequences import as_sequences
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import AdD, Term
from minadv.searches import Greedy, Memory, Relax, Reselect, Search
from minadv.tasks.images.task import Classify, evaluate
from minadv.training.loop import Recipe, train
from minadv.training.optimizers import Adam
from minadv.training.schedules import RampDown

SEARCHES: dict[str, Search] = {
    "greedy K=2, unscored": Greedy(K=2, keep="last"),
    "greedy K=2": Greedy(K=2),
    "reselect K=2": Reselect(K=2),
    "Relax": Relax(),
    "Relax, longest": Relax((4, 2), reselect=1, borrow=2, swaps=4),
    "Memory, fresh=0": Memory(fresh=0),
    "Memory": Memory(),
    "Memory, fresh=4": Memory(fresh=4),
    "Memory, tries=2": Memory(tries=2),
}
"""The first is the paper's: it trains on the last mask of its search, without scoring it."""


@dataclass(frozen=True)
class Network:
    """What is trained: the cell, the flips, and the distance that its adversary seeks."""

    name: str
    cell: str = "lstm"
    budget: int = 3
    scale: masks.Scale = "none"
    distance: str = "js"


NETWORKS: tuple[Network, ...] = (
    Network("LSTM, 3 flips, js"),
    Network("LSTM, 3 flips, scale kept, kl", scale="kept", distance="kl"),
    Network("GRU, 2 flips, kl", cell="gru", budget=2, distance="kl"),
)
N_HIDDEN, IMAGES, BATCH, FIRST_SEED = 24, 400, 50, 100


@dataclass(frozen=True)
class Training:
    """One network to train, with one search."""

    network: Network
    search: str
    seed: int
    epochs: int
    looks: int  # steps at which the exact maximum is found
    examples: int  # of the batch, whose exact maximum is found


@dataclass(frozen=True)
class Watched(Classify):
    """The task of `Classify`, which also notes what each step's search spent and, at some steps, its share."""

    look_at: frozenset[int] = frozenset()
    examples: int = 10
    shares: dict[int, float] = field(default_factory=dict)  # by step
    passes: dict[int, tuple[int, int]] = field(default_factory=dict)  # forward and backward passes by step

    def term(self, params: Any, step: int, **given: Any) -> tuple[Term, Any]:
        term, carry = super().term(params, step, **given)
        assert term.trace is not None
        self.passes[step] = (term.trace.passes.forward, term.trace.passes.backward)
        if step in self.look_at:
            rows = self.ids(step)
            some = np.arange(0, len(rows), max(1, len(rows) // self.examples))
            x, *_ = take(self.data.train, rows[some])
            self.shares[step] = float((term.value[some] / self.largest(params, Batch(x, None))).mean())
        return term, carry

    def largest(self, params: Any, batch: Batch) -> Any:
        """The exact maximum of the regularizer's distance, (B,)."""
        add = self.regularizer
        assert isinstance(add, AdD)
        budgets = add.expect_budgets(self.model)
        names = (add.distance,)
        return best_masks.exact(self.model, params, batch, budgets, scale=add.scale, names=names)[add.distance]


def follow(job: Training) -> dict[str, Any]:
    """Train to the end; the mean share of the steps that were looked at, and the passes a step of that half."""
    started = time.process_time()
    loaded = as_sequences(load("digits"), by="row")
    few = Split(loaded.train.x[:IMAGES], loaded.train.y[:IMAGES])
    network = job.network
    steps = job.epochs * (IMAGES // BATCH)
    half = steps // 2
    look_at = frozenset(half + k * (steps - half) // job.looks for k in range(job.looks))
    task = Watched(
        Classifier(8, N_HIDDEN, loaded.classes, cell=network.cell),
        replace(loaded, train=few),
        AdD(budgets=network.budget, search=SEARCHES[job.search], distance=network.distance, scale=network.scale),
        BATCH,
        FIRST_SEED + job.seed,
        look_at=look_at,
        examples=job.examples,
    )
    recipe = Recipe(steps, Adam(5e-3), clip=None, lr_schedule=RampDown(job.epochs, job.epochs), eval_every=steps)
    state, _ = train(task, recipe, progress=False)
    late = np.array([spent for step, spent in task.passes.items() if step >= half])
    forward, backward = late.mean(axis=0)
    return {
        "network": network.name,
        "search": job.search,
        "seed": task.seed,
        "share": round(float(np.mean(list(task.shares.values()))), 4),
        "forward": round(float(forward), 3),
        "backward": round(float(backward), 3),
        "error": round(evaluate(task.model, state.params, loaded.test)["error"], 3),
        "seconds": time.process_time() - started,
    }
