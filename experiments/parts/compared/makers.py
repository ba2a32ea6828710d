r"""Which code and which machine made each result: in a file a table of makers, of which each result names one.

A maker is what `reporting.made` says of a run, as far as it is kept: the last code and machine that computed it, and
under ``before`` those that computed its beginning. Files of earlier versions have makers in some of their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.parts import reporting

KEPT = ("cpu", "minadv", "commit", "dirty", "numpy", "engine", "date")


def maker(made: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a maker; what it does not say is left out."""
    found: dict[str, Any] = {name: made[name] for name in KEPT if name in made}
    if "before" in made:
        found["before"] = list(map(maker, made["before"]))
    return found


def written(results: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The table of makers, and the results with a number of it each."""
    makers: list[dict[str, Any]] = []
    numbered = []
    for result in results:
        told = dict(result)
        if "made" in told:
            one = maker(told["made"])
            if one not in makers:
                makers.append(one)
            told["made"] = makers.index(one)
        numbered.append(told)
    return makers, numbered


def read(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of a file, each with its maker, as far as it is known."""
    makers = data["facts"].get("makers", [])
    results = (dict(result) for result in data["results"])
    return [r | {"made": makers[r["made"]]} if isinstance(r.get("made"), int) else r for r in results]


def said(data: Mapping[str, Any]) -> str:
    """Processors, commits, engines, versions of NumPy and days of all runs, in words."""
    runs = [r for r in read(data) if "networks" not in r]
    made = [m for r in runs if "made" in r for m in (r["made"], *r["made"].get("before", ()))]
    engines = ", ".join(sorted({str(m["engine"]) for m in made if "engine" in m}))
    numpys = ", ".join(sorted({m.get("numpy", "not noted") for m in made}))
    here = "" if any("numpy" in m for m in made) else f" of the runs ({data['facts']['numpy']} wrote them down)"
    days = ", ".join(sorted({str(m["date"]) for m in made if "date" in m}))
    return f"{reporting.made_by(runs)}; engine {engines}, NumPy {numpys}{here}" + (f"; {days}" if days else "")
