r"""The benchmark's tables in words and numbers, from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.bench.contenders.problem import Size
from experiments.bench.contenders.registry import OURS
from experiments.bench.verdicts import best, judge, ratio
from experiments.parts import reporting

HEADING = """# The speed of an AdD training step

One step: base pass, K times probe pass, influence map and flip, adversarial pass, backward through both passes, update;
float32. minadv runs as `minadv train` does. Every contender's results are checked against float64 before it is timed,
every contender lives in a process of its own, each round times all of them in turn, and each is in the best of its
settings. Ratios are medians of the ratios within rounds; ranges are of all rounds. The limit is the bare matrix
products, `exp` and `tanh` of the step, in the best of three forms of the product (examples as rows, as columns, as
columns gate by gate) and of one thread, two threads and two processes; "passes shared" also stacks passes that do not
wait for each other into one product.
"""

ERRORS = "The last column is the largest relative error of a gradient and of a map against float64."
UNCHECKED = "Results are not compared at this length; the code is that of the shorter one, whose are."


def text(results: dict[str, Any]) -> str:
    """All tables that there are numbers for, the verdicts first."""
    verdicts = "\n".join(map(str, judge(results)))
    parts = [HEADING, f"## Against the targets\n\n{verdicts or 'Nothing is measured yet.'}", *_parts(results)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _parts(results: dict[str, Any]) -> Iterator[str]:
    for race in results.get("speed", {}).values():
        yield _race(race)
    if results.get("memory"):
        yield _memory(results["memory"])
    if results.get("accuracy"):
        yield _accuracy(results["accuracy"])
    if results.get("scaling"):
        yield _scaling(results["scaling"])
    if results.get("searches"):
        yield _searches(results["searches"])
    if results.get("subnormals"):
        yield _subnormals(results["subnormals"])
    yield _machine(results.get("facts", {}))


def _race(race: dict[str, Any]) -> str:
    ks = list(next(iter(race["contenders"].values()))["seconds"])
    head = ["contender", "setting"]
    for K in ks:
        head += [f"K = {K}: seconds", "range", "× minadv"]
    rows = []
    for contender in race["contenders"].values():
        row = [contender["family"], contender["setting"]]
        for K in ks:
            seconds, ours = contender["seconds"][K], best(race, (OURS,), K)
            row += [f"{np.median(seconds):.3f}", f"{min(seconds):.3f}–{max(seconds):.3f}"]
            row.append("" if ours is None else str(ratio(seconds, ours[1])))
        rows.append([*row, _worst(contender["errors"])])
    tuned = ", ".join(f"{label} {seconds:.3f}" for label, seconds in race["tuned"].items())
    errors = [contender["errors"].values() for contender in race["contenders"].values()]
    lines = [
        f"## {Size(**race['size'])}",
        f"{race['rounds']} rounds. {ERRORS if any(map(any, errors)) else UNCHECKED}",
        reporting.markdown([*head, "error"], rows),
        f"All settings, tried alone at K = 1 (best of two, seconds): {tuned}.",
    ]
    lines += [f"- {label} did not run: {reason}" for label, reason in race["failed"].items()]
    return "\n\n".join(lines)


def _worst(errors: dict[str, dict[str, float] | None]) -> str:
    known = [e for e in errors.values() if e is not None]
    return f"{max(e['grads'] for e in known):.0e}, {max(e['map'] for e in known):.0e}" if known else ""


def _memory(memory: dict[str, Any]) -> str:
    rows = []
    for size, by_family in memory.items():
        for family, m in by_family.items():
            numbers = (m["peak"], m["peak"] - m["imported"], m["sampled"], m["ever"])
            rows.append([size, family, m["setting"], *(f"{n:.0f}" for n in numbers)])
    head = ["size", "contender", "setting", "peak", "peak beyond imports", "shared pages once", "with the first step"]
    return (
        "## Peak memory, MB\n\nK = 1, each contender alone. The peak is that of a step once all is compiled, summed "
        "over its processes; libraries that two processes share count twice in it, and once in the sampled column "
        f'"shared pages once".\n\n{reporting.markdown(head, rows)}'
    )


def _accuracy(accuracy: dict[str, Any]) -> str:
    rows, columns = [], list(next(iter(next(iter(accuracy.values())).values()))[0])
    for size, by_contender in accuracy.items():
        for name, errors in by_contender.items():
            rows.append([size, name, *(f"{np.median([e[c] for e in errors]):.1e}" for c in columns)])
    return (
        "## Accuracy in float32\n\nRelative distance to the results in float64 at the same weights and masks: the "
        "influence map, all gradients as one vector, and each of them; medians over networks.\n\n"
        + reporting.markdown(["size", "contender", *columns], rows)
    )


def _scaling(scaling: dict[str, Any]) -> str:
    rows = []
    for name, fit in scaling.items():
        points = ", ".join(f"{v}: {s:.3f}" for v, s in zip(fit["values"], fit["seconds"], strict=True))
        rows.append([name, f"{fit['exponent']:.2f}", points])
    return "## Cost of a step in one process\n\n" + reporting.markdown(["against", "exponent", "seconds at"], rows)


def _searches(searches: dict[str, Any]) -> str:
    rows = []
    for size, found in searches.items():
        for name, s in found["searches"].items():
            passes, seconds = s["forward"] + s["backward"], float(np.median(s["seconds"]))
            row = [f"{s['forward']} + {s['backward']}", f"{seconds:.3f}", f"{passes / seconds:.2f}"]
            rows.append([size, name, *row])
    costs = [f"{size} {ratio(found['map'], found['backward'])}" for size, found in searches.items()]
    head = ["size", "search", "passes (forward + backward)", "seconds", "passes a second"]
    return (
        "## The searches, in one process\n\nBeside the base pass.\n\n"
        f"{reporting.markdown(head, rows)}\n\nThe backward pass of an influence map, as a share of a full one: "
        f"{', '.join(costs)}."
    )


def _subnormals(subnormals: dict[str, Any]) -> str:
    rows = [
        [size, name, f"{np.median(s['seconds']):.3f}", f"{100 * s['subnormal']:.1f} %"]
        for size, found in subnormals.items()
        for name, s in found.items()
    ]
    return (
        "## Subnormal numbers\n\nA full backward pass with one unit masked: with `elementwise.flush_vanished`, as "
        "always, and without it; and how much of the cell's gradient at the first step is subnormal.\n\n"
        + reporting.markdown(["size", "gradients that vanish", "seconds", "subnormal"], rows)
    )


def _machine(facts: dict[str, Any]) -> str:
    """Once each machine with its versions, then what was measured on it, how and when it was loaded."""
    by_machine: dict[str, list[list[str]]] = {}
    for what, f in facts.items():
        versions = ", ".join(
            f"{name} {f[name]}" for name in ("minadv", "python", "numpy", "numba", "torch", "jax") if f.get(name)
        )
        machine = f"{f['cores']} cores ({f['cpu']}), {versions}, {', '.join(f['blas'])}"
        row = [what, f.get("date", ""), reporting.at_commit(f), f"{f['seconds']:.0f}", f"{100 * f['busy']:.0f} %"]
        row += [str(f["rounds"]), f"`{f['command']}`"]
        by_machine.setdefault(machine, []).append(row)
    head = ["measured", "on", "code", "seconds", "cores busy before", "rounds", "command"]
    tables = [f"{machine}:\n\n{reporting.markdown(head, rows)}" for machine, rows in by_machine.items()]
    codes = {reporting.at_commit(f) for f in facts.values()}
    mixed = ["These are parts of several runs, at different commits."] if len(codes) > 1 else []
    return "\n\n".join(["## Machine and versions", *mixed, *tables])
