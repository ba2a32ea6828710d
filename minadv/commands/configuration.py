r"""Options in a file: ``--config FILE``, TOML or JSON, with the names of options, and the options that are in force.

::

    task = "text"
    data-dir = "films"
    hidden = 64
    rows = true

What stands on the command line comes first. The options in force are printed as such a file.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

from minadv.base.errors import DataError
from minadv.commands.options import OPTIONS, first_argument
from minadv.data import files

SHARES = ("ramp_up", "ramp_down")  # presets have them as shares of the run, options in epochs
NEVER = ("config", "resume", "out", "overwrite")
"""Options that a file cannot give, or that say nothing of what is trained."""


def expand(parser: argparse.ArgumentParser, arguments: list[str], positional: str) -> list[str]:
    """The arguments, after those of the file that ``--config`` names; ``positional`` is the name of the first one."""
    path = _named(arguments)
    if path is None:
        return arguments
    try:
        held = read(path)
        given = [word for name, value in held.items() if name != positional for word in _words(path, name, value)]
    except DataError as error:
        parser.prog = parser.prog.split()[0]
        parser.error(str(error))
    first, at = held.get(positional), 1 if arguments and not arguments[0].startswith("-") else 0
    if first is not None and first_argument(arguments) is None:
        return [str(first), *given, *arguments]
    return [*arguments[:at], *given, *arguments[at:]]


def read(path: Path) -> dict[str, Any]:
    """The table of a TOML file, or of a JSON file by its name; raises DataError, which names the file."""
    text = files.text(path)
    try:
        held = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is neither TOML nor, by its name, JSON: {error}") from error
    if not isinstance(held, dict):
        raise DataError(f"{path} holds no table, expected options by name, such as hidden = 64")
    return {name.replace("_", "-"): value for name, value in held.items()}


def effective(args: argparse.Namespace) -> str:
    """The options in force, as a file of options: given, the preset's, or those that fit the data."""
    lines = [f"# the options in force; minadv train --config FILE reads such a file\ntask = {json.dumps(args.task)}"]
    epochs = args.train_steps is not None or args.epochs is not None or "epochs" in args.preset.values
    for name in " ".join(args.family.options.values()).split():
        dest = name.replace("-", "_")
        value = getattr(args, dest)
        if value is None and dest in SHARES:
            continue
        value = args.preset.values.get(dest) if value is None and args.preset is not None else value
        other = args.train_steps is not None if name == "epochs" else args.train_steps is None
        if name not in NEVER and value is not None and not (name in ("epochs", "train-steps") and other and epochs):
            lines.append(f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}")
    return "\n".join(lines)


def _named(arguments: list[str]) -> Path | None:
    """The file that ``--config`` names; the option may be written with =."""
    for n, word in enumerate(arguments):
        if word == "--config" and n + 1 < len(arguments):
            return Path(arguments[n + 1])
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
    return None


def _words(path: Path, name: str, value: Any) -> list[str]:
    """An option of a file as it stands on a command line."""
    if name in NEVER or name not in OPTIONS:
        known = ", ".join(sorted(set(OPTIONS) - set(NEVER)))
        raise DataError(f"{path} has {name!r}, expected names of options: {known}")
    switch = "action" in OPTIONS[name]
    if isinstance(value, bool) and switch:
        off = [f"--no-{name}"] if OPTIONS[name]["action"] is argparse.BooleanOptionalAction else []
        return [f"--{name}"] if value else off
    values = value if isinstance(value, list) else [value]
    if switch or not all(isinstance(v, int | float | str) and not isinstance(v, bool) for v in values):
        expected = "true or false" if switch else "a number, a text, or a list of them"
        raise DataError(f"{path}: {name} is {value!r}, expected {expected}")
    return [f"--{name}", *map(str, values)] if isinstance(value, list) else [f"--{name}={value}"]
