r"""Parsers of the command line and of the experiments: errors of one line, defaults in the help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: the usage of ``minadv train`` alone would fill the screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class Help(argparse.HelpFormatter):
    """Help texts that end in the default value of their option, unless that is None or False."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default is argparse.SUPPRESS
        told = nothing or "(default" in (action.help or "")
        return action.help if told else f"{action.help} (default: %(default)s)"


class CommandParser(Parser):
    """The parser of one command, whose module is imported, and whose options are added, when the command is used.

    ``minadv.commands.COMMAND`` has ``add_options(parser, arguments)`` and ``work(args)``.
    """

    def fill(self, arguments: list[str]) -> None:
        """Add the options of the command; which they are may depend on the arguments."""
        module = import_module(f"minadv.commands.{self.prog.split()[-1]}")
        self.set_defaults(work=module.work)
        module.add_options(self, arguments)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if "work" not in self._defaults:
            self.fill(list(args))
        return super().parse_known_args(args, namespace)


def tell_defaults(parser: argparse.ArgumentParser, defaults: Mapping[str, object]) -> None:
    """Put the value that stands for an option that is not given into its help; ``defaults`` is by option name."""
    for action in parser._actions:
        value = defaults.get(action.dest)
        if action.default is None and value is not None and action.help is not None:
            values = value if isinstance(value, tuple) else (value,)
            shown = " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
            about = action.help.removesuffix(" (default: the task's)")
            if "(default" not in about:
                action.help = f"{about} (default: {shown})".replace("%", "%%")
