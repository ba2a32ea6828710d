r"""Defaults that fit the size of a user's own data: batches, length of training, when to stop, the norm of AT and VAT.

The presets of the paper have its sizes. A folder of a few hundred texts would be read in two steps an epoch with them,
and trained on long after its best.
"""

from __future__ import annotations

import math

STEPS = 24  # of an epoch, where there are examples enough
SMALLEST = 4  # examples a step
MOST = 20_000  # steps of a training, about
A_NUMBER = 5.0 / math.sqrt(400 * 256)  # the paper's norm of AT and VAT, 5 for 400 x 256 numbers, for one number
FEW = 200  # examples


def batch_of(n: int, most: int) -> int:
    """The examples of a step, a power of two or ``most``: an epoch of n examples has some dozen steps, if it can."""
    wished = n // STEPS
    if wished >= most:
        return most
    return min(max(SMALLEST, 2 ** (wished.bit_length() - 1) if wished else 1), max(1, n))


def epochs_of(per_epoch: int, most: float) -> float:
    """The passes over the data: ``most``, or fewer where these would be more than `MOST` steps; at least 3."""
    return max(3.0, min(float(most), math.ceil(MOST / max(1, per_epoch))))


def window_of(words: int, columns: int, steps: int) -> tuple[int, int]:
    """Columns and steps of a language model's windows, at most these, so that an epoch has some dozen windows."""
    fewer = max(2, min(columns, words // (STEPS * steps)))
    return fewer, max(4, min(steps, words // (STEPS * fewer)))


def norm_of(steps: float, inputs: int) -> float:
    """The norm of AT's and VAT's perturbation of ``steps`` x ``inputs`` numbers: the paper's for each number."""
    return float(f"{A_NUMBER * math.sqrt(steps * inputs):.2g}")


def few(n: int, what: str) -> str:
    """A line about too few examples; empty if they are enough."""
    if n >= FEW:
        return ""
    return f"\n{n} training {what} are few: results differ much from seed to seed, and a simple method may be better"
