r"""Does a stronger adversary pay? Small real tasks with few labels, every method at three strengths, many seeds.

``python -m experiments.stronger`` trains LSTMs on 400 digits (scikit-learn's, row by row) and on 2,000 MNIST images
(row by row), without a regularizer, with random masks and with adversaries from weak to strong. The strength is the
probability p of dropping a unit, or the number of units that may flip; for each strength the weight is chosen on
validation data, by the mean of seeds that are not among those that are reported. Results go to experiments/results,
one small file a run to ``--runs``: given again, the same command goes on where it was stopped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parts import records, reporting, stronger_report
from minadv import masks
from minadv.adversary import find_adversary
from minadv.base.streams import permutation, stream
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.data import images
from minadv.data.images import Images, Split
from minadv.data.images.batches import take
from minadv.data.images.sequences import as_sequences
from minadv.models.classifier import Batch, Classifier
from minadv.regularizers import EL, FD, VD, AdD, Plain, RDrop, Regularizer
from minadv.searches import Greedy, Memory, Random, Relax, Reselect, Search
from minadv.tasks.fit import fit
from minadv.tasks.images.task import evaluate
from minadv.training.loop import Recipe
from minadv.training.optimizers import Adam
from minadv.training.schedules import RampDown, RampUp

SEARCHES: dict[str, Search] = {
    "random": Random(),
    "greedy K=1": Greedy(K=1, keep="last"),
    "greedy K=2": Greedy(K=2, keep="last"),
    "reselect": Reselect(),
    "Relax": Relax(),
    "Memory": Memory(),
}
METHODS = ("none", "VD", "EL", "FD", "RDrop", *SEARCHES)
WEIGHTS = (0.3, 1.0, 3.0)
ATTACK = Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4)
"""The attack on trained networks: stronger than any search that they were trained with."""


@dataclass(frozen=True)
class Setting:
    """One task and its size; probabilities and budgets are the three strengths."""

    name: str
    about: str
    images: str
    train: int
    valid: int
    n_hidden: int
    batch: int
    epochs: int
    seeds: int
    tuning: int  # seeds that choose the weights, numbered from 1000
    methods: tuple[str, ...]
    probabilities: tuple[float, ...] = (0.1, 0.2, 0.35)
    budgets: tuple[int, ...] = (3, 6, 10)

    def strengths(self, method: str) -> tuple[float, ...]:
        if method == "none":
            return (0.0,)
        return tuple(map(float, self.budgets)) if method in SEARCHES else self.probabilities


SETTINGS = {
    "digits": Setting("digits", "400 digits by rows, T = 8", "digits", 400, 400, 50, 40, 40, 20, 2, METHODS),
    "mnist": Setting(
        *("mnist", "2,000 MNIST images by rows, T = 28", "mnist", 2000, 2000, 64, 50, 25, 5, 1),
        methods=("none", "VD", "FD", "RDrop", "greedy K=2", "Memory"),
        budgets=(4, 8, 13),
    ),
}


@dataclass(frozen=True)
class Job:
    """One network: a method at one strength and weight, and a seed."""

    setting: str
    method: str
    strength: float
    weight: float
    seed: int
    data_dir: str | None
    root: Path

    @property
    def path(self) -> Path:
        name = f"{self.method}-{self.strength:g}-{self.weight:g}-seed{self.seed}.json".replace(" ", "_")
        return self.root / self.setting / name


def regularizer(method: str, strength: float) -> Regularizer:
    """The regularizer of a method at a strength: p, or a number of flips."""
    if method in SEARCHES:
        return AdD(budgets=int(strength), search=SEARCHES[method])
    kinds: dict[str, Any] = {"VD": VD, "EL": EL, "FD": FD, "RDrop": RDrop}
    made: Regularizer = Plain() if method == "none" else kinds[method](p=strength)
    return made


def data_of(setting: Setting, seed: int, data_dir: str | None) -> Images:
    """The sequences of a seed, which draws examples to train and to validate with; digits are tested on all others."""
    loaded = as_sequences(images.load(setting.images, data_dir=data_dir), by="row")
    pool, test = loaded.train, loaded.test
    if setting.images == "digits":
        parts = (loaded.train, loaded.valid, loaded.test)
        pool = Split(np.concatenate([s.x for s in parts]), np.concatenate([s.y for s in parts]))
    order = permutation(stream(seed, "examples"), len(pool))
    train, valid, rest = np.split(order, [setting.train, setting.train + setting.valid])
    if setting.images == "digits":
        test = Split(pool.x[rest], pool.y[rest])
    return replace(
        loaded, train=Split(pool.x[train], pool.y[train]), valid=Split(pool.x[valid], pool.y[valid]), test=test
    )


def train(job: Job) -> dict[str, Any]:
    """Train, test at the best validation error, attack; the result of a job that was done before is read."""
    if job.path.exists():
        found: dict[str, Any] = json.loads(job.path.read_text())
        return found
    setting = SETTINGS[job.setting]
    data = data_of(setting, job.seed, job.data_dir)
    model = Classifier(data.train.x.shape[2], setting.n_hidden, data.classes)
    per_epoch, epochs = setting.train // setting.batch, setting.epochs
    recipe = Recipe(
        steps=epochs * per_epoch,
        optimizer=Adam(1e-2),
        lr_schedule=RampDown(epochs, epochs / 4),
        weight=job.weight,
        weight_schedule=RampUp(epochs / 5),
    )
    started = time.process_time()
    how: dict[str, Any] = {"batch_size": setting.batch, "seed": job.seed, "workers": 1, "progress": False}
    run = fit(model, data, regularizer=regularizer(job.method, job.strength), recipe=recipe, **how)
    seconds = time.process_time() - started
    best = min(run.records, key=lambda record: record["valid_error"])
    tested = evaluate(run.model, run.params, data.test)
    result = {
        **{name: value for name, value in asdict(job).items() if name not in ("data_dir", "root")},
        "valid_error": best["valid_error"],
        "valid_loss": best["valid_loss"],
        "valid_losses": [record["valid_loss"] for record in run.records],
        "best_epoch": best["epoch"],
        "test_error": tested["error"],
        "test_loss": tested["loss"],
        "attacked_error": attacked(run.model, run.params, data.test, setting.budgets[0]),
        "seconds": seconds,
        "commit": reporting.commit()["commit"],
    }
    reporting.write_json(job.path, result, own=True)
    return result


def attacked(model: Classifier, params: Any, test: Split, budget: int, n: int = 400) -> float:
    """The error in per cent on the first test examples under `ATTACK`."""
    x, y, _ = take(test, slice(0, n))
    batch = Batch(x, y)
    trace = find_adversary(model, params, batch, search=ATTACK, budgets=budget)
    m = {name: masks.scale(eps, "none") for name, eps in trace.eps.items()}
    features, _, _ = model.body(params, batch, masks=m, noise=None)
    return 100 * float((model.logits(params, features)[-1].argmax(axis=-1) != y).mean())


def jobs(setting: Setting, seeds: Sequence[int], weights: Any, given: dict[str, Any]) -> list[Job]:
    """A job for each method, strength, weight and seed; ``weights(method, strength)`` are those to try."""
    return [
        Job(setting.name, method, strength, weight, seed, **given)
        for seed in seeds
        for method in setting.methods
        for strength in setting.strengths(method)
        for weight in weights(method, strength)
    ]


def compare(setting: Setting, seeds: int, given: dict[str, Any], workers: int) -> list[dict[str, Any]]:
    """All runs of a setting: those that choose the weights, marked so, and those that are reported."""
    tuning = range(1000, 1000 + setting.tuning)

    def tried(method: str, strength: float) -> tuple[float, ...]:
        return () if method in ("none", "VD") else WEIGHTS

    tuned = reporting.run_all(
        train, jobs(setting, tuning, tried, given), workers=workers, title=f"{setting.name}: weights"
    )

    def chosen(method: str, strength: float) -> tuple[float]:
        if method in ("none", "VD"):
            return (1.0,)
        return (stronger_report.best_weight(tuned, method, strength),)

    final = reporting.run_all(
        train, jobs(setting, range(seeds), chosen, given), workers=workers, title=f"{setting.name}: networks"
    )
    return [{**r, "part": "tuning"} for r in tuned] + [{**r, "part": "final"} for r in final]


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Results as they are kept: five digits, the commits told once, and the curves of reported runs of `none` alone."""

    def kept(r: dict[str, Any]) -> dict[str, Any]:
        curve = r["method"] == "none" and r["part"] == "final"
        left_out = {"commit", "setting", "best_epoch"} | (set() if curve else {"valid_losses"})
        told = {name: value for name, value in r.items() if name not in left_out}
        return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in told.items()}

    return {"commits": sorted({str(r.get("commit")) for r in results}), "results": list(map(kept, results))}


@reporting.one_line_errors
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.stronger", description=__doc__)
    parser.add_argument(
        "--tasks", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="which tasks (default both)"
    )
    parser.add_argument("--seeds", type=positive, help="networks for each method (default 20 for digits, 5 for mnist)")
    parser.add_argument("--data-dir", help="folder of the MNIST files")
    parser.add_argument("--workers", type=positive, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument("--runs", type=Path, default=Path("runs/stronger"), help="folder of the results of each run")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)
    given = {"data_dir": args.data_dir, "root": args.runs}
    path = args.out / "stronger.json"
    data: dict[str, Any] = reporting.read_results(path) if path.exists() else {"tasks": {}}
    for name in args.tasks:
        started, setting = time.time(), SETTINGS[name]
        results = compare(setting, args.seeds or setting.seeds, given, args.workers)
        about = reporting.facts(started, setting=asdict(setting), passes=stronger_report.passes(SEARCHES))
        about["command"] = reporting.command("stronger", argv)
        data["tasks"][name] = {"facts": about, **summary(results)}
    data = records.plain(data)
    paths = [
        reporting.write_results(path, data),
        reporting.write(args.out / "stronger.md", stronger_report.page(data)),
        reporting.save_figure(stronger_report.figure(data), args.out / "stronger.png"),
    ]
    print(stronger_report.page(data))
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
