"""The engines of minadv.fast, and their passes beside those of the readable cells."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from minadv.base.trees import tree_map
from minadv.fast.columns import Columns
from minadv.fast.engines import Engine, Inputs, Plain
from minadv.fast.remat import Recomputing
from minadv.fast.rows import GruRows, RnnRows
from tests.support.cells import Problem
from tests.support.cuda import runs_kernels

ENGINES: dict[str, tuple[str, Engine]] = {  # a name of tests.support.cells.CELLS, and an engine for it
    "plain rnn": ("rnn", Plain("rnn")),
    "plain lstm": ("lstm", Plain("lstm")),
    "plain gru": ("gru", Plain("gru")),
    "rnn rows": ("rnn", RnnRows()),
    "gru rows": ("gru", GruRows()),
    "gru rows, masked leak": ("gru-masked-leak", GruRows("masked")),
    "columns": ("lstm", Columns()),
    "recomputing rnn rows": ("rnn", Recomputing(RnnRows())),
    "recomputing gru rows": ("gru", Recomputing(GruRows())),
    "recomputing columns": ("lstm", Recomputing(Columns())),
}
if runs_kernels(sys.modules.get("cupy")):  # the suite's switch has tried it: `pytest --backend=cupy`
    from minadv.fast.cuda_engine import Cuda

    ENGINES |= {
        "cuda rnn": ("rnn", Cuda("rnn")),
        "cuda lstm": ("lstm", Cuda("lstm")),
        "cuda gru": ("gru", Cuda("gru")),
        "cuda gru, masked leak": ("gru-masked-leak", Cuda("gru", "masked")),
        "recomputing cuda lstm": ("lstm", Recomputing(Cuda("lstm"))),
    }


def inputs(problem: Problem, **changed: Any) -> Inputs:
    """What a pass over a problem is given."""
    args = {"state": None, "m": None, **problem.args, **changed}
    return Inputs(args["x"], args["state"], args["m"], problem.valid)


def run(engine: Engine, problem: Problem, work: Any = None, **wanted: bool) -> tuple[Any, Any, Any]:
    """Forward and backward by an engine: h, the last state and all gradients but those of the masked states."""
    [(h, state, cache)] = engine.forward(problem.params, [inputs(problem)], work=work)
    total, [grads] = engine.backward(problem.params, [cache], [problem.dh], [problem.dstate], **wanted)
    return h, state, replace(grads, params=total, hhat=None)


def readable(problem: Problem) -> tuple[Any, Any, Any]:
    """The same by the readable cell."""
    h, state, grads = problem.run()
    return h, state, replace(grads, hhat=None)


def cast(problem: Problem, dtype: Any) -> Problem:
    """A problem in another precision."""
    parts = {name: getattr(problem, name) for name in ("args", "dh", "dstate")}
    return replace(problem, **tree_map(lambda a: a.astype(dtype), parts))


def rounded(problem: Problem) -> Problem:
    """A problem in double precision whose every number is one that single precision has too."""
    return cast(cast(problem, np.float32), np.float64)
