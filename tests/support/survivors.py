"""Mutants that no test notices, and why none should: what `tests.support.mutation` accepts.

An entry names a file of minadv/, the function, the line as it is and as the mutant has it, and the reason: the mutant
computes the same, or what it changes is not worth a test. `tests/test_mutation.py` checks that each still is a mutant.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Survivor:
    file: str
    where: str
    old: str
    new: str
    why: str


SURVIVORS: list[Survivor] = []
_KNOWN = {(s.file, s.where, s.old, s.new) for s in SURVIVORS}


def explained(file: str, where: str, old: str, new: str) -> bool:
    return (file, where, old, new) in _KNOWN
