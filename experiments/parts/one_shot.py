r"""Part one of `experiments.search_quality`: one attack on a trained network, by every search."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from experiments.parts import best_masks, small_nets
from minadv import masks
from minadv.adversary import find_adversary
from minadv.backend import Array
from minadv.base.streams import stream
from minadv.data.language import corpus
from minadv.data.language.windows import Windows
from minadv.models.classifier import Classifier
from minadv.models.language.model import LanguageModel, TokenBatch
from minadv.searches import Exact, Greedy, Random, Relax, Reselect, Search
from minadv.tasks.language.task import LanguageTask
from minadv.training.loop import Recipe, train
from minadv.training.optimizers import Adam
from minadv.training.schedules import RampDown

DISTANCES = ("js", "kl")

SEARCHES: dict[str, Search] = {
    "random": Random(),
    "best of 8 random": Random(tries=8),
    "greedy K=1": Greedy(K=1),
    "greedy K=2": Greedy(K=2),
    "greedy K=2, start kept": Greedy(K=2, allow_unflip=False),
    "greedy K=3": Greedy(K=3),
    "greedy K=8": Greedy(K=8),
    "two-sided": Reselect(K=1),
    "reselect K=2": Reselect(K=2),
    "reselect K=3": Reselect(K=3),
    "reselect K=2, swap": Reselect(K=2, swaps=4),
    "Relax, margin only": Relax(stages=()),
    "Relax": Relax(),
    "Relax, borrow 1": Relax(borrow=1),
    "Relax, reselect 1": Relax((2,), reselect=1),
    "Relax L=3, reselect 1": Relax((3,), reselect=1),
    "Relax, reselect 1, borrow 1": Relax((2,), reselect=1, borrow=1),
    "Relax, longest": Relax((4, 2), reselect=1, borrow=2, swaps=4),
    "Relax, longest, borrow 1, swaps 5": Relax((4, 2), reselect=1, borrow=1, swaps=5),
    "Relax, longest, borrow 3, swaps 3": Relax((4, 2), reselect=1, borrow=3, swaps=3),
    "Relax, longest, L=2, reselect 2": Relax((2,), reselect=2, borrow=2, swaps=4),
    "Relax, longest, swaps 6": Relax((4, 2), reselect=1, borrow=2, swaps=6),
}
DRAWS = (Greedy, Reselect, Random)
"""The searches that draw a start: they are repeated, the others are not."""


@dataclass(frozen=True)
class Group:
    """Networks of one kind, and the settings in which they are attacked."""

    name: str
    n_hidden: int
    cell: str = "lstm"
    n_layers: int = 1
    steps: int = 300  # of training
    budget: int = 3  # flips, of each layer
    classes: tuple[int, ...] = (2, 4, 10)  # of the digits; those of a text are its words
    scales: tuple[masks.Scale, ...] = ("none", "kept")
    most_examples: int = 1000
    exact: bool = True  # whether all masks are enumerated; else the best known is `best_masks.Climb`'s
    text: bool = False  # whether it is a language model

    @property
    def budgets(self) -> dict[str, int]:
        return {f"layer{n}": self.budget for n in range(self.n_layers)}


TEXT: dict[str, Any] = {"steps": 600, "classes": (), "scales": ("none",), "most_examples": 12, "text": True}
GROUPS: tuple[Group, ...] = (
    Group("H = 24", 24),
    Group("H = 24, barely trained", 24, steps=40),
    Group("H = 64", 64),
    Group("GRU, H = 24", 24, cell="gru", classes=(4, 10)),
    Group("RNN, H = 24", 24, cell="rnn", classes=(4, 10)),
    Group("two layers, H = 16, 2 flips each", 16, n_layers=2, budget=2, classes=(4, 10)),
    Group("H = 128, 6 flips", 128, budget=6, classes=(10,), scales=("none",), most_examples=12, exact=False),
    Group("text, H = 24", 24, **TEXT),
    Group("text, H = 64, 4 flips", 64, budget=4, exact=False, **TEXT),
)

TEXT_STEPS = 20
"""Steps of a piece of text that is attacked; each has the weight 1/T."""


@dataclass(frozen=True)
class Task:
    """One trained network, attacked under one scale."""

    group: Group
    n_classes: int | None  # None for a language model
    scale: masks.Scale
    seed: int
    examples: int
    repeats: int


def tasks(groups: tuple[Group, ...], seeds: int, examples: int, repeats: int) -> list[Task]:
    """All networks of these groups, a seed each."""
    return [
        Task(group, classes, scale, seed, min(examples, group.most_examples), repeats)
        for group in groups
        for seed, classes, scale in product(range(seeds), group.classes or (None,), group.scales)
    ]


def attack(task: Task) -> dict[str, Any]:
    """Train, find the largest distances, search; for each distance the mean share of the largest by search."""
    started = time.process_time()
    model, params, batch, tested = (language_model if task.group.text else classifier)(task)
    given: dict[str, Any] = {"budgets": task.group.budgets, "scale": task.scale}
    largest = {}
    if task.group.exact and not task.group.text:
        largest = best_masks.exact(model, params, batch, **given, names=DISTANCES)
    results, passes = [], {}
    for distance in DISTANCES:
        found = {}
        for name, search in SEARCHES.items():
            times = task.repeats if isinstance(search, DRAWS) else 1
            rngs = [stream(task.seed, name, repeat) for repeat in range(times)]
            how = {**given, "search": search, "distance": distance}
            traces = [find_adversary(model, params, batch, rng=rng, **how) for rng in rngs]
            found[name] = np.stack([np.asarray(trace.d) for trace in traces])  # (times, B)
            passes[name] = [traces[0].passes.forward, traces[0].passes.backward]
        if distance not in largest:
            slow: Search = Exact() if task.group.exact else best_masks.Climb()
            rng = stream(task.seed, "climb")
            d = find_adversary(model, params, batch, search=slow, distance=distance, rng=rng, **given).d
            largest[distance] = best_known(np.asarray(d), found)
        shares = [round(float((d / largest[distance]).mean()), 4) for d in found.values()]
        about = {"group": task.group.name, "classes": task.n_classes, "scale": task.scale, "seed": task.seed}
        results.append({**about, "distance": distance, "test": tested, "shares": shares})
    return {"results": results, "passes": passes, "seconds": time.process_time() - started}


def best_known(d: Array, found: dict[str, Array]) -> Array:
    """The largest distance that any search has found, (B,): that of the long search ``d``, or one of the others'."""
    most: Array = np.maximum(d, np.concatenate(list(found.values())).max(axis=0))
    return most


def classifier(task: Task) -> tuple[Any, Any, Any, float]:
    """A classifier of digits, its parameters, the first test examples, and its test accuracy."""
    group = task.group
    assert task.n_classes is not None
    train_split, test = small_nets.digit_rows(task.n_classes)
    model = Classifier(8, group.n_hidden, task.n_classes, cell=group.cell, n_layers=group.n_layers)
    params = small_nets.train(model, train_split, seed=task.seed, steps=group.steps)
    accuracy = round(small_nets.accuracy(model, params, test), 4)
    return model, params, small_nets.test_batch(test, task.examples), accuracy


def language_model(task: Task) -> tuple[Any, Any, Any, float]:
    """A language model of CPython's documentation, its parameters, pieces of the test text, and its perplexity."""
    group, text = task.group, corpus.load("pydoc", min_count=5)
    n_embed = group.n_hidden
    model = LanguageModel(len(text.vocabulary), n_embed, (group.n_hidden,) * group.n_layers, output_dropout=0.1)
    learns = LanguageTask(model, text.train, text.valid, text.test, batch_size=20, bptt=35, seed=task.seed, columns=20)
    epochs = group.steps / learns.per_epoch
    recipe = Recipe(
        group.steps, Adam(1e-2), lr_schedule=RampDown(epochs, epochs), eval_every=group.steps, monitor="loss"
    )
    state, _ = train(learns, recipe, progress=False)
    window = Windows(text.test, task.examples, TEXT_STEPS, random=False).window(0)
    perplexity = round(learns.evaluate(state.params, "test")["perplexity"], 1)
    return model, state.params, TokenBatch(window.x, window.y), perplexity
