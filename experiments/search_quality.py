r"""How close each search comes to the exact adversary, for the passes it spends.

Part one attacks trained networks once: classifiers of the digits (row by row, T = 8) and language models, with every
search, and reports the share of the largest distance within the budget which each reaches
(`experiments.parts.one_shot`). Part two trains small networks with adversarial dropout, and reports the share that a
search reaches in the steps of training itself, where it may remember (`experiments.parts.along_training`).
``python -m experiments.search_quality`` writes search_quality.json, .md and .png under experiments/results, and one
small file a network to ``--runs``: given again, the same command goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from experiments.parts import along_training, one_shot, quality_figure, quality_report, records, reporting
from minadv.commands.numbers import positive
from minadv.commands.parsing import Parser
from minadv.training.parallel.ranks import only_first_prints

QUICK = ("H = 24", "H = 24, barely trained")


@dataclass(frozen=True)
class Job:
    """One network of either part, and the folder that keeps its result."""

    task: one_shot.Task | along_training.Training
    runs: Path

    @property
    def path(self) -> Path:
        """A file whose name depends on the network, its settings and the searches."""
        text = f"{self.task} {one_shot.SEARCHES} {along_training.SEARCHES} {one_shot.DISTANCES}"
        return self.runs / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def done(job: Job) -> dict[str, Any]:
    """The result of a job; that of one which was done before is read."""
    if job.path.exists():
        found: dict[str, Any] = json.loads(job.path.read_text())
        return found
    work: Callable[[Any], dict[str, Any]] = (
        one_shot.attack if isinstance(job.task, one_shot.Task) else along_training.follow
    )
    result = work(job.task)
    reporting.write_json(job.path, result, own=True)
    return result


@reporting.one_line_errors
@only_first_prints()
def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser(prog="python -m experiments.search_quality", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=3, help="networks of each kind (default 3)")
    parser.add_argument("--quick", action="store_true", help="two kinds of networks, one seed, short training")
    parser.add_argument("--examples", type=positive, default=24, help="test examples attacked (default 24)")
    parser.add_argument("--repeats", type=positive, default=8, help="random starts of a search that draws (default 8)")
    parser.add_argument("--epochs", type=positive, default=40, help="epochs of part two (default 40)")
    parser.add_argument("--workers", type=positive, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/search_quality"), help="folder of each network's result"
    )
    parser.add_argument("--out", type=Path, default=reporting.RESULTS, help="folder for the results")
    args = parser.parse_args(argv)

    groups, networks, seeds, epochs = one_shot.GROUPS, along_training.NETWORKS, args.seeds, args.epochs
    if args.quick:
        groups, networks = tuple(group for group in groups if group.name in QUICK), networks[:1]
        seeds, epochs = 1, min(epochs, 10)
    first = [Job(task, args.runs) for task in one_shot.tasks(groups, seeds, args.examples, args.repeats)]
    second = [
        Job(along_training.Training(network, search, seed, epochs, looks=12, examples=10), args.runs)
        for seed, network, search in product(range(seeds), networks, along_training.SEARCHES)
    ]
    results = reporting.run_all(done, [*second, *first], workers=args.workers, title="networks")
    trained, shots = results[: len(second)], results[len(second) :]
    names = [job.task.group.name for job in first if isinstance(job.task, one_shot.Task)]
    data = records.plain(
        {
            "facts": {
                **reporting.machine(),
                "command": reporting.command("search_quality", argv),
                "core_seconds": round(sum(result["seconds"] for result in results)),
                "seeds": seeds,
                "examples": args.examples,
                "repeats": args.repeats,
                "epochs": epochs,
            },
            "searches": list(one_shot.SEARCHES),
            "best_known": [group.name for group in groups if not group.exact],
            "passes": dict(zip(names, (shot["passes"] for shot in shots), strict=True)),
            "one_shot": [result for shot in shots for result in shot["results"]],
            "along_training": [{key: run[key] for key in run if key != "seconds"} for run in trained],
        }
    )
    paths = [
        reporting.write_results(args.out / "search_quality.json", data),
        reporting.write(args.out / "search_quality.md", quality_report.page(data)),
        reporting.save_figure(quality_figure.figure(data), args.out / "search_quality.png"),
    ]
    print(quality_report.tables(data))
    print("written:", *paths, sep="\n  ")


if __name__ == "__main__":
    main()
