r"""Overwriting a run: the one that is in the folder is put aside, and removed once the new one has a checkpoint.

Until then it lies below its folder, in `ASIDE`, which is a run's folder itself. Configuration and log are copied there,
and the rename of the checkpoints is the one instant at which it changes its place: a kill leaves it whole in one of the
two.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from minadv.base.files import CONFIG, flush_directory
from minadv.training.loop import LOG
from minadv.training.runs.checkpoints import FOLDER

ASIDE = ".overwritten"


def put_aside(run: Path) -> None:
    """Make room for a new run, whose configuration is to replace the one there; without checkpoints nothing is kept."""
    settle(run)  # a kill may have left one aside
    if _has_checkpoint(run):
        aside = run / ASIDE
        aside.mkdir()
        for name in (CONFIG, LOG):
            if (run / name).exists():
                shutil.copy2(run / name, aside / name)
        flush_directory(aside)
        os.replace(run / FOLDER, aside / FOLDER)
    else:
        shutil.rmtree(run / FOLDER, ignore_errors=True)
    (run / LOG).unlink(missing_ok=True)


def settle(run: Path) -> bool:
    """Remove the run that is aside, if the new one has a checkpoint; else put it back, which is said by True."""
    aside = run / ASIDE
    back = (aside / FOLDER).exists() and not _has_checkpoint(run)
    if back:
        shutil.rmtree(run / FOLDER, ignore_errors=True)
        for name in (CONFIG, LOG, FOLDER):
            if (aside / name).exists():
                os.replace(aside / name, run / name)
        flush_directory(run)
    shutil.rmtree(aside, ignore_errors=True)
    return back


def _has_checkpoint(run: Path) -> bool:
    return any((run / FOLDER).glob("step-*.json"))
