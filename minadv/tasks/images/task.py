r"""The task of classifying sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from minadv import protocol
from minadv.adversary import find_adversary, find_budgets
from minadv.backend import Array, is_device, namespace, same_place, to_host
from minadv.base.checks import expect_floating
from minadv.base.numbers import Seed, Size
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.data.images import Images, Split
from minadv.data.images.batches import Batches, in_order, take
from minadv.data.split import expect_classes
from minadv.fast import reusing
from minadv.models import stack
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import Plain, Regularizer, Term
from minadv.tasks.unlabelled import added, uses_unlabelled
from minadv.training.memory import Rows, Table, rows_of
from minadv.training.parallel.inference import share
from minadv.training.parallel.workers import WHOLE, Part
from minadv.training.task import Load


@dataclass(frozen=True, eq=False)
class Reading:
    """Examples, labelled or not, of which every step reads a batch, and what the batch is used for."""

    split: Split
    batches: Batches
    weight: float  # the share of the regularizer's weight that these examples have
    likelihood: float
    masks: str  # the name of the stream of their random numbers
    before: int = 0  # examples of the readings before this one: where its own begin in the table of what is remembered


@dataclass(frozen=True)
class Classify:
    """Classification of sequences, a batch at a time, every epoch in an order of its own.

    Random streams are keyed by (seed, name, step): a step's masks do not depend on what was drawn before.
    ``track`` (options of `mean_adversarial_mask`) adds the mean adversarial mask over the first test examples to each
    evaluation. Where the data have unlabelled examples that the regularizer can use, a step reads as many of them as of
    the labelled ones (`minadv.tasks.unlabelled`).
    """

    model: Classifier
    data: Images  # of sequences (N, T, I)
    regularizer: Regularizer = field(default_factory=Plain)
    batch_size: Size = 100
    seed: Seed = 0
    track: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        stream(self.seed, "init")  # a bad seed or batch size is an error here, before anything is written
        _ = self.readings
        if self.track is not None:  # what it asks for as well
            asked = {name: self.track[name] for name in ("search", "sites", "delta", "budgets") if name in self.track}
            find_budgets(self.model, **asked)
        n_in, n_classes = (getattr(self.model, name, None) for name in ("n_in", "n_classes"))
        for part, split in self.data.parts.items():
            expect_floating(f"x of the {part} part", split.x)
            if n_in not in (None, width := split.x.shape[2]):
                raise ValueError(
                    f"n_in is {n_in}, expected {width}, the inputs a step of the data's sequences (N, T, I)"
                )
            if n_classes is not None and split is not self.data.unlabelled:
                expect_classes(split, n_classes, part)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The labelled examples and, if there are any that the regularizer can use, the unlabelled ones."""
        train, others = self.data.train, self.data.unlabelled
        labelled = Batches(len(train), self.batch_size, self.seed)
        if others is None or not uses_unlabelled(self.regularizer):
            return (Reading(train, labelled, 1.0, 1.0, "masks"),)
        size = min(self.batch_size, len(others))
        share = self.batch_size / (self.batch_size + size)
        more = Reading(others, Batches(len(others), size, self.seed), 1 - share, 0.0, "unlabelled masks", len(train))
        return Reading(train, labelled, share, 1.0, "masks"), more

    @property
    def per_epoch(self) -> int:
        """Steps over the labelled examples."""
        return self.readings[0].batches.per_epoch

    @property
    def unit(self) -> str:
        return "sequence"

    @property
    def units_per_step(self) -> int:
        return sum(reading.batches.size for reading in self.readings)

    @property
    def tokens(self) -> int:
        """Time steps times examples of the largest batch: what its passes keep for going back."""
        return int(self.batch_size * self.data.train.x.shape[1])

    def rate(self, step: int) -> float:
        return 1.0

    def first_carry(self) -> Table | None:
        sites = self.regularizer.remembers(self.model)
        return Table.empty(sum(len(r.split) for r in self.readings), sites) if sites else None

    def ids(self, step: int) -> Array:
        """The rows of a step's examples in the table of what is remembered: labelled examples, then the others."""
        return np.concatenate([r.before + r.batches.rows(step) for r in self.readings])

    def init(self) -> Any:
        params = self.model.init(stream(self.seed, "init"), dtype=self.data.train.x.dtype)
        return tree_map(lambda a: same_place(a, self.data.train.x), params)

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, Rows | None]:
        part = replace(part, group=max(part.group, self.regularizer.group))
        made = [
            self._term(reading, params, step, weight, carry, part, model or self.model) for reading in self.readings
        ]
        (first, rows), *others = made
        if rows is not None:
            rows = tree_map(lambda *parts: np.concatenate(parts), *(own for _, own in made))
        return reduce(added, [term for term, _ in others], first), rows

    def _term(
        self, reading: Reading, params: Any, step: int, weight: float, carry: Any, part: Part, model: Any
    ) -> tuple[Term, Rows | None]:
        """The term of a worker's part of one batch, and what its adversary found, where that is remembered."""
        rows = reading.batches.rows(step)
        mine = rows[part.rows(len(rows))]
        batch = Batch(*take(reading.split, mine))
        more = {} if carry is None else {"memory": carry.of(reading.before + mine, like=batch.x)}
        rng, share = part.rng(stream(self.seed, reading.masks, step), len(rows)), part.share(len(rows))
        scaled = {"weight": share * reading.weight * weight, "likelihood": share * reading.likelihood}
        term = self.regularizer(model, params, batch, rng=rng, **scaled, **more)
        return term, None if carry is None else rows_of(reading.before + mine, term)

    @property
    def load(self) -> Load:
        load = load_of(self.model, self.data.train.x, self.units_per_step)
        return replace(load, examples=self.batch_size // self.regularizer.group or 1)

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        split: Split = getattr(self.data, part)
        metrics: dict[str, Any] = evaluate(self.model, params, split, batch_size=self.batch_size)
        if self.track is not None:
            given: dict[str, Any] = {"rng": stream(self.seed, "track"), "batch_size": self.batch_size, **self.track}
            metrics["mean_mask"] = mean_adversarial_mask(self.model, params, self.data.test, **given)
        return metrics


def load_of(model: Any, x: Array, n: int, at_once: int | None = None) -> Load:
    """How much work a pass over n sequences is, ``at_once`` of them at a time, of those in ``x (N, T, I)``."""
    H = int(getattr(model, "n_hidden", 0))  # a user's own model need not have it
    products = 4.0 * x.shape[1] * n * H * (H + x.shape[2])
    weights, on_gpu = 4 * H * H * x.dtype.itemsize, is_device(x)
    ready = stack.compiles_passes(model, getattr(model, "cell", ""), H, x.dtype, on_gpu=on_gpu)
    memory = 6 * x.shape[1] * min(n, at_once or n) * H * x.dtype.itemsize * int(getattr(model, "n_layers", 1))
    return Load(products, weights, n, on_gpu, memory, ready)


@dataclass(frozen=True, eq=False)
class Inference:
    """Sequences that a classifier reads, ``batch_size`` at a time: the features of each batch, for ``answer``.

    ``answer(model, params, features, batch)`` is what is read of a batch.
    """

    model: Classifier
    params: Any
    split: Split
    batch_size: int
    answer: Callable[..., Any]

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    @property
    def load(self) -> Load:
        return load_of(self.model, self.split.x, len(self.split), self.batch_size)

    def reader(self) -> Callable[[int], Any]:
        model = reusing(self.model)

        def read(number: int) -> Any:
            first = number * self.batch_size
            batch = Batch(*take(self.split, slice(first, min(first + self.batch_size, len(self.split)))))
            with protocol.scope(model):
                features, _, _ = model.body(self.params, batch, masks={}, noise=None)
                return self.answer(model, self.params, features, batch)

        return read


def evaluate(model: Classifier, params: Any, split: Split, *, batch_size: int = 100) -> dict[str, Any]:
    """Mean NLL and error in per cent, of the full network; each worker reads ``batch_size`` examples at a time."""
    nll = wrong = 0.0
    for nll_of_batch, wrong_of_batch in share(Inference(model, params, split, batch_size, _errors)):
        nll, wrong = nll + nll_of_batch, wrong + wrong_of_batch
    return {"loss": nll / len(split), "error": 100 * wrong / len(split)}


def answers(model: Any, params: Any, split: Split, *, batch_size: int = 100) -> Array:
    """The class (N,) that the full network gives each example, on the host."""
    return np.concatenate(share(Inference(model, params, split, batch_size, _classes)))


def _classes(model: Any, params: Any, features: Any, batch: Batch) -> Array:
    found: Array = to_host(model.logits(params, features)[-1].argmax(axis=-1))
    return found


def _errors(model: Any, params: Any, features: Any, batch: Batch) -> tuple[float, float]:
    """The sum of the NLL over a batch, and how many of its answers are wrong."""
    nll = model.head(params, features, batch.targets).nll
    wrong = model.logits(params, features)[-1].argmax(axis=-1) != batch.targets
    return float(nll.sum(dtype=np.float64)), float(wrong.sum())


DRAWN = 250


def mean_adversarial_mask(
    model: Classifier,
    params: Any,
    split: Split,
    *,
    rng: np.random.Generator,
    n: int = 500,
    batch_size: int = 100,
    **search: Any,
) -> dict[str, list[float]]:
    """The share of the first ``n`` examples whose adversarial mask keeps each unit, by site.

    ``search`` are options of `minadv.find_adversary`. Random numbers are drawn for `DRAWN` examples at a time, so
    that the masks do not depend on ``batch_size``; neighbours that may see each other's masks stay together.
    """
    total: dict[str, Array] = {}
    model = reusing(model)
    n, group = min(n, len(split)), getattr(search.get("search"), "group", 1)
    for block in in_order(n, DRAWN):
        size, before = block.stop - block.start, rng
        count = max(1, min(-(-size // batch_size), size // group))
        for part in (Part(index, count, group) for index in range(count)):
            rng = deepcopy(before)
            rows = part.rows(size)
            batch = Batch(*take(split, slice(block.start + rows.start, block.start + rows.stop)))
            with protocol.scope(model):
                trace = find_adversary(model, params, batch, rng=part.rng(rng, size), **search)
            for name, eps in trace.eps.items():
                total[name] = total.get(name, 0) + namespace(eps).sum(eps, axis=0)
    return {name: [float(v) for v in to_host(sums / n)] for name, sums in total.items()}
