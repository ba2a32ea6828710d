r"""Parsers of the command line and of the experiments: errors of one line, defaults in the help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
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

    ``minadv.commands.COMMAND`` has ``add_options(parser, arguments)`` and ``work(args)``. A command with many options
    names the ``common`` ones, in the order in which --help shows them; --help-all shows all.
    """

    common: Sequence[str] = ()

    def fill(self, arguments: list[str]) -> list[str]:
        """Add the options of the command; which they are may depend on the arguments, which are returned.

        A module that has ``expand(parser, arguments)`` may add some, from a file say.
        """
        module = import_module(f"minadv.commands.{self.prog.split()[-1]}")
        self.set_defaults(work=module.work)
        expanded: list[str] = module.expand(self, arguments) if hasattr(module, "expand") else arguments
        module.add_options(self, expanded)
        return expanded

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if "work" not in self._defaults:
            args = self.fill(list(args))
        return super().parse_known_args(args, namespace)

    def shorten(self, common: Sequence[str]) -> None:
        """Let --help show these options only, by their names without dashes, and add --help-all."""
        self.common = common
        no = argparse.SUPPRESS
        self.add_argument("--help-all", action=_HelpAll, nargs=0, dest=no, default=no, help="show all options and exit")

    def print_help(self, file: Any = None) -> None:
        """Print what --help shows; `format_help` has all options."""
        self._print_message(self._format_common() if self.common else self.format_help(), file or sys.stdout)

    def _format_common(self) -> str:
        known = {option: action for action in self._actions for option in action.option_strings}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, actions in (
            ("data", self._get_positional_actions()),
            ("common options", [known[f"--{name}"] for name in self.common if f"--{name}" in known]),
        ):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(f"{self.prog} --help-all shows all options")
        return formatter.format_help()


class Listed(argparse.Action):
    """A positional argument whose ``values``, with what each is about, have a line each in the help."""

    def __init__(self, *named: Any, values: Mapping[str, str], **how: Any) -> None:
        super().__init__(*named, **how)
        self.values = values

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, value)

    def _get_subactions(self) -> list[argparse.Action]:  # which argparse lists for the commands of a program, too
        return [argparse.Action([], name, metavar=name, help=about) for name, about in self.values.items()]


class _HelpAll(argparse.Action):
    """An option that prints the whole help and ends the program, like that of argparse for --help."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any, **how: Any) -> NoReturn:
        sys.stdout.write(parser.format_help())
        parser.exit()


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
