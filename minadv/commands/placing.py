r"""Where a new run is written: the folder that is named, or a free one below ``runs/``."""

from __future__ import annotations

from pathlib import Path

from minadv.training.runs.folder import CONFIG, RunError, expect_free, expect_writable


def place(out: str | None, name: str, *, overwrite: bool = False) -> Path:
    """The folder of a new run: ``out``, or runs/NAME, which gets a number if it is there already.

    Raises RunError for a folder that may not be written; with ``overwrite`` a run that is there may.
    """
    if out == "":
        raise RunError("--out is empty, expected the name of a folder")
    path = Path(out) if out is not None else Path("runs") / name
    if overwrite and (path / CONFIG).exists():
        expect_writable(path)
        return path
    number = 2
    while out is None and path.exists():
        path, number = Path("runs") / f"{name}-{number}", number + 1
    try:
        expect_free(path)
    except RunError as error:
        more = ", or give --overwrite" if (path / CONFIG).exists() else ""
        raise RunError(f"{error}{more}") from None
    return path
