"""A run with checkpoints, as the tests of saving and of loading both need it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minadv.training.optimizers import ASGD, Adam
from minadv.training.runs.checkpoints import latest, load
from tests.support.compare import assert_same_bits


@dataclass(frozen=True)
class Params:
    W: Any
    b: Any


def tree_at(step: int) -> Any:
    rng = np.random.default_rng(step)
    params = Params(rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(4))
    return {"params": params, "adam": Adam(0.1).init(params), "asgd": ASGD(0.1, interval=2).init(params), "step": step}


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def assert_sound(run: Path, step: int) -> None:
    path = latest(run)
    assert path is not None
    tree, meta = load(path, like=tree_at(0))
    assert meta == {"at": step}
    assert_same_bits(tree, tree_at(step))
