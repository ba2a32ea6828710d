"""The parser of a command, with the options that it has for some arguments."""

import argparse

from minadv.cli import build_parser
from minadv.commands.parsing import CommandParser


def command(name: str, *arguments: str) -> CommandParser:
    [found] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    parser: CommandParser = found.choices[name]
    parser.fill(list(arguments))
    return parser


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(arguments)
