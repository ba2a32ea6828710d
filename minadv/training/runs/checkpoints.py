r"""Checkpoints that survive power cuts: safetensors for the arrays, JSON for all else, and no code in either.

::

    path = save(run, step, {"params": params, "optimizer": state}, {"epoch": 3})
    tree, meta = load(latest(run), like={"params": params, "optimizer": state})

A checkpoint is two files in ``RUN/checkpoints``: ``step-00000100-1f0c93aa52d06e41.safetensors``, named after its own
checksum, and ``step-00000100.json``, which names it and holds both checksums. Each is written whole (`files`), the JSON
last, so that its rename is the one instant at which the checkpoint begins to exist. Whatever happens before that
instant, the checkpoints that were there are untouched; what a kill leaves behind, the next save removes. A truncated,
changed or foreign file is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar, overload

from minadv.base.files import (
    CONFIG,
    SealError,
    flush_directory,
    read_regular,
    seal,
    temporary_name,
    unseal,
    write_whole,
)
from minadv.base.numbers import Count
from minadv.base.schema import expect_type
from minadv.training.runs.packing import PackingError, arrays_from_file, arrays_to_bytes, pack, unpack

Tree = TypeVar("Tree")
FOLDER = "checkpoints"
FORMAT = "minadv checkpoint 1"
_JSON_NAME = re.compile(r"step-(\d{8,})\.json")
_TENSORS_NAME = re.compile(r"(step-\d{8,})-[0-9a-f]{16}\.safetensors")


class _Tensors(TypedDict):
    file: str
    bytes: int
    sha256: str


class _Content(TypedDict):
    """What the JSON file of a checkpoint holds."""

    step: Count
    tensors: _Tensors
    scalars: dict[str, Any]
    meta: dict[str, Any]


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or is not one to be trusted; the message says which and why."""


class CheckpointWarning(UserWarning):
    """A checkpoint was passed over because it is damaged, or another run's."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint's JSON file says; ``nbytes`` and ``sha256`` are those of the file of the arrays."""

    path: Path
    step: int
    tensors: Path
    nbytes: int
    sha256: str
    scalars: dict[str, Any]
    meta: dict[str, Any]
    run: str | None  # SHA-256 of the configuration of the run that it is of, if that had one


def save(run: str | Path, step: int, tree: Any, meta: dict[str, Any], *, keep: int = 3) -> Path:
    """Write a checkpoint, keep the newest ``keep`` sound ones and remove the rest; returns the path of its JSON file.

    The tree's leaves are arrays of either backend, Python numbers, booleans or strings; ``meta`` is anything that JSON
    can hold. Raises CheckpointError if the disk is full or the files cannot be written: the older checkpoints are then
    as they were, and nothing of the new one is left.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step is {step} and keep is {keep}, expected at least 0 and 1")
    folder = Path(run) / FOLDER
    path = folder / f"step-{step:08d}.json"
    try:
        arrays, scalars = pack(tree)
        blob = arrays_to_bytes(arrays)
        sha256 = hashlib.sha256(blob).hexdigest()
        tensors = folder / f"{path.stem}-{sha256[:16]}.safetensors"
        about = {"file": tensors.name, "bytes": len(blob), "sha256": sha256}
        named = {"format": FORMAT, "step": step, "run": _configuration(Path(run))}
        sealed = seal({**named, "tensors": about, "scalars": scalars, "meta": meta})
    except (PackingError, TypeError) as error:
        raise CheckpointError(f"cannot make checkpoint {path}: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(tensors, blob)
        write_whole(path, sealed)
        flush_directory(folder)
        flush_directory(folder.parent)
    except OSError as error:
        before = next((p for _, p in _found(folder) if _is_sound(p)), None)
        rest = f"the newest one is still {before}" if before else "there is none yet"
        raise CheckpointError(f"could not write checkpoint {path}: {error.strerror or error}; {rest}") from error
    else:
        _drop_old(folder, keep, path)
    finally:
        _sweep(folder)
    return path


@overload
def load(path: str | Path, like: None = None) -> tuple[dict[str, Any], dict[str, Any]]: ...
@overload
def load(path: str | Path, like: Tree, absent: dict[str, Any] | None = None) -> tuple[Tree, dict[str, Any]]: ...
def load(path: str | Path, like: Any = None, absent: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """The tree of a checkpoint, as host arrays, and its meta.

    With ``like``, a tree of the structure that was saved, the result has its structure, and every name, shape and dtype
    must agree; leaves that checkpoints of earlier versions lack have their value in ``absent``. Without ``like``, the
    result is a dict of the leaves by path. Raises CheckpointError if a file is missing, damaged or foreign, or does not
    fit; for a damaged one the message offers the newest sound one before it.
    """
    path = Path(path)
    try:
        checkpoint = verify(path)
    except CheckpointError as error:
        match = _JSON_NAME.fullmatch(path.name)
        older = [p for step, p in _found(path.parent) if match and step < int(match[1])]
        sound = next((p for p in older if _is_sound(p)), None)
        offer = f"the one before it is sound: {sound}" if sound else "there is no sound one before it"
        raise CheckpointError(f"{error}; {offer}") from error
    try:
        found = {**arrays_from_file(checkpoint.tensors), **checkpoint.scalars}
    except PackingError as error:
        raise CheckpointError(str(error)) from error
    if like is None:
        return found, checkpoint.meta
    try:
        return unpack({**(absent or {}), **found}, like), checkpoint.meta
    except PackingError as error:
        raise CheckpointError(f"{path} does not fit: {error}") from error


def largest(run: str | Path) -> int | None:
    """The bytes of arrays of the largest checkpoint of a run, by their JSON files; None if it has none."""
    sizes = []
    for _, path in _found(Path(run) / FOLDER):
        with contextlib.suppress(CheckpointError):
            sizes.append(_read(path).nbytes)
    return max(sizes, default=None)


def latest(run: str | Path, expect: Callable[[int, dict[str, Any]], None] | None = None) -> Path | None:
    """The newest sound checkpoint of a run, or None if it has none yet.

    Damaged and foreign ones are passed over with a CheckpointWarning each, and those for whose step and leaves by path
    ``expect`` raises ValueError; CheckpointError if there are no others.
    """
    problems = []
    for _, path in _found(Path(run) / FOLDER):
        try:
            checkpoint = verify(path)
            if expect is not None:
                expect(checkpoint.step, {**checkpoint.scalars, **arrays_from_file(checkpoint.tensors)})
        except (CheckpointError, ValueError) as error:  # only the first names the file
            problems.append(str(error) if isinstance(error, CheckpointError) else f"{path}: {error}")
            continue
        for problem in problems:
            warnings.warn(f"{problem}; using {path.name} instead", CheckpointWarning, stacklevel=2)
        return path
    if problems:
        raise CheckpointError(f"{run} has no sound checkpoint: {'; '.join(problems)}")
    return None


def verify(path: str | Path) -> Checkpoint:
    """Check both files of a checkpoint, every byte; raises CheckpointError unless they are as they were written.

    One that lies in another run's folder than its own, by the SHA-256 of their configurations, is an error too.
    """
    checkpoint = _read(Path(path))
    run = checkpoint.path.parent.parent
    if checkpoint.run is not None and checkpoint.run not in _configurations(run, checkpoint.run):
        raise CheckpointError(f"{path} is of another run: it was not made with the configuration in {run / CONFIG}")
    _expect_size(checkpoint)
    try:
        with checkpoint.tensors.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"cannot read {checkpoint.tensors}: {error.strerror}") from error
    if digest != checkpoint.sha256:
        raise CheckpointError(f"{checkpoint.tensors} is damaged: its SHA-256 is not the one in {checkpoint.path.name}")
    return checkpoint


def _read(path: Path) -> Checkpoint:
    """The JSON file alone."""
    try:
        content = unseal(path)
    except SealError as error:
        raise CheckpointError(str(error)) from error
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {content.get('format')!r}, expected {FORMAT!r}")
    try:
        expect_type("", content, _Content)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    named = _JSON_NAME.fullmatch(path.name)
    if named and int(named[1]) != content["step"]:
        raise CheckpointError(f"{path}: step is {content['step']}, expected that in the name of the file")
    about = content["tensors"]
    if not _TENSORS_NAME.fullmatch(about["file"]):  # never a path that leads out of the folder
        raise CheckpointError(f"{path} names {about['file']!r} as the file of its arrays")
    tensors = path.with_name(about["file"])
    return Checkpoint(
        *(path, content["step"], tensors, about["bytes"], about["sha256"], content["scalars"], content["meta"]),
        content.get("run"),  # absent from checkpoints of the first versions
    )


def _configuration(run: Path) -> str | None:
    """The SHA-256 of a run's configuration; None where there is none to read."""
    try:
        return hashlib.sha256(read_regular(run / CONFIG)).hexdigest()
    except OSError:
        return None


def _configurations(run: Path, otherwise: str) -> list[str]:
    """The SHA-256 of a run's configuration and of those that it has replaced; ``otherwise`` if there is none."""
    found = _configuration(run)
    if found is None:
        return [otherwise]
    try:
        before = unseal(run / CONFIG)["config"].get("before", [])
    except (SealError, KeyError, AttributeError):
        return [found]
    return [found, *before] if isinstance(before, list) else [found]


def _expect_size(checkpoint: Checkpoint) -> None:
    try:
        size = checkpoint.tensors.stat().st_size
    except OSError as error:
        raise CheckpointError(f"cannot read {checkpoint.tensors}: {error.strerror}") from error
    if size != checkpoint.nbytes:
        raise CheckpointError(f"{checkpoint.tensors} has {size} bytes, expected {checkpoint.nbytes}")


def _is_sound(path: Path, *, looks: bool = False) -> bool:
    """Whether a checkpoint is sound; with ``looks`` its arrays are not read, which every save would otherwise do."""
    try:
        _expect_size(_read(path)) if looks else verify(path)
    except CheckpointError:
        return False
    return True


def _found(folder: Path) -> list[tuple[int, Path]]:
    """The steps and JSON files of a folder, newest first, sound or not."""
    matches = [(_JSON_NAME.fullmatch(path.name), path) for path in folder.glob("step-*.json")]
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _drop_old(folder: Path, keep: int, new: Path) -> None:
    """Remove all JSON files but the new one and the newest sound ones, ``keep`` together; damaged ones do not count."""
    sound = 1
    for path in [path for _, path in _found(folder) if path != new]:
        if sound >= keep:
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            sound += _is_sound(path, looks=True)


def _sweep(folder: Path) -> None:
    """Remove temporary files, and files of arrays that no JSON file names; those of a damaged JSON file are left."""
    named: set[str] = set()
    damaged: set[str] = set()
    for _, path in _found(folder):
        try:
            named.add(_read(path).tensors.name)
        except CheckpointError:
            damaged.add(path.stem)
    for path in [*folder.glob("step-*.safetensors"), *folder.glob(temporary_name(folder / "step-*").name)]:
        match = _TENSORS_NAME.fullmatch(path.name)
        if path.name.startswith(".") or (match and path.name not in named and match[1] not in damaged):
            with contextlib.suppress(OSError):
                path.unlink()
