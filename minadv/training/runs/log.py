r"""The log of a run: JSON lines, one record a line, readable by anything and safe to cut at any byte.

::

    start(path, header(seed=0, config={...}))
    append(path, {"kind": "evaluation", "step": 100, "loss": 0.7})

The first record is the header: versions, seed and the full configuration. A run that goes on says so in a record of the
kind "resumed", with what may have changed; readers choose records by their kind. A kill can tear the last line; `read`
leaves it out, and `rewind`, called when a run resumes, removes it together with every record after the step resumed
from, because the run will write those again.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np

from minadv.base import gpu
from minadv.base.files import flush_directory, plain, read_regular, write_whole
from minadv.base.numbers import Count, Portion, ZeroOrMore
from minadv.base.schema import MISSING, expect_type
from minadv.base.version import __version__
from minadv.fast import describe
from minadv.models.stack import ENGINES

Record: TypeAlias = dict[str, Any]
MOST = 2**31  # bytes of a log


class Evaluation(TypedDict):
    """What every record of an evaluation has, beside ``valid_NAME`` for each metric.

    Those of version 0.2 have ``zero_maps`` as well: the examples since the last one whose influence map was zero.
    """

    step: Count
    epoch: ZeroOrMore
    train_loss: float | None
    regularizer: float | None


class LogError(ValueError):
    """A log that cannot be written or read; the message names the file and the line."""


def header(*, seed: int, config: dict[str, Any]) -> Record:
    """The first record of a log: everything that says where the numbers below it come from."""
    return {
        "kind": "header",
        "step": 0,
        "time": now(),
        "seed": seed,
        "config": config,
        "engine": _engine(config),
        "versions": versions(_asked(config)),
        "platform": platform.platform(),
        **_gpu(config),
    }


def resumed(config: dict[str, Any]) -> Record:
    """The record of a run that goes on: versions and machine, which may have changed; its step is added by the loop."""
    where = {name: config.get(name) for name in ("workers", "ranks", "device")}
    found = {"engine": _engine(config), "versions": versions(_asked(config)), "platform": platform.platform()}
    return {"kind": "resumed", "time": now(), **found, **where, **_gpu(config)}


def _gpu(config: dict[str, Any]) -> dict[str, Any]:
    """What the GPU of a run and its libraries say of themselves; nothing for a run on the CPU."""
    return {"gpu": gpu.used()} if config.get("device") == "gpu" else {}


def _engine(config: dict[str, Any]) -> str:
    """What computes the passes of a run, and why, in one line."""
    return describe(config.get("device") == "gpu", _asked(config)).why


def _asked(config: dict[str, Any]) -> str | None:
    """The engine that a run's model was asked for; a model of another's may mean something else by the word."""
    engine = config.get("model", {}).get("engine")
    return engine if engine in ENGINES else None


def versions(engine: str | None = None) -> dict[str, str]:
    """Versions of Python and of the libraries that the numbers depend on, and the BLAS with its threads."""
    import scipy

    computing = describe(engine=engine)
    found = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "minadv": __version__,
        **computing.versions,
    }
    pools = computing.blas
    if not pools:
        return found
    if "numba" not in found:  # Numba's products are SciPy's, which may bring a BLAS of its own
        pools = [pool for pool in pools if "numpy" in pool["filepath"]] or pools
    texts = {f"{pool['internal_api']} {pool['version']}, threads: {pool['num_threads']}" for pool in pools}
    return {**found, "blas": "; ".join(sorted(texts))}


def now() -> str:
    """The time as it stands in the records: UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def start(path: Path, first: Record) -> None:
    """Begin a log with its header; raises LogError if the file is there already."""
    if path.exists():
        raise LogError(f"{path} is there already: a log is never overwritten")
    write_whole(path, _line(first))
    flush_directory(path.parent)


def append(path: Path, record: Record) -> None:
    """Add one record and flush it to the disk; it must say which step it belongs to.

    Raises LogError if the disk is full; what then stands there of the line, the next `rewind` removes.
    """
    line = _line(record)
    try:
        with path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LogError(f"cannot write to {path}: {error.strerror or error}") from error


def read(path: Path) -> list[Record]:
    """All whole records, the header first; a torn last line is left out. Raises LogError for a bad line before it."""
    lines = _lines(path)
    records = []
    for n, line in enumerate(lines, 1):
        try:
            records.append(_parse(line))
        except LogError as error:
            if n < len(lines):
                raise LogError(f"line {n} of {path} is not a record of a log: {error}") from error
    return records


def expect_evaluations(path: Path, records: list[Record], metrics: Iterable[str]) -> list[Record]:
    """The evaluations among the records of a log; raises LogError, which names file and field, for one that is wrong.

    An evaluation has a number for each of the metrics, and no field of another type than the training loop writes.
    """
    found = []
    for record in records:
        try:
            expect_type("kind", record.get("kind", MISSING), str)
            if record["kind"] != "evaluation":
                continue
            found.append(record)
            expect_type("", record, Evaluation)
            for name, value in record.items():
                if name.startswith("valid_"):
                    expect_type(name, value, dict[str, list[Portion]] if isinstance(value, dict) else float)
            for name in metrics:
                expect_type(f"valid_{name}", record.get(f"valid_{name}", MISSING), float)
        except ValueError as error:
            raise LogError(f"{path}: in a record of step {record['step']}, {error}") from error
    return found


def rewind(path: Path, step: int) -> list[Record]:
    """Cut a log back to what was known at a step, and return it: no torn or bad line, no record of a later step."""
    lines, kept = _lines(path), []
    for line in lines:
        with suppress(LogError):
            if (record := _parse(line))["step"] <= step:
                kept.append((line, record))
    if len(kept) < len(lines):
        write_whole(path, b"".join(line for line, _ in kept))
        flush_directory(path.parent)
    return [record for _, record in kept]


def _line(record: Record) -> bytes:
    _expect_step(record)
    return json.dumps(record, default=plain).encode() + b"\n"


def _lines(path: Path) -> list[bytes]:
    try:
        return read_regular(path, MOST).splitlines(keepends=True)
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror}") from error


def _parse(line: bytes) -> Record:
    """The record of a line; raises LogError if the line is torn, is no JSON, or says no step."""
    if not line.endswith(b"\n"):
        raise LogError("the line is torn")
    try:
        record: Record = json.loads(line)
    except (ValueError, RecursionError) as error:  # bad JSON and bad UTF-8 are ValueErrors too
        raise LogError(f"it is no JSON: {line[:60]!r}") from error
    _expect_step(record)
    return record


def _expect_step(record: Any) -> None:
    step = record.get("step") if isinstance(record, dict) else None
    if not isinstance(step, int | np.integer) or isinstance(step, bool):
        raise LogError(f"step is {step!r}, expected an integer")
