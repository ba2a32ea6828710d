r"""The task of classifying sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minadv import protocol
from minadv.adversary import find_adversary
from minadv.backend import Array, is_device, namespace, same_place, to_host
from minadv.base.numbers import Seed, Size
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.data.images import Images, Split
from minadv.data.images.batches import Batches, in_order, take
from minadv.fast import reusing
from minadv.models import stack
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import Plain, Regularizer, Term
from minadv.training.memory import Rows, Table, rows_of
from minadv.training.parallel.inference import share
from minadv.training.parallel.workers import WHOLE, Part
from minadv.training.task import Load


@dataclass(frozen=True)
class Classify:
    """Classification of sequences, a batch at a time, every epoch in an order of its own.

    Random streams are keyed by (seed, name, step): a step's masks do not depend on what was drawn before.
    ``track`` (options of `mean_adversarial_mask`) adds the mean adversarial mask over the first test examples to each
    evaluation.
    """

    model: Classifier
    data: Images  # of sequences (N, T, I)
    regularizer: Regularizer = field(default_factory=Plain)
    batch_size: Size = 100
    seed: Seed = 0
    track: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        stream(self.seed, "init")  # a bad seed or batch size is an error here, before anything is written
        Batches(len(self.data.train), self.batch_size, self.seed)
        n_in, width = getattr(self.model, "n_in", None), self.data.train.x.shape[2]
        if n_in not in (None, width):
            raise ValueError(f"n_in is {n_in}, expected {width}, the inputs a step of the data's sequences (N, T, I)")

    @property
    def per_epoch(self) -> int:
        return self._batches.per_epoch

    @property
    def unit(self) -> str:
        return "image"

    @property
    def units_per_step(self) -> int:
        return self.batch_size

    @property
    def tokens(self) -> int:
        """Time steps times examples of the largest batch: what its passes keep for going back."""
        return int(self.batch_size * self.data.train.x.shape[1])

    def rate(self, step: int) -> float:
        return 1.0

    def first_carry(self) -> Table | None:
        sites = self.regularizer.remembers(self.model)
        return Table.empty(len(self.data.train), sites) if sites else None

    def ids(self, step: int) -> Array:
        """The rows of a step's examples in the table of what is remembered: those in the training data."""
        return self._batches.rows(step)

    @property
    def _batches(self) -> Batches:
        return Batches(len(self.data.train), self.batch_size, self.seed)

    def init(self) -> Any:
        params = self.model.init(stream(self.seed, "init"), dtype=self.data.train.x.dtype)
        return tree_map(lambda a: same_place(a, self.data.train.x), params)

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, Rows | None]:
        rows = self._batches.rows(step)
        part = replace(part, group=max(part.group, self.regularizer.group))
        mine = rows[part.rows(len(rows))]
        x, y = take(self.data.train, mine)
        more = {} if carry is None else {"memory": carry.of(mine, like=x)}
        rng, share = part.rng(stream(self.seed, "masks", step), len(rows)), part.share(len(rows))
        term = self.regularizer(
            model or self.model, params, Batch(x, y), rng=rng, weight=share * weight, likelihood=share, **more
        )
        return term, None if carry is None else rows_of(mine, term)

    @property
    def load(self) -> Load:
        load = load_of(self.model, self.data.train.x, self.batch_size)
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
class Reading:
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
    for nll_of_batch, wrong_of_batch in share(Reading(model, params, split, batch_size, _errors)):
        nll, wrong = nll + nll_of_batch, wrong + wrong_of_batch
    return {"loss": nll / len(split), "error": 100 * wrong / len(split)}


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
            x, y = take(split, slice(block.start + rows.start, block.start + rows.stop))
            with protocol.scope(model):
                trace = find_adversary(model, params, Batch(x, y), rng=part.rng(rng, size), **search)
            for name, eps in trace.eps.items():
                total[name] = total.get(name, 0) + namespace(eps).sum(eps, axis=0)
    return {name: [float(v) for v in to_host(sums / n)] for name, sums in total.items()}
