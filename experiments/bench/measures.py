r"""Measures of minadv: accuracy in float32, cost against T, B, H and K, the searches, subnormals, recomputation.

Each function runs in a process of its own (`experiments.bench.contenders.processes.call`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from experiments.bench.contenders import check, ours, registry
from experiments.bench.contenders.problem import NAMES, Outcome, Problem, Size, draw
from minadv import distances, fast, masks, protocol
from minadv.adversary import Passes
from minadv.backend import Array
from minadv.base.machine import CORE_CACHE
from minadv.base.streams import stream
from minadv.base.trees import leaves
from minadv.fast import elementwise
from minadv.fast.choice import COMPILED
from minadv.models.classifier import Batch, Classifier, Params
from minadv.objective import Objective
from minadv.searches import Greedy, Random, Reselect, Search
from minadv.training.parallel.workers import OneWorker


def accuracy(
    size: Size, seeds: Sequence[int], contenders: Mapping[str, tuple[str, dict[str, Any]]] = registry.ACCURATE
) -> dict[str, list[dict[str, float]]]:
    """Relative errors of maps and gradients in float32 against float64, one dict a seed, by contender.

    ``grads`` is the error of all gradients as one vector. All contenders go on with the mask that minadv finds.
    """
    found: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        problem = draw(size, seed)
        used = ours.Ours(problem, workers=1).outcome(1).used
        right = check.reference(size, seed, 1, used)
        for name, (maker, options) in contenders.items():
            try:
                contender = registry.make(maker, problem, options)
            except ImportError:
                continue
            found.setdefault(name, []).append(_errors(contender.outcome(1, used), right))
    return found


def _errors(outcome: Outcome, right: Outcome) -> dict[str, float]:
    by_name = {f"d{n}": check.relative(a, b) for n, a, b in zip(NAMES, outcome.grads, right.grads, strict=True)}
    whole = [np.concatenate([g.reshape(-1) for g in o.grads]) for o in (outcome, right)]
    return {"map": check.relative(outcome.maps[0], right.maps[0]), "grads": check.relative(*whole), **by_name}


SCALES: dict[str, tuple[Size, tuple[int, ...]]] = {
    "T": (Size("T", 784, 100, 1, 100, 0.03), (98, 196, 392, 784, 1568)),
    "B": (Size("B", 196, 100, 1, 100, 0.03), (25, 50, 100, 200, 400)),
    "H": (Size("H", 20, 64, 1, 100, 0.04), (64, 128, 256, 512, 1024)),
    "K": (Size("K", 392, 100, 1, 100, 0.06), (1, 2, 3, 4, 6)),
}
"""For each number that is varied: the size around which, and its values."""


def scaling(rounds: int, scales: Mapping[str, tuple[Size, tuple[int, ...]]]) -> dict[str, Any]:
    """Median seconds of a step in one process against each of T, B, H and K, and the fitted exponents.

    For K the search is also timed alone, because base and adversarial pass of the whole step do not depend on K.
    """
    found: dict[str, Any] = {}
    for name, (size, values) in scales.items():
        jobs: dict[str, Callable[[], Any]] = {}
        for value in values:
            varied = size if name == "K" else Size(**{**vars(size), name: value})
            K = value if name == "K" else 1
            jobs[f"{name} {value}"] = partial(ours.Ours(draw(varied, 0), workers=1).step, K)
            if name == "K":
                jobs[f"search {value}"] = partial(Searching(draw(size, 0)).find, Greedy(K=value, keep="last"))
        seconds = {label: float(np.median(took)) for label, took in interleaved(jobs, rounds).items()}
        found[name] = _fit(values, [seconds[f"{name} {value}"] for value in values])
        if name == "K":
            found["K, search only"] = _fit(values, [seconds[f"search {value}"] for value in values])
    return found


def _fit(values: Sequence[int], seconds: Sequence[float]) -> dict[str, Any]:
    """The exponent of a power law, by least squares of the logarithms."""
    exponent, _ = np.polyfit(np.log(values), np.log(seconds), 1)
    return {"values": list(values), "seconds": list(seconds), "exponent": float(exponent)}


class Searching:
    """A model, its parameters and a batch, and the base pass: what searches and backward passes start from."""

    def __init__(self, problem: Problem) -> None:
        self.model: Classifier = fast.reusing(ours.make_task(problem, 1).model)
        self.params: Params = ours.make_params(problem.weights)
        self.batch = Batch(problem.x, problem.targets)
        self.problem = problem
        with protocol.scope(self.model):
            self.base: Array = self.model.body(self.params, self.batch, masks={}, noise=None)[0].copy()

    def find(self, search: Search) -> Passes:
        """Search, from the base pass, for the mask that training would go on with; returns the passes spent."""
        size, rng = self.problem.size, stream(0, "masks")
        eps0 = {"layer0": masks.ones((size.B, size.H), like=self.base)}
        objective = Objective(
            *(self.model, self.params, self.batch, eps0, {"layer0": size.budget}, {}, distances.js),
            lam=None,
            scale="none",
            p=None,
            adv_noise=None,
            state=None,
            base=protocol.Pass(self.base, None, None),
        )
        with protocol.scope(self.model):
            first = search.first(eps0, objective.budgets, rng)
            search.result(search.run(objective, None if first is None else objective.influence(first), rng))
        return Passes(*objective.spent)

    def back(self, weights: bool) -> tuple[float, Any]:
        """Seconds of a backward pass from the distance, under the mask that the search starts at, and its gradients."""
        with protocol.scope(self.model):
            features, _, cache = self.model.body(
                self.params, self.batch, masks={"layer0": self.problem.start}, noise=None
            )
            compared = self.model.compare(self.params, self.base, features, None, distances.js)
            started = time.perf_counter()
            grads = self.model.body_backward(
                self.params, cache, compared.dfeatures1, weights=weights, masks=("layer0",)
            )
            return time.perf_counter() - started, grads


SEARCHES: dict[str, Search] = {
    "greedy K=1": Greedy(K=1, keep="last"),
    "greedy K=2": Greedy(K=2, keep="last"),
    "reselect K=2": Reselect(K=2),
    "random, 4 tries": Random(tries=4),
}


def searches(size: Size, rounds: int) -> dict[str, Any]:
    """Seconds and passes of each search in one process, and seconds of the backward pass of a map and of a full one."""
    on = Searching(draw(size, 0))
    small = 4 * size.H**2 * 4 <= CORE_CACHE
    found: dict[str, Any] = {"searches": {}}
    with fast.limit_threads(1 if small else None):
        took = interleaved({name: partial(on.find, search) for name, search in SEARCHES.items()}, rounds)
        for name, search in SEARCHES.items():
            passes = on.find(search)
            found["searches"][name] = {
                "seconds": took[name], "forward": passes.forward, "backward": passes.backward,
            }  # fmt: skip
        pairs = [(on.back(False)[0], on.back(True)[0]) for _ in range(rounds + 1)][1:]  # the first makes buffers
    found["map"], found["backward"] = [a for a, _ in pairs], [b for _, b in pairs]
    return found


def subnormals(size: Size, rounds: int) -> dict[str, Any]:
    """Seconds of a full backward pass with and without `elementwise.flush_vanished`, and how much is subnormal."""
    on = Searching(draw(size, 0))
    found: dict[str, Any] = {"flushed": {"seconds": []}, "not flushed": {"seconds": []}}
    for n in range(rounds + 1):
        for name in found:
            with fast.limit_threads(1), _flushing(name == "flushed"):
                seconds, grads = on.back(True)
            dc = np.abs(grads.state[0].c)  # the gradient that is left at the first time step
            found[name]["subnormal"] = float(((dc > 0) & (dc < np.finfo(dc.dtype).tiny)).mean())
            if n > 0:
                found[name]["seconds"].append(seconds)
    return found


@contextmanager
def _flushing(on: bool) -> Iterator[None]:
    """Within it gradients too small to matter are set to zero if ``on``, and kept if not; steps are those of NumPy.

    Numba's steps hold the limit as a constant of their machine code.
    """
    kept, before = elementwise.vanished, os.environ.get(COMPILED)
    os.environ[COMPILED] = "0"
    if not on:
        elementwise.vanished = lambda dtype: -1.0  # type: ignore[assignment]  # no number is below that
    try:
        yield
    finally:
        elementwise.vanished = kept
        del os.environ[COMPILED]
        if before is not None:
            os.environ[COMPILED] = before


def remat(size: Size, rounds: int) -> dict[str, Any]:
    """Seconds of a step in one process and MB kept for backward, as usual and recomputing in segments.

    The MB are those of the workspace's slots, the states before each segment of the base and of the adversarial pass,
    and the buffers of a backward pass. The packed weights, which are parameters, do not count.

    ``float64`` is the largest relative difference of a gradient in double precision.
    """
    problem, modes = draw(size, 0), {"plain": {"remat": False}, "remat": {"remat": True}}
    contenders = {name: ours.Ours(problem, workers=1, **options) for name, options in modes.items()}
    took = interleaved({name: partial(contender.step, 1) for name, contender in contenders.items()}, rounds)
    kept = {}
    for name, contender in contenders.items():
        run = contender.run(1)
        assert isinstance(run.sharing, OneWorker)
        batch = Batch(problem.x, problem.targets)
        _, _, cache = run.task.model.body(run.state.params, batch, masks={}, noise=None)
        states = sum(a.nbytes for layer in cache.caches for _, a in leaves(getattr(layer.own, "states", None)))
        work = run.sharing.model.buffers
        kept[name] = (work.nbytes - work.common_nbytes + 2 * states) / 1e6
    del contenders, run, cache
    small = replace(size, T=min(size.T, 100), H=min(size.H, 128))
    one, two = (ours.Ours(draw(small, 0, np.float64), workers=1, **o).outcome(1).grads for o in modes.values())
    return {"seconds": took, "kept": kept, "float64": max(map(check.relative, two, one))}


def interleaved(jobs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each job in each round, after one round that is not counted."""
    took: dict[str, list[float]] = {name: [] for name in jobs}
    for n in range(rounds + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            if n > 0:
                took[name].append(time.perf_counter() - started)
    return took
