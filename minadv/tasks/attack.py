r"""Attacks on a trained run: what becomes of its accuracy, or of its perplexity, under the masks that a search finds.

What a search raises is the distance D between two predictions, and not the error.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from minadv import masks
from minadv.adversary import Trace, find_adversary, find_budgets
from minadv.base.pulse import doing
from minadv.base.streams import stream
from minadv.protocol import choose_sites
from minadv.regularizers import AdD, Sum
from minadv.searches import Exact, Greedy, Random, Relax, Reselect, Search, ball_size
from minadv.tasks import methods
from minadv.tasks.config import build
from minadv.training.parallel.inference import alone, share
from minadv.training.task import Load
from minadv.training.watch import STRONG

SEARCHES: dict[str, Search] = {
    "random": Random(),
    "greedy K=1": Greedy(),
    "greedy K=2": Greedy(K=2),
    "reselect K=2": Reselect(),
    "relax": Relax(),
    "relax, long": STRONG,
    "exact": Exact(),
}
"""The searches of an attack, by the names of its rows."""


@dataclass(frozen=True)
class Target:
    """A run that is attacked: on which examples, within which budgets, and how the outcome is counted and written.

    ``count`` gives the number of predictions in a batch, ``score`` the sum over them of what is counted, such as right
    answers; ``result`` turns the mean of that into the number of the table's column. ``exact`` says whether the table
    has a row of the exact search.
    """

    run: Any
    budgets: dict[str, int]  # flips, by mask site
    examples: Sequence[tuple[Any, Any]]  # batches, each with the network's state before it
    headline: str
    column: str
    count: Callable[[Any], int]
    score: Callable[[Any, Any], float]
    result: Callable[[float], float]
    number: str  # how D is written
    load: Load  # of a pass over all examples
    exact: bool = True

    @property
    def n_masks(self) -> int:
        """How many masks an exact search would run."""
        sites = choose_sites(self.run.model, tuple(self.budgets))
        return math.prod(ball_size(site.H, self.budgets[site.name]) for site in sites)


def search(target: Target, batch: Any, state: Any, rng: Any, **how: Any) -> Trace:
    """The masks that a search finds for a batch within the target's budgets."""
    given = {"budgets": target.budgets, "sites": tuple(target.budgets), "state": state, **how}
    return find_adversary(target.run.model, target.run.params, batch, rng=rng, **given)


@contextmanager
def one_search_at_a_time(target: Target) -> Iterator[None]:
    """A context for `search` outside of `table`: BLAS threads as suit the network, and no warnings of the searches."""
    with alone(target.run.params), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of an attack's table, each of which has random numbers of its own: workers take one at a time."""

    target: Target
    make: Callable[[int], tuple[float, float]]
    count: int
    counts_itself: bool = True  # batch by batch, not row by row

    @property
    def load(self) -> Load:
        return self.target.load

    def __len__(self) -> int:
        return self.count

    def reader(self) -> Callable[[int], tuple[float, float]]:
        return self.make


def table(target: Target, names: Sequence[str], tell: Callable[[str, float, float], None], **how: Any) -> None:
    """Call ``tell`` with the name, the result and the mean D of each search, in this order, as they become known.

    ``how`` are the options of `under_attack`.
    """
    made: dict[int, tuple[float, float]] = {}
    lock, told = threading.Lock(), 0

    def row(number: int) -> tuple[float, float]:
        nonlocal told
        found = under_attack(target, names[number], on_batch=work.advance, **how)
        with lock:
            made[number] = found
            while told in made:
                tell(names[told], *made[told])
                told += 1
        return found

    steps = len(names) * len(target.examples)
    with warnings.catch_warnings(), doing("attacking", steps, "batches of all searches") as work:
        warnings.simplefilter("ignore")  # here, because what it does holds for all Python threads
        share(Rows(target, row, len(names)))


def under_attack(
    target: Target,
    name: str,
    *,
    seed: int,
    distance: str,
    scale: masks.Scale,
    max_masks: int,
    on_batch: Callable[[], None] = lambda: None,
) -> tuple[float, float]:
    """The result, such as the share still classified rightly, and the mean D, under the masks of a search or "none"."""
    run, rng = target.run, stream(seed, f"attack {name}")
    total = distances = 0.0
    count = 0
    for batch, state in target.examples:
        m, n = {}, target.count(batch)
        if name != "none":
            how = Exact(max_masks) if name == "exact" else SEARCHES[name]
            trace = search(target, batch, state, rng, search=how, distance=distance, scale=scale)
            assert trace.d is not None
            m = {site: masks.scale(eps, scale) for site, eps in trace.eps.items()}
            distances += float(trace.d.sum()) * (n // len(batch))
        features, _, _ = run.model.body(run.params, batch, masks=m, noise=None, state=state)
        total, count = total + target.score(features, batch), count + n
        on_batch()
    return target.result(total / count), distances / count


def right_answers(run: Any) -> Callable[[Any, Any], float]:
    """The score of a classifier: how many examples of a batch it classifies rightly."""

    def score(features: Any, batch: Any) -> float:
        return float((run.model.logits(run.params, features)[-1].argmax(axis=-1) == batch.targets).sum())

    return score


def choose_budgets(
    run: Any,
    delta: list[float] | None,
    budget: list[int] | None,
    *,
    share: Callable[[int], int],
    by_layer: bool = False,
) -> dict[str, int]:
    """The flips of each layer: as asked for, or those that the run was trained with, or else a share of its units.

    ``by_layer``: the run's own layers may differ, those that carry masks too; one value is for those with masks, of
    several each is for a layer. Otherwise one value is for all layers.
    """
    trained = build(run.config["regularizer"], "regularizer")
    sites = getattr(trained, "sites", None) if by_layer else None
    if delta is None and budget is None:
        for part in trained.parts if isinstance(trained, Sum) else (trained,):
            if isinstance(part, AdD):
                return replace(part, sites=sites, search=Greedy()).expect_budgets(run.model)
        return {site.name: share(site.H) for site in choose_sites(run.model, sites)}
    several = len(delta or budget or ()) > 1
    if several and not by_layer:
        name, values = ("delta", delta) if budget is None else ("budget", budget)
        raise ValueError(f"{name} has {len(values or ())} values, expected 1: this network's layers are all alike")
    layers = len(choose_sites(run.model, None))
    return find_budgets(run.model, **methods.budgets(delta, budget, layers, None if several else sites))


def units_flipped(run: Any, budgets: dict[str, int]) -> str:
    """The budget of a network whose layers are all alike, in words."""
    model = run.model
    return f"{max(budgets.values())} of {model.n_hidden} units flipped in each of {model.n_layers} layer(s)"
