r"""Options that a method has no use for: they are refused, so that none is given in vain."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence


def expect_used(args: argparse.Namespace, uses: Mapping[str, Sequence[str]]) -> None:
    """Raise ValueError for an option that is not at its default and that ``args.method`` does not use.

    ``uses`` says for each option which methods do; ``args.defaults`` holds the defaults.
    """
    for name, methods in uses.items():
        value = getattr(args, name)
        if args.method not in methods and value != args.defaults[name]:
            given = " ".join(map(str, value)) if isinstance(value, list) else value
            said = f"--{name.replace('_', '-')}{'' if value is True else f' {given}'}"
            raise ValueError(f"{said}: --method {args.method} has no use for it, expected one of {', '.join(methods)}")
