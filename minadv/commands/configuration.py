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
from minadv.commands.options import OPTIONS, place_of_first
from minadv.data import files
from minadv.tasks.methods import has_use, leaves_budget_open

SHARES = ("ramp_up", "ramp_down")  # presets have them as shares of the run, options in epochs
NEVER = ("config", "resume", "out", "overwrite")
"""Options that a file cannot give, or that say nothing of what is trained."""

OF_OWN = ("valid_share", "test_share")  # which data that have their parts cannot be given
SHORTEST = "--co"  # argparse takes what is cut short, if no other option begins so


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
    at = place_of_first(arguments)
    if at is not None:  # before the options of the file: a list among them would take it as its last value
        return [arguments[at], *given, *arguments[:at], *arguments[at + 1 :]]
    first = [str(held[positional])] if positional in held else []
    return [*first, *given, *arguments]


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


def effective(args: argparse.Namespace, about: dict[str, Any], arguments: dict[str, Any]) -> str:
    """The options in force, as a file of options: given, the preset's, or those that fit the data.

    ``about`` and ``arguments`` are what the family makes of the options; the method has a use for all that are told.
    """
    lines = [f"# the options in force; minadv {args.command} --config FILE reads such a file"]
    lines.append(f"task = {json.dumps(args.task)}")
    decided = {**about, **args.family.in_force(args, arguments)}
    if leaves_budget_open(arguments.get("regularizer")):
        decided["delta"] = None
    for name in " ".join(args.family.options.values()).split():
        dest = name.replace("-", "_")
        value = decided[dest] if dest in decided else _chosen(args, dest)
        said = value is not None and name not in NEVER and not (args.family.methods and not has_use(args, dest))
        if said and not (dest in OF_OWN and dest not in about):
            lines.append(f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}")
    return "\n".join(lines)


def _chosen(args: argparse.Namespace, dest: str) -> Any:
    """An option, or what the preset has in its place; None if neither says it, or another option says it instead."""
    value, preset = getattr(args, dest), {} if args.preset is None else args.preset.values
    if value is not None or dest in SHARES:
        return value
    in_epochs = args.epochs is not None or (args.train_steps is None and "epochs" in preset)
    instead = {"epochs": args.train_steps is not None, "train_steps": in_epochs}
    return None if instead.get(dest) else preset.get(dest)


def _named(arguments: list[str]) -> Path | None:
    """The file that ``--config`` names; the option may be written with =, and cut short as argparse allows."""
    for n, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option.startswith(SHORTEST) and "--config".startswith(option):
            if equals:
                return Path(value)
            return Path(arguments[n + 1]) if n + 1 < len(arguments) else None
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
