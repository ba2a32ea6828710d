"""Comparisons in miniature, and results that are made up."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import compare
from experiments.parts import records, reporting
from experiments.parts.compared import plan
from experiments.parts.compared.plan import TASKS, Task

TINY = Task(
    "tiny",
    "images",
    "a few digits",
    "error",
    epochs=2,
    batch=20,
    lrs=(1e-2, 1e-3),
    seeds=2,
    sizes=(("images", "digits"), ("by", "row"), ("train", 40), ("valid", 20), ("n_hidden", 34)),
    methods=("none", "FD", "AdD K=2"),
)


WORDS = Task(
    "words",
    "language",
    "a few words",
    "perplexity",
    epochs=0.05,
    batch=20,
    lrs=(10.0,),
    seeds=1,
    sizes=plan.TASKS["pydoc"].sizes,
    methods=plan.TASKS["pydoc"].methods,
)


SMALL = {"corpus": "docstrings", "vocab_size": 500, "train": 60, "valid": 40, "max_tokens": 12, "n_embedding": 8}
SMALL |= {"n_hidden": 34, "candidates": 50, "lm_steps": 4, "lm_batch": 8, "lm_window": 10}
REVIEWS = Task(
    "reviews",
    "texts",
    "a few docstrings",
    "error",
    epochs=2,
    batch=20,
    lrs=(5e-3,),
    seeds=2,
    sizes=tuple((TASKS["imdb"].size | SMALL).items()),
    methods=("none", "AdD K=2", "AdD K=1 + VAT"),
)


def given(tmp_path: Path) -> dict[str, Any]:
    return {"root": tmp_path, "data_dir": None}


def made_up(means: dict[str, float], seeds: int = 6, noise: float = 0.05) -> dict[str, Any]:
    """Results of a task whose methods have these test errors but for a little noise."""
    rng = np.random.default_rng(0)
    methods = tuple(means)
    shared = rng.standard_normal(seeds)
    results = []
    for method, mean in means.items():
        strength, weight = plan.settings(method)[0]
        own = noise * rng.standard_normal(seeds)
        for seed in range(seeds):
            error = mean + shared[seed] + own[seed] - own.mean()  # so that the means are those given
            results.append(
                {
                    "method": method,
                    "part": "final",
                    "strength": strength,
                    "weight": weight,
                    "lr": 1e-2,
                    "seed": seed,
                    "longer": 1,
                    "member": 0,
                    "digest": "d",
                    "data": "x",
                    "valid": error,
                    "test": error,
                    "valid_losses": [3.0, 2.0, 1.0, 1.5, 1.6],
                    "seconds": 1.0,
                    "made": reporting.machine(),
                }
            )
    about = {**reporting.machine(), "command": "c", "task": asdict(replace(TINY, methods=methods))}
    return records.plain({"facts": {**about, "passes": compare.passes()}, "results": results})  # type: ignore[no-any-return]
