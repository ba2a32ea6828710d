r"""Whether a launcher, such as mpiexec or srun, started this process together with others: what the environment says.

No MPI library is imported for it: training in one process needs none, and should not wait for its import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

NUMBERS = (
    ("PMI_SIZE", "PMI_RANK"),  # MPICH, Intel MPI, Cray
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),  # set by srun only; SLURM_NTASKS is set without srun as well
)
"""Variables that say how many processes there are, and which of them this is."""

ON_MACHINE = (
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
    "SLURM_LOCALID",
)
"""Variables that say which of the processes on its own machine this is."""


@dataclass(frozen=True)
class Process:
    """Process ``rank`` of ``size``; on its machine it has the number ``local``."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def command(self) -> str:
        """What to put before a command in order to start it like this process."""
        return f"mpiexec -n {self.size} " if self.size > 1 else ""


def this_process() -> Process:
    """Which of the processes that were started together this one is."""
    for size, rank in NUMBERS:
        if os.environ.get(size, "").isdigit() and os.environ.get(rank, "").isdigit() and int(os.environ[size]) > 1:
            local = next((os.environ[name] for name in ON_MACHINE if os.environ.get(name, "").isdigit()), "0")
            return Process(int(os.environ[rank]), int(os.environ[size]), int(local))
    return Process()


def own_gpu(count: int) -> int:
    """Which of ``count`` GPUs of its machine this process takes: processes on one machine take turns."""
    return this_process().local % count
