r"""What looks at a model found: a line each, and a report of all.

A look is a function without arguments. It returns what it found, and raises `Wrong` where that is not as it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minadv.backend import Array


class ModelError(AssertionError):
    """A model does not keep the protocol; the message is the report."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is as it should be, and what was found."""

    what: str
    passed: bool
    found: str = ""


@dataclass(frozen=True)
class Report:
    """All that was looked at; printing it shows a line each, and it is true if everything passed."""

    model: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def __bool__(self) -> bool:
        return self.passed

    def __getitem__(self, what: str) -> Finding:
        return {finding.what: finding for finding in self.findings}[what]

    def __str__(self) -> str:
        lines = [f"{self.model} and minadv.protocol: {'passed' if self.passed else 'FAILED'}"]
        for finding in self.findings:
            more = f": {finding.found}" if finding.found else ""
            lines.append(f"  {'ok  ' if finding.passed else 'FAIL'} {finding.what}{more}")
        return "\n".join(lines)

    def raise_if_failed(self) -> None:
        """Raise ModelError with the report as its message if anything failed."""
        if not self.passed:
            raise ModelError(str(self))


class Wrong(Exception):
    """What was found is not what was expected: the text of a finding."""


class Looks:
    """The findings so far; a look that fails, or raises, is a finding as well."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def at(self, what: str, look: Callable[[], Any]) -> None:
        """Add a finding: what a look returns, or, failed, what it raises."""
        try:
            self.findings.append(Finding(what, True, look() or ""))
        except Wrong as wrong:
            self.findings.append(Finding(what, False, str(wrong)))
        except Exception as error:
            self.findings.append(Finding(what, False, f"{type(error).__name__}: {error}"))


def expect_close(said: str, a: Array, b: Array, *, floor: float = 1.0) -> None:
    """Raise `Wrong` with ``said`` unless two arrays agree to 1e-9 of the second, or of ``floor``."""
    if a.shape != b.shape or not float(abs(a - b).max()) <= 1e-9 * max(floor, float(abs(b).max())):
        raise Wrong(said)
