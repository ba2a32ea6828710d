r"""Numbers and folders on the command line: the ``type`` of options, with errors that say what was expected."""

from __future__ import annotations

import argparse
import math
from pathlib import Path


def positive(text: str) -> int:
    """A positive whole number."""
    return int(_number(text, int, 1, math.inf, "a positive whole number"))


def count(text: str) -> int:
    """Zero or a positive whole number: a count or a seed."""
    return int(_number(text, int, 0, math.inf, "zero or a positive whole number"))


def zero_or_more(text: str) -> float:
    """Zero or a positive number: a weight, a number of epochs."""
    return _number(text, float, 0, math.inf, "zero or a positive number")


def amount(text: str) -> float:
    """A positive number: a learning rate, a length of training."""
    return _number(text, float, math.ulp(0), math.inf, "a positive number")


def probability(text: str) -> float:
    """A number in [0, 1), such as the probability of dropping a unit."""
    return _number(text, float, 0, 1, "a probability from 0 up to, but not including, 1")


def folder(text: str) -> str:
    """The absolute path of a folder: a run remembers it, and can then be opened from anywhere."""
    return str(Path(text).expanduser().resolve())


def _number(text: str, kind: type[int] | type[float], least: float, below: float, expected: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not least <= value < below:
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return value
