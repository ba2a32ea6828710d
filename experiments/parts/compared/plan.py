r"""What is compared, written down before anything is run: tasks, methods, settings, seeds.

A method is tried in four settings (strength and weight), a task in some learning rates; both are chosen on validation
data by the mean of two seeds that are not among those that are reported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from minadv.backend import DeviceName
from minadv.searches import Greedy, Memory, Relax, Reselect, Search

SEARCHES: dict[str, Search] = {
    "AdD K=1": Greedy(K=1, keep="last"),
    "AdD K=2": Greedy(K=2, keep="last"),
    "reselect": Reselect(),
    "Relax": Relax(),
    "Memory": Memory(),
}
RANDOM = ("VD", "EL", "FD", "RDrop")
METHODS = ("none", *RANDOM, *SEARCHES)
WITHOUT_MEMORY = tuple(method for method in METHODS if method != "Memory")
"""The methods of a language model: no window of a text comes twice alike, so that Memory would be Relax there."""

SUMS = {"AdD K=1 + VAT": "AdD K=1", "AdD K=2 + VAT": "AdD K=2"}
"""The sums of AdD and VAT, of texts: AdD's part of each."""

VAT_NORM = 1.8
"""0.0156 times the root of 200 x 64, the numbers that are perturbed, as the paper's 5 is for 400 x 256."""

ON_TEXTS = (
    *("none", "AT", "VAT", "VD", "EL", "FD", "RDrop"),
    *("AdD last", "AdD K=1", "AdD K=2", "reselect", "Relax", "Memory", "AdD K=1 + VAT", "AdD K=2 + VAT"),
)
"""The methods of texts, in the order of the paper's Table 2."""

TUNING = (1000, 1001)
"""The seeds that choose settings and learning rates."""

MATCHED = {"none": 4, "FD": 2}
"""How many times these methods are given what they cost, to cost as much as AdD K=2: its 4 passes there and back."""

LABELLED_ALONE = ("none", "VD", "AT")
"""The methods that have nothing to say of examples without labels: they read half of a step's, where there are some."""


@dataclass(frozen=True)
class Task:
    """One task at one size. What a kind of task needs beside these fields is in ``sizes``."""

    name: str
    kind: str  # images, language, texts
    about: str
    metric: str  # of which less is better
    epochs: float
    batch: int
    lrs: tuple[float, ...]
    seeds: int
    sizes: tuple[tuple[str, Any], ...]
    methods: tuple[str, ...] = METHODS
    matched: bool = True

    @property
    def size(self) -> dict[str, Any]:
        return dict(self.sizes)

    @property
    def unlabelled(self) -> bool:
        """Whether a step has as many unlabelled examples as labelled ones, for the methods that read them."""
        return self.kind == "texts" or bool(self.size.get("unlabelled"))

    def batches(self, method: str) -> int:
        """How many batches a step of a method reads."""
        return 2 if self.unlabelled and method not in LABELLED_ALONE else 1

    def times(self, method: str) -> int:
        """How many times a method of `MATCHED` is given its cost here, to cost as much as AdD K=2."""
        return MATCHED[method] * self.batches("AdD K=2") // self.batches(method)

    @property
    def digest(self) -> str:
        """What tells results of this task from those of another size: all that decides a run."""
        told = {name: value for name, value in asdict(self).items() if name not in ("about", "seeds", "methods")}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Job:
    """One network: a method in one setting, a learning rate and a seed.

    ``longer`` multiplies its epochs. The networks of an ensemble share a seed, which draws their examples, and have a
    ``member`` each, which draws all else.
    """

    task: Task
    method: str
    strength: float
    weight: float
    lr: float
    seed: int
    part: str  # rates, settings, final
    root: Path
    data_dir: str | None = None
    device: DeviceName = "cpu"
    longer: int = 1
    member: int = 0

    @property
    def folder(self) -> Path:
        more = f"-x{self.longer}" * (self.longer > 1) + f"-member{self.member}" * (self.member > 0)
        name = f"{self.method}-{self.strength:g}-{self.weight:g}-{self.lr:g}-seed{self.seed}{more}".replace(" ", "_")
        return self.root / self.task.name / self.part / name

    @property
    def draws(self) -> int:
        """The seed of weights, order and masks."""
        return self.seed + 10_000 * self.member


def settings(method: str, kind: str = "images") -> list[tuple[float, float]]:
    """The four settings (strength, weight) of a method.

    The strength is p of random masks, δ of an adversary, or the norm of AT and VAT. VD has no weight and four
    strengths; `none` has nothing to set. FD of a language model compares logits, whose distance is larger than that of
    probabilities: its weights are a tenth of the others'.
    """
    if method == "none":
        return [(0.0, 0.0)]
    if method in ("AT", "VAT"):
        return [(VAT_NORM / 3, 1.0), (VAT_NORM, 1.0), (3 * VAT_NORM, 1.0), (VAT_NORM, 3.0)]
    if method == "VD":
        return [(0.05, 0.0), (0.1, 0.0), (0.2, 0.0), (0.35, 0.0)]
    s = 0.1 if method in RANDOM else 0.06
    unit = 0.1 if (method, kind) == ("FD", "language") else 1.0
    return [(s, unit), (s, 3 * unit), (2 * s, 3 * unit), (s, 10 * unit)]


def files_of(task: str, out: Path) -> tuple[Path, Path]:
    """Where the results of a task are written: when all of it is done, and until then."""
    name = f"compare-{task}.json"
    return out / name, out / "unfinished" / name


def rates(task: Task, given: dict[str, Any]) -> list[Job]:
    """The jobs that choose the learning rate, all without a regularizer."""
    return [Job(task, "none", 0.0, 0.0, lr, seed, "rates", **given) for lr in task.lrs for seed in TUNING]


def trials(task: Task, lr: float, given: dict[str, Any]) -> list[Job]:
    """The jobs that choose the settings of the methods."""
    return [
        Job(task, method, strength, weight, lr, seed, "settings", **given)
        for method in task.methods
        for strength, weight in settings(method, task.kind)
        for seed in TUNING
        if len(settings(method, task.kind)) > 1
    ]


def finals(task: Task, lr: float, chosen: dict[str, tuple[float, float]], given: dict[str, Any]) -> Iterator[Job]:
    """The jobs that are reported, a seed at a time, so that a part of them is a table of fewer seeds."""
    for seed in range(task.seeds):
        for method in task.methods:
            job = Job(task, method, *chosen[method], lr, seed, "final", **given)
            yield job
            if task.matched and method in MATCHED:
                n = task.times(method)
                yield replace(job, longer=n)
                yield from (replace(job, member=member) for member in range(1, n))


def _images(name: str, about: str, epochs: float, batch: int, seeds: int, sizes: dict[str, Any], **more: Any) -> Task:
    sizes = {"n_hidden": 64, **sizes}
    return Task(name, "images", about, "error", epochs, batch, (3e-3, 1e-2), seeds, tuple(sizes.items()), **more)


def _language(name: str, about: str, epochs: float, seeds: int, sizes: dict[str, Any], **more: Any) -> Task:
    sizes = {"bptt": 35, "columns": 10, "dropouts": (0.1, 0.2, 0.0, 0.2, 0.2), **sizes}
    return Task(name, "language", about, "perplexity", epochs, 20, (10.0, 30.0), seeds, tuple(sizes.items()), **more)


def _texts(name: str, about: str, epochs: float, seeds: int, sizes: dict[str, Any], **more: Any) -> Task:
    sizes = {"n_embedding": 64, "n_hidden": 64, "dropout": 0.3, "max_tokens": 200, **sizes}
    lm = {"candidates": 1024, "lm_steps": 6000, "lm_batch": 64, "lm_window": 70}
    return Task(name, "texts", about, "error", epochs, 32, (2e-3, 5e-3), seeds, tuple({**lm, **sizes}.items()), **more)


PART = {"images": "mnist", "by": "row", "train": 20_000, "valid": 4000}
SOME = {"images": "mnist", "by": "row", "train": 2000, "valid": 2000}
POOLED = {"images": "mnist", "by": "pixel", "pool": 2, "permute": True, "train": None}
TASKS = {
    task.name: task
    for task in (
        _images(
            *("digits", "1,000 digits pixel by pixel, T = 64", 120, 50, 10),
            {"images": "digits", "by": "pixel", "train": 1000, "valid": 300},
        ),
        _images("mnist-20000", "20,000 MNIST images by rows, T = 28", 24, 100, 5, PART),
        _images("mnist-2000", "2,000 MNIST images by rows, T = 28", 60, 50, 10, SOME),
        _images(
            *("mnist-2000-unlabelled", "2,000 labelled and 56,000 unlabelled MNIST images by rows, T = 28", 60, 50, 5),
            {**SOME, "unlabelled": True},
        ),
        _images(
            *("mnist-pooled", "MNIST in 14 x 14 pixels, pixel by pixel in one permuted order, T = 196", 20, 100, 3),
            POOLED,
            methods=("none", "FD", "AdD K=2", "Memory"),
        ),
        _language(
            *("pydoc", "A language model of CPython's documentation, 64 units", 16, 5),
            {"corpus": "pydoc", "n_hidden": 64, "every": 7},
            methods=WITHOUT_MEMORY,
        ),
        _language(
            *("ptb", "A language model of 310,000 words of the Penn Treebank, a third of it, 200 units", 8, 3),
            {"corpus": "ptb", "n_hidden": 200, "every": 7, "words": 310_000},
            methods=("none", "FD", "RDrop", "AdD K=1", "Relax"),
            matched=False,
        ),
        _language(
            *("wikitext2", "A language model of WikiText-2, 200 units", 8, 1),
            {"corpus": "wikitext2", "n_hidden": 200, "every": 7},
            methods=("none", "FD", "AdD K=1"),
            matched=False,
        ),
        _texts(
            *("imdb", "IMDB, 2,500 labelled texts and 68,750 others, the last 200 words of each", 16, 3),
            {"corpus": "imdb", "vocab_size": 10_000, "train": 2500, "valid": 1500},
            methods=ON_TEXTS,
        ),
    )
}
