r"""The targets of the benchmark, and whether its numbers reach them: medians of interleaved ratios, spread shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.bench.contenders.registry import JAX, LEAN, LIMIT, OURS, SHARED, TORCH, TWO

AHEAD = {"S": (2.0, 2.5), "text": (1.15, 1.15), "lm": (1.15, 1.15)}
"""How many times faster than the best of PyTorch and of JAX minadv has to be, by size."""

WITHIN = {"S": 1.3, "text": 1.15, "lm": 1.15}
"""How many times the limit on the same cores a step may take, by size."""

MEMORY, MAP_COST, EXPONENT, REMAT_TIME = 0.4, 0.7, 0.1, 1.6
KEPT = {"S": 30.0, "text400": 100.0}
"""How many MB recomputation may keep for the backward pass, by size."""


@dataclass(frozen=True)
class Verdict:
    """A target in words, whether it is reached (None: for information, nothing to reach), and the numbers."""

    target: str
    reached: bool | None
    numbers: str

    def __str__(self) -> str:
        word = {True: "**reached**", False: "**not reached**", None: "for information"}[self.reached]
        return f"- {self.target}: {word}. {self.numbers}"


@dataclass(frozen=True)
class Ratio:
    """The median of ratios taken round by round, and their range."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def ratio(of: Sequence[float], to: Sequence[float]) -> Ratio:
    """The ratio of the seconds ``of`` to the seconds ``to``, round by round."""
    each = np.asarray(of) / np.asarray(to)
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))


def best(race: dict[str, Any], families: Iterable[str], K: str) -> tuple[str, list[float]] | None:
    """The label and the seconds of the contender of these families with the smallest median; None if none ran."""
    wanted = set(families)
    found = [(label, c["seconds"][K]) for label, c in race["contenders"].items() if c["family"] in wanted]
    return min(found, key=lambda pair: float(np.median(pair[1])), default=None)


def judge(results: dict[str, Any]) -> list[Verdict]:
    """Every target that the results say something about."""
    found: list[Verdict] = []
    for name, race in results.get("speed", {}).items():
        found += _speed(name, race)
    if "S" in results.get("memory", {}):
        found += _memory(results["memory"]["S"])
    for name, by_contender in results.get("accuracy", {}).items():
        found += _accuracy(name, by_contender)
    for name, fit in results.get("scaling", {}).items():
        found.append(_exponent(name, fit))
    for name, searched in results.get("searches", {}).items():
        cost = ratio(searched["map"], searched["backward"])
        found.append(
            Verdict(
                f"{name}: an influence map costs at most {MAP_COST} of a full backward",
                cost.median <= MAP_COST,
                f"{cost}.",
            )
        )
    for name, remat in results.get("remat", {}).items():
        found.append(_remat(name, remat))
    return found


def _speed(name: str, race: dict[str, Any]) -> Iterator[Verdict]:
    rivals = ((TORCH, "PyTorch"), (JAX, "JAX"))
    for (families, library), factor in zip(rivals, AHEAD.get(name, ()), strict=False):
        yield _against(race, families, f"{name}: at least {factor}× faster than {library}'s best", factor)
    if name in WITHIN:
        yield _against(race, (LIMIT,), f"{name}: within {WITHIN[name]}× of the limit on the same cores", WITHIN[name])
    if best(race, (LEAN,), "1") is not None:
        for families, other in (*rivals, ((LIMIT,), "the limit")):
            yield _against(race, families, f"{name}: without Numba, against {other}", None, ours=LEAN)
    if best(race, (SHARED,), "1") is not None:
        yield _against(race, (SHARED,), f"{name}: against the limit with passes shared", None)
    for family in TWO:
        if best(race, (family,), "1") is not None:
            yield _against(race, (family,), f"{name}: like for like, {family} with half a batch each", None)


def _against(
    race: dict[str, Any], families: Sequence[str], target: str, factor: float | None, *, ours: str = OURS
) -> Verdict:
    """The verdict on ``ours`` against the best of these families, at every K; a limit need only be approached."""
    reached, numbers = True, []
    for K in _ks(race):
        mine, other = best(race, (ours,), K), best(race, families, K)
        if mine is None or other is None:
            return Verdict(target, None, "It did not run: see above why.")
        approach = families[0] in (LIMIT, SHARED)
        times = ratio(mine[1], other[1]) if approach else ratio(other[1], mine[1])
        if factor is not None:
            reached = reached and (times.median <= factor if approach else times.median >= factor)
        numbers.append(f"K = {K}: {times} against {other[0]}")
    return Verdict(target, None if factor is None else reached, "; ".join(numbers) + ".")


def _ks(race: dict[str, Any]) -> list[str]:
    return list(next(iter(race["contenders"].values()))["seconds"])


def _memory(memory: dict[str, Any]) -> Iterator[Verdict]:
    rivals = {name: memory[name]["peak"] for name in TORCH if name in memory}
    for ours, target in ((OURS, f"at most {MEMORY} of PyTorch's"), (LEAN, "without Numba")):
        if not rivals or ours not in memory:
            continue
        peak, leanest = memory[ours]["peak"], min(rivals, key=lambda name: rivals[name])
        share, shares = peak / rivals[leanest], [peak / other for other in rivals.values()]
        yield Verdict(
            f"S: peak memory {target}",
            share <= MEMORY if ours == OURS else None,
            f"{peak:.0f} MB, {share:.2f} of {leanest}, the leanest ({min(shares):.2f}–{max(shares):.2f} of all).",
        )


def _accuracy(name: str, by_contender: dict[str, list[dict[str, float]]]) -> Iterator[Verdict]:
    ours, torch = by_contender.get("minadv"), by_contender.get("PyTorch")
    if not ours or not torch:
        return
    for what, words in (("grads", "gradients"), ("map", "influence map")):
        a, b = [e[what] for e in ours], [e[what] for e in torch]
        times = ratio(a, b)
        yield Verdict(
            f"{name}: {words} in float32 no further from float64 than PyTorch's",
            times.median <= 1,
            f"{np.median(a):.1e} against {np.median(b):.1e}, {times} of it over {len(a)} networks.",
        )


def _exponent(name: str, fit: dict[str, Any]) -> Verdict:
    judged = name in ("T", "K, search only")
    target = (
        f"the cost in {name} grows with exponent 1 ± {EXPONENT}" if judged else f"the exponent of the cost in {name}"
    )
    numbers = f"{fit['exponent']:.2f} over {fit['values'][0]}–{fit['values'][-1]}."
    return Verdict(target, abs(fit["exponent"] - 1) <= EXPONENT if judged else None, numbers)


def _remat(name: str, remat: dict[str, Any]) -> Verdict:
    times = ratio(remat["seconds"]["remat"], remat["seconds"]["plain"])
    kept, limit = remat["kept"], KEPT.get(name)
    reached = times.median <= REMAT_TIME and remat["float64"] <= 1e-12 and (limit is None or kept["remat"] <= limit)
    wanted = "" if limit is None else f" below {limit:.0f} MB"
    return Verdict(
        f"{name}: recomputation in segments keeps what backward needs{wanted} at no more than {REMAT_TIME}× the time",
        reached,
        f"{kept['remat']:.0f} MB for {kept['plain']:.0f} MB, {times} of the time, "
        f"gradients equal to {remat['float64']:.0e} in float64 (at no more than 100 steps and 128 units).",
    )
