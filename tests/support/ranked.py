"""What the tests of MPI run under mpiexec: ``python -m tests.support.ranked WHAT ARGUMENTS...`` on every rank.

- ``paths FOLDER``: trains each of `PROBLEMS` and writes how it ended, a file a rank
- ``fit FOLDER``: the same door that a user's script takes
- ``share_out FOLDER``: independent tasks
- ``fail RANKS``: an error on the ranks listed, as ``0,1``, at the third step
- ``cli RANK STEP ARGUMENTS...``: the command line, with a rank that dies at a step (-1: never), as of kill -9
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import same_place
from minadv.base import launch
from minadv.base.trees import leaves
from minadv.cli import main
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.tasks.fit import fit
from minadv.training.loop import Recipe, train
from minadv.training.optimizers import SGD
from minadv.training.parallel.mpi import RankWorkers
from minadv.training.parallel.ranks import process_group, share_out
from minadv.training.parallel.workers import WHOLE, Part
from minadv.training.runs.checkpoints import latest
from tests.support.problems import MODEL, Around, sequences, task

STEPS = 8


class Carrying(Around):
    """A task whose steps hand something on that the next gradient depends on, row by row."""

    def first_carry(self) -> Any:
        return {"a": same_place(np.zeros((10, 3)), self.task.data.train.x)}

    def term(self, params: Any, step: int, *, carry: Any, part: Part = WHOLE, **given: Any) -> Any:
        term, _ = self.task.term(params, step, carry=None, part=part, **given)
        mine = carry["a"][part.rows(10)]
        term = replace(term, grads=replace(term.grads, b=term.grads.b + mine.sum(axis=0) / 10))
        return term, {"a": 0.5 * mine + term.nll[:, None] * same_place(np.arange(1, 4), mine)}


class Counting(Around):
    """A task that counts its evaluations."""

    evaluations = 0

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        self.evaluations += 1
        return self.task.evaluate(params, part)  # type: ignore[no-any-return]


def itself(tree: Any) -> Any:
    return tree


def noisy(dtype: Any) -> Any:
    found = task(itself, AdD(delta=0.4, search=Greedy(K=2, keep="last")), dtype=dtype)
    return replace(found, model=replace(found.model, input_dropout=0.3))


PROBLEMS: dict[str, Callable[[], Any]] = {
    "double": lambda: noisy(np.float64),
    "single": lambda: noisy(np.float32),
    "carry": lambda: Carrying(task(itself, dtype=np.float64)),
}
RECIPE = Recipe(steps=STEPS, eval_every=4)


def end(state: Any) -> dict[str, Any]:
    """The parameters of a last state, its carry and its tally, by name."""
    kept = {"params": state.params, "carry": state.carry, "tally": np.asarray(state.tally)}
    return {name.replace(".", "/"): leaf for name, leaf in leaves(kept)}


def paths(folder: str) -> None:
    for name, make in PROBLEMS.items():
        toy = Counting(make())
        workers = RankWorkers(toy, process_group(), toy.init(), check_every=3)
        state, records = train(toy, RECIPE, workers=workers)
        workers.close()
        said = {"error": [r["valid_error"] for r in records], "evaluations": toy.evaluations}
        np.savez(Path(folder) / f"{name}-{process_group().rank}.npz", **said, **end(state))


def through_fit(folder: str) -> None:
    out = Path(folder) / "run"
    said = []
    run = fit(
        MODEL,
        sequences(),
        steps=STEPS,
        eval_every=4,
        batch_size=10,
        optimizer=SGD(0.1),
        out=out,
        on_evaluation=said.append,
    )
    report = {"step": run.step, "said": len(said), "records": len(run.records), "latest": str(latest(out))}
    (Path(folder) / f"rank-{process_group().rank}.json").write_text(json.dumps(report))


def square(n: int) -> list[int]:
    """Not a square alone: how many ranks a run would be shared by, and who computed it."""
    return [n * n, process_group().size, launch.this_process().rank]


def through_share_out(folder: str) -> None:
    found = share_out(square, range(5))
    (Path(folder) / f"rank-{process_group().rank}.json").write_text(json.dumps(found))


class Failing(Around):
    def __init__(self, task: Any, ranks: list[int]) -> None:
        super().__init__(task)
        self.ranks = ranks

    def term(self, params: Any, step: int, **given: Any) -> Any:
        if step == 2 and given["part"].index in self.ranks:
            raise FloatingPointError("no such luck")
        return self.task.term(params, step, **given)


def fail(ranks: str) -> None:
    toy = Failing(task(itself), [int(rank) for rank in ranks.split(",")])
    with process_group().fail_together():
        workers = RankWorkers(toy, process_group(), toy.init())
        train(toy, RECIPE, workers=workers)


def through_cli(rank: str, step: str, *arguments: str) -> None:
    real = RankWorkers.step

    def deadly(workers: RankWorkers, params: Any, n: int, **given: Any) -> Any:
        if n == int(step) and launch.this_process().rank == int(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(workers, params, n, **given)

    RankWorkers.step = deadly  # type: ignore[method-assign]
    sys.exit(main(arguments))


if __name__ == "__main__":
    doors: dict[str, Any] = {
        "paths": paths,
        "fit": through_fit,
        "share_out": through_share_out,
        "fail": fail,
        "cli": through_cli,
    }
    doors[sys.argv[1]](*sys.argv[2:])
