r"""The machinery that computes the passes of the cells faster, behind one door.

`minadv.rnn`, `minadv.lstm` and `minadv.gru` define what is computed; the engines here compute the same numbers, and
``tests/fast`` holds each engine to them. `engine` chooses one, by the cell, the precision, the size, the device and
what is installed:

=============  ====================================================================================================
engine         what it is
=============  ====================================================================================================
plain          the readable cells themselves (``MINADV_ENGINE=plain``, ``--engine plain``)
rows           RNN and GRU, written in place
columns        the LSTM with an example a column, several passes side by side; its element-wise steps are compiled by
               Numba in single precision
compiled       whole passes of small LSTMs in single precision, compiled by Numba
cuda           all three cells on a GPU: a pass is one launch in single precision, if it has few units, and else two
               launches a step
=============  ====================================================================================================

Only `minadv.models.stack` runs an engine. Training and commands use three names: `describe`, `limit_threads` and
`reusing`. Nothing else in this folder is imported from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from minadv.backend import is_device
from minadv.base.machine import blas_most
from minadv.fast import choice, device, threads
from minadv.fast.columns import Columns
from minadv.fast.engines import CELLS, Engine, Inputs, Plain
from minadv.fast.remat import Recomputing
from minadv.fast.rows import GruRows, RnnRows
from minadv.fast.threads import limit_threads
from minadv.fast.workspace import StaleCacheError, Workspace, scope

__all__ = [
    "CELLS",
    "ENGINES",
    "Description",
    "Engine",
    "Inputs",
    "StaleCacheError",
    "Workspace",
    "compiles_passes",
    "describe",
    "engine",
    "limit_threads",
    "reusing",
    "scope",
]

Model = TypeVar("Model")
compiles_passes = choice.compiles_passes
on_a_device = device.kernels  # imported so that it is provided
ENGINES = choice.ENGINES


def engine(
    cell: str,
    params: Any,
    passes: Sequence[Inputs],
    *,
    leak: Literal["clean", "masked"] = "clean",
    remat: bool = False,
    asked: str | None = None,
) -> Engine:
    """The engine for these passes of a cell: the fastest, or the readable cells if ``asked`` says ``"plain"``.

    With ``remat`` it keeps only a few states, and runs segments of a pass again on the way back (`minadv.fast.remat`).
    """
    plain = choice.wanted(asked) == "plain"
    chosen = (
        Plain(cell, {"leak": leak} if cell == "gru" else {}) if plain else _fastest(cell, params, passes, leak, asked)
    )
    return Recomputing(chosen) if remat else chosen


def _fastest(
    cell: str, params: Any, passes: Sequence[Inputs], leak: Literal["clean", "masked"], asked: str | None
) -> Engine:
    if is_device(params.U) and choice.runs_cuda_passes(asked):
        from minadv.fast.cuda_engine import Cuda

        return Cuda(cell, leak if cell == "gru" else "clean")
    if cell == "rnn":
        return RnnRows()
    if cell == "gru":
        return GruRows(leak)
    padded = any(one.valid is not None for one in passes)
    if is_device(params.U) or not choice.compiles_passes(params.U.nbytes, params.U.dtype, asked, padded=padded):
        return Columns()
    from minadv.fast.numba_pass import Compiled

    return Compiled()


@dataclass(frozen=True)
class Description:
    """What computes here: for logs, for ``minadv doctor``, and for whoever wants to repeat a number."""

    engine: str  # "plain", or "fast" with its version: "fast-3"
    why: str  # one line
    versions: dict[str, str]  # of libraries that may have a part in the numbers, beside NumPy and SciPy
    compiled: str  # what Numba has compiled and where it is kept, in one line
    blas: list[dict[str, Any]]  # the libraries as threadpoolctl lists them; empty where it is missing

    @property
    def limits_threads(self) -> bool:
        """Whether each worker can have one BLAS thread: their number can be set, or the user has set it to one."""
        return blas_most() == 1 or bool(self.blas)


def describe(on_gpu: bool = False, engine: str | None = None) -> Description:
    """What computes the passes here, with the named ``engine`` or, for None, the default one."""
    wanted = choice.wanted(engine)
    ready = "nothing is compiled" if on_gpu or wanted == "plain" else choice.compiled_code()
    return Description(wanted, choice.why(on_gpu, engine), choice.versions(engine), ready, threads.libraries())


def reusing(model: Model, work: Workspace | None = None) -> Model:
    """A model like this one whose passes take their buffers from ``work`` (None: a new workspace).

    Run its passes within ``model.scope()``, at whose end their memory is free for later passes. Each worker has its own
    workspace. A model whose class knows nothing of buffers, such as a user's, stays as it is.
    """
    with_buffers = getattr(type(model), "with_buffers", None)
    return model if with_buffers is None else with_buffers(model, Workspace() if work is None else work)
