r"""Parsers of the command line and of the experiments: errors of one line, defaults in the help."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: the usage of ``minadv train`` alone would fill the screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class Help(argparse.HelpFormatter):
    """Help that ends in the default value where there is one to tell."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default is argparse.SUPPRESS
        told = nothing or "(default" in (action.help or "")
        return action.help if told else f"{action.help} (default: %(default)s)"
