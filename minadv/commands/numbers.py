r"""Numbers and folders on the command line: the ``type`` of options, made of the table in `minadv.base.numbers`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minadv.base import numbers


def number(kind: Any) -> Callable[[str], Any]:
    """The ``type`` of an option that takes a number of this kind; the error for another text says what is expected."""
    expected = numbers.number_of(kind)

    def read(text: str) -> int | float:
        try:
            return expected.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


positive, steps, few, many = map(number, (numbers.Size, numbers.Steps, numbers.Few, numbers.Many))
count, extra, seed = map(number, (numbers.Count, numbers.Extra, numbers.Seed))
finite, amount, zero_or_more = map(number, (numbers.Finite, numbers.Positive, numbers.ZeroOrMore))
rate, weight = map(number, (numbers.Rate, numbers.Weight))
epochs, probability, share = map(number, (numbers.Epochs, numbers.Probability, numbers.Share))


def folder(text: str) -> str:
    """The absolute path of a folder: a run remembers it, and can then be opened from anywhere."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no folder")
    return str(Path(text).expanduser().resolve())
