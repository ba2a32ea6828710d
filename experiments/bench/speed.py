r"""The race: every contender tuned, checked, then all of them timed in turn, round after round.

Contenders that are timed one after the other see the same machine only if it stays the same; so each round times every
contender once, and it is the ratios within a round that count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from experiments.bench.contenders import check, processes
from experiments.bench.contenders.check import References
from experiments.bench.contenders.problem import Outcome, Size
from experiments.bench.contenders.processes import ContenderError, Runner
from experiments.bench.contenders.registry import OURS, Family, Setting
from minadv.backend import Array

KS = (1, 2)
CLOSE, MOST = 1.15, 3
"""At most `MOST` settings of a family, within `CLOSE` of the best in the short tuning, are timed in all rounds."""

PAUSE = 0.1
"""Seconds of rest before each timed step, until the threads of the previous contender stop spinning."""


def say(text: str) -> None:
    """Print a line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Entry:
    """A family in one setting."""

    family: Family
    setting: Setting

    @property
    def label(self) -> str:
        return f"{self.family.name} ({self.setting.label})"


@dataclass(frozen=True)
class Tuned:
    """An entry that runs: how long its step took alone, and its errors by K, measured before the first update."""

    entry: Entry
    runner: Runner
    took: float
    errors: dict[str, dict[str, float] | None]


def reference(size: Size, seed: int, K: int, used: Sequence[Array]) -> Outcome:
    """`check.reference` in a process of its own, so that its memory is free afterwards."""
    found: Outcome = processes.call(f"{check.__name__}:reference", threads=1, size=size, seed=seed, K=K, used=used)
    return found


def verify(runner: Runner, references: References | None, K: int) -> dict[str, float] | None:
    """The errors of a contender's results; raises ContenderError if its results are wrong."""
    if not runner.family.compares or references is None:
        return None
    found = references.errors(K, runner.outcome(K, references.masks(K)))
    wrong = check.wrong(found)
    if wrong:
        raise ContenderError(f"its results differ at K = {K}: {'; '.join(wrong)}")
    return found


def tune(
    families: Sequence[Family],
    size: Size,
    references: References | None,
    ks: Sequence[int],
    stack: ExitStack,
    *,
    steps: int = 3,
) -> tuple[list[Tuned], dict[str, float], dict[str, str]]:
    """Try every setting alone at K = 1; returns the best of each family, the seconds of all, and why any failed.

    The best contenders keep running, compiled and warm, until the stack is left.
    """
    chosen: list[Tuned] = []
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    for family in families:
        tried: list[Tuned] = []
        for entry in (Entry(family, setting) for setting in family.settings):
            with ExitStack() as trial:
                try:
                    runner = trial.enter_context(Runner(family, entry.setting, size))
                    errors = {str(K): verify(runner, references, K) for K in ks}
                    runner.step(1)
                    took = min(runner.step(1) for _ in range(steps))
                except ContenderError as error:
                    _leave_out(entry, size, error, failed)
                    continue
                stack.push(trial.pop_all())
            seconds[entry.label] = took
            tried.append(Tuned(entry, runner, took, errors))
            say(f"{size.name}: {entry.label} {took:.3f} s{', results checked' if family.compares else ''}")
        tried.sort(key=lambda one: one.took)
        close = [one for one in tried[:MOST] if one.took <= CLOSE * tried[0].took]
        for one in tried:
            if one not in close:
                one.runner.close()
        chosen += close
    return chosen, seconds, failed


def _leave_out(entry: Entry, size: Size, error: ContenderError, failed: dict[str, str]) -> None:
    """Go on without a contender, unless it is minadv, without which there is no race."""
    if entry.family.name == OURS:
        raise error
    failed[entry.label] = str(error)
    say(f"{size.name}: {entry.label} is left out: {error}")


def race(
    families: Sequence[Family],
    size: Size,
    rounds: int,
    ks: Sequence[int] = KS,
    *,
    checked: bool = True,
    save: Callable[[dict[str, Any]], None] = lambda race: None,
) -> dict[str, Any]:
    """Seconds of each contender in each round, by K, with its errors, which were within tolerance before any timing.

    ``save`` is called with the results so far after every round. A contender that fails in a round is left out of all.
    """
    references = References(size, 0, reference) if checked else None
    results: dict[str, Any] = {}
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        chosen, tuned, failed = tune(families, size, references, ks, stack)
        runners: list[tuple[Entry, Runner]] = []
        for one in chosen:
            try:
                for K in ks:
                    one.runner.step(K)
            except ContenderError as error:
                _leave_out(one.entry, size, error, failed)
                continue
            runners.append((one.entry, one.runner))
            results[one.entry.label] = {
                "family": one.entry.family.name,
                "setting": one.entry.setting.label,
                "errors": one.errors,
                "seconds": {str(K): [] for K in ks},
            }
        for n in range(rounds):
            for K in ks:
                took, errors = one_round([(entry.label, runner.step) for entry, runner in runners], K, n)
                for entry, _ in runners:
                    if entry.label in errors:
                        _leave_out(entry, size, errors[entry.label], failed)
                        del results[entry.label]
                runners = [(entry, runner) for entry, runner in runners if entry.label in took]
                for label, seconds in took.items():
                    results[label]["seconds"][str(K)].append(seconds)
                told = ", ".join(f"{label} {seconds:.3f}" for label, seconds in took.items())
                say(f"{size.name}: round {n + 1} of {rounds}, K = {K}: {told}")
            found = {"size": vars(size), "rounds": n + 1, "contenders": results, "tuned": tuned, "failed": failed}
            save(found)
    return found


def one_round(
    steps: Sequence[tuple[str, Callable[[int], float]]], K: int, n: int
) -> tuple[dict[str, float], dict[str, ContenderError]]:
    """Time every contender once, round n beginning with the n-th: the seconds, and the errors of those that failed."""
    first = n % len(steps)
    took, errors = {}, {}
    for label, step in (*steps[first:], *steps[:first]):
        time.sleep(PAUSE)
        try:
            took[label] = step(K)
        except ContenderError as error:
            errors[label] = error
    return {label: took[label] for label, _ in steps if label in took}, errors


def measure_memory(families: Sequence[Family], size: Size, settings: dict[str, str]) -> dict[str, Any]:
    """Peak memory of a step at K = 1, each contender alone in a fresh process (or two).

    ``settings`` names the setting of a family, such as the best of a race; without a name the first one is used.
    """
    found: dict[str, Any] = {}
    for family in families:
        label = settings.get(family.name)
        setting = next((s for s in family.settings if s.label == label), family.settings[0])
        try:
            with Runner(family, setting, size) as runner:
                found[family.name] = {"setting": setting.label, **runner.memory(1)}
        except ContenderError as error:
            say(f"{size.name}: {family.name} is left out: {error}")
            continue
        say(f"{size.name}: {family.name} ({setting.label}) peak {found[family.name]['peak']:.0f} MB")
    return found
